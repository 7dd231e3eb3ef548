//! Merges the nodes' logs (LOCK.LOG): a grant or failed wait that several nodes record becomes one event.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use palisade_client::Why;
use palisade_quorum::token_of;
use redis::{Cmd, FromRedisValue, Value, cmd};
use serde::{Serialize, Serializer};

use crate::fields::Fields;
use crate::lock_view::{Together, hex, note_of};
use crate::moment;
use crate::node_failure::line;
use crate::nodes::{Nodes, Reply, ServerAnswer, failures};
use crate::show::{printable, time};

/// A past event: a grant, or a failed wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Event {
    /// The key; bytes that are not UTF-8 are replaced.
    pub key: String,
    /// The time of the grant, or the beginning of the wait.
    #[serde(rename = "from", serialize_with = "iso")]
    pub from_ms: u64,
    /// The moment at which the grant or the wait ended.
    #[serde(rename = "to", serialize_with = "iso")]
    pub to_ms: u64,
    /// The note of the holder, or of the waiter.
    pub holder: String,
    /// The owner, in hexadecimal.
    pub owner: String,
    /// The largest token that a majority has reached; without a majority, the largest. 0 for a wait.
    pub token: u64,
    pub mode: String,
    pub permit: u64,
    pub limit: u64,
    pub waited_ms: u64,
    pub held_ms: u64,
    /// The end of the grant or the wait: `released`, `expired`, `broken`, …
    pub ended: String,
    /// The first word of the error, if a wait was refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The number of waiters at the end, on the node with the most.
    pub waiters: u64,
    /// The number of nodes that record the event.
    pub nodes: usize,
}

/// The merged logs of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// The events, newest first.
    pub events: Vec<Event>,
    /// Each server's answer: success, or the reason why it gave none.
    pub told: Vec<ServerAnswer<()>>,
}

/// Serializes a moment as ISO 8601, in this machine's time zone.
fn iso<S: Serializer>(ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&moment::iso(*ms, &TimeZone::system()))
}

impl Logs {
    /// Asks for the `count` newest events of `key`, or of all keys.
    pub async fn ask(nodes: &Nodes, key: Option<&[u8]>, count: usize) -> Self {
        // All masters of a cluster are asked, because events from before a slot moved are only in the log of its former
        // master.
        let replies = nodes.ask(&question(key, count)).await;
        let with_module = match replies.iter().any(|said| matches!(said.said, Err(Why::NoModule))) {
            true => nodes.ask(&cmd("LOCK.NODE")).await,
            false => vec![],
        };
        let has_module = |server: &str| with_module.iter().any(|said| said.server == server && said.said.is_ok());
        let told = |said: &ServerAnswer<Reply>| {
            let told = said.said.as_ref().map(drop).map_err(|failure| match failure {
                Why::NoModule if has_module(&said.server) => {
                    Why::Broken("its module is too old to have a log".to_owned())
                }
                failure => failure.clone(),
            });
            ServerAnswer { number: said.number, server: said.server.clone(), said: told }
        };
        let told = replies.iter().map(told).collect();
        let mut by_node: BTreeMap<usize, Vec<Event>> = BTreeMap::new();
        for ServerAnswer { number, said, .. } in replies {
            by_node.entry(number).or_default().extend(said.map_or(vec![], |reply| entries(reply.value)));
        }
        let mut events = merged(by_node.into_values(), nodes.majority());
        events.truncate(count);
        Self { events, told }
    }

    /// Removes failed waits of owners that still wait or now hold the lock: such a wait was only renewed.
    pub fn without_waits_of(mut self, together: &Together) -> Self {
        let waits = together.queue.iter().map(|waiter| &waiter.owner);
        let owners: Vec<&String> = together.grants.iter().map(|grant| &grant.owner).chain(waits).collect();
        self.events.retain(|event| event.token > 0 || !owners.contains(&&event.owner));
        self
    }

