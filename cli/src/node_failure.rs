//! This program's texts for the failures of nodes, with the advice.

use palisade_client::Why;
use serde::Serializer;

use crate::show::time;

/// Returns the failure for an answer to `command` that no lock node gives.
pub fn strange(command: &str, why: impl std::fmt::Display) -> Why {
    Why::Broken(format!("its answer to {command} is not understood: {why}"))
}

/// Describes a failure. If the node has several servers, names the one that reports it.
pub fn words(why: &Why) -> String {
    match (why, why.code()) {
        (Why::NoModule, _) => "the server has no lock module".to_owned(),
        (Why::Stranger(what), _) => format!("no node is there, but {what}"),
        (Why::Tls(fault), _) => fault.to_string(),
        (Why::Guarded { left_ms, reason, .. }, _) => format!("guarded for {}: {reason}", time(*left_ms)),
        (Why::Of { server, why }, _) => format!("{server}: {}", words(why)),
        (Why::Each(whys), _) => whys.iter().map(words).collect::<Vec<_>>().join("; "),
        (_, Some("NOAUTH")) => "NOAUTH it needs a password, and its address has none".to_owned(),
        (_, Some("WRONGPASS")) => "WRONGPASS it does not accept the user or the password of its address".to_owned(),
        (_, Some("WRONGTYPE")) => "WRONGTYPE the key is in use for something that is not a lock".to_owned(),
        _ => why.to_string(),
    }
}

/// Serializes a reason, if there is one.
pub fn in_json<S: Serializer>(why: &Option<Why>, serializer: S) -> Result<S::Ok, S::Error> {
    match why {
        Some(why) => serializer.serialize_some(&words(why)),
        None => serializer.serialize_none(),
    }
}

/// Returns the advice for a failure.
pub fn advice(why: &Why) -> &'static str {
    remedy(why).unwrap_or(match is_silent(why) {
        true => "bring it back, or replace it as docs/operations.md says",
        false => "see the log of the server",
    })
}

/// Returns true if the node sent no answer, or none that a lock node would send.
pub fn is_silent(why: &Why) -> bool {
    matches!(why, Why::Silent | Why::Unanswered | Why::Unreachable(_) | Why::Unfit(_) | Why::Tls(_) | Why::Broken(_))
}

/// Returns the advice, if there is one for this failure.
fn remedy(why: &Why) -> Option<&'static str> {
    let code = match why {
        Why::Of { why, .. } => return remedy(why),
        Why::Each(whys) => return whys.iter().find_map(remedy),
        Why::SameServer(_) => return Some("give each node once"),
        Why::Stranger(_) => return Some("correct its address"),
        Why::Tls(fault) => return Some(fault.remedy()),
        Why::Full(_) => return Some("raise maxclients, or see who has so many connections (CLIENT LIST)"),
        Why::NoDatabase => {
            return Some("correct the number of the database in its address, or raise `databases` in its redis.conf");
        }
        Why::NoModule => {
            return Some(
                "load the module: loadmodule /path/to/libpalisade.so in its redis.conf, as docs/install.md says",
            );
        }
        why => why.code()?,
    };
    Some(match code {
        "NOAUTH" => "put its password into the address: redis://:password@host, or redis://user:password@host",
        "WRONGPASS" => "correct the user or the password in the address, or the server's own: ACL LIST shows its users",
        "NOPERM" => "allow its user what it lacks (ACL SETUSER): docs/cli.md says what palisade needs",
        "WRONGTYPE" => "give the lock another name, or move what is there (TYPE shows what it is)",
        "DENIED" => "give it a password, or a bind address, as its protected mode asks",
        "LOADING" => "wait until it has loaded its data",
        "READONLY" | "MASTERDOWN" => "give the address of a master",
        _ => return None,
    })
}

/// Describes a failure in one line, with the advice if there is any.
pub fn with_remedy(why: &Why) -> String {
    remedy(why).map_or_else(|| words(why), |remedy| format!("{}: {remedy}", words(why)))
}

/// Groups the failures of some of `count` nodes: each text once, after the names of its nodes.
pub fn grouped<'a>(failures: impl IntoIterator<Item = (&'a str, String)>, count: usize) -> Vec<(String, String)> {
    let mut groups: Vec<(String, Vec<&str>)> = vec![];
    for (node, text) in failures {
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, nodes)) => nodes.push(node),
            None => groups.push((text, vec![node])),
        }
    }
    let who = |nodes: &[&str]| match nodes {
        [node] => (*node).to_owned(),
        all if all.len() == count => format!("all {count} nodes"),
        some => format!("{} nodes ({})", some.len(), some.join(", ")),
    };
    groups.into_iter().map(|(text, nodes)| (who(&nodes), text)).collect()
}

/// Returns the groups of [`grouped`] in one line.
pub fn line<'a>(failures: impl IntoIterator<Item = (&'a str, String)>, count: usize) -> String {
    let groups = grouped(failures, count).into_iter().map(|(who, text)| format!("{who}: {text}"));
    groups.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_once() {
        let of = |texts: &[(&'static str, &str)], count| line(texts.iter().map(|(n, t)| (*n, (*t).to_owned())), count);
        assert_eq!(of(&[("a", "x")], 1), "a: x");
        assert_eq!(of(&[("a", "x"), ("b", "x"), ("c", "x")], 3), "all 3 nodes: x");
        assert_eq!(of(&[("a", "x"), ("b", "y"), ("c", "x")], 5), "2 nodes (a, c): x; b: y");
    }

    /// The program has its own text and advice for each failure that its user can mend, whichever server of a node
    /// reports it.
    #[test]
    fn words_and_remedies() {
        let rest = " and grants nothing until they have ended: try";
        for (code, text, told, then) in [
            (
                "NOAUTH",
                "Authentication required.",
                "NOAUTH it needs a password, and its address has none",
                "put its password",
            ),
            ("WRONGPASS", "invalid", "WRONGPASS it does not accept the user", "correct the user"),
            ("WRONGTYPE", "Operation", "WRONGTYPE the key is in use", "give the lock another name"),
            ("NOPERM", "this user has no permissions", "NOPERM this user has no permissions", "allow its user"),
            ("ERR", "DB index is out of range", "ERR DB index is out of range", "correct the number of the database"),
            ("ERR", "max number of clients reached", "ERR max number of clients reached", "raise maxclients"),
            ("ERR", "ttl must be", "ERR ttl must be", "see the log"),
            ("OOM", "command not allowed", "OOM command not allowed", "see the log"),
            ("ERR", "unknown command 'LOCK.NODE'", "the server has no lock module", "load the module"),
            ("GUARDED", &format!("49000 it may (restart){rest}"), "guarded for 49s: it may (restart)", "see the log"),
        ] {
            let why = Why::answered(code, text).of_node();
            assert!(words(&why).starts_with(told), "{why:?}");
            assert!(!words(&why).contains(rest) && advice(&why).starts_with(then), "{why:?}");
            let of = Why::Of { server: "h:1".to_owned(), why: Box::new(why.clone()) };
            assert_eq!((words(&of), advice(&of)), (format!("h:1: {}", words(&why)), advice(&why)));
        }
        let late = Why::late();
        assert_eq!((words(&late), with_remedy(&late)), (late.to_string(), late.to_string()));
        assert!(advice(&late).starts_with("bring it back"));
    }
}
