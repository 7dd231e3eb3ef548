//! `palisade deadlocks`: finds holders that wait for each other.

mod graph;

use std::collections::{BTreeMap, BTreeSet};

use palisade_quorum::{HoldStatus, known};
use redis::Value;
use serde::Serialize;

use self::graph::{Member, Party, WaitedFor, circles, may_be_hidden};
use palisade_client::direct::ServerLink;

use crate::exit::{End, Failure};
use crate::lock_view::{GrantView, LockView, Together, Waiter, question_of, unsure};
use crate::look::{Listed, locks};
use crate::node_failure::line;
use crate::nodes::{Nodes, Reply, ServerAnswer, answers};
use crate::show::{print, print_message, printable, time};

/// The most locks inspected on each node at a time.
const LOOKED_AT: usize = 5_000;

/// The most locks with waiters that are inspected, and the most holders and waiters of each.
const WAITED_FOR: usize = 1_000;
const PARTIES: usize = 100;

/// The number of locks in one batch of commands.
const BATCH: usize = 50;

/// The exit status if there are deadlocks.
const FOUND: u8 = 1;

/// The exit status if the answer is unknown.
const UNKNOWN: u8 = 2;

/// The JSON output of `palisade deadlocks`.
#[derive(Serialize)]
struct Found {
    /// The deadlocks. In each, every member waits for a lock that the next one holds, and the last for a lock of the
    /// first.
    deadlocks: Vec<Vec<Member>>,
    /// The number of locks with waiters that were inspected.
    locks: usize,
    /// The number of holders and waiters of the inspected locks.
    parties: usize,
    /// The number of holders and waiters without a holder id, whose deadlocks cannot be seen.
    unnamed: usize,
    /// True if there can be no other deadlocks: neither among parties without an id, nor on nodes that do not answer.
    is_known: bool,
    /// The reason why the holders of some locks are unknown: nodes that are guarded or cannot be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsure: Option<String>,
}

/// Looks for deadlocks.
///
/// # Errors
/// Too few nodes can be asked.
pub async fn run(nodes: &Nodes, as_json: bool) -> Result<End, Failure> {
    let Reading { locks: first, has_more, is_whole, mut unsure } = read_locks(nodes).await?;
    let found = circles(&first);
    // The nodes are not asked at the same moment. A hold and a wait that are seen twice existed all the time in
    // between. And a lock that is just being acquired is known a moment later.
    let mut again = vec![];
    if !found.is_empty() || unsure.is_some() {
        let look = read_locks(nodes).await?;
        (again, unsure) = (circles(&look.locks), look.unsure);
    }
    let again: Vec<&Member> = again.iter().flatten().collect();
    let stays = |circle: &Vec<Member>| circle.iter().all(|member| again.iter().any(|other| member.is_same(other)));
    let deadlocks: Vec<Vec<Member>> = found.into_iter().filter(stays).collect();
    let parties = || first.iter().flat_map(|lock| lock.holders.iter().chain(&lock.waiters));
    let unnamed = parties().filter(|party| party.is_unnamed()).count();
    let is_known = unsure.is_none() && !may_be_hidden(&first);
    let said = Found { deadlocks, locks: first.len(), parties: parties().count(), unnamed, is_known, unsure };
    print(as_json, &said, || text(&said))?;
    if has_more {
        print_message("there are more locks than were looked at");
    }
    match (said.deadlocks.is_empty(), said.is_known) {
        (false, _) => Ok(End::Code(FOUND)),
        (true, true) => is_whole.map(|()| End::OK),
        (true, false) => is_whole.map(|()| End::Code(UNKNOWN)),
    }
}

/// The locks found when all nodes are asked once.
struct Reading {
    /// The locks with waiters.
    locks: Vec<WaitedFor>,
    /// True if some locks were not inspected.
    has_more: bool,
    /// An error if some masters of clusters could not be asked, as in [`Listed::is_whole`].
    is_whole: Result<(), Failure>,
    /// The reason why holders are unknown, as in [`Found::unsure`].
    unsure: Option<String>,
}

async fn read_locks(nodes: &Nodes) -> Result<Reading, Failure> {
    let Listed { views, more, is_whole, .. } = locks(nodes, b"*", LOOKED_AT, Some(LOOKED_AT)).await?;
    let waited: Vec<&LockView> = views.iter().filter(|view| view.waiters > 0).collect();
    let has_more = more > 0 || waited.len() > WAITED_FOR;
    let connected = nodes.of_each(async |link| Ok(link)).await;
    nodes.need_majority(&connected)?;
    let guards: BTreeMap<&str, _> =
        connected.iter().map(|said| (&*said.server, said.said.as_ref().ok().and_then(ServerLink::guard))).collect();
    let with_guard = |said: ServerAnswer<Value>| {
        let guard = guards.get(&*said.server).cloned().flatten();
        said.map(|value| Reply { value, guard })
    };
    // Names the nodes that may have locks that no node shows, because they do not answer or are guarded.
    let empty: Vec<ServerAnswer<Reply>> = connected.iter().map(|said| said.as_ref().map(Reply::empty)).collect();
    let whys = unsure(None, &empty);
    let is_named = |said: &&ServerAnswer<Reply>| whys.iter().any(|(server, _)| *server == said.server);
    let cannot_say: BTreeSet<usize> = empty.iter().filter(is_named).map(|said| said.number).collect();
    let mut is_unknown = known(nodes.len(), 0, cannot_say.len()) == HoldStatus::Unknown;
    let mut links: Vec<ServerLink> = answers(&connected).cloned().collect();
    let mut told = vec![];
    for batch in waited[..waited.len().min(WAITED_FOR)].chunks(BATCH) {
        let keys: Vec<&[u8]> = batch.iter().map(|view| view.name.as_slice()).collect();
        let replies = Nodes::ask_over(&mut links, &keys, |key| question_of(key, PARTIES, PARTIES)).await;
        for (view, said) in batch.iter().zip(replies) {
            let together = Together::of(answers(&said).cloned(), nodes.majority());
            let first = together.grants.first();
            let replies: Vec<ServerAnswer<Reply>> = said.into_iter().map(with_guard).collect();
            // Each node with a server that answers has one reply; the other nodes cannot say who holds the lock, so
            // they count as unsure, too.
            let missing = nodes.len().saturating_sub(replies.len());
            let others = unsure(first, &replies).len() + missing;
            is_unknown |= known(nodes.len(), first.map_or(0, |first| first.nodes), others) == HoldStatus::Unknown;
            is_unknown |= may_wait_unseen(&together.queue, nodes.len(), unsure(None, &replies).len() + missing);
            told.push(waited_for(&view.key, together));
        }
    }
    let unsure = is_unknown.then(|| line(whys, nodes.len()));
    Ok(Reading { locks: told, has_more, is_whole, unsure })
}

