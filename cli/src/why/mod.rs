//! `palisade why`: asks all nodes why a lock is not granted, and prints the [`diagnosis`] with what to do.

mod diagnosis;
mod facts;

use std::collections::HashMap;

use futures_util::future::join3;
use jiff::tz::TimeZone;
use palisade_client::direct::ServerLink;
use serde::Serialize;

use self::diagnosis::{Diagnosis, diagnose};
use self::facts::{Facts, NodeFacts, NodeSaid};
use crate::clock;
use crate::exit::{End, Failure};
use crate::fields::Fields;
use crate::info::Info;
use crate::lock_log::{Event, Logs};
use crate::lock_view::{GrantView, Together, Waiter, hex, question_of_all};
use crate::nodes::{self, Nodes, Reply, answers};
use crate::refusing::Refusing;
use crate::show::print;

/// The number of recent entries of the nodes' logs that are shown.
const EVENTS: usize = 3;

/// The JSON output of `palisade why`.
#[derive(Serialize)]
struct WhyOutput<'a> {
    key: &'a str,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    holders: u64,
    grants: &'a [GrantView],
    waiters: u64,
    waiters_behind: u64,
    queue: &'a [Waiter],
    log: &'a [Event],
}

/// Asks the nodes, and explains.
///
/// # Errors
///
/// Too few nodes can be asked, which the output explains all the same.
pub async fn run(nodes: &Nodes, key: &[u8], as_json: bool) -> Result<End, Failure> {
    let question = question_of_all(key);
    let logs = Logs::ask(nodes, Some(key), EVENTS);
    let (replies, logs, states) = join3(nodes.ask_about(key, &question), logs, server_states(nodes)).await;
    let said = |said: &nodes::ServerAnswer<Reply>| {
        let (guarded_slots, refusing) = states.get(&said.server).cloned().unwrap_or_default();
        let told = |reply| NodeFacts { guarded_slots, refusing, ..node_facts(reply) };
        NodeSaid { name: said.server.clone(), told: said.said.as_ref().map(told).map_err(Clone::clone) }
    };
    let together = Together::of(answers(&replies).map(|reply| reply.value.clone()), nodes.majority());
    let logs = logs.without_waits_of(&together);
    let facts = Facts {
        key: String::from_utf8_lossy(key).into_owned(),
        nodes: replies.iter().map(said).collect(),
        together,
        log_untold: logs.untold(nodes, |number| replies.iter().any(|said| said.number == number && said.said.is_ok())),
        log: logs.events,
        now_ms: clock::wall_ms(),
        zone: TimeZone::system(),
    };
    let diagnosis = diagnose(&facts);
    let Together { grants, queue, .. } = &facts.together;
    let Together { holders, waiters, waiters_behind, .. } = facts.together;
    let (key, log) = (&facts.key, &facts.log);
    let said = WhyOutput { key, diagnosis: &diagnosis, holders, grants, waiters, waiters_behind, queue, log };
    print(as_json, &said, || text(&diagnosis))?;
    // The output has explained the nodes' problems already, so the failure has no text.
    nodes.need_majority(&replies).map_err(|failure| Failure::new(failure.code, "")).map(|()| End::OK)
}

/// Returns of each server how many slots are guarded, and why it refuses every lock. A server whose INFO cannot be read
/// is left out.
async fn server_states(nodes: &Nodes) -> HashMap<String, (u64, Option<Refusing>)> {
    let asked = nodes.of_each(async |mut link: ServerLink| {
        let info = Info::ask(&mut link).await?;
        let refusing = Refusing::ask(&mut link, &info).await;
        Ok((info.number("lock_guarded_slots"), refusing))
    });
    asked.await.into_iter().filter_map(|said| Some((said.server, said.said.ok()?))).collect()
}

/// Returns the facts in one node's reply.
fn node_facts(reply: &Reply) -> NodeFacts {
    let fields = Fields::of(reply.value.clone()).unwrap_or_default();
    let there = Together::of([reply.value.clone()], 1);
    let kept_ms: u64 = fields.get("reserved_ms");
    let owner = hex(&fields.get::<Vec<u8>>("reserved"));
    NodeFacts {
        guard: reply.guard.clone(),
        grants: there.grants.len(),
        lease_ms: there.grants.iter().map(|grant| grant.ttl_ms).max().unwrap_or(0),
        guarded_slots: 0,
        refusing: None,
        kept: (!owner.is_empty()).then_some((owner, kept_ms)),
    }
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut text = format!("{}\n", diagnosis.summary);
    for finding in &diagnosis.findings {
        text += &format!("  {:<9}{}\n", finding.about, finding.found);
    }
    text + &format!("  {:<9}{}\n", "to do", diagnosis.advice)
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    #[test]
    fn a_node_that_has_nothing() {
        let told = node_facts(&Reply { value: Value::Nil, guard: Some((5, "operator".to_owned())) });
        assert_eq!((told.guard.is_some(), told.grants, told.kept), (true, 0, None));
    }
}
