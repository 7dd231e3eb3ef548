//! Draws a plan from its seed.

use rand::rngs::ChaCha8Rng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::kinds::{Fault, Kind};
use super::plan::{DRIFT_PPM, Keeps, Machine, Network, Plan, SingleClient, keys_of};
use crate::history::TimeUs;
use crate::single_client;

/// Microseconds in a millisecond.
const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// The divisor of a lease that gives the time within which a lock is broken on one node after another.
const IN_TURN_OF_TTL: u64 = 5;

impl Plan {
    /// Returns the plan of a seed.
    pub fn draw(seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let beyond = rng.random_ratio(1, 10);
        let drift_max = if beyond { 4 * DRIFT_PPM } else { DRIFT_PPM };
        let clocks_apart_us = *[0, 5 * MS, 500 * MS, 5 * SECOND, 3_600 * SECOND].choose(rng).unwrap_or(&0) as i64;
        let count = *[1, 3, 3, 3, 4, 5, 5].choose(rng).unwrap_or(&3);
        let machine = |rng: &mut ChaCha8Rng| Machine {
            drift_ppm: rng.random_range(-drift_max..=drift_max),
            ahead_us: rng.random_range(-clocks_apart_us..=clocks_apart_us),
            keeps: match rng.random_range(0..3) {
                0 => Keeps::Nothing,
                1 => Keeps::Snapshots { every_us: rng.random_range(100 * MS..10 * SECOND) },
                _ => Keeps::Everything,
            },
        };
        let nodes: Vec<_> = (0..count).map(|_| machine(rng)).collect();
        let clients: Vec<_> = (0..rng.random_range(2..=6)).map(|_| machine(rng)).collect();
        let ttl_ms = *[100, 500, 1_000, 3_000].choose(rng).unwrap_or(&1_000);
        let max_ttl_ms = *[ttl_ms, 5_000].choose(rng).unwrap_or(&5_000);
        let until = rng.random_range(10 * SECOND..60 * SECOND);
        // In these runs, the only faults are bursts of requests and stalls of nodes. The checks then demand more.
        let moments_alone = rng.random_ratio(1, 10);
        let calm = moments_alone || rng.random_ratio(1, 4);
        let network = Network {
            // A round trip takes up to four times this: far less than a lease.
            delay_us: (*[100, 500, 5 * MS, 20 * MS].choose(rng).unwrap_or(&500))
                .min(u64::from(ttl_ms) * MS / if moments_alone { 80 } else { 20 }),
            slow_permille: if calm { 0 } else { rng.random_range(0..50) },
            lost_permille: if calm { 0 } else { rng.random_range(0..50) },
            doubled_permille: if calm { 0 } else { rng.random_range(0..50) },
        };
        let keys = rng.random_range(1..=3);
        let mut faults: Vec<_> = (0..rng.random_range(0..if moments_alone { 8 } else { 30 }))
            .map(|_| match moments_alone {
                true => moments(rng, until, count),
                false => fault(rng, until, count, clients.len(), keys, ttl_ms),
            })
            .collect();
        let alias = (count > 2 && rng.random_ratio(1, 5)).then(|| (rng.random_range(0..clients.len()), 1, 0));
        let skew_ms = *[0, 100, 2_000].choose(rng).unwrap_or(&2_000);
        let round_trip_ms = 1 + (4 * network.delay_us / MS) as u32;
        let node_timeout_ms = rng.random_range(20..=200).clamp(round_trip_ms, ttl_ms / 2);
        let (hold_us, rest_us) = (rng.random_range(MS..3 * SECOND), rng.random_range(MS..SECOND));
        let extended_after_permille =
            if moments_alone { 333 } else { *[333, 600, 900, 970].choose(rng).unwrap_or(&333) };
        if !moments_alone && rng.random() {
            let client = rng.random_range(0..clients.len());
            faults.extend(
                (0..rng.random_range(1..8)).flat_map(|_| late_answers(rng, until, client, ttl_ms, node_timeout_ms)),
            );
        }
        // These clients share a few nodes, so that they compete for locks.
        let busy = rng.random_range(1..=count.min(2));
        let mut single_clients: Vec<_> = (0..rng.random_range(0..=5))
            .map(|_| SingleClient {
                machine: machine(rng),
                node: rng.random_range(0..busy),
                wait_ms: *[0, 5, ttl_ms, 5_000, 5_000].choose(rng).unwrap_or(&5_000),
                limit: 0,
            })
            .collect();
        if !moments_alone && !single_clients.is_empty() {
            let count = rng.random_range(0..30);
            for _ in 0..count {
                let fault = single_fault(rng, until, busy, single_clients.len(), keys, ttl_ms);
                // In some cases, the server ends before the lease of the evicted lock would have ended.
                if let Kind::Evict { node, .. } = fault.kind
                    && rng.random_ratio(1, 4)
                {
                    let at = fault.at + rng.random_range(0..u64::from(ttl_ms) * MS);
                    let kind = match rng.random() {
                        true => Kind::Crash { node, reboot: false },
                        false => Kind::Restart { node, reboot: false },
                    };
                    faults.push(Fault { at, for_us: rng.random_range(0..10 * MS), kind });
                }
                faults.push(fault);
            }
        }
        faults.sort_by_key(|fault| fault.at);
        // In half of the runs, clients take locks in all modes: on one node, on several nodes, or both.
        let (limit, mixed) = (rng.random_range(1..=4), rng.random_range(0..6));
        for client in single_clients.iter_mut().filter(|_| mixed == 0 || mixed == 1) {
            client.limit = limit;
        }
        let limit = if mixed == 1 || mixed == 2 { limit } else { 0 };
        let plan = Self {
            seed,
            nodes,
            first_set: 0,
            learns_after_us: 0,
            clients,
            single_clients,
            alias,
            keys,
            limit,
            ttl_ms,
            max_ttl_ms,
            skew_ms,
            node_timeout_ms,
            extended_after_permille,
            hold_us,
            rest_us,
            network,
            until,
            faults,
        };
        // These choices have a generator of their own, and only some seeds make them, so that the other seeds give the
        // same runs as before.
        let rng = &mut ChaCha8Rng::seed_from_u64(!seed);
        match moments_alone {
            true => plan.with_more_moments(rng),
            false if seed % 7 == 5 => plan.with_a_set_that_changes(rng, machine),
            false => plan,
        }
    }

