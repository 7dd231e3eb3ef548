//! Checks that compare the nodes with each other.

use std::collections::{BTreeMap, BTreeSet};

use palisade_quorum::{Members, majority};

use super::finding::Finding;
use super::finding::Level::{Change, Fail, Note, Ok};
use super::patient::{Part, Patient};
use crate::members::even;
use crate::node_view::NodeView;
use crate::show::time;

/// The default of `lock.max-clock-skew`, in milliseconds: a node ignores a proposed token that is further ahead of its
/// clock.
const SKEW_DEFAULT_MS: u64 = 2_000;

/// A node raises a grant to a token that is at most this far ahead of its clock, in microseconds: a year
/// (docs/commands/fence.md).
const FOLLOWED_US: u64 = 365 * 86_400_000_000;

/// The subject of findings about all nodes.
const ALL: &str = "all nodes";

/// Compares the servers of `nodes` nodes with each other: those that serve locks, and their replicas. If the nodes store a
/// `set`, its members count, and no other nodes.
pub fn check(nodes: usize, set: &Members, masters: &[Patient], replicas: &[Patient]) -> Vec<Finding> {
    let is_up = |patient: &&Patient| patient.view.error.is_none();
    let up: Vec<&Patient> = masters.iter().filter(is_up).collect();
    let all: Vec<&Patient> = masters.iter().chain(replicas).filter(is_up).collect();
    let part = masters.first().map_or(Part::Alone, |patient| patient.part);
    let ids = duplicates(&all);
    // With a server that is given twice, fewer nodes may be down than the number of nodes says.
    let is_count_true = ids.iter().all(|finding| finding.level == Ok);
    let is_set = set.version > 0;
    let nodes = if is_set { set.list.len() } else { nodes };
    let mut findings: Vec<Finding> = is_count_true.then(|| count(nodes, part)).into_iter().collect();
    let counts = |patient: &Patient| {
        !is_set || set.list.iter().any(|member| member.id.is_some_and(|id| patient.view.id == format!("{id:032x}")))
    };
    findings.push(serving(nodes, masters, counts));
    findings.extend(ids);
    findings.extend(on_one_machine(masters));
    if all.len() > 1 {
        findings.push(max_ttl(&all));
        findings.push(versions(&all));
    }
    if up.len() > 1 {
        findings.extend(clocks(&up));
        findings.extend(floors(&up));
    }
    findings
}

fn count(count: usize, part: Part) -> Finding {
    let majority = majority(count);
    match count {
        1 => Finding::new(
            Note,
            ALL,
            match part {
                Part::Alone => "there is one: while it is down, nobody gets a lock",
                Part::OfSentinels => {
                    "there is one: while its master is down, until its replica has taken over and its guard is over, nobody gets a lock"
                }
                Part::OfCluster => {
                    "there is one: while one of its masters is down, until its replica has taken over and its guard is over, nobody gets that one's locks"
                }
            },
            "three, or five, need a majority only",
        ),
        _ if let Some(why) = even(count) => Finding::new(
            Change,
            ALL,
            format!("there are {count}, {why}"),
            "add one, or take one away: palisade members set, as docs/operations.md says",
        ),
        _ => Finding::new(Ok, ALL, format!("there are {count}: {} may be down", count - majority), ""),
    }
}

/// Checks whether a lock can be acquired now; with a cluster, whether any lock can.
fn serving(nodes: usize, masters: &[Patient], counts: impl Fn(&Patient) -> bool) -> Finding {
    let majority = majority(nodes);
    let serves = |patient: &&Patient| {
        let NodeView { error, guard_ms, role, refusing, .. } = &patient.view;
        error.is_none() && *guard_ms == 0 && role == "master" && refusing.is_none() && counts(patient)
    };
    let id_of = |number: usize| {
        let of_node = || masters.iter().filter(move |patient| patient.view.number == number);
        let ids = of_node().filter(serves).map(|patient| patient.view.id.as_str());
        ids.min().filter(|_| of_node().all(|patient| serves(&patient)))
    };
    let numbers: BTreeSet<usize> = masters.iter().map(|patient| patient.view.number).collect();
    let ids: BTreeSet<&str> = numbers.into_iter().filter_map(id_of).collect();
    let text = format!("{} of {nodes} serve, and {majority} are needed", ids.len());
    let advice = match masters.iter().any(|patient| patient.part == Part::OfCluster && serves(&patient)) {
        _ if ids.len() >= majority => return Finding::new(Ok, ALL, text, ""),
        true => "nobody gets the locks of masters that do not serve: see what is said of each server",
        false => "nobody gets a lock: see what is said of each node",
    };
    Finding::new(Fail, ALL, text, advice)
}

