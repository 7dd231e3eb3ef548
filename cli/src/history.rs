//! `palisade history`: grants and failed waits, as recorded in the nodes' logs.

use jiff::tz::TimeZone;

use crate::clock;
use crate::exit::{End, Failure};
use crate::lock_log::{Event, Logs};
use crate::lock_view::{GrantView, Together, question_of_all};
use crate::moment;
use crate::nodes::{Nodes, answers};
use crate::show::{print, print_message, table, time};

/// The word shown for a grant that has not ended.
const HELD: &str = "held";

/// Runs `palisade history [KEY]`.
///
/// # Errors
/// Too few nodes can be asked.
pub async fn run(nodes: &Nodes, key: Option<&[u8]>, limit: usize, as_json: bool) -> Result<End, Failure> {
    let mut logs = Logs::ask(nodes, key, limit).await;
    nodes.need_majority(&logs.told)?;
    let mut events = vec![];
    if let Some(key) = key {
        let replies = nodes.ask_about(key, &question_of_all(key)).await;
        let together = Together::of(answers(&replies).map(|reply| reply.value.clone()), nodes.majority());
        events = held(&String::from_utf8_lossy(key), &together, clock::wall_ms());
        logs = logs.without_waits_of(&together);
    }
    events.extend(logs.events.iter().cloned());
    events.truncate(limit);
    print(as_json, &events, || rows(&events, nodes.len(), &TimeZone::system()))?;
    let untold = logs.untold(nodes, |_| true);
    if !untold.is_empty() {
        print_message(&untold);
    }
    Ok(End::OK)
}

/// Returns the current holders, in the form of events.
fn held(key: &str, together: &Together, now_ms: u64) -> Vec<Event> {
    let grants = together.grants.iter().filter(|grant| grant.is_held);
    let event = |grant: &GrantView| Event {
        key: key.to_owned(),
        from_ms: now_ms.saturating_sub(grant.held_ms),
        to_ms: now_ms,
        holder: grant.holder.clone(),
        owner: grant.owner.clone(),
        token: grant.token,
        mode: grant.mode.clone(),
        permit: grant.permit.unwrap_or(0),
        limit: grant.limit.unwrap_or(0),
        held_ms: grant.held_ms,
        ended: HELD.to_owned(),
        waiters: together.waiters,
        nodes: grant.nodes,
        ..Event::default()
    };
    grants.map(event).collect()
}

fn rows(events: &[Event], nodes: usize, zone: &TimeZone) -> String {
    let row = |event: &Event| {
        let grant = |text: String| if event.token == 0 { "-".to_owned() } else { text };
        vec![
            moment::local(event.from_ms, zone),
            if event.ended == HELD { "now".to_owned() } else { moment::local(event.to_ms, zone) },
            event.key.clone(),
            event.ending(),
            time(event.waited_ms),
            grant(time(event.held_ms)),
            grant(event.token.to_string()),
            event.mode(),
            format!("{}/{nodes}", event.nodes),
            event.name(),
        ]
    };
    let headings = ["FROM", "TO", "KEY", "ENDED", "WAITED", "HELD", "TOKEN", "MODE", "NODES", "HOLDER"];
    table(&headings, &[], events.iter().map(row))
}