    /// Changes the faults of some runs that have only bursts and stalls. In a third of these runs, majorities stall
    /// only when rounds of extension begin. In another third, unless there are readers and permits, nothing stalls, and
    /// an operator breaks locks on all nodes, at once or on one node after another. (With stalls, a node may answer
    /// after other nodes have granted the broken lock to its holder again, and the lock is not lost. With readers, a
    /// grant may have the token of another reader whose grant was broken.)
    fn with_more_moments(mut self, rng: &mut ChaCha8Rng) -> Self {
        let more = rng.random_range(0..3);
        if more == 0 || (more == 2 && self.limit > 0) {
            return self;
        }
        self.faults.retain(|fault| !matches!(fault.kind, Kind::Stalls { .. }));
        if more == 1 {
            let first = rng.random_range(0..self.nodes.len());
            self.faults.push(Fault { at: 0, for_us: self.until, kind: Kind::Stalls { first, in_step: true } });
        } else {
            self.faults.extend((0..rng.random_range(1..20)).map(|_| {
                let kind = Kind::BreakAll { key: rng.random_range(0..self.keys) };
                Fault { at: rng.random_range(0..self.until), for_us: 0, kind }
            }));
            let longest_us = u64::from(self.ttl_ms) * MS / IN_TURN_OF_TTL;
            self.faults.extend((0..rng.random_range(20..60)).map(|_| {
                let (key, first) = (rng.random_range(0..self.keys), rng.random_range(0..self.nodes.len()));
                let kind = Kind::BreakInTurn { key, first, extends: rng.random() };
                Fault {
                    at: rng.random_range(0..self.until),
                    for_us: rng.random_range(longest_us / 4..=longest_us),
                    kind,
                }
            }));
        }
        self.faults.sort_by_key(|fault| fault.at);
        self
    }

    /// Makes the set of nodes change, and adds nodes to which it can change. (A whole cluster has no id, so it cannot
    /// be a member.)
    fn with_a_set_that_changes(mut self, rng: &mut ChaCha8Rng, machine: impl Fn(&mut ChaCha8Rng) -> Machine) -> Self {
        self.first_set = self.nodes.len();
        self.nodes.extend((0..rng.random_range(1..=3)).map(|_| machine(rng)));
        let (count, ttl_us) = (self.nodes.len(), u64::from(self.ttl_ms) * MS);
        self.learns_after_us = *[0, ttl_us, 5 * ttl_us, 20 * SECOND].choose(rng).unwrap_or(&0);
        let is_of_cluster = |kind: &Kind| matches!(kind, Kind::SlotGivenAway { .. } | Kind::FlushSlot { .. });
        self.faults.extend(
            (0..rng.random_range(0..15))
                .map(|_| fault(rng, self.until, count, self.clients.len(), self.keys, self.ttl_ms)),
        );
        self.faults.retain(|fault| !is_of_cluster(&fault.kind));
        for n in 0..rng.random_range(1..6) {
            let wants = rng.random_range(1..1 << count);
            let dies_after = rng.random_ratio(1, 4).then(|| rng.random_range(0..40));
            let at = if n == 0 { rng.random_range(0..3 * SECOND) } else { rng.random_range(0..self.until) };
            let kind = Kind::SetNodes { wants, dies_after };
            self.faults.push(Fault { at, for_us: rng.random_range(SECOND..20 * SECOND), kind });
            // Another program wants other nodes at the same time.
            if rng.random_ratio(1, 3) {
                let kind = Kind::SetNodes { wants: rng.random_range(1..1 << count), dies_after: None };
                self.faults.push(Fault { at, for_us: 10 * SECOND, kind });
            }
        }
        self.faults.sort_by_key(|fault| fault.at);
        self
    }
}

