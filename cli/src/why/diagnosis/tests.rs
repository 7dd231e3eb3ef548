//! Tests of each reason separately.

use std::collections::HashMap;

use jiff::tz::TimeZone;
use palisade_client::Why;

use super::*;
use crate::info::Info;
use crate::lock_log::Event;
use crate::lock_view::{Together, Waiter};
use crate::refusing::Refusing;
use crate::why::facts::NodeSaid;

fn grant(holder: &str, nodes: usize, ttl_ms: u64) -> GrantView {
    let (holder, mode) = (holder.to_owned(), EXCLUSIVE.to_owned());
    GrantView { holder, mode, nodes, ttl_ms, token: 7, held_ms: 90_000, is_held: nodes >= 3, ..GrantView::default() }
}

/// Returns the answers of five nodes that serve, and have no lock.
fn idle() -> Facts {
    let node = |n| NodeSaid { name: format!("n{n}"), told: Ok(NodeFacts::default()) };
    Facts {
        key: "k".to_owned(),
        nodes: (1..=5).map(node).collect(),
        together: Together::default(),
        log: vec![],
        log_untold: String::new(),
        now_ms: 1_795_396_387_000,
        zone: TimeZone::UTC,
    }
}

/// Returns the answers for a lock with these holders: the first one on the first nodes, and so on.
fn held(grants: &[GrantView]) -> Facts {
    let mut facts = idle();
    let mut free = facts.nodes.iter_mut();
    for grant in grants {
        for node in free.by_ref().take(grant.nodes) {
            node.told = Ok(NodeFacts { grants: 1, lease_ms: grant.ttl_ms, ..NodeFacts::default() });
        }
    }
    facts.together.grants = grants.to_vec();
    facts.together.holders = 1;
    facts
}

/// Returns `facts` after this change.
fn but(mut facts: Facts, change: impl Fn(&mut Facts)) -> Facts {
    change(&mut facts);
    facts
}

fn guarded(facts: &mut Facts, guards: &[(usize, u64)]) {
    for (n, ms) in guards {
        if let Ok(told) = &mut facts.nodes[*n].told {
            told.guard = Some((*ms, "restart".to_owned()));
        }
    }
}

/// Returns the answer of a node whose memory is full.
fn full() -> NodeFacts {
    let info = Info::of("maxmemory:1\nused_memory:2\nmaxmemory_policy:noeviction");
    NodeFacts { refusing: Refusing::of(&info, &HashMap::new()), ..NodeFacts::default() }
}

fn silent(facts: &mut Facts, failure: &Why, nodes: std::ops::Range<usize>) {
    facts.nodes[nodes].iter_mut().for_each(|node| node.told = Err(failure.clone()));
}

fn ended(ended: &str, held_ms: u64) -> Event {
    let (holder, ended) = ("web-1".to_owned(), ended.to_owned());
    Event { holder, ended, held_ms, token: 7, to_ms: 1_795_396_387_000, ..Event::default() }
}