fn duplicates(up: &[&Patient]) -> Vec<Finding> {
    let mut by_id: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    up.iter().for_each(|patient| by_id.entry(&patient.view.id).or_default().push(&patient.view.node));
    let twice = by_id.into_iter().filter(|(_, names)| names.len() > 1);
    let twice: Vec<Finding> = twice
        .map(|(id, names)| {
            Finding::new(
                Fail,
                &names.join(" and "),
                format!("one id, {id}: one server with two names, or copies of one disk. They count once"),
                "give each node once; of a copy, delete the state file and the data before it is started",
            )
        })
        .collect();
    if twice.is_empty() && up.len() > 1 { vec![Finding::new(Ok, ALL, "each has an id of its own", "")] } else { twice }
}

fn on_one_machine(patients: &[Patient]) -> Option<Finding> {
    let host = |patient: &Patient| match patient.view.node.rsplit_once(':') {
        Some((host, _)) => host.to_owned(),
        None => "this machine".to_owned(),
    };
    let hosts: BTreeSet<String> = patients.iter().map(host).collect();
    let host = hosts.first().filter(|_| patients.len() > 1 && hosts.len() == 1)?;
    Some(Finding::new(
        Note,
        ALL,
        format!("they are all on {host}: they fail together"),
        "machines, racks and power supplies that do not fail together",
    ))
}

fn max_ttl(up: &[&Patient]) -> Finding {
    let values: BTreeSet<u64> = up.iter().map(|patient| patient.view.max_ttl_ms).collect();
    match values.len() {
        1 => Finding::new(Ok, ALL, format!("lock.max-ttl is {} everywhere", time(up[0].view.max_ttl_ms)), ""),
        _ => Finding::new(
            Fail,
            ALL,
            format!("lock.max-ttl differs: {}", each(up, |patient| time(patient.view.max_ttl_ms))),
            "the guard of each node covers its own only: set the same on all, and restart them one by one",
        ),
    }
}

fn versions(up: &[&Patient]) -> Finding {
    let values: BTreeSet<(&str, u64)> = up.iter().map(|p| (p.view.version.as_str(), p.view.protocol)).collect();
    match values.len() {
        1 => Finding::new(Ok, ALL, format!("version {} everywhere", up[0].view.version), ""),
        _ => Finding::new(
            Change,
            ALL,
            format!("versions differ: {}", each(up, |p| format!("{} protocol {}", p.view.version, p.view.protocol))),
            "upgrade the older ones, one by one",
        ),
    }
}

/// Returns a finding if a node's tokens cannot be raised to where another node's tokens start. That is so if the other
/// node's clock was once far ahead, because tokens never fall.
fn floors(up: &[&Patient]) -> Option<Finding> {
    let highest = up.iter().map(|patient| patient.view.token_floor).max()?;
    let follows = |view: &NodeView| highest <= view.clock_us.max(view.token_floor).saturating_add(FOLLOWED_US);
    let behind: Vec<&str> = up.iter().map(|p| &p.view).filter(|view| !follows(view)).map(|view| &*view.node).collect();
    (!behind.is_empty()).then(|| {
        Finding::new(
            Fail,
            &behind.join(" and "),
            format!(
                "another node's tokens start at {highest}, too far ahead to be followed: together they grant no lock"
            ),
            format!("set the wall clocks right, then LOCK.FLOOR RAISE {highest} there"),
        )
    })
}

