//! Looks for the locks of another library, while programs move to this one.

use palisade_client::Why;
use palisade_client::direct::{Server, ServerLink};
use redis::{FromRedisValue, cmd};

use super::finding::Finding;
use super::finding::Level::{Change, Note, Ok as Fine};
use crate::node_failure::strange;
use crate::scan;
use crate::show::{printable, time};

/// The types of other libraries' locks. Palisade's own have another one.
const TYPES: [&str; 2] = ["string", "hash"];

/// The locks of another library on a server.
#[derive(Default)]
struct Old {
    number: usize,
    /// The name of one of these locks.
    name: Vec<u8>,
    /// The time until the last of these locks ends, in milliseconds.
    longest: u64,
    /// The number of these locks that never expire.
    endless: usize,
}

/// Reports which keys of this pattern are there, and when the last of them ends.
pub async fn check(server: &Server, pattern: &str) -> Option<Finding> {
    // Another check reports a missing connection.
    let mut link = server.reach().await.ok()?;
    let shown = printable(pattern.as_bytes());
    let old = match find_old_locks(&mut link, pattern).await {
        Ok(old) => old,
        Err(why) => {
            let text = format!("whether old locks match {shown} cannot be checked: {why}");
            return Some(Finding::new(Note, server.name(), text, "give this user +scan and +pttl"));
        }
    };
    if old.number == 0 {
        return Some(Finding::new(Fine, server.name(), format!("no old lock matches {shown}"), ""));
    }
    let endless = if old.endless > 0 { format!(", and {} have no end", old.endless) } else { String::new() };
    let (number, name, longest) = (old.number, printable(&old.name), time(old.longest));
    let text = format!("{number} old locks match {shown}, as {name}; the last ends in {longest}{endless}");
    let advice =
        "a program takes old locks, or did so lately: look again after that time, for as long as the longest lease";
    Some(Finding::new(Change, server.name(), text, advice))
}

async fn find_old_locks(link: &mut ServerLink, pattern: &str) -> Result<Old, Why> {
    let mut old = Old::default();
    for kind in TYPES {
        let mut cursor = scan::START.to_owned();
        loop {
            let (next, names) = scan::step(link, &cursor, pattern.as_bytes(), kind).await?;
            for name in names {
                let left = link.ask(cmd("PTTL").arg(&name)).await?;
                let left = i64::from_redis_value(left).map_err(|why| strange("PTTL", why))?;
                // A key that has ended meanwhile has -2.
                if left != -2 {
                    old.number += 1;
                    old.endless += usize::from(left == -1);
                    old.longest = old.longest.max(u64::try_from(left).unwrap_or(0));
                    old.name = name;
                }
            }
            cursor = next;
            if cursor == scan::START {
                break;
            }
        }
    }
    Ok(old)
}
