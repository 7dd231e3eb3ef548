//! A lock, as all nodes together describe it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::node_failure::with_remedy;
use palisade_client::direct::holder_id;
use palisade_quorum::token_of;
use redis::{Cmd, Value, cmd};
use serde::Serialize;

use crate::fields::Fields;
use crate::nodes::{Nodes, Reply, ServerAnswer, answers};
use crate::show::{printable, time};

/// The largest number of waiters that are shown.
const WAITERS_LISTED: usize = 10;

/// The largest number of holders that are shown.
const HOLDERS_LISTED: usize = 100;

/// The mode of a lock with a single holder.
pub const EXCLUSIVE: &str = "exclusive";

/// A lock and its holders, merged from the answers of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LockView {
    /// The name; bytes that are not UTF-8 are replaced.
    pub key: String,
    /// The name in bytes.
    #[serde(skip)]
    pub name: Vec<u8>,
    /// The holder; of several, the first one in `grants`.
    #[serde(flatten)]
    pub first: GrantView,
    /// The number of holders, on the node with the most.
    pub holders: u64,
    /// The holders, up to a hundred: first those that most nodes show, then those that have held it longest.
    pub grants: Vec<GrantView>,
    /// The number of waiters, on the node with the most.
    pub waiters: u64,
    /// The number of callers that wait behind the waiters within their clients, as the node with the most waiters shows
    /// it.
    pub waiters_behind: u64,
    /// The first waiters: those that a majority shows, then the others, in the order of service on the node with the
    /// most waiters.
    pub queue: Vec<Waiter>,
    /// The names of the servers that show a holder.
    pub servers: Vec<String>,
}

/// A holder of a lock, merged from the answers of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GrantView {
    /// The holder's note, without its holder id.
    pub holder: String,
    /// The holder id, the same for all locks that one flow of control holds and waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_id: Option<String>,
    /// The owner, in hexadecimal: the client's name for this acquisition.
    pub owner: String,
    /// `exclusive`, `shared` or `permit`.
    pub mode: String,
    /// The number of the permit, and the holder's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The largest token that a majority has reached; without a majority, the largest.
    pub token: u64,
    pub holds: u64,
    pub held_ms: u64,
    /// The longest time that a lease of this grant still lasts on a node, in milliseconds.
    pub ttl_ms: u64,
    /// The shortest time on any node since the lease began or was last extended, in milliseconds; `None` if no node
    /// reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_ms: Option<u64>,
    /// The number of nodes on which this owner holds the lock.
    pub nodes: usize,
    /// True if the owner holds the lock on a majority. Otherwise it is being acquired, or is left over until its lease
    /// ends.
    pub is_held: bool,
    /// The number of nodes that cannot vouch for the grant: there it keeps others out until its lease ends, and is not
    /// extended.
    pub suspect: usize,
}

/// A waiter for a lock, with its note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiter {
    /// The note, without its holder id.
    pub note: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_id: Option<String>,
    pub owner: String,
    /// `exclusive`, `shared` or `permit`.
    pub mode: String,
    pub waited_ms: u64,
    /// The number of callers that wait behind this waiter in its process.
    pub behind: u64,
    /// True if the request waits on a majority. Otherwise it is only arriving, or left over where its end was not heard
    /// of.
    #[serde(skip)]
    pub is_waiting: bool,
    /// The number of nodes that show the request.
    #[serde(skip)]
    pub nodes: usize,
}

/// The nodes' answers about a key: its holders, if any, and its waiters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Together {
    /// The holders, as in [`LockView::grants`].
    pub grants: Vec<GrantView>,
    /// The number of holders, as in [`LockView::holders`].
    pub holders: u64,
    /// The most waiters on one node, as in [`LockView::waiters`].
    pub waiters: u64,
    /// The number of callers behind these waiters, as in [`LockView::waiters_behind`].
    pub waiters_behind: u64,
    /// The first waiters, as in [`LockView::queue`].
    pub queue: Vec<Waiter>,
}

/// One node's description of a grant.
struct NodeGrant {
    owner: Vec<u8>,
    token: u64,
    fields: Fields,
}

/// Returns the command that asks a node about a lock.
pub fn question(key: &[u8]) -> Cmd {
    cmd("LOCK.INFO").arg(key).arg("WAITERS").arg(WAITERS_LISTED).take()
}

/// Returns the command that asks a node about a lock and all its holders.
pub fn question_of_all(key: &[u8]) -> Cmd {
    question_of(key, HOLDERS_LISTED, WAITERS_LISTED)
}

/// Returns the command that asks for this number of holders and waiters.
pub fn question_of(key: &[u8], holders: usize, waiters: usize) -> Cmd {
    cmd("LOCK.INFO").arg(key).arg("WAITERS").arg(waiters).arg("HOLDERS").arg(holders).take()
}