/// Compares the nodes' wall clocks at one moment, as exactly as the round trips allow.
fn clocks(up: &[&Patient]) -> Vec<Finding> {
    let mut clocks: Vec<u64> = up.iter().map(|patient| patient.view.clock_us).collect();
    clocks.sort_unstable();
    let (first, last) = (clocks[0], clocks[clocks.len() - 1]);
    let blur_us = up.iter().map(|patient| patient.view.round_trip_us).max().unwrap_or(0);
    let skews = up.iter().filter_map(|patient| patient.setting("lock.max-clock-skew").parse().ok());
    let skew_ms: u64 = skews.min().unwrap_or(SKEW_DEFAULT_MS);
    let apart_ms = |one: u64, other: u64| one.abs_diff(other).saturating_sub(blur_us) / 1_000;
    if apart_ms(first, last) <= skew_ms {
        let text = format!("wall clocks are within {} of each other", time(((last - first) / 1_000).max(1)));
        return vec![Finding::new(Ok, ALL, text, "")];
    }
    let more = format!("more than lock.max-clock-skew ({})", time(skew_ms));
    let named = |about: &str, found: String, todo: &str| {
        let advice = format!("leases do not depend on it, but locks take two round trips in place of one: {todo}");
        Finding::new(Change, about, found, advice)
    };
    // If most clocks agree, the others are wrong.
    let middle = clocks[(clocks.len() - 1) / 2];
    let (right, wrong): (Vec<&&Patient>, Vec<_>) =
        up.iter().partition(|patient| apart_ms(patient.view.clock_us, middle) <= skew_ms);
    if right.len() < majority(up.len()) {
        let name =
            |clock| up.iter().find(|patient| patient.view.clock_us == clock).map_or("", |p| p.view.node.as_str());
        let apart = time(apart_ms(first, last));
        let text = format!("the wall clock of {} is {apart} ahead of that of {}, {more}", name(last), name(first));
        return vec![named(ALL, text, "find out which is right, and let NTP set the clocks")];
    }
    let off = |patient: &&Patient| {
        let clock = patient.view.clock_us;
        let (apart, side) = (time(apart_ms(clock, middle)), if clock > middle { "ahead of" } else { "behind" });
        named(
            &patient.view.node,
            format!("its wall clock is {apart} {side} those of the others, {more}"),
            "let NTP set it",
        )
    };
    wrong.into_iter().map(off).collect()
}