    /// Returns a line with the reasons why servers do not report. It leaves out nodes for which `can_be_asked`, given
    /// the number, returns false.
    pub fn untold(&self, nodes: &Nodes, can_be_asked: impl Fn(usize) -> bool) -> String {
        let untold: Vec<_> = self.told.iter().filter(|said| can_be_asked(said.number)).cloned().collect();
        line(failures(&untold), nodes.len())
    }
}

fn question(key: Option<&[u8]>, count: usize) -> Cmd {
    let mut command = cmd("LOCK.LOG");
    if let Some(key) = key {
        command.arg("KEY").arg(key);
    }
    command.arg("COUNT").arg(count).take()
}

/// Returns the events in the reply of one node.
fn entries(reply: Value) -> Vec<Event> {
    let listed = Vec::<Value>::from_redis_value(reply).unwrap_or_default();
    listed.into_iter().filter_map(Fields::of).map(Event::from_fields).collect()
}

/// Merges the events of all nodes, newest first.
fn merged(nodes: impl IntoIterator<Item = Vec<Event>>, majority: usize) -> Vec<Event> {
    let mut same: BTreeMap<(String, String, bool), Vec<Event>> = BTreeMap::new();
    for (key, told) in nodes.into_iter().flat_map(of_node) {
        same.entry(key).or_default().push(told);
    }
    let granted = |key: &str, owner: &str| same.contains_key(&(key.to_owned(), owner.to_owned(), false));
    // A wait at several nodes is renewed repeatedly. It did not fail if the owner was granted the lock.
    let over = same.iter().filter(|((key, owner, is_wait), _)| !is_wait || !granted(key, owner));
    let mut events: Vec<Event> = over.filter_map(|(_, told)| Event::of(told.clone(), majority)).collect();
    events.sort_by_key(|event| Reverse((event.to_ms, event.token)));
    events
}

/// Merges the events of one node: each owner has one grant and one wait, from the first beginning to the last end.
fn of_node(mut events: Vec<Event>) -> BTreeMap<(String, String, bool), Event> {
    let mut same: BTreeMap<_, Event> = BTreeMap::new();
    // The newest event first, across the servers of the node.
    events.sort_by_key(|event| Reverse(event.to_ms));
    for event in events {
        let key = (event.key.clone(), event.owner.clone(), event.token == 0);
        match same.get_mut(&key) {
            Some(newer) if event.token == 0 => {
                newer.from_ms = newer.from_ms.min(event.from_ms);
                newer.waited_ms = newer.to_ms.saturating_sub(newer.from_ms);
            }
            Some(_) => {}
            None => drop(same.insert(key, event)),
        }
    }
    same
}

impl Event {
    fn from_fields(fields: Fields) -> Self {
        let text = |name| String::from_utf8_lossy(&fields.get::<Vec<u8>>(name)).into_owned();
        let (to_ms, token): (u64, u64) = (fields.get("time"), fields.get("token"));
        let (waited_ms, held_ms): (u64, u64) = (fields.get("waited"), fields.get("held"));
        Self {
            key: text("key"),
            from_ms: to_ms.saturating_sub(if token == 0 { waited_ms } else { held_ms }),
            to_ms,
            holder: note_of(&fields.get::<Vec<u8>>("note")).0,
            owner: hex(&fields.get::<Vec<u8>>("owner")),
            token,
            mode: text("mode"),
            permit: fields.get("permit"),
            limit: fields.get("limit"),
            waited_ms,
            held_ms,
            ended: text("ended"),
            error: text("error"),
            waiters: fields.get("waiters"),
            nodes: 1,
        }
    }

    /// Merges the records of several nodes about the same grant or wait.
    fn of(told: Vec<Self>, majority: usize) -> Option<Self> {
        let token = token_of(majority, told.iter().map(|event| event.token))?;
        let count = |ended: &str| told.iter().filter(|event| event.ended == ended).count();
        // If most nodes record a break, the lock was broken, though on other nodes the lease may have ended.
        let most = told.iter().max_by_key(|event| (count(&event.ended), event.to_ms))?;
        let max = |of: fn(&Self) -> u64| told.iter().map(of).max().unwrap_or(0);
        Some(Self {
            from_ms: told.iter().map(|event| event.from_ms).min()?,
            token,
            waited_ms: max(|event| event.waited_ms),
            held_ms: max(|event| event.held_ms),
            waiters: max(|event| event.waiters),
            nodes: told.len(),
            ..most.clone()
        })
    }