#[test]
fn each_reason_has_its_state_and_its_advice() {
    let noperm = Why::answered("NOPERM", "this user …");
    let late = Why::late();
    let slots = NodeFacts { guarded_slots: 2, ..NodeFacts::default() };
    let cases: [(&str, Facts, State, &str, &str); 19] = [
        (
            "slots came without their locks",
            but(idle(), |facts| facts.nodes[0].told = Ok(slots.clone())),
            State::Free,
            "k is free",
            "Try to take it: if that is refused as guarded",
        ),
        ("nothing", idle(), State::Free, "k is free", "Take it; if a program does not get it"),
        (
            "one holds it",
            held(&[grant("web-1", 5, 8_000)]),
            State::Held,
            "k is held by web-1 for 1m 30s",
            "Ask web-1 what it does: if it hangs, `palisade break k` takes the lock away; if it is dead, the lock is free in 8s",
        ),
        (
            "one node away does not matter",
            but(held(&[grant("web-1", 3, 8_000)]), |facts| silent(facts, &late, 3..5)),
            State::Held,
            "k is held by web-1 for 1m 30s",
            "Ask web-1",
        ),
        (
            "readers",
            held(&[GrantView { mode: "shared".to_owned(), ..grant("web-1", 5, 8_000) }]),
            State::Held,
            "k is held by web-1 (shared 1) for 1m 30s",
            "Ask web-1 (the oldest of them) what it does: if it hangs, `palisade break k --token 7`",
        ),
        (
            "nobody vouches for it",
            held(&[GrantView { suspect: 5, ..grant("web-1", 5, 8_000) }]),
            State::Held,
            "k is held by web-1",
            "Wait 8s: the nodes cannot vouch for it",
        ),
        (
            "a herd",
            but(held(&[grant("web-1", 5, 8_000)]), |facts| {
                facts.together.waiters = 10_000;
                facts.log = vec![ended("released", 2_000), ended("released", 4_000)];
            }),
            State::Held,
            "k is held by web-1",
            "Hold it shorter, or split it into several keys: 10000 wait, and each gets it only when all before it are done, at 3s each of late.",
        ),
        (
            "two owners",
            held(&[grant("web-1", 2, 4_000), grant("web-2", 2, 9_000)]),
            State::Split,
            "k is held by nobody: the nodes hold 2 grants that no majority confirmed; the last of them ends in 9s; until enough of them end, nobody can have the lock",
            "Wait 4s, until enough of these leases have ended",
        ),
        (
            "three owners, and one node is needed of each of two",
            held(&[grant("web-1", 2, 4_000), grant("web-2", 2, 9_000), grant("web-3", 1, 1_000)]),
            State::Split,
            "k is held by nobody",
            "Wait 4s",
        ),
        (
            "a minority keeps nobody out",
            held(&[grant("web-1", 2, 4_000)]),
            State::Free,
            "k is held by nobody: 2 of 5 nodes hold a grant that no majority confirmed; it ends in 4s",
            "Take it all the same: 3 of 5 nodes have no such grant, and 3 are needed.",
        ),
        (
            "a minority, and others that do not say",
            but(held(&[grant("web-1", 2, 4_000)]), |facts| silent(facts, &late, 4..5)),
            State::Unknown,
            "whether k is held cannot be known now: 2 of 5 nodes hold a grant of web-1, and 1 cannot say",
            "See to the nodes that cannot say; or wait 4s",
        ),
        (
            "a guarded majority",
            but(idle(), |facts| guarded(facts, &[(0, 50_000), (1, 20_000), (4, 30_000)])),
            State::Guarded,
            "k: 2 of 5 nodes grant, and 3 are needed",
            "Wait 20s, then a majority grants again",
        ),
        (
            "guards, and one node away",
            but(idle(), |facts| {
                guarded(facts, &[(0, 50_000), (1, 20_000)]);
                silent(facts, &late, 4..5);
            }),
            State::Guarded,
            "k: 2 of 5 nodes grant",
            "Wait 20s",
        ),
        (
            "held, and it cannot be extended",
            but(held(&[grant("web-1", 5, 8_000)]), |facts| guarded(facts, &[(0, 50_000), (1, 20_000), (4, 30_000)])),
            State::Guarded,
            "k is held by web-1 for 1m 30s: 2 of 5 nodes grant",
            "Wait 20s",
        ),
        (
            "full memory, and a guard",
            but(idle(), |facts| {
                guarded(facts, &[(0, 50_000)]);
                facts.nodes[1..4].iter_mut().for_each(|node| node.told = Ok(full()));
            }),
            State::Refusing,
            "k: 1 of 5 nodes grant, and 3 are needed",
            "On n2, n3, n4: raise maxmemory",
        ),
        (
            "full memory of one node",
            but(idle(), |facts| facts.nodes[1].told = Ok(full())),
            State::Free,
            "k is free",
            "Take it",
        ),
        (
            "an ACL",
            but(idle(), |facts| {
                silent(facts, &noperm, 0..3);
                silent(facts, &late, 3..4);
            }),
            State::Unreachable,
            "k: 1 of 5 nodes can be asked, and 3 are needed",
            "On n1, n2, n3: allow its user what it lacks (ACL SETUSER): docs/cli.md",
        ),
        (
            "kept",
            but(idle(), |facts| {
                facts.nodes[0].told = Ok(NodeFacts { kept: Some(("6f".to_owned(), 12)), ..NodeFacts::default() });
                facts.together.waiters = 2;
            }),
            State::Kept,
            "k is free, and kept for one who was told to take it",
            "Look again",
        ),
        (
            "on its way",
            but(idle(), |facts| facts.together.waiters = 2),
            State::Free,
            "k is free, and 2 wait for it",
            "Look again",
        ),
    ];
    for (name, facts, state, summary, advice) in cases {
        let found = diagnose(&facts);
        assert_eq!(found.state, state, "{name}: {found:?}");
        assert!(found.summary.starts_with(summary), "{name}: {found:?}");
        assert!(found.advice.starts_with(advice), "{name}: {found:?}");
    }
}

