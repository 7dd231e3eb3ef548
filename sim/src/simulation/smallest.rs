//! Reduces a failing plan as long as it still breaks the same law.

use super::kinds::Kind;
use super::plan::{Network, Plan};
use super::run::run;
use crate::rules::Without;
use crate::single_client::FIRST;

/// Returns the smallest plan found that breaks the same law as `plan`. The search removes parts of the plan and
/// shortens it. Returns `plan` itself if it breaks no law.
pub fn smallest(plan: &Plan, without: Without) -> Plan {
    let Some(law) = run(plan, without).1.map(|failure| failure.law()) else { return plan.clone() };
    let fails = |plan: &Plan| run(plan, without).1.is_some_and(|failure| failure.law() == law);
    let mut best = plan.clone();
    loop {
        let before = best.clone();
        for smaller in [calm, one_key, short] {
            let candidate = smaller(&best);
            if candidate != best && fails(&candidate) {
                best = candidate;
            }
        }
        leave_out_faults(&mut best, &fails);
        let fewer: [fn(&mut Plan) -> bool; 2] =
            [|plan| plan.clients.len() > 1 && plan.clients.pop().is_some(), |plan| plan.single_clients.pop().is_some()];
        for leave_one_out in fewer {
            let mut smaller = best.clone();
            while leave_one_out(&mut smaller) && names_only_those_there(&smaller) && fails(&smaller) {
                best = smaller.clone();
            }
        }
        if best == before {
            return best;
        }
    }
}

/// Removes faults, many at once at first.
fn leave_out_faults(best: &mut Plan, fails: &impl Fn(&Plan) -> bool) {
    let mut size = best.faults.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        while from < best.faults.len() {
            let mut fewer = best.clone();
            fewer.faults.drain(from..(from + size).min(best.faults.len()));
            if fails(&fewer) {
                *best = fewer;
            } else {
                from += size;
            }
        }
        size /= 2;
    }
}

fn calm(plan: &Plan) -> Plan {
    let network = Network { slow_permille: 0, lost_permille: 0, doubled_permille: 0, ..plan.network };
    Plan { network, ..plan.clone() }
}

fn one_key(plan: &Plan) -> Plan {
    Plan { keys: 1, ..plan.clone() }
}

fn short(plan: &Plan) -> Plan {
    Plan { until: plan.until / 2, ..plan.clone() }
}

fn names_only_those_there(plan: &Plan) -> bool {
    let there = |client: usize| match client.checked_sub(FIRST as usize) {
        Some(place) => place < plan.single_clients.len(),
        None => client < plan.clients.len(),
    };
    plan.alias.is_none_or(|(client, ..)| there(client))
        && plan.faults.iter().all(|fault| match fault.kind {
            Kind::PauseClient { client }
            | Kind::LateAnswers { client, .. }
            | Kind::KillClient { client }
            | Kind::ClientClockStep { client, .. } => there(client),
            Kind::Cut { client: Some(client), .. } => there(client),
            _ => true,
        })
}
