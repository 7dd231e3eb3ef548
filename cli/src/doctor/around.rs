//! Finds commands by which a user that should write through a gate can change data without it.

use std::collections::HashMap;

use palisade_client::Why;
use palisade_client::direct::{Server, ServerLink};
use redis::{Cmd, FromRedisValue, ParsingError, Value, cmd};

use super::finding::Finding;
use super::finding::Level::{Change, Ok as Fine};
use super::verdict::{ANY_KEY, RightsSubject, Verdict, unknown, verdict};
use crate::node_failure::strange;
use crate::show::printable;

/// The commands that change a user's permissions, the rules of gates, or where the server's data comes from. No ACL
/// category has exactly these.
const CHANGES_RULES: [&str; 12] = [
    "acl|load",
    "acl|setuser",
    "cluster|replicate",
    "cluster|reset",
    "config|set",
    "debug",
    "failover",
    "module|load",
    "module|loadex",
    "module|unload",
    "replicaof",
    "slaveof",
];

/// The most commands that a finding names.
const NAMED_MAX: usize = 8;

/// A word of a probe that is not a key. It is valid as a number of keys too.
const NO_KEY: &[u8] = b"1";

/// The most words of a probe before its options. No command needs as many.
const WORDS_MAX: usize = 64;

/// Checks on this server that the user changes the key only through LOCK.GATE.
pub async fn check(node: &Server, link: &mut ServerLink, user: Option<&str>, whose: &RightsSubject<'_>) -> Finding {
    let shown = user.map_or("this user".to_owned(), |user| printable(user.as_bytes()));
    let ways = match user {
        Some(user) => ways(link, user, whose.key).await.map_err(|why| why.to_string()),
        None => Err("its name is not known".to_owned()),
    };
    let ways = match ways {
        Ok(ways) => ways,
        Err(why) => {
            let text = format!("whether {shown} can write around a gate cannot be checked: {why}");
            let advice = "run doctor with --user, as an operator with +acl|dryrun and +command";
            return Finding::new(unknown(whose), node.name(), text, advice);
        }
    };
    if ways.is_empty() {
        return Finding::new(Fine, node.name(), format!("{shown} writes only behind a gate"), "");
    }
    let more = ways.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = ways[..ways.len().min(NAMED_MAX)].join(", ");
    let text = format!("{shown} can write around a gate, by {named}{more}");
    Finding::new(Change, node.name(), text, format!("ACL SETUSER {shown} -@all +lock.gate"))
}

/// Returns the commands by which the user can change data or permissions with this key, or with any key if `key` is
/// `None`. Scripts and functions are not among them: the server checks the rights of each command in them.
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
        let (Some(Value::Int(arity)), Some(specs)) = (parts.get(1), parts.get(8)) else {
            return Err(strange("COMMAND INFO", "it has no arity or no keys"));
        };
        let probe = probe(&name, arity.unsigned_abs() as usize, specs, key.unwrap_or(ANY_KEY));
        let probe = probe.map_err(|why| strange("COMMAND INFO", why))?;
        match verdict(link, &probe, Some(user)).await? {
            Verdict::Granted => ways.push(name),
            Verdict::NotThisKey if key.is_none() => ways.push(name),
            Verdict::NotThisKey | Verdict::Denied => {}
        }
    }
    Ok(ways)
}

/// Returns the command `name` with `key` at each place where it may have a key, to check whether a user may run it.
/// `arity` and `specs` are those of COMMAND INFO.
fn probe(name: &str, arity: usize, specs: &Value, key: &[u8]) -> Result<Cmd, ParsingError> {
    let mut words: Vec<&[u8]> = name.split('|').map(str::as_bytes).collect();
    words.resize(arity.min(WORDS_MAX), NO_KEY);
    let mut options = vec![];
    for spec in Vec::<HashMap<String, Value>>::from_redis_value_ref(specs)? {
        let (from, begin) = step(spec.get("begin_search"))?;
        let (_, keys) = step(spec.get("find_keys"))?;
        let number = |of: &HashMap<String, Value>, name| of.get(name).map_or(Ok(0), usize::from_redis_value_ref);
        match from.as_str() {
            "index" => {
                // If the command has a number of keys, the keys follow it.
                let at = number(&begin, "index")?.saturating_add(number(&keys, "firstkey")?).min(WORDS_MAX);
                words.resize(words.len().max(at + 1), NO_KEY);
                words[at] = key;
            }
            "keyword" => {
                let keyword: Vec<u8> = begin.get("keyword").map_or(Ok(vec![]), Vec::from_redis_value_ref)?;
                // MIGRATE names its keys either here or by the index.
                if keyword != b"KEYS" {
                    options.push(keyword);
                }
            }
            // Only SORT has other steps: for its pattern, and for the key where it stores its result.
            _ => options.push(b"STORE".to_vec()),
        }
    }
    let mut probe = Cmd::new();
    probe.arg(words);
    for option in options {
        // The key is given twice, because half of the words after STREAMS are keys.
        probe.arg(option).arg(key).arg(key);
    }
    Ok(probe)
}

/// Returns the kind and the values of one of the two steps by which the keys of a command are found.
fn step(step: Option<&Value>) -> Result<(String, HashMap<String, Value>), ParsingError> {
    let step: HashMap<String, Value> = step.map_or(Ok(HashMap::new()), FromRedisValue::from_redis_value_ref)?;
    let kind = step.get("type").map_or(Ok(String::new()), String::from_redis_value_ref)?;
    let values = step.get("spec").map_or(Ok(HashMap::new()), FromRedisValue::from_redis_value_ref)?;
    Ok((kind, values))
}