/// Returns the text of a note, and the holder id in it.
pub fn note_of(note: &[u8]) -> (String, Option<String>) {
    let (text, id) = holder_id::of(note);
    (String::from_utf8_lossy(text).into_owned(), id.map(str::to_owned))
}

/// Returns true if an answer to [`question`] is about a joint lock, which several owners can hold.
pub fn is_joint(reply: &Value) -> bool {
    let mode = Fields::of(reply.clone()).map(|fields| fields.get::<String>("mode"));
    mode.is_some_and(|mode| !mode.is_empty() && mode != EXCLUSIVE)
}

/// Returns the grants in one node's answer.
fn grants(fields: Fields) -> Vec<NodeGrant> {
    let told = |fields: Fields| NodeGrant { owner: fields.get("owner"), token: fields.get("token"), fields };
    let listed: Vec<Value> = fields.get("grants");
    let all: Vec<NodeGrant> = match listed.is_empty() {
        true => vec![told(fields)],
        false => listed.into_iter().filter_map(Fields::of).map(told).collect(),
    };
    // A lock without a holder is shown while requests wait for it: for the end of a guard, or of another owner's
    // reservation.
    all.into_iter().filter(|told| !told.owner.is_empty()).collect()
}

/// Returns a line about the grants that are on no majority of the `nodes`; `None` if there are none.
pub fn unconfirmed(grants: &[GrantView], nodes: usize) -> Option<String> {
    let partly: Vec<&GrantView> = grants.iter().filter(|grant| !grant.is_held).collect();
    let ends = time(partly.iter().map(|grant| grant.ttl_ms).max()?);
    Some(match &*partly {
        [grant] if grant.nodes == 1 => {
            format!("1 of {nodes} nodes holds a grant that no majority confirmed; it ends in {ends}")
        }
        [grant] => {
            format!("{} of {nodes} nodes hold a grant that no majority confirmed; it ends in {ends}", grant.nodes)
        }
        all => {
            format!("the nodes hold {} grants that no majority confirmed; the last of them ends in {ends}", all.len())
        }
    })
}

/// Returns true if the answer shows this owner, given in hexadecimal, as a holder.
fn shows(reply: &Value, owner: &str) -> bool {
    Fields::of(reply.clone()).is_some_and(|fields| grants(fields).iter().any(|told| hex(&told.owner) == owner))
}

/// Returns the servers that cannot say whether the holder of `first` (or if that is `None`, anyone) holds the lock
/// there, with the reason. Such a server did not answer, or it is guarded and shows no such holder.
pub fn unsure<'a>(first: Option<&GrantView>, replies: &'a [ServerAnswer<Reply>]) -> Vec<(&'a str, String)> {
    let why = |said: &ServerAnswer<Reply>| match &said.said {
        Ok(Reply { value, guard: Some((ms, reason)) }) if !first.is_some_and(|first| shows(value, &first.owner)) => {
            Some(format!("guarded for {} ({reason}), it may have forgotten the lock", time(*ms)))
        }
        Ok(_) => None,
        Err(failure) => Some(with_remedy(failure)),
    };
    replies.iter().filter_map(|said| Some((&*said.server, why(said)?))).collect()
}

/// Returns the tokens in an answer, each with its owner.
pub fn tokens(reply: &Value) -> Vec<(Vec<u8>, u64)> {
    Fields::of(reply.clone()).map_or(vec![], grants).into_iter().map(|told| (told.owner, told.token)).collect()
}

impl Together {
    /// Merges the answers of the nodes, one per node.
    pub fn of(replies: impl IntoIterator<Item = Value>, majority: usize) -> Self {
        let mut owners: BTreeMap<Vec<u8>, Vec<NodeGrant>> = BTreeMap::new();
        let mut holders = 0;
        let mut queues = vec![];
        for fields in replies.into_iter().filter_map(Fields::of) {
            queues.push(NodeQueue::of(&fields));
            let counted: u64 = fields.get("holders");
            let told = grants(fields);
            holders = holders.max(counted).max(told.len() as u64);
            for told in told {
                owners.entry(told.owner.clone()).or_default().push(told);
            }
        }
        let mut grants: Vec<_> = owners.into_values().filter_map(|told| GrantView::of(told, majority)).collect();
        grants.sort_by_key(|grant| Reverse((grant.nodes, grant.held_ms)));
        queues.iter_mut().for_each(|queue| queue.leave_out(&grants));
        queues.sort_by_key(|queue| Reverse(queue.waiters));
        let (waiters, waiters_behind) = queues.first().map_or((0, 0), |first| (first.waiters, first.behind));
        Self { grants, holders, waiters, waiters_behind, queue: merged(queues, majority) }
    }
}

