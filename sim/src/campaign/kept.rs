//! Judges the promises of KEEPALIVE. While the connection is open and no fault affects the node, a lease does not end
//! before its KEEPALIVE does. When the connection closes, the lease ends too.

use std::collections::BTreeMap;

use super::faults::{Fault, On, Wrong};
use super::journal::{Ended, KeptLease, Line};

use crate::history::{Holder, TimeUs};

/// The most by which the recorded times of a fault may differ from those of its effect, in microseconds.
const NEAR_US: u64 = 200_000;

/// The time by which a lease may end too early, in microseconds: nodes count in milliseconds.
const ROUNDED_US: u64 = 2_000;

/// Faults of a node, its links or a client that do not excuse a lost lease.
const HARMLESS: [&str; 6] = ["wall clock stepped", "BGSAVE", "BGREWRITEAOF", "CONFIG SET", "delay", "client stopped"];

/// The result of all kept leases.
#[derive(Clone, Debug, Default)]
pub struct KeptLeases {
    /// The number of kept leases.
    pub kept: usize,
    /// Leases whose node and connection were affected by no fault, so that they had to last.
    pub judged: usize,
    /// Judged leases that were held for longer than their ttl.
    pub prolonged: usize,
    /// Leases whose connection closed, and which no fault affected until they ended.
    pub left: usize,
    /// The findings: kept leases that ended too early or too late.
    pub wrong: Vec<Wrong>,
}

/// Judges all kept leases. `lives` has the client of each life (a run of a client process from its start to its end),
/// from life 1 on.
pub fn judge(lines: &[Line], faults: &[Fault], lives: &[usize]) -> KeptLeases {
    let kept = lines.iter().filter_map(|line| if let Line::Kept(kept) = line { Some(*kept) } else { None });
    let ends: BTreeMap<Holder, (TimeUs, Ended)> = lines
        .iter()
        .filter_map(|line| if let Line::KeptEnded { at, who, how } = line { Some((*who, (*at, *how))) } else { None })
        .collect();
    let mut all = KeptLeases::default();
    for kept in kept {
        all.kept += 1;
        // A killed process records no end: its connection closed with it.
        let Some(&(at, how)) = ends.get(&kept.who) else { continue };
        let client = lives.get(kept.who.client as usize - 1).copied().unwrap_or(usize::MAX);
        if how == Ended::Unknown || faults.iter().any(|fault| is_done_to(fault, &kept, client, at)) {
            continue;
        }
        let mut is_wrong = |what: &str| {
            let KeptLease { who, node, ttl_ms, until, since, .. } = kept;
            let what = format!(
                "KEEPALIVE: {who} {what}, on node {}, ttl {ttl_ms} ms, asked at {since}, for until {until}, found at {at}",
                node + 1
            );
            all.wrong.push(Wrong { at, key: None, what });
        };
        match how {
            Ended::Lost if at + ROUNDED_US < kept.until => is_wrong("lost a lease whose connection was open"),
            Ended::LeftAndHeld => is_wrong("still has a lease whose connection has ended"),
            _ => {}
        }
        all.left += usize::from(how == Ended::LeftAndOver);
        all.judged += 1;
        all.prolonged += usize::from(at > kept.at + kept.ttl_ms * 1_000);
    }
    all
}

/// Returns true if a fault affected the node or the connection of this lease before `at`.
fn is_done_to(fault: &Fault, kept: &KeptLease, client: usize, at: TimeUs) -> bool {
    let is_near = match fault.on {
        On::Node(node) => node == kept.node,
        On::Client(of) => of == client,
        On::Link { client: of, node } => of == client && node == kept.node,
        On::AllNodes => true,
        On::Agent(_) | On::Others => false,
    };
    let is_then = fault.from < at + NEAR_US && fault.until.is_none_or(|until| until + NEAR_US > kept.since);
    is_near && is_then && !HARMLESS.contains(&fault.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Holder = Holder { client: 1, acquisition: 3 };

    fn judged(at: TimeUs, how: Ended, faults: &[Fault]) -> (usize, usize) {
        let kept = KeptLease { since: 1_000_000, at: 1_001_000, node: 2, who: WHO, ttl_ms: 1_000, until: 6_000_000 };
        let all = judge(&[Line::Kept(kept), Line::KeptEnded { at, who: WHO, how }], faults, &[0]);
        (all.judged, all.wrong.len())
    }

    fn fault(kind: &'static str, on: On, from: TimeUs) -> Fault {
        Fault { kind, on, from, until: Some(from + 10), note: String::new() }
    }

    #[test]
    fn what_is_lost_too_early_or_kept_too_long_is_found_unless_something_was_done() {
        assert_eq!(judged(5_000_000, Ended::Released, &[]), (1, 0));
        assert_eq!(judged(5_000_000, Ended::Lost, &[]), (1, 1));
        assert_eq!(judged(6_000_100, Ended::Lost, &[]), (1, 0), "KEEPALIVE is over");
        assert_eq!(judged(5_000_000, Ended::LeftAndHeld, &[]), (1, 1));
        assert_eq!(judged(5_000_000, Ended::Unknown, &[]), (0, 0));
        let excuses = [
            (fault("FLUSHALL", On::Node(2), 4_000_000), 0),
            (fault("FLUSHALL", On::Node(1), 4_000_000), 1),
            (fault("FLUSHALL", On::Node(2), 700_000), 1),
            (fault("wall clock stepped", On::Node(2), 4_000_000), 1),
            (fault("client stopped", On::Client(0), 4_000_000), 1),
            (fault("connections cut", On::Link { client: 0, node: 2 }, 4_000_000), 0),
            (fault("connections cut", On::Link { client: 1, node: 2 }, 4_000_000), 1),
        ];
        for (fault, wrong) in excuses {
            assert_eq!(judged(5_000_000, Ended::Lost, std::slice::from_ref(&fault)), (wrong, wrong), "{fault:?}");
        }
    }
}
