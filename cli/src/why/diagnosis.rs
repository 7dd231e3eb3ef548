//! The diagnosis why nobody gets a lock: from the nodes' answers to findings, and one sentence that says what to do. No
//! node is asked here.

use palisade_quorum::{HoldStatus, known};
use serde::Serialize;

use super::facts::{Facts, NodeFacts, NodeSaid};
use crate::lock_view::{EXCLUSIVE, GrantView, LockView, unconfirmed};
use crate::moment;
use crate::node_failure::{advice, words};
use crate::show::{printable, time};

/// The number of waiters from which on the queue is the reason for the wait, and not one holder.
const LONG_QUEUE: u64 = 100;

/// The number of waiters that are shown.
const WAITERS_SHOWN: usize = 3;

/// The state of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nobody holds the lock, and a majority would grant it.
    Free,
    /// A majority has granted the lock to one owner.
    Held,
    /// The lock is reserved for a waiter whose turn has come.
    Kept,
    /// Nodes have granted the lock to different owners, none of which has a majority.
    Split,
    /// Nodes that do not answer, or may have forgotten grants, could complete the majority of an owner that other nodes
    /// show.
    Unknown,
    /// Too many nodes refuse every lock, and will until somebody changes that.
    Refusing,
    /// Too many nodes are guarded for a majority to grant.
    Guarded,
    /// Too many nodes cannot be asked, so no majority is left.
    Unreachable,
}

/// A fact about the lock or a node, for the person who reads the diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject: `holder`, `partly` (no majority), `node`, `kept`, `waiter` or `log`.
    pub about: &'static str,
    pub found: String,
}

/// The answer to why nobody gets the lock: its state, the facts, and the advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub state: State,
    /// The state of the lock in one line.
    pub summary: String,
    pub findings: Vec<Finding>,
    /// One sentence that says what to do.
    pub advice: String,
}

/// Returns the diagnosis for these answers.
pub fn diagnose(facts: &Facts) -> Diagnosis {
    let (state, summary, advice) = facts.decided();
    Diagnosis { state, summary, findings: facts.findings(), advice }
}

impl Facts {
    /// Returns the state, a line that describes it, and what to do. If there are several reasons, these are about the
    /// one to handle first.
    fn decided(&self) -> (State, String, String) {
        let key = printable(self.key.as_bytes());
        let (count, majority) = (self.nodes.len(), self.majority());
        let answered = self.answers().count();
        if answered < majority {
            let summary = format!("{key}: {answered} of {count} nodes can be asked, and {majority} are needed");
            return (State::Unreachable, summary, self.unreachable());
        }
        let held = self.held();
        let holder = held.as_ref().map(|held| format!("{key} is {}", held.holder_line()));
        if self.serving() < majority {
            let summary = format!(
                "{}: {} of {count} nodes grant, and {majority} are needed",
                holder.unwrap_or(key),
                self.serving()
            );
            let willing: Vec<_> = self.answers().filter(|told| told.refusing.is_none()).collect();
            if willing.len() < majority {
                return (State::Refusing, summary, self.refused());
            }
            let guards: Vec<u64> = willing.iter().filter_map(|told| Some(told.guard.as_ref()?.0)).collect();
            let until = self.until(guards, majority - self.serving());
            let advice = format!(
                "Wait {until}, then a majority grants again: until then holders may rely on locks that guarded nodes have forgotten."
            );
            return (State::Guarded, summary, advice);
        }
        if let (Some(held), Some(summary)) = (held, holder) {
            return (State::Held, summary, self.of_held(&held));
        }
        if let Some((first, unsure)) = self.undecided() {
            let (name, ends) = (first.name(), time(first.ttl_ms));
            let summary = format!(
                "whether {key} is held cannot be known now: {} of {count} nodes hold a grant of {name}, and {unsure} cannot say",
                first.nodes
            );
            let advice = format!(
                "See to the nodes that cannot say; or wait {ends}, until the lease has ended, unless {name} extends it."
            );
            return (State::Unknown, summary, advice);
        }
        self.held_by_nobody(&key, count, majority)
    }