/// One node's queue.
struct NodeQueue {
    waiters: u64,
    behind: u64,
    first: Vec<Waiter>,
}

impl NodeQueue {
    fn of(fields: &Fields) -> Self {
        let first: Vec<Value> = fields.get("queue");
        let first = first.into_iter().filter_map(Waiter::of).collect();
        Self { waiters: fields.get("waiters"), behind: fields.get("waiters_behind"), first }
    }

    /// Leaves out the requests that one of these grants has served. This node has not heard of it yet.
    fn leave_out(&mut self, grants: &[GrantView]) {
        let is_served = |waiter: &Waiter| grants.iter().any(|grant| grant.is_held && grant.owner == waiter.owner);
        let (served, first): (Vec<_>, _) = std::mem::take(&mut self.first).into_iter().partition(is_served);
        self.first = first;
        self.waiters = self.waiters.saturating_sub(served.len() as u64);
        self.behind = self.behind.saturating_sub(served.iter().map(|waiter| waiter.behind).sum());
    }
}

/// Merges the nodes' queues: the requests that a majority shows come first. The merged queue is as long as the longest
/// of these.
fn merged(queues: Vec<NodeQueue>, majority: usize) -> Vec<Waiter> {
    let longest = queues.iter().map(|queue| queue.first.len()).max().unwrap_or(0);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut all: Vec<Waiter> = vec![];
    for queue in queues {
        // Several requests of one owner in one queue count once.
        let owners: BTreeSet<String> = queue.first.iter().map(|waiter| waiter.owner.clone()).collect();
        all.extend(queue.first.into_iter().filter(|waiter| !counts.contains_key(&waiter.owner)));
        owners.into_iter().for_each(|owner| *counts.entry(owner).or_default() += 1);
    }
    for waiter in &mut all {
        waiter.nodes = counts[&waiter.owner];
        waiter.is_waiting = waiter.nodes >= majority;
    }
    all.sort_by_key(|waiter| Reverse(waiter.is_waiting));
    all.truncate(longest);
    all
}

impl LockView {
    /// Merges `replies`, one per node; `None` if nobody holds the lock anywhere.
    pub fn of(key: &[u8], replies: impl IntoIterator<Item = Value>, majority: usize) -> Option<Self> {
        let together = Together::of(replies, majority);
        let first = together.grants.first()?.clone();
        Some(Self::with(String::from_utf8_lossy(key).into_owned(), key.to_vec(), first, together))
    }

    /// Creates a view of the nodes' merged answers, with this holder first.
    pub fn with(key: String, name: Vec<u8>, first: GrantView, together: Together) -> Self {
        let Together { grants, holders, waiters, waiters_behind, queue } = together;
        Self { key, name, first, holders, grants, waiters, waiters_behind, queue, servers: vec![] }
    }

    /// Creates a view of the servers' answers to [`question`]; `None` if nobody holds the lock anywhere.
    pub fn from_answers(nodes: &Nodes, key: &[u8], said: &[ServerAnswer<Value>]) -> Option<Self> {
        let mut view = Self::of(key, answers(said).cloned(), nodes.majority())?;
        let has = |said: &&ServerAnswer<Value>| {
            let fields = said.said.as_ref().ok().and_then(|value| Fields::of(value.clone()));
            fields.is_some_and(|fields| !grants(fields).is_empty())
        };
        view.servers = said.iter().filter(has).map(|said| said.server.clone()).collect();
        Some(view)
    }

    /// Returns a line with the numbers of waiters and of callers behind them.
    pub fn waiters_line(&self) -> String {
        match self.waiters_behind {
            0 => self.waiters.to_string(),
            behind => format!("{}, and {behind} behind them in their processes", self.waiters),
        }
    }

    /// Asks all nodes about a lock. Returns the view, and each server's answer.
    pub async fn ask(nodes: &Nodes, key: &[u8]) -> (Option<Self>, Vec<ServerAnswer<Reply>>) {
        let mut replies = nodes.ask_about(key, &question(key)).await;
        if answers(&replies).any(|reply| is_joint(&reply.value)) {
            replies = nodes.ask_about(key, &question_of_all(key)).await;
        }
        let values: Vec<ServerAnswer<Value>> =
            replies.iter().map(|said| said.clone().map(|reply| reply.value)).collect();
        (Self::from_answers(nodes, key, &values), replies)
    }

    /// Returns a line with the holder and the time it has held the lock.
    pub fn holder_line(&self) -> String {
        let mode = match self.first.mode.as_str() {
            EXCLUSIVE => String::new(),
            _ => format!(" ({})", self.mode()),
        };
        format!("held by {}{mode} for {}", self.holder_name(), time(self.first.held_ms))
    }

