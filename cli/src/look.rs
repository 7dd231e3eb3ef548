//! `palisade info` and `ls`: locks as an operator sees them.

use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use palisade_client::Why;
use palisade_client::direct::ServerLink;
use palisade_quorum::{HoldStatus, known};

use crate::exit::{End, Failure, NO_QUORUM};
use crate::lock_view::{EXCLUSIVE, LockView, is_joint, question, question_of_all, unsure};
use crate::node_failure::line;
use crate::nodes::{Nodes, Reply, ServerAnswer, answers};
use crate::scan;
use crate::show::{json, out, print, print_message, printable, table, time};

/// The number of locks in one batch of commands.
const BATCH: usize = 500;

/// Runs `palisade info KEY`.
///
/// # Errors
/// Too few nodes can be asked, or may have forgotten who holds it.
pub async fn info(nodes: &Nodes, key: &[u8], as_json: bool) -> Result<End, Failure> {
    let (view, replies) = LockView::ask(nodes, key).await;
    nodes.need_majority(&replies).map_err(|failure| failure.about(key))?;
    let unknown = unknown(nodes, key, view.as_ref(), &replies);
    match (&view, &unknown) {
        (None, Some(_)) => {}
        _ if as_json => json(&view)?,
        (None, None) => out(&format!("{} is free\n", printable(key)))?,
        (Some(view), _) => out(&describe(view, nodes, unknown.is_some()))?,
    }
    unknown.map_or(Ok(End::OK), Err)
}

/// Returns the failure that it is unknown whether the lock is held. That is so if the nodes that show a holder and
/// those that do not answer or may have forgotten it could be a majority together.
fn unknown(nodes: &Nodes, key: &[u8], view: Option<&LockView>, replies: &[ServerAnswer<Reply>]) -> Option<Failure> {
    let first = view.map(|view| &view.first);
    let whys = unsure(first, replies);
    if known(nodes.len(), first.map_or(0, |first| first.nodes), whys.len()) != HoldStatus::Unknown {
        return None;
    }
    let text = format!("whether {} is free cannot be known now: {}", printable(key), line(whys, nodes.len()));
    Some(Failure::new(NO_QUORUM, text))
}

fn describe(view: &LockView, nodes: &Nodes, may_be_held: bool) -> String {
    let first = &view.first;
    let state = match may_be_held {
        true => "held by nobody, or by an owner that too few nodes show".to_owned(),
        false => view.state_line(nodes.len()),
    };
    let mut text = format!("{} is {state}\n", printable(view.key.as_bytes()));
    let mut line = |name: &str, value: String| text += &format!("  {name:<9}{value}\n");
    if !first.is_held {
        line("grant", format!("{}, for {}", view.holder_name(), time(first.held_ms)));
    }
    line("token", first.token.to_string());
    line("lease", format!("{} left, unless it is extended", time(first.ttl_ms)));
    // If each node is one server, their number is enough.
    let which = if nodes.has_many_servers() { format!(" ({})", view.servers.join(", ")) } else { String::new() };
    let on = format!("{} of {}{which}", first.nodes, nodes.len());
    line(
        "nodes",
        match (first.is_held, may_be_held) {
            (true, _) => on,
            (false, true) => format!("{on}: no majority, but others may have forgotten it"),
            (false, false) => format!("{on}: no majority, so nobody may rely on it"),
        },
    );
    if first.holds > 1 {
        line("holds", first.holds.to_string());
    }
    if first.suspect > 0 {
        line("suspect", format!("on {} of them: loaded without proof, it cannot be extended there", first.suspect));
    }
    if first.mode != EXCLUSIVE {
        line("holders", view.holders.to_string());
        for grant in &view.grants {
            line("", grant.line(nodes.len()));
        }
    }
    line("waiters", view.waiters_line());
    for waiter in &view.queue {
        line("", waiter.line());
    }
    text
}

/// Runs `palisade ls [PATTERN]`.
///
/// # Errors
///
/// Too few nodes can be asked. If only some masters of clusters cannot be asked, the locks of the others are printed all the same.
pub async fn list(nodes: &Nodes, pattern: &[u8], limit: usize, as_json: bool) -> Result<End, Failure> {
    let Listed { views, more, unsure, is_whole } = locks(nodes, pattern, limit, None).await?;
    print(as_json, &views, || rows(&views, nodes))?;
    if !unsure.is_empty() && is_whole.is_ok() {
        print_message(&unsure);
    }
    if more > 0 {
        print_message(&format!("{more} more: say --limit {}", limit + more));
    }
    is_whole.map(|()| End::OK)
}

