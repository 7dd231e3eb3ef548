//! Asks a server whether a user may run a command.

use palisade_client::Why;
use palisade_client::direct::ServerLink;
use redis::{Cmd, Value, cmd};

use super::finding::Level::{self, Change, Note};
use crate::roles::Role;

/// The key in test commands if no key is given; then it does not matter whether the user may use this key.
pub(super) const ANY_KEY: &[u8] = b"palisade:doctor";

/// The user whose permissions `doctor` checks, and for which role.
#[derive(Clone, Debug, Default)]
pub struct RightsSubject<'a> {
    /// The role that the user needs; `None` for an application's.
    pub role: Option<Role>,
    /// The user; `None` for the user of this connection.
    pub user: Option<&'a str>,
    /// A key that the user must be able to use.
    pub key: Option<&'a [u8]>,
}

/// A server's verdict on whether the user may run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Granted,
    /// The user may not run the command.
    Denied,
    /// The user may run the command, but not for this key.
    NotThisKey,
}

/// Returns the level of the finding that something cannot be checked.
pub(super) fn unknown(whose: &RightsSubject<'_>) -> Level {
    if whose.user.is_some() { Change } else { Note }
}

/// Runs the command as the user itself, or asks by ACL DRYRUN whether `user` may run it.
pub(super) async fn verdict(link: &mut ServerLink, probe: &Cmd, user: Option<&str>) -> Result<Verdict, Why> {
    let Some(user) = user else {
        return match link.ask(probe).await {
            Err(Why::Refused { code, text }) if code == "NOPERM" => Ok(meaning(&text)),
            // An error about the arguments, which are wrong on purpose, or about an unknown command shows that the user
            // may send it.
            Ok(_) | Err(Why::Refused { .. } | Why::NoCluster) => Ok(Verdict::Granted),
            Err(failure) => Err(failure),
        };
    };
    let mut dry = cmd("ACL");
    dry.arg("DRYRUN").arg(user);
    for argument in probe.args_iter() {
        if let redis::Arg::Simple(word) = argument {
            dry.arg(word);
        }
    }
    match link.ask(&dry).await {
        Ok(Value::BulkString(text)) => Ok(meaning(&String::from_utf8_lossy(&text))),
        Ok(Value::VerbatimString { text, .. }) => Ok(meaning(&text)),
        Ok(_) => Ok(Verdict::Granted),
        Err(Why::Refused { text, .. }) if text.starts_with("Command ") => Ok(Verdict::Granted),
        Err(failure) => Err(failure),
    }
}

/// Returns the verdict in the text of a refusal, which differs between servers.
fn meaning(text: &str) -> Verdict {
    if text.contains("permissions to run the '") { Verdict::Denied } else { Verdict::NotThisKey }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redis 7.0 to 8.2 and Valkey refuse a command with different texts, and ACL DRYRUN answers with others again.
    /// Texts that mean the same get the same verdict.
    #[test]
    fn the_words_of_each_server() {
        for text in [
            "this user has no permissions to run the 'LOCK.FENCE' command",
            "User app has no permissions to run the 'lock.fence' command",
            "This user has no permissions to run the 'client|tracking' command",
        ] {
            assert_eq!(meaning(text), Verdict::Denied, "{text}");
        }
        for text in [
            "this user has no permissions to access one of the keys used as arguments",
            "No permissions to access a key",
            "User app has no permissions to access the 'k' key",
        ] {
            assert_eq!(meaning(text), Verdict::NotThisKey, "{text}");
        }
    }
}
