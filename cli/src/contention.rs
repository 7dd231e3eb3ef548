//! The most contended keys, from the counts of all nodes (LOCK.TOP).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use redis::{Value, cmd};
use serde::Serialize;

use crate::fields::Fields;
use crate::node_failure::line;
use crate::nodes::{Nodes, answers, failures};
use crate::show::{printable, table};

/// The number of keys of each kind that a node is asked for: all that it counts, since other nodes may have other most
/// contended keys.
const ASKED: usize = 256;

/// A count of requests. Up to `error` of them may belong to other keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Count {
    count: u64,
    error: u64,
}

/// For each database and key, the counts of waits and of refusals.
type Keys = BTreeMap<(u64, Vec<u8>), [Count; 2]>;

/// The kinds of counts, in the order of their fields.
const KINDS: [&str; 2] = ["waited", "refused"];

/// A contended key, with its counts of waits and refusals.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Contended {
    db: u64,
    /// The name; bytes that are not UTF-8 are replaced.
    key: String,
    waited: Count,
    refused: Count,
}

/// Contended keys, as the nodes report them.
#[derive(Debug, Serialize)]
pub struct Contention {
    /// The keys with the most waits and refusals together, beginning with the most.
    keys: Vec<Contended>,
    /// The nodes that did not answer, with the reasons; empty if all nodes answered.
    untold: String,
}

impl Contention {
    /// Asks the nodes, and returns the `most` keys with the most waits and refusals.
    pub async fn ask(nodes: &Nodes, most: usize) -> Self {
        let replies = nodes.ask(cmd("LOCK.TOP").arg("COUNT").arg(ASKED)).await;
        let untold = line(failures(&replies), nodes.len());
        Self { keys: first(merged(answers(&replies).map(|reply| reply.value.clone())), most), untold }
    }

    /// Returns the keys as rows for people.
    pub fn rows(&self) -> String {
        let untold = match self.untold.as_str() {
            "" => String::new(),
            untold => format!("contended keys are not told: {untold}\n"),
        };
        text(&self.keys) + &untold
    }
}

/// Merges the nodes' counts. The largest count of each key is used, not the sum, since every node counts the same
/// request.
fn merged(replies: impl IntoIterator<Item = Value>) -> Keys {
    let mut keys = Keys::new();
    for fields in replies.into_iter().filter_map(Fields::of) {
        for (kind, name) in KINDS.iter().enumerate() {
            for key in fields.get::<Vec<Value>>(name).into_iter().filter_map(Fields::of) {
                let there = Count { count: key.get("count"), error: key.get("error") };
                let known = &mut keys.entry((key.get("db"), key.get("key"))).or_default()[kind];
                if there.count > known.count {
                    *known = there;
                }
            }
        }
    }
    keys
}

/// Returns the `most` keys with the largest counts.
fn first(keys: Keys, most: usize) -> Vec<Contended> {
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_by_key(|(_, counts)| Reverse(counts.iter().map(|count| count.count).sum::<u64>()));
    keys.truncate(most);
    let contended = |((db, key), [waited, refused]): ((u64, Vec<u8>), [Count; 2])| {
        let key = String::from_utf8_lossy(&key).into_owned();
        Contended { db, key, waited, refused }
    };
    keys.into_iter().map(contended).collect()
}

fn text(keys: &[Contended]) -> String {
    if keys.is_empty() {
        return String::new();
    }
    let error = |count: &Count| if count.error > 0 { format!("-{}", count.error) } else { String::new() };
    let row = |Contended { db, key, waited, refused }: &Contended| {
        let db = if *db > 0 { format!("{db}: ") } else { String::new() };
        let key = db + &printable(key.as_bytes());
        vec![key, waited.count.to_string(), error(waited), refused.count.to_string(), error(refused)]
    };
    table(&["CONTENDED", "WAITED", "ERROR", "REFUSED", "ERROR"], &[1, 2, 3, 4], keys.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn node(waited: &[(i64, &str, i64, i64)], refused: &[(i64, &str, i64, i64)]) -> Value {
        let key = |(db, key, count, error): &(i64, &str, i64, i64)| {
            let fields = [("db", Value::Int(*db)), ("key", text(key)), ("count", Value::Int(*count))];
            let fields = fields.into_iter().chain([("error", Value::Int(*error))]);
            Value::Map(fields.map(|(name, value)| (text(name), value)).collect())
        };
        let list = |keys: &[(i64, &str, i64, i64)]| Value::Array(keys.iter().map(key).collect());
        Value::Map(vec![(text("waited"), list(waited)), (text("refused"), list(refused))])
    }

    #[test]
    fn the_node_that_counts_most_is_right_and_its_error_goes_with_it() {
        let one = node(&[(0, "a", 7, 0), (0, "b", 5, 3)], &[(0, "a", 1, 0)]);
        let other = node(&[(0, "b", 9, 1), (1, "a", 2, 0)], &[]);
        let text = super::text(&first(merged([one, Value::Nil, other]), 10));
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows, [vec!["b", "9", "-1", "0"], vec!["a", "7", "1"], vec!["1:", "a", "2", "0"]]);
        assert_eq!(super::text(&first(merged([]), 10)), "");
    }
}
