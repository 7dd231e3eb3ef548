//! `palisade info` and `ls`: locks as an operator sees them.

use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use futures_util::future::join_all;
use redis::{FromRedisValue, Value, cmd};

use crate::exit::{End, Failure, NO_QUORUM};
use crate::lock_view::{EXCLUSIVE, LockView, is_joint, question, question_of_all};
use crate::node_failure::{NodeFailure, line};
use crate::nodes::{Link, Node, Nodes, Reply};
use crate::show::{json, out, printable, table, tell, time};

/// Keys that a node looks at in one step of SCAN: a millisecond's work.
const SCAN_COUNT: usize = 1_000;

/// Locks that are asked about at once.
const BATCH: usize = 500;

/// `palisade info KEY`
///
/// # Errors
/// Too few nodes can be asked, or may have forgotten who holds it.
pub async fn info(nodes: &Nodes, key: &[u8], as_json: bool) -> Result<End, Failure> {
    let (view, replies) = LockView::ask(nodes, key).await;
    nodes.need_majority(&replies)?;
    let unknown = unknown(nodes, key, view.as_ref(), &replies);
    match (&view, &unknown) {
        (None, Some(_)) => {}
        _ if as_json => json(&view)?,
        (None, None) => out(&format!("{} is free\n", printable(key)))?,
        (Some(view), _) => out(&describe(view, nodes, unknown.is_some()))?,
    }
    unknown.map_or(Ok(End::OK), Err)
}

/// That nobody can know whether the lock is held, if so: those that hold it, together with the nodes that do not answer and
/// those that may have forgotten it, may be a majority.
pub fn unknown(
    nodes: &Nodes,
    key: &[u8],
    view: Option<&LockView>,
    replies: &[Result<Reply, NodeFailure>],
) -> Option<Failure> {
    let why = |reply: &Result<Reply, NodeFailure>| match reply {
        Ok(Reply { value: Value::Nil, guard: Some((ms, reason)) }) => {
            Some(format!("guarded for {} ({reason}), it may have forgotten the lock", time(*ms)))
        }
        Ok(_) => None,
        Err(failure) => Some(failure.with_remedy()),
    };
    let named = nodes.list.iter().zip(replies);
    let whys: Vec<(&str, String)> = named.filter_map(|(node, reply)| Some((node.name.as_str(), why(reply)?))).collect();
    let holding = view.map_or(0, |view| view.first.nodes);
    if holding >= nodes.majority() || holding + whys.len() < nodes.majority() {
        return None;
    }
    let text = format!("whether {} is free cannot be known now: {}", printable(key), line(whys, nodes.len()));
    Some(Failure::new(NO_QUORUM, text))
}

fn describe(view: &LockView, nodes: &Nodes, may_be_held: bool) -> String {
    let mut text = format!("{} is {}\n", printable(view.key.as_bytes()), view.holder_line());
    let mut line = |name: &str, value: String| text += &format!("  {name:<9}{value}\n");
    let first = &view.first;
    line("token", first.token.to_string());
    line("lease", format!("{} left, unless it is extended", time(first.ttl_ms)));
    let on = format!("{} of {}", first.nodes, nodes.len());
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

/// `palisade ls [PATTERN]`
///
/// # Errors
/// Too few nodes can be asked.
pub async fn list(nodes: &Nodes, pattern: &[u8], limit: usize, as_json: bool) -> Result<End, Failure> {
    let (views, more) = locks(nodes, pattern, limit, None).await?;
    if as_json {
        json(&views)?;
    } else {
        out(&rows(&views, nodes))?;
    }
    if more > 0 {
        tell(&format!("{more} more: say --limit {}", limit + more));
    }
    Ok(End::OK)
}

/// Locks as a table, one a row.
pub fn rows(views: &[LockView], nodes: &Nodes) -> String {
    let row = |view: &LockView| {
        vec![
            printable(view.key.as_bytes()),
            view.first.token.to_string(),
            view.mode(),
            time(view.first.held_ms),
            time(view.first.ttl_ms),
            view.waiters.to_string(),
            format!("{}/{}", view.first.nodes, nodes.len()),
            view.holder_name(),
        ]
    };
    table(&["KEY", "TOKEN", "MODE", "HELD", "LEASE", "WAITERS", "NODES", "HOLDER"], &[5], views.iter().map(row))
}

/// The first `limit` locks by name that match, and how many more there are. Of each node, no more than the first `most` keys
/// are looked at.
///
/// # Errors
/// Too few nodes can be asked.
pub async fn locks(
    nodes: &Nodes,
    pattern: &[u8],
    limit: usize,
    most: Option<usize>,
) -> Result<(Vec<LockView>, usize), Failure> {
    let links = join_all(nodes.list.iter().map(Node::connect)).await;
    let scanned = join_all(links.into_iter().map(|link| async {
        let mut link = link?;
        let keys = scan(&mut link, pattern, most).await?;
        Ok::<_, NodeFailure>((link, keys))
    }))
    .await;
    nodes.need_majority(&scanned)?;
    let mut scanned: Vec<(Link, BTreeSet<Vec<u8>>)> = scanned.into_iter().flatten().collect();
    let keys: BTreeSet<&Vec<u8>> = scanned.iter().flat_map(|(_, keys)| keys).collect();
    let more = keys.len().saturating_sub(limit);
    let keys: Vec<Vec<u8>> = keys.into_iter().take(limit).cloned().collect();
    let mut views = vec![];
    for batch in keys.chunks(BATCH) {
        let asked = scanned.iter_mut().map(|(link, _)| link.ask_many(batch.iter().map(|key| question(key))));
        let mut replies: Vec<Vec<Value>> = join_all(asked).await.into_iter().flatten().collect();
        // Those that several hold are asked about once more: most are not.
        let joint = |n: &usize| replies.iter().any(|replies| is_joint(&replies[*n]));
        let joint: Vec<usize> = (0..batch.len()).filter(joint).collect();
        if !joint.is_empty() {
            let question = |n: &usize| question_of_all(&batch[*n]);
            let asked = scanned.iter_mut().map(|(link, _)| link.ask_many(joint.iter().map(question)));
            let told: Vec<Vec<Value>> = join_all(asked).await.into_iter().flatten().collect();
            for (at, n) in joint.iter().enumerate() {
                replies.iter_mut().zip(&told).for_each(|(replies, told)| replies[*n] = told[at].clone());
            }
        }
        for (n, key) in batch.iter().enumerate() {
            views.extend(LockView::of(key, replies.iter().map(|replies| replies[n].clone()), nodes.majority()));
        }
    }
    Ok((views, more))
}

/// The names of a node's locks.
async fn scan(link: &mut Link, pattern: &[u8], most: Option<usize>) -> Result<BTreeSet<Vec<u8>>, NodeFailure> {
    let mut keys = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg("redislock");
        let reply = link.ask(&scan).await?;
        let (next, found): (String, Vec<Vec<u8>>) =
            FromRedisValue::from_redis_value(reply).map_err(|why| NodeFailure::strange("SCAN", why))?;
        keys.extend(found);
        if next == "0" || most.is_some_and(|most| keys.len() >= most) {
            return Ok(keys);
        }
        cursor = next;
    }
}

/// Asks the person; without one at the terminal `--yes` has to be said.
///
/// # Errors
/// The answer is no.
pub fn ask(text: &str, question: &str) -> Result<(), Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::usage("nobody is there to be asked: say --yes"));
    }
    tell(text);
    let _ = write!(stderr(), "{} [y/N] ", printable(question.as_bytes()));
    let mut answer = String::new();
    let _ = stdin().lock().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(Failure::usage("nothing was done")) }
}