fn each(up: &[&Patient], value: impl Fn(&Patient) -> String) -> String {
    up.iter().map(|patient| format!("{} {}", patient.view.node, value(patient))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Level, assert_worst};
    use super::*;
    use crate::info::Info;
    use crate::refusing::Refusing;
    use palisade_client::Why;
    use palisade_quorum::Member;
    use std::collections::HashMap;

    fn failed() -> Option<Refusing> {
        Refusing::of(&Info::of("lock_poisoned:1"), &HashMap::new())
    }

    fn healthy(count: usize) -> Vec<Patient> {
        let view = |n: usize| NodeView {
            number: n,
            node: format!("10.0.0.{n}:6379"),
            id: format!("{n:032x}"),
            version: "1".to_owned(),
            role: "master".to_owned(),
            max_ttl_ms: 60_000,
            clock_us: 1_000_000 + n as u64,
            ..NodeView::default()
        };
        (1..=count).map(|n| Patient { view: view(n), ..Patient::default() }).collect()
    }

    /// Three masters of one cluster, and the replica of the last.
    #[test]
    fn servers_of_one_node_are_one() {
        let cluster = || {
            let mut masters = healthy(3);
            let mut replicas = healthy(4).split_off(3);
            for patient in masters.iter_mut().chain(&mut replicas) {
                (patient.view.number, patient.part) = (1, Part::OfCluster);
            }
            (masters, replicas)
        };
        let worst = |masters: &[Patient], replicas: &[Patient]| {
            check(1, &Members::default(), masters, replicas).into_iter().max_by_key(|finding| finding.level).unwrap()
        };
        let (mut masters, mut replicas) = cluster();
        replicas[0].view.clock_us += 10_000_000;
        let one = worst(&masters, &replicas);
        assert!(one.level == Note && one.found.contains("one of its masters"), "{one:?}");
        replicas[0].view.version = "2".to_owned();
        assert!(worst(&masters, &replicas).found.contains("versions differ"));
        replicas[0].view.max_ttl_ms = 1;
        assert!(worst(&masters, &replicas).found.contains("max-ttl differs"));
        masters[1].view.guard_ms = 5;
        let findings = check(1, &Members::default(), &masters, &cluster().1);
        let served = findings.iter().find(|finding| finding.found.contains("0 of 1 serve")).unwrap();
        assert!(
            served.level == Fail && served.advice.starts_with("nobody gets the locks of masters that"),
            "{served:?}"
        );
    }

    #[test]
    fn whose_clock_is_off_is_told() {
        let off = |count: usize, changes: &[(usize, i64)]| {
            let mut patients = healthy(count);
            for patient in &mut patients {
                patient.view.clock_us += 1_000_000_000;
            }
            for (n, seconds) in changes {
                let clock = &mut patients[*n].view.clock_us;
                *clock = clock.checked_add_signed(seconds * 1_000_000).unwrap();
            }
            let up: Vec<&Patient> = patients.iter().collect();
            clocks(&up).into_iter().map(|finding| (finding.about, finding.found)).collect::<Vec<_>>()
        };
        let found = off(5, &[(1, 401), (4, -31)]);
        let about: Vec<&str> = found.iter().map(|(about, _)| about.as_str()).collect();
        assert_eq!(about, ["10.0.0.2:6379", "10.0.0.5:6379"], "{found:?}");
        assert!(found[0].1.contains("6m 40s ahead of") && found[1].1.contains("30s behind"), "{found:?}");
        // No majority agrees, so it is unknown which clocks are right.
        let split = off(4, &[(0, 400), (1, 400)]);
        assert!(split.len() == 1 && split[0].0 == ALL, "{split:?}");
    }

    #[test]
    fn each_fault_is_found_and_nothing_else() {
        let cases: [(&str, usize, fn(&mut Vec<Patient>), Level); 13] = [
            ("there are 3: 1 may be down", 3, |_| {}, Ok),
            ("there is one", 1, |_| {}, Note),
            ("an even number", 4, |_| {}, Change),
            ("one id", 3, |p| p[1].view.id = p[0].view.id.clone(), Fail),
            ("max-ttl differs", 3, |p| p[1].view.max_ttl_ms = 1, Fail),
            ("versions differ", 3, |p| p[1].view.version = "2".to_owned(), Change),
            ("clock is 2s ahead of those of the others", 3, |p| p[1].view.clock_us += 2_100_000, Change),
            (
                "clock of 10.0.0.2:6379 is 6m 40s ahead of that of 10.0.0.1:6379",
                2,
                |p| p[1].view.clock_us += 400_000_000,
                Change,
            ),
            ("too far ahead to be followed", 3, |p| p[1].view.token_floor = FOLLOWED_US + 2_000_000, Fail),
            ("1 of 3 serve, and 2 are needed", 3, |p| (0..2).for_each(|n| p[n].view.guard_ms = 5), Fail),
            ("1 of 3 serve, and 2 are needed", 3, |p| (0..2).for_each(|n| p[n].view.refusing = failed()), Fail),
            ("2 of 3 serve", 3, |p| p[0].view.error = Some(Why::late()), Ok),
            ("they fail together", 3, |p| p.iter_mut().for_each(|p| p.view.node = "a:1".to_owned()), Note),
        ];
        for (text, count, change, level) in cases {
            let mut patients = healthy(count);
            change(&mut patients);
            assert_worst(&check(count, &Members::default(), &patients, &[]), text, level);
        }
    }

    /// A set of four members. One lost its disk, so its id is another one, and one is not in the list.
    #[test]
    fn members_of_the_set_count_and_no_other_nodes() {
        let mut patients = healthy(3);
        patients[2].view.id = "f".repeat(32);
        let member = |id| Member { id: Some(id), address: String::new() };
        let set = Members { version: 2, list: (1..=4).map(member).collect() };
        let texts: Vec<String> = check(3, &set, &patients, &[]).into_iter().map(|finding| finding.found).collect();
        for text in ["there are 4, ", "2 of 4 serve, and 3 are needed"] {
            assert!(texts.iter().any(|found| found.contains(text)), "{texts:?}");
        }
    }

    #[test]
    fn of_a_server_that_is_given_twice_it_does_not_say_how_many_may_be_down() {
        let mut patients = healthy(3);
        patients[1].view.id = patients[0].view.id.clone();
        let found = check(3, &Members::default(), &patients, &[]);
        assert!(found.iter().all(|finding| !finding.found.contains("may be down")), "{found:?}");
    }
}
