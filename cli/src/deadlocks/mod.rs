//! `palisade deadlocks`: holders that wait for each other.

mod graph;

use serde::Serialize;

use self::graph::{Member, Party, WaitedFor, circles, may_be_hidden};
use crate::exit::{End, Failure};
use crate::lock_view::{GrantView, LockView, Together, Waiter, question_of};
use crate::look::{Listed, locks};
use crate::many_keys::Open;
use crate::nodes::{Nodes, answers};
use crate::show::{json, out, printable, tell, time};

/// Locks that are looked at a time on each node.
const LOOKED_AT: usize = 5_000;

/// Of those, locks that somebody waits for, and holders and waiters of each.
const WAITED_FOR: usize = 1_000;
const PARTIES: usize = 100;

/// Locks that are asked about at once.
const BATCH: usize = 50;

/// The exit status where there are some.
const FOUND: u8 = 1;

/// The exit status where nobody can know.
const UNKNOWN: u8 = 2;

/// What a program gets.
#[derive(Serialize)]
struct Said {
    /// In each, one waits for what the next one holds, and the last for what the first holds.
    deadlocks: Vec<Vec<Member>>,
    /// So many locks that somebody waits for were looked at.
    locks: usize,
    /// The number of their holders and waiters.
    parties: usize,
    /// So many of them tell no holder id: a deadlock of theirs is not seen.
    unnamed: usize,
    /// No deadlock can be among those who tell none.
    is_known: bool,
}

/// Looks for them.
///
/// # Errors
/// Too few nodes can be asked.
pub async fn run(nodes: &Nodes, as_json: bool) -> Result<End, Failure> {
    let Look { locks: first, has_more, is_whole } = look(nodes).await?;
    let found = circles(&first);
    // The nodes are not asked at one moment: what is in a circle twice was so all the time between.
    let again = if found.is_empty() { vec![] } else { circles(&look(nodes).await?.locks) };
    let again: Vec<&Member> = again.iter().flatten().collect();
    let stays = |circle: &Vec<Member>| circle.iter().all(|member| again.iter().any(|other| member.is_same(other)));
    let deadlocks: Vec<Vec<Member>> = found.into_iter().filter(stays).collect();
    let parties = || first.iter().flat_map(|lock| lock.holders.iter().chain(&lock.waiters));
    let unnamed = parties().filter(|party| party.is_unnamed()).count();
    let is_known = !may_be_hidden(&first);
    let said = Said { deadlocks, locks: first.len(), parties: parties().count(), unnamed, is_known };
    if as_json {
        json(&said)?;
    } else {
        out(&text(&said))?;
    }
    if has_more {
        tell("there are more locks than were looked at");
    }
    match (said.deadlocks.is_empty(), said.is_known) {
        (false, _) => Ok(End::Code(FOUND)),
        (true, true) => is_whole.map(|()| End::OK),
        (true, false) => is_whole.map(|()| End::Code(UNKNOWN)),
    }
}

/// What was found at one look.
struct Look {
    /// The locks that somebody waits for.
    locks: Vec<WaitedFor>,
    /// There are locks that were not looked at.
    has_more: bool,
    /// As [`Listed::is_whole`].
    is_whole: Result<(), Failure>,
}

async fn look(nodes: &Nodes) -> Result<Look, Failure> {
    let Listed { views, more, is_whole } = locks(nodes, b"*", LOOKED_AT, Some(LOOKED_AT)).await?;
    let waited: Vec<&LockView> = views.iter().filter(|view| view.waiters > 0).collect();
    let has_more = more > 0 || waited.len() > WAITED_FOR;
    let connected = nodes.of_each(async |server, link| Ok((server.clone(), link))).await;
    nodes.need_majority(&connected)?;
    let mut open = Open::new(nodes, answers(&connected).cloned());
    let mut told = vec![];
    for batch in waited[..waited.len().min(WAITED_FOR)].chunks(BATCH) {
        let keys: Vec<&[u8]> = batch.iter().map(|view| view.name.as_slice()).collect();
        let replies = open.ask(&keys, |key| question_of(key, PARTIES, PARTIES)).await;
        for (view, said) in batch.iter().zip(replies) {
            told.push(waited_for(&view.key, Together::of(answers(&said).cloned(), nodes.majority())));
        }
    }
    Ok(Look { locks: told, has_more, is_whole })
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
    let waiters = queue.into_iter().map(waiter).collect();
    WaitedFor { key: key.to_owned(), holders: held.map(holder).collect(), has_more: holders > listed, waiters }
}

fn text(said: &Said) -> String {
    let unnamed = format!("{} of {} holders and waiters tell no holder id", said.unnamed, said.parties);
    match (said.deadlocks.is_empty(), said.is_known, said.unnamed) {
        (false, ..) => said.deadlocks.iter().map(|circle| of_circle(circle)).collect(),
        (true, false, _) => format!(
            "whether there is a deadlock among {} locks that are waited for cannot be known: {unnamed}\n  to do    Let their programs tell one, as docs/cli.md says; `palisade why KEY` shows who holds a lock and who waits.\n",
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
    // It has done least.
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