    /// Returns state, summary and advice for a lock that no majority holds, if enough nodes serve.
    fn held_by_nobody(&self, key: &str, count: usize, majority: usize) -> (State, String, String) {
        let partly = unconfirmed(&self.together.grants, count);
        let free = partly.as_ref().map_or(format!("{key} is free"), |text| format!("{key} is held by nobody: {text}"));
        // The part that follows says when a lease ends.
        let and = if partly.is_some() { ";" } else { ", and" };
        let taken: Vec<u64> = self.answers().filter(|told| told.grants > 0).map(|told| told.lease_ms).collect();
        let open = self.answers().filter(|told| told.grants_locks() && told.grants == 0).count();
        if open < majority {
            let until = self.until(taken, majority - open);
            let summary = format!("{free}{and} until enough of them end, nobody can have the lock");
            let advice = format!(
                "Wait {until}, until enough of these leases have ended; if other owners keep coming in their place, `palisade break {key}` frees it on all nodes."
            );
            return (State::Split, summary, advice);
        }
        if self.answers().any(|told| told.kept.is_some()) {
            let summary = format!("{free}{and} kept for one who was told to take it");
            return (State::Kept, summary, "Look again in a second: it is being handed over.".to_owned());
        }
        if self.together.waiters > 0 {
            let summary = format!("{free}{and} {} wait for it", self.together.waiters + self.together.waiters_behind);
            return (State::Free, summary, "Look again in a second: it is being handed over.".to_owned());
        }
        if partly.is_some() {
            let advice = format!(
                "Take it all the same: {open} of {count} nodes have no such grant, and {majority} are needed. An attempt that failed left it, or one that is under way."
            );
            return (State::Free, free, advice);
        }
        (State::Free, free, self.of_free())
    }

    /// Returns the grant that most nodes show, if the nodes that cannot answer could complete its majority; and the
    /// number of these nodes.
    fn undecided(&self) -> Option<(&GrantView, usize)> {
        let first = self.together.grants.first()?;
        let cannot_say = |node: &&NodeSaid| match &node.told {
            Ok(told) => told.guard.is_some() && told.grants == 0,
            Err(_) => true,
        };
        let unsure = self.nodes.iter().filter(cannot_say).count();
        (known(self.nodes.len(), first.nodes, unsure) == HoldStatus::Unknown).then_some((first, unsure))
    }

    /// Returns the advice if too few nodes can be asked.
    fn unreachable(&self) -> String {
        let failures = self.nodes.iter().filter_map(|node| Some((&*node.name, advice(node.told.as_ref().err()?))));
        for_the_most(&failures.collect::<Vec<_>>())
    }

    /// Returns the advice if too many nodes refuse every lock.
    fn refused(&self) -> String {
        let refusing = |node: &NodeSaid| Some(node.told.as_ref().ok()?.refusing.as_ref()?.advice);
        let refused = self.nodes.iter().filter_map(|node| Some((&*node.name, refusing(node)?)));
        for_the_most(&refused.collect::<Vec<_>>())
    }

    /// Returns the advice if a majority has granted the lock to one owner.
    fn of_held(&self, held: &LockView) -> String {
        let key = printable(self.key.as_bytes());
        let (name, lease) = (held.first.name(), time(held.first.ttl_ms));
        if held.waiters + held.waiters_behind >= LONG_QUEUE {
            return format!(
                "Hold it shorter, or split it into several keys: {} wait, and each gets it only when all before it are done{}.",
                held.waiters + held.waiters_behind,
                self.pace().map_or(String::new(), |pace| format!(", at {pace} each of late"))
            );
        }
        if held.first.suspect * 2 > held.first.nodes {
            return format!(
                "Wait {lease}: the nodes cannot vouch for it, so nobody can extend it; if its holder is known to be dead, `palisade break {key}`."
            );
        }
        let all = if held.first.mode == EXCLUSIVE { "" } else { " (the oldest of them)" };
        let token = if held.first.mode == EXCLUSIVE { String::new() } else { format!(" --token {}", held.first.token) };
        if let Some(ms) = held.first.extended_ms.filter(|_| held.first.is_overdue()) {
            return format!(
                "See whether {name}{all} still runs: it has not extended the lock for {}, which is free in {lease} unless it does; `palisade break {key}{token}` takes it away before.",
                time(ms)
            );
        }
        format!(
            "Ask {name}{all} what it does: if it hangs, `palisade break {key}{token}` takes the lock away; if it is dead, the lock is free in {lease} by itself."
        )
    }