#[test]
fn what_to_repair_on_a_minority() {
    let mut facts = held(&[grant("web-1", 3, 8_000)]);
    silent(&mut facts, &Why::late(), 3..4);
    silent(&mut facts, &Why::NoModule, 4..5);
    let about_nodes = |facts: &Facts| {
        let findings = diagnose(facts).findings.into_iter().filter(|finding| finding.about == "node");
        findings.map(|finding| finding.found).collect::<Vec<_>>()
    };
    let told = about_nodes(&facts);
    assert!(told[0].starts_with("n4: it does not answer: bring it back, or replace it"), "{told:?}");
    assert!(told[1].contains(": load the module"), "{told:?}");
    // If a problem concerns a majority, the advice is given once, at the end.
    silent(&mut facts, &Why::late(), 2..4);
    assert_eq!(about_nodes(&facts)[0], "n3: it does not answer");
}

/// A holder that is stopped looks like one that hangs, except that it no longer extends its lease.
#[test]
fn a_holder_that_does_not_extend() {
    for (extended_ms, line, advice) in [
        (None, "8s of the lease left, on", "Ask web-1"),
        (Some(3_000), "8s of the lease left, not extended for 3s, on", "Ask web-1"),
        (Some(10_000), "8s of the lease left, not extended for 10s, on", "See whether web-1 still runs"),
    ] {
        let found = diagnose(&held(&[GrantView { extended_ms, ..grant("web-1", 5, 8_000) }]));
        assert!(found.findings[0].found.contains(line), "{found:?}");
        assert!(found.advice.starts_with(advice), "{found:?}");
    }
}

#[test]
fn a_free_lock_is_told_with_how_it_became_free() {
    for (how, advice) in [
        (
            "broken",
            "See that web-1 has stopped before you trust what it wrote: its lock was taken away at 2026-11-23 01:13:07",
        ),
        ("expired", "See whether web-1 is dead: its lease ended at 2026-11-23 01:13:07"),
        ("released", "Take it: web-1 gave it back at 2026-11-23 01:13:07."),
    ] {
        let mut facts = idle();
        let waited = Event { token: 0, ..ended("timeout", 0) };
        facts.log = vec![waited, ended(how, 5_000)];
        let found = diagnose(&facts);
        assert!(found.advice.starts_with(advice), "{found:?}");
        assert_eq!(found.findings.iter().filter(|finding| finding.about == "log").count(), 2);
    }
}

#[test]
fn everything_that_was_found_is_told() {
    let mut facts = held(&[grant("web-1", 3, 8_000), grant("web-2", 1, 5_000)]);
    guarded(&mut facts, &[(4, 20_000)]);
    let waiter = Waiter {
        note: "web-3".to_owned(),
        holder_id: None,
        owner: "6f".to_owned(),
        mode: "shared".to_owned(),
        waited_ms: 5_000,
        behind: 4,
        is_waiting: true,
        nodes: 5,
    };
    facts.together.queue = vec![waiter];
    facts.together.waiters = 10;
    facts.together.waiters_behind = 6;
    facts.nodes[3].told = Ok(NodeFacts { kept: Some(("6f".to_owned(), 12)), ..NodeFacts::default() });
    facts.log_untold = "n2: NOPERM this user …".to_owned();
    let found: Vec<_> = diagnose(&facts).findings.into_iter().map(|f| format!("{} {}", f.about, f.found)).collect();
    assert_eq!(
        found,
        [
            "holder web-1, exclusive, token 7, since 2026-11-23 01:11:37, 8s of the lease left, on 3 of 5 nodes",
            "partly web-2, exclusive, token 7, since 2026-11-23 01:11:37, 5s of the lease left, on 1 of 5 nodes",
            "node n5: guarded for 20s (restart): it serves again by itself",
            "kept on n4 for web-3, for 12ms more",
            "waiter web-3 (shared), for 5s, and 4 behind it in its process",
            "waiter and 9 more",
            "waiter and 6 behind them in their processes, in all",
            "log not told by n2: NOPERM this user …",
        ]
    );
}