    /// Returns the holder's or waiter's name for people.
    pub fn name(&self) -> String {
        if self.holder.is_empty() { format!("owner {}", self.owner) } else { printable(self.holder.as_bytes()) }
    }

    /// Returns the mode, and the number of a permit.
    pub fn mode(&self) -> String {
        match self.permit {
            0 => printable(self.mode.as_bytes()),
            number => format!("permit {number}/{}", self.limit),
        }
    }

    /// Returns how the grant or the wait ended, in words for people.
    pub fn ending(&self) -> String {
        let ended = printable(self.ended.as_bytes());
        if self.error.is_empty() { ended } else { format!("{ended} ({})", printable(self.error.as_bytes())) }
    }

    /// Returns a line with times in this zone.
    pub fn line(&self, zone: &TimeZone) -> String {
        let to = moment::local(self.to_ms, zone);
        let (name, ended) = (self.name(), self.ending());
        match self.token {
            0 => format!("{to} {name} gave up waiting after {}: {ended}", time(self.waited_ms)),
            _ => format!("{to} {ended} after {}: {name}", time(self.held_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(owner: &str, token: u64, to_ms: u64, ended: &str) -> Event {
        let (key, owner, ended) = ("k".to_owned(), owner.to_owned(), ended.to_owned());
        Event { key, owner, token, to_ms, from_ms: to_ms - 10, held_ms: 10, ended, nodes: 1, ..Event::default() }
    }

    #[test]
    fn one_grant_on_several_nodes_is_one_event() {
        let nodes = [
            vec![event("b", 9, 300, "released"), event("a", 7, 200, "expired")],
            vec![event("b", 9, 301, "released"), event("a", 8, 190, "broken")],
            vec![event("c", 0, 400, "timeout"), event("a", 7, 191, "broken")],
        ];
        let events = merged(nodes, 2);
        let seen: Vec<_> = events
            .iter()
            .map(|event| (event.owner.as_str(), event.token, event.to_ms, event.ended.as_str(), event.nodes))
            .collect();
        assert_eq!(seen, [("c", 0, 400, "timeout", 1), ("b", 9, 301, "released", 2), ("a", 7, 191, "broken", 3)]);
        assert_eq!(events[1].from_ms, 290);
    }

    #[test]
    fn a_wait_that_is_renewed_is_one_and_is_told_if_nothing_came_of_it() {
        let waited = |owner, to_ms| Event { from_ms: to_ms - 20, waited_ms: 20, ..event(owner, 0, to_ms, "timeout") };
        let node = || {
            vec![event("b", 9, 150, "released"), waited("a", 140), waited("b", 130), waited("a", 120), waited("b", 110)]
        };
        let events = merged([node(), node()], 2);
        let seen: Vec<_> = events.iter().map(|event| (event.owner.as_str(), event.token, event.nodes)).collect();
        assert_eq!(seen, [("b", 9, 2), ("a", 0, 2)]);
        assert_eq!((events[1].from_ms, events[1].to_ms, events[1].waited_ms), (100, 140, 40));
    }

    #[test]
    fn in_a_line() {
        let line = |event: &Event| event.line(&TimeZone::UTC);
        let held = Event { holder: "web-1".to_owned(), ..event("a", 7, 1_795_396_387_251, "released") };
        assert_eq!(line(&held), "2026-11-23 01:13:07 released after 10ms: web-1");
        let refused =
            Event { error: "NOPERM".to_owned(), token: 0, waited_ms: 5_000, ended: "refused".to_owned(), ..held };
        assert_eq!(line(&refused), "2026-11-23 01:13:07 web-1 gave up waiting after 5s: refused (NOPERM)");
    }
}