/// Returns locks as a table, one per row.
pub fn rows(views: &[LockView], nodes: &Nodes) -> String {
    let shows_servers = nodes.has_many_servers();
    let row = |view: &LockView| {
        let mut row = vec![
            printable(view.key.as_bytes()),
            view.first.token.to_string(),
            view.mode(),
            time(view.first.held_ms),
            time(view.first.ttl_ms),
            view.waiters.to_string(),
            format!("{}/{}", view.first.nodes, nodes.len()),
            view.holder_name(),
        ];
        if shows_servers {
            row.push(view.servers.join(", "));
        }
        row
    };
    let mut headings = vec!["KEY", "TOKEN", "MODE", "HELD", "LEASE", "WAITERS", "NODES", "HOLDER"];
    if shows_servers {
        headings.push("AT");
    }
    table(&headings, &[5], views.iter().map(row))
}

/// The locks found on all nodes.
pub struct Listed {
    /// The first locks found, in the order of their names.
    pub views: Vec<LockView>,
    /// The number of locks found beyond those in `views`.
    pub more: usize,
    /// The servers that may have more locks, and why; empty if there are none.
    pub unsure: String,
    /// An error if some masters of clusters could not be asked, so that their locks may be missing.
    pub is_whole: Result<(), Failure>,
}

/// Returns the first `limit` matching locks, in the order of their names. On each server, only the first `most` keys are inspected.
///
/// # Errors
///
/// Too few nodes can be asked.
pub async fn locks(nodes: &Nodes, pattern: &[u8], limit: usize, most: Option<usize>) -> Result<Listed, Failure> {
    let scanned = nodes.of_each(async |mut link: ServerLink| {
        let keys = names(&mut link, pattern, most).await?;
        Ok((link, keys))
    });
    let scanned = scanned.await;
    nodes.need_majority(&scanned)?;
    let is_whole = nodes.need_whole_majority(&scanned);
    let empty: Vec<_> = scanned.iter().map(|said| said.as_ref().map(|(link, _)| Reply::empty(link))).collect();
    let unsure = line(unsure(None, &empty), nodes.len());
    let keys: BTreeSet<&Vec<u8>> = answers(&scanned).flat_map(|(_, keys)| keys).collect();
    let more = keys.len().saturating_sub(limit);
    let keys: Vec<&[u8]> = keys.into_iter().take(limit).map(Vec::as_slice).collect();
    let mut links: Vec<ServerLink> = answers(&scanned).map(|(link, _)| link.clone()).collect();
    let mut views = vec![];
    for batch in keys.chunks(BATCH) {
        let mut told = Nodes::ask_over(&mut links, batch, question).await;
        // For locks with several holders, which are few, the nodes are asked again for all holders.
        let joint = |n: &usize| answers(&told[*n]).any(is_joint);
        let joint: Vec<usize> = (0..batch.len()).filter(joint).collect();
        let of_joint: Vec<&[u8]> = joint.iter().map(|&n| batch[n]).collect();
        for (n, said) in joint.into_iter().zip(Nodes::ask_over(&mut links, &of_joint, question_of_all).await) {
            told[n] = said;
        }
        views.extend(batch.iter().zip(told).filter_map(|(key, said)| LockView::from_answers(nodes, key, &said)));
    }
    Ok(Listed { views, more, unsure, is_whole })
}

/// Returns the names of a node's locks.
async fn names(link: &mut ServerLink, pattern: &[u8], most: Option<usize>) -> Result<BTreeSet<Vec<u8>>, Why> {
    let mut keys = BTreeSet::new();
    let mut cursor = scan::START.to_owned();
    loop {
        let (next, found) = scan::step(link, &cursor, pattern, "redislock").await?;
        keys.extend(found);
        if next == scan::START || most.is_some_and(|most| keys.len() >= most) {
            return Ok(keys);
        }
        cursor = next;
    }
}

/// Asks for confirmation; without a terminal, `--yes` is required.
///
/// # Errors
///
/// The answer is no.
pub fn ask(text: &str, question: &str) -> Result<(), Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::usage("nobody is there to be asked: say --yes"));
    }
    print_message(text);
    let _ = write!(stderr(), "{} [y/N] ", printable(question.as_bytes()));
    let mut answer = String::new();
    let _ = stdin().lock().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(Failure::usage("nothing was done")) }
}