/// Returns whether a request that too few of `nodes` nodes show may also wait on those that cannot say, `silent` of them.
fn may_wait_unseen(queue: &[Waiter], nodes: usize, silent: usize) -> bool {
    queue.iter().any(|waiter| known(nodes, waiter.nodes, silent) == HoldStatus::Unknown)
}

fn waited_for(key: &str, together: Together) -> WaitedFor {
    let Together { grants, holders, queue, .. } = together;
    let listed = grants.len() as u64;
    let held = grants.into_iter().filter(|grant| grant.is_held);
    let has_permits = held.clone().all(|grant| grant.permit.is_some());
    let holder = |grant: GrantView| Party {
        who: grant.holder_id.clone().unwrap_or_else(|| grant.owner.clone()),
        name: grant.name(),
        owner: grant.owner,
        token: grant.token,
        ms: grant.held_ms,
        takes_any: false,
    };
    let waiter = |waiter: Waiter| Party {
        who: waiter.holder_id.clone().unwrap_or_else(|| waiter.owner.clone()),
        name: waiter.name(),
        owner: waiter.owner,
        token: 0,
        ms: waiter.waited_ms,
        takes_any: has_permits && waiter.mode == "permit",
    };
    let waiters = queue.into_iter().filter(|waiter| waiter.is_waiting).map(waiter).collect();
    WaitedFor { key: key.to_owned(), holders: held.map(holder).collect(), has_more: holders > listed, waiters }
}

fn text(said: &Found) -> String {
    let unnamed = format!("{} of {} holders and waiters tell no holder id", said.unnamed, said.parties);
    if let (true, Some(why)) = (said.deadlocks.is_empty(), &said.unsure) {
        return format!(
            "whether there is a deadlock among {} locks that are waited for cannot be known now: {why}\n",
            said.locks
        );
    }
    match (said.deadlocks.is_empty(), said.is_known, said.unnamed) {
        (false, ..) => said.deadlocks.iter().map(|circle| of_circle(circle)).collect(),
        (true, false, _) => format!(
            "whether there is a deadlock among {} locks that are waited for cannot be known: {unnamed}\n  to do    Let their programs tell one, as docs/cli-reference.md says; `palisade why KEY` shows who holds a lock and who waits.\n",
            said.locks
        ),
        (true, true, 0) => format!("no deadlock among {} locks that are waited for\n", said.locks),
        (true, true, _) => format!("no deadlock among {} locks that are waited for ({unnamed})\n", said.locks),
    }
}

fn of_circle(circle: &[Member]) -> String {
    let mut text = match circle.len() {
        1 => "one waits for itself:\n".to_owned(),
        count => format!("{count} wait for each other:\n"),
    };
    let name = |text: &str| printable(text.as_bytes());
    for member in circle {
        text += &format!(
            "  {} holds {} (token {}) for {} and waits for {} since {}\n",
            name(&member.holder),
            name(&member.holds),
            member.token,
            time(member.held_ms),
            name(&member.waits_for),
            time(member.waited_ms)
        );
    }
    // The advice is to end the member that has held its lock for the shortest time.
    let Some(last) = circle.iter().min_by_key(|member| member.held_ms) else { return text };
    let mut keys: Vec<String> = circle.iter().map(|member| name(&member.holds)).collect();
    keys.sort();
    let order = match keys.len() {
        1 => format!("do not take {} again while it is held", keys[0]),
        _ => format!("take these locks in one order everywhere, such as {}", keys.join(", ")),
    };
    let (who, key) = (name(&last.holder), name(&last.holds));
    text + &format!("  to do    End {who}, or `palisade break {key} --token {}`; and {order}.\n", last.token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_no_majority_shows_is_left_out() {
        let waiter = |owner: &str, nodes| Waiter {
            note: String::new(),
            holder_id: None,
            owner: owner.to_owned(),
            mode: String::new(),
            waited_ms: 0,
            behind: 0,
            is_waiting: nodes >= 2,
            nodes,
        };
        let queue = vec![waiter("61", 2), waiter("62", 1)];
        assert!(may_wait_unseen(&queue, 3, 1), "the silent node may show it, too");
        assert!(!may_wait_unseen(&queue, 3, 0) && !may_wait_unseen(&queue[..1], 3, 1));
        let waited = waited_for("k", Together { queue, ..Together::default() });
        let waiters: Vec<_> = waited.waiters.iter().map(|party| party.owner.as_str()).collect();
        assert_eq!(waiters, ["61"]);
    }
}
