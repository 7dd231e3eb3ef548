//! The sections of INFO that show the node's state to people and monitors.

use std::ffi::CStr;

use palisade_core::{Figures, Gate, IncarnationId, Lock, Times, escape};

use crate::driver::{pass, propagation};
use crate::durability::incarnation;
use crate::ffi::{Field, InfoSection, in_memory, is_poisoned};
use crate::{clock, config, state};

/// The module's sections of INFO.
pub struct Section;

impl InfoSection for Section {
    const LISTED: &'static CStr = c"prefixes";

    fn fields() -> Vec<(&'static CStr, Field)> {
        let now = clock::boot_now();
        let number = |value: u64| Field::Number(value);
        let failing = incarnation::with(|incarnation| incarnation.failing);
        state::with(|node| {
            let counters = &node.counters();
            let IncarnationId { node: id, number: incarnation } = node.ledger().incarnation();
            let armed = node.guard().armed(now);
            vec![
                (c"held", number(in_memory::<Lock>() as u64)),
                (c"gates", number(in_memory::<Gate>() as u64)),
                (c"gate_passes", number(counters.gate_passes)),
                (c"gate_refusals", number(counters.gate_refusals)),
                (c"grants", number(counters.grants)),
                (c"shared_grants", number(counters.shared_grants)),
                (c"permit_grants", number(counters.permit_grants)),
                (c"conversions", number(counters.conversions)),
                (c"notes", number(counters.notes)),
                (c"contended", number(counters.contended)),
                (c"releases", number(counters.releases)),
                (c"expiries", number(counters.expiries)),
                (c"breaks", number(counters.breaks)),
                (c"extensions", number(counters.extensions)),
                (c"reentries", number(counters.reentries)),
                (c"keepalives", number(node.keepalives().len() as u64)),
                (c"renewals", number(counters.renewals)),
                (c"waiters", number(node.waiting().len() as u64)),
                (c"max_waiters", number(config::max_waiters().into())),
                (c"waiters_most", number(node.waiting().most() as u64)),
                (c"waiting_bytes", number(node.load().bytes)),
                (c"max_waiting_bytes", number(config::max_waiting_bytes())),
                (c"listeners", number(node.listeners().len() as u64)),
                (c"waiters_heard", number(node.listeners().requests() as u64)),
                (c"watchers", number(node.watching().len() as u64)),
                (c"hand_overs", number(counters.hand_overs)),
                (c"turns", number(counters.turns)),
                (c"wait_timeouts", number(node.waiting().timeouts())),
                (c"answers_most", number(pass::most_answered() as u64)),
                (c"wait_p50_us", number(node.waiting().waits.quantile_us(0.5))),
                (c"wait_p99_us", number(node.waiting().waits.quantile_us(0.99))),
                (c"wait_max_us", number(node.waiting().waits.quantile_us(1.0))),
                (c"log_len", number(node.history().log().len() as u64)),
                (c"token_high", number(node.tokens().high())),
                (c"token_floor", number(node.tokens().floor())),
                (c"token_ceiling", number(node.tokens().ceiling())),
                (c"deadlines", number(node.deadlines().len() as u64)),
                (c"propagates", number((!propagation::has_no_receiver()).into())),
                (c"max_ttl_ms", number(config::max_ttl_ms().into())),
                (c"outstanding_ttl_ms", number(node.ledger().outstanding_ttl().ms(now).into())),
                (c"state", Field::Word(if armed.is_some() { "guarded" } else { "serving" }.to_owned())),
                (c"guard_ms", number(node.guard().left_ms(now))),
                (c"guard_reason", Field::Word(armed.map_or("", |armed| armed.cause.word()).to_owned())),
                (c"guarded_slots", number(node.slots().guarded(now) as u64)),
                (c"evicted", number(node.evicted().len() as u64)),
                (c"node_id", Field::Word(format!("{id:032x}"))),
                (c"incarnation", number(incarnation)),
                (c"state_file_failing", number(failing.into())),
                (c"poisoned", number(is_poisoned().into())),
            ]
        })
    }

    fn listed() -> Vec<(String, String)> {
        state::with(|node| {
            let prefixes = node.history().prefixes();
            if prefixes.is_empty() {
                return vec![];
            }
            let row = |(n, (prefix, of)): (usize, (&[u8], &Figures))| {
                (format!("prefix_{}", n + 1), format!("prefix={},{}", escape(prefix), figures(of)))
            };
            let other = ("prefix_other".to_owned(), figures(prefixes.other()));
            prefixes.rows().enumerate().map(row).chain([other]).collect()
        })
    }
}

/// Formats the figures of one key prefix, as the server writes such lists: `name=value,…`.
fn figures(of: &Figures) -> String {
    let times = |kind: &str, times: &Times| {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| times.quantile_us(share));
        format!("{kind}_p50_us={p50},{kind}_p99_us={p99},{kind}_max_us={max}")
    };
    let Figures { grants, contended, waits, held } = of;
    format!(
        "grants={grants},contended={contended},waits={},{},ends={},{}",
        waits.count(),
        times("wait", waits),
        held.count(),
        times("held", held),
    )
}