fn fault(rng: &mut ChaCha8Rng, until: TimeUs, nodes: usize, clients: usize, keys: u32, ttl_ms: u32) -> Fault {
    let (node, client, key) = (rng.random_range(0..nodes), rng.random_range(0..clients), rng.random_range(0..keys));
    let ttl_us = u64::from(ttl_ms) * MS;
    let step = |rng: &mut ChaCha8Rng| {
        let far = *[10 * MS, SECOND, 10 * SECOND, 7_200 * SECOND].choose(rng).unwrap_or(&SECOND) as i64;
        rng.random_range(-far..=far)
    };
    let kind = match rng.random_range(0..24) {
        0..3 => Kind::Crash { node, reboot: rng.random_ratio(1, 4) },
        3 => Kind::NewDisk { node },
        4 => Kind::Restart { node, reboot: rng.random_ratio(1, 4) },
        5 => Kind::Failover { node, lag_us: rng.random_range(0..ttl_us) },
        6 => Kind::Flush { node },
        7 => Kind::PauseNode { node },
        8 => Kind::PauseClient { client },
        9 => Kind::KillClient { client },
        10..12 => {
            let (there, back) = *[(true, true), (true, false), (false, true)].choose(rng).unwrap_or(&(true, true));
            let (node, client) = *[(Some(node), None), (Some(node), Some(client)), (None, Some(client))]
                .choose(rng)
                .unwrap_or(&(None, None));
            Kind::Cut { node, client, there, back }
        }
        12 => Kind::Slow { node, by_us: rng.random_range(MS..ttl_us) },
        13 => Kind::DiskHangs { node },
        14 => Kind::NodeClockStep { node, by_us: step(rng) },
        15 => Kind::OlderFiles { node },
        16 => Kind::OtherStateFile { node },
        17 => Kind::RaisedTokens,
        18..20 => Kind::SlotGivenAway { node, key, dies: rng.random() },
        20 => Kind::FlushSlot { node, key },
        21..23 => return moments(rng, until, nodes),
        _ => Kind::ClientClockStep { client, by_us: step(rng) },
    };
    let longest = *[10 * MS, ttl_us, 3 * ttl_us, 10 * SECOND].choose(rng).unwrap_or(&ttl_us);
    Fault { at: rng.random_range(0..until), for_us: rng.random_range(0..=longest), kind }
}

/// Draws bursts of requests, or stalls of nodes, over some seconds.
fn moments(rng: &mut ChaCha8Rng, until: TimeUs, nodes: usize) -> Fault {
    let kind = match rng.random() {
        true => Kind::Stalls { first: rng.random_range(0..nodes), in_step: false },
        false => Kind::Bursts { apart: rng.random() },
    };
    Fault { at: rng.random_range(0..until), for_us: rng.random_range(SECOND..20 * SECOND), kind }
}

/// Delays a client's answers, and drops all its requests soon afterwards. An answer to one round then arrives during
/// the next, whose requests no node received.
fn late_answers(rng: &mut ChaCha8Rng, until: TimeUs, client: usize, ttl_ms: u32, node_timeout_ms: u32) -> [Fault; 2] {
    let (at, ttl_us) = (rng.random_range(0..until), u64::from(ttl_ms) * MS);
    let cut = Kind::Cut { node: None, client: Some(client), there: true, back: false };
    let by_us = rng.random_range(0..u64::from(node_timeout_ms) * MS);
    [
        Fault { at, for_us: 2 * ttl_us, kind: Kind::LateAnswers { client, by_us } },
        Fault { at: at + rng.random_range(0..ttl_us), for_us: 2 * ttl_us, kind: cut },
    ]
}

/// Draws a fault that affects locks on one node, usually a lock in use.
fn single_fault(rng: &mut ChaCha8Rng, until: TimeUs, busy: usize, clients: usize, keys: u32, ttl_ms: u32) -> Fault {
    let node = rng.random_range(0..busy);
    let [first, second] = keys_of(keys, node);
    let key = *[first, first, second].choose(rng).unwrap_or(&first);
    let client = single_client::FIRST as usize + rng.random_range(0..clients);
    let kind = match rng.random_range(0..16) {
        0..4 => Kind::Break { node, key },
        4 => Kind::Delete { node, key },
        5..8 => Kind::Evict { node, key },
        8 => Kind::Evict { node, key: rng.random_range(0..keys) },
        9..11 => Kind::Arm { node },
        11 => Kind::Flush { node },
        12 => Kind::PauseClient { client },
        13 => Kind::SlotGivenAway { node, key, dies: rng.random() },
        14 => Kind::FlushSlot { node, key },
        _ => Kind::KillClient { client },
    };
    let longest = *[10 * MS, u64::from(ttl_ms) * MS, 3 * SECOND].choose(rng).unwrap_or(&SECOND);
    Fault { at: rng.random_range(0..until), for_us: rng.random_range(0..=longest), kind }
}