    /// Returns a line that says who holds the lock and for how long. If nobody does, it says so, and which grants are
    /// left over on these `nodes`.
    pub fn state_line(&self, nodes: usize) -> String {
        match unconfirmed(&self.grants, nodes) {
            Some(text) if !self.first.is_held => format!("held by nobody: {text}"),
            _ => self.holder_line(),
        }
    }

    /// Returns the mode in which the lock is held, and the number of holders.
    pub fn mode(&self) -> String {
        match (self.first.mode.as_str(), self.first.limit) {
            ("permit", Some(limit)) => format!("permits {}/{limit}", self.holders),
            (EXCLUSIVE, _) => EXCLUSIVE.to_owned(),
            (mode, _) => format!("{} {}", printable(mode.as_bytes()), self.holders),
        }
    }

    /// Returns the holder's name for people, and the number of other holders.
    pub fn holder_name(&self) -> String {
        match self.first.mode.as_str() {
            mode if mode != EXCLUSIVE && self.holders > 1 => {
                format!("{} and {} more", self.first.name(), self.holders - 1)
            }
            _ => self.first.name(),
        }
    }
}

impl GrantView {
    /// Merges the nodes' descriptions of one owner's grant; `None` if there are none.
    fn of(mut told: Vec<NodeGrant>, majority: usize) -> Option<Self> {
        told.sort_by_key(|told| Reverse(told.token));
        let max = |name| told.iter().map(|told| told.fields.get::<u64>(name)).max().unwrap_or(0);
        let first = told.first()?;
        let mode: String = first.fields.get("mode");
        let (holder, holder_id) = note_of(&first.fields.get::<Vec<u8>>("note"));
        let of_permit = |name| Some(first.fields.get::<u64>(name)).filter(|_| mode == "permit");
        Some(Self {
            holder,
            holder_id,
            owner: hex(&first.owner),
            permit: of_permit("permit"),
            limit: of_permit("limit"),
            // A node that knows only exclusive locks does not report the mode.
            mode: if mode.is_empty() { EXCLUSIVE.to_owned() } else { mode },
            token: token_of(majority, told.iter().map(|told| told.token))?,
            holds: max("holds"),
            held_ms: max("held"),
            ttl_ms: max("ttl"),
            extended_ms: told.iter().filter_map(|told| told.fields.number("extended")).min(),
            nodes: told.len(),
            is_held: told.len() >= majority,
            suspect: told.iter().filter(|told| told.fields.get::<u64>("suspect") > 0).count(),
        })
    }

    /// Returns true if more than half of the lease has passed since it was last extended. A client that extends its
    /// lease does so after a third.
    pub fn is_overdue(&self) -> bool {
        self.extended_ms.is_some_and(|ago| ago > self.ttl_ms)
    }

    /// Returns the holder's name for people.
    pub fn name(&self) -> String {
        match &self.holder_id {
            Some(id) if self.holder.is_empty() => id.clone(),
            _ if self.holder.is_empty() => "somebody without a note".to_owned(),
            _ => printable(self.holder.as_bytes()),
        }
    }

    /// Returns a line about one of several holders of a lock on `nodes` nodes.
    pub fn line(&self, nodes: usize) -> String {
        let permit = self.permit.zip(self.limit).map(|(number, limit)| format!(", permit {number} of {limit}"));
        format!(
            "{}{}, token {}, for {}, {} of the lease left, on {} of {nodes} nodes",
            self.name(),
            permit.unwrap_or_default(),
            self.token,
            time(self.held_ms),
            time(self.ttl_ms),
            self.nodes,
        )
    }
}

impl Waiter {
    fn of(reply: Value) -> Option<Self> {
        let fields = Fields::of(reply)?;
        let (note, holder_id) = note_of(&fields.get::<Vec<u8>>("note"));
        Some(Self {
            note,
            holder_id,
            owner: hex(&fields.get::<Vec<u8>>("owner")),
            mode: fields.get("mode"),
            waited_ms: fields.get("waited"),
            behind: fields.get("behind"),
            is_waiting: false,
            nodes: 0,
        })
    }

    /// Returns the waiter's name for people.
    pub fn name(&self) -> String {
        match &self.holder_id {
            Some(id) if self.note.is_empty() => id.clone(),
            _ if self.note.is_empty() => format!("owner {}", self.owner),
            _ => printable(self.note.as_bytes()),
        }
    }

    /// Returns a line with the waiter and the time it has waited.
    pub fn line(&self) -> String {
        let who = self.name();
        let mode = if ["", EXCLUSIVE].contains(&self.mode.as_str()) { "" } else { &format!(" ({})", self.mode) };
        let behind =
            if self.behind > 0 { format!(", and {} behind it in its process", self.behind) } else { String::new() };
        format!("{who}{mode}, for {}{behind}", time(self.waited_ms))
    }
}

/// Returns bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
