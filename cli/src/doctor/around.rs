//! Finds commands by which a user that should write through a gate can change data without it.

use palisade_client::Why;
use palisade_client::direct::{Server, ServerLink};
use redis::{Cmd, FromRedisValue, Value, cmd};

use super::finding::Finding;
use super::finding::Level::{Change, Note, Ok as Fine};
use super::rights::{ANY_KEY, RightsSubject, Verdict, own_name, verdict};
use crate::node_failure::strange;
use crate::roles::Role;
use crate::show::printable;

/// The commands that change a user's permissions, the rules of gates, or where the server's data comes from.
const CHANGES_RULES: [&str; 7] =
    ["acl|setuser", "acl|load", "config|set", "debug", "module|load", "module|unload", "replicaof"];

/// The most commands that a finding names.
const NAMED_MAX: usize = 8;

/// Checks that the user can change the key on this server only through LOCK.GATE.
pub async fn check(node: &Server, whose: &RightsSubject<'_>) -> Option<Finding> {
    if whose.role != Some(Role::Writer) {
        return None;
    }
    // Another check reports a missing connection.
    let mut link = node.reach().await.ok()?;
    let user = match whose.user {
        Some(user) => Some(user.to_owned()),
        None => own_name(&mut link).await,
    };
    let unknown = |user: &str, why: String| {
        let text = format!("whether {user} can write around a gate cannot be checked: {why}");
        let advice = "run doctor with --user, as an operator with +acl|dryrun and +command";
        Finding::new(if whose.user.is_some() { Change } else { Note }, node.name(), text, advice)
    };
    let Some(user) = user else { return Some(unknown("this user", "its name is not known".to_owned())) };
    let shown = printable(user.as_bytes());
    let ways = match ways(&mut link, &user, whose.key).await {
        Ok(ways) => ways,
        Err(why) => return Some(unknown(&shown, why.to_string())),
    };
    if ways.is_empty() {
        return Some(Finding::new(Fine, node.name(), format!("{shown} writes only behind a gate"), ""));
    }
    let more = ways.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = ways[..ways.len().min(NAMED_MAX)].join(", ");
    let text = format!("{shown} can write around a gate, by {named}{more}");
    Some(Finding::new(Change, node.name(), text, format!("ACL SETUSER {shown} -@all +lock.gate")))
}

/// Returns the commands by which the user can change data or permissions with this key, or with any key if `key` is
/// `None`.
async fn ways(link: &mut ServerLink, user: &str, key: Option<&[u8]>) -> Result<Vec<String>, Why> {
    let list = cmd("COMMAND").arg("LIST").arg("FILTERBY").arg("ACLCAT").arg("write").take();
    let listed = link.ask(&list).await?;
    let writes: Vec<String> = FromRedisValue::from_redis_value(listed).map_err(|why| strange("COMMAND LIST", why))?;
    let own = |name: &String| name.to_lowercase().starts_with("lock.");
    let mut names: Vec<String> = writes.into_iter().filter(|name| !own(name)).collect();
    names.extend(CHANGES_RULES.map(str::to_owned));
    names.sort_unstable();
    let info = link.ask(cmd("COMMAND").arg("INFO").arg(&names)).await?;
    let Value::Array(info) = info else { return Err(strange("COMMAND INFO", "it is not a list")) };
    let mut ways = vec![];
    for (name, info) in names.into_iter().zip(info) {
        // Some servers do not have all of these commands.
        let Value::Array(parts) = info else { continue };
        let Some(Value::Int(arity)) = parts.get(1) else { return Err(strange("COMMAND INFO", "it has no arity")) };
        let probe = probe(&name, arity.unsigned_abs() as usize, key.unwrap_or(ANY_KEY));
        match verdict(link, &probe, Some(user)).await? {
            Verdict::Granted => ways.push(name),
            Verdict::NotThisKey if key.is_none() => ways.push(name),
            Verdict::NotThisKey | Verdict::Denied => {}
        }
    }
    Ok(ways)
}

/// Returns a call of the command with as many words as it needs, each of them the key.
fn probe(name: &str, words: usize, key: &[u8]) -> Cmd {
    let mut probe = Cmd::new();
    let parts: Vec<&str> = name.split('|').collect();
    probe.arg(&parts);
    for _ in parts.len()..words {
        probe.arg(key);
    }
    probe
}