    /// Returns the advice if the lock can be taken.
    fn of_free(&self) -> String {
        let key = printable(self.key.as_bytes());
        if self.answers().any(|told| told.guarded_slots > 0) {
            return format!(
                "Try to take it: if that is refused as guarded, the slot of {key} came there without its locks, and whoever had them may rely on them for as long as the refusal says."
            );
        }
        let Some(last) = self.log.iter().find(|event| event.token > 0) else {
            return format!(
                "Take it; if a program does not get it, see that it asks these nodes for {key}, by this name."
            );
        };
        let (name, at) = (last.name(), moment::local(last.to_ms, &self.zone));
        match last.ended.as_str() {
            "broken" | "deleted" | "flushed" | "evicted" => format!(
                "See that {name} has stopped before you trust what it wrote: its lock was taken away at {at} ({}).",
                last.ending()
            ),
            "expired" | "unconnected" => {
                format!("See whether {name} is dead: its lease ended at {at}, and it had not given the lock back.")
            }
            _ => format!("Take it: {name} gave it back at {at}."),
        }
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![];
        let mut found = |about, found| findings.push(Finding { about, found });
        let nodes = self.nodes.len();
        // If a majority has problems, the advice is given once, at the end.
        let is_well = self.serving() >= self.majority();
        for grant in &self.together.grants {
            found(if grant.is_held { "holder" } else { "partly" }, self.of_grant(grant, nodes));
        }
        if self.together.holders > self.together.grants.len() as u64 {
            found("holder", format!("and others, {} in all", self.together.holders));
        }
        for node in &self.nodes {
            match &node.told {
                Err(failure) if is_well => {
                    found("node", format!("{}: {}: {}", node.name, words(failure), advice(failure)))
                }
                Err(failure) => found("node", format!("{}: {}", node.name, words(failure))),
                Ok(NodeFacts { refusing: Some(refusing), .. }) => {
                    let then = if is_well { format!(": {}", refusing.advice) } else { String::new() };
                    found("node", format!("{}: {} {}{then}", node.name, refusing.code, refusing.found));
                }
                Ok(NodeFacts { guard: Some((ms, reason)), .. }) => {
                    let then = if is_well { ": it serves again by itself" } else { "" };
                    found("node", format!("{}: guarded for {} ({reason}){then}", node.name, time(*ms)));
                }
                Ok(NodeFacts { guarded_slots: slots @ 1.., .. }) => {
                    found("node", format!("{}: {slots} of its slots are guarded, maybe that of this lock", node.name));
                }
                Ok(_) => {}
            }
        }
        for node in &self.nodes {
            if let Ok(NodeFacts { kept: Some((owner, ms)), .. }) = &node.told {
                found("kept", format!("on {} for {}, for {} more", node.name, self.waiter(owner), time(*ms)));
            }
        }
        let queue = &self.together.queue;
        queue.iter().take(WAITERS_SHOWN).for_each(|waiter| found("waiter", waiter.line()));
        let more = self.together.waiters.saturating_sub(queue.len().min(WAITERS_SHOWN) as u64);
        if more > 0 {
            found("waiter", format!("and {more} more"));
        }
        if self.together.waiters_behind > 0 {
            found("waiter", format!("and {} behind them in their processes, in all", self.together.waiters_behind));
        }
        self.log.iter().for_each(|event| found("log", event.line(&self.zone)));
        if !self.log_untold.is_empty() {
            found("log", format!("not told by {}", self.log_untold));
        }
        findings
    }

    fn of_grant(&self, grant: &GrantView, nodes: usize) -> String {
        let mode = match (grant.permit, grant.limit) {
            (Some(number), Some(limit)) => format!("permit {number} of {limit}"),
            _ => printable(grant.mode.as_bytes()),
        };
        let since = moment::local(self.now_ms.saturating_sub(grant.held_ms), &self.zone);
        let extended = grant.extended_ms.map_or(String::new(), |ms| format!(", not extended for {}", time(ms)));
        let suspect = if grant.suspect > 0 { format!(", suspect on {}", grant.suspect) } else { String::new() };
        format!(
            "{}, {mode}, token {}, since {since}, {} of the lease left{extended}, on {} of {nodes} nodes{suspect}",
            grant.name(),
            grant.token,
            time(grant.ttl_ms),
            grant.nodes
        )
    }
}

/// Returns the advice for nodes with these names. If it differs, that for the most nodes is chosen.
fn for_the_most(nodes: &[(&str, &'static str)]) -> String {
    let alike = |advice| nodes.iter().filter(move |(_, other)| *other == advice);
    let Some((_, most)) = nodes.iter().max_by_key(|(_, advice)| alike(*advice).count()) else { return String::new() };
    let named: Vec<_> = alike(*most).map(|(name, _)| *name).collect();
    format!("On {}: {most}.", named.join(", "))
}

#[cfg(test)]
mod tests;
