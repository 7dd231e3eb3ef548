//! Checks whether the servers of a cluster fit together.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Level::{Change, Fail, Note, Ok};
use super::finding::{Finding, Findings};
use super::patient::{Membership, Patient};
use crate::show::time;

/// The number of slots of a cluster.
const SLOTS: u64 = 16_384;

/// The least number of masters: with fewer, the masters left after the loss of one are no majority.
const MASTERS_LEAST: u64 = 3;

impl Membership {
    /// Returns the slots that are migrating to or from this server.
    fn open_slots(&self) -> Vec<&str> {
        let own = self.nodes.lines().find(|line| line.contains("myself"));
        let slots = own.into_iter().flat_map(|line| line.split(' ').skip(8));
        let open = slots.filter_map(|slot| slot.strip_prefix('[')?.split('-').next());
        open.collect()
    }

    /// Returns the addresses of servers that the others consider dead.
    fn dead(&self) -> impl Iterator<Item = &str> {
        let is_dead = |flags: &str| flags.split(',').any(|flag| flag == "fail" || flag == "noaddr");
        self.nodes.lines().filter_map(move |line| {
            let mut words = line.split(' ').skip(1);
            let address = words.next()?.split('@').next()?;
            is_dead(words.next()?).then_some(address)
        })
    }
}

/// Checks the cluster with this name; `members` are all its known servers.
pub fn check(name: &str, members: &[&Patient]) -> Vec<Finding> {
    let told: BTreeMap<&str, &Membership> =
        members.iter().filter_map(|member| Some((&*member.view.node, member.cluster.as_ref()?))).collect();
    let is_ok = |said: &Membership| said.info.word("cluster_state") == "ok";
    let newest = told.values().max_by_key(|said| (is_ok(said), said.info.number("cluster_current_epoch")));
    let Some(newest) = newest else {
        let text = "none of its servers tells how it is (CLUSTER INFO, CLUSTER NODES)";
        return vec![Finding::new(Note, name, text, "ACL SETUSER NAME +cluster|info +cluster|nodes")];
    };
    let mut findings = vec![];
    let failing: Vec<&str> = told.iter().filter(|(_, said)| !is_ok(said)).map(|(server, _)| *server).collect();
    if !failing.is_empty() {
        let text = "it takes the cluster for down (cluster_state:fail), and grants nothing";
        let advice = "see which masters are down, or cannot be reached from there";
        findings.push(Finding::new(Fail, &failing.join(" and "), text, advice));
    }
    let mut found = Findings::about(name);
    // A master that gave up a slot may be the only server that knows of it, so the smallest number counts.
    let assigned = told.values().map(|said| said.info.number("cluster_slots_assigned")).min().unwrap_or(SLOTS);
    let missing = SLOTS.saturating_sub(assigned);
    if missing > 0 {
        let advice = "CLUSTER ADDSLOTS, if their master is dead for good; the new one guards them first";
        found.add(Fail, format!("{missing} slots have no master: nobody gets their locks"), advice);
    }
    let masters = newest.info.number("cluster_size");
    if masters < MASTERS_LEAST {
        let text =
            format!("{masters} masters have slots: when one is lost, no majority is left to let its replica take over");
        found.add(Change, text, "three masters at least, on machines that do not fail together");
    }
    settings(members, &mut found);
    let known: BTreeSet<&str> = members.iter().map(|member| &*member.view.node).collect();
    for dead in newest.dead().filter(|address| !known.contains(address)) {
        let advice = "start it; if it is gone for good: CLUSTER FORGET on every other server";
        findings.push(Finding::new(Change, dead, "it is down, as the others say", advice));
    }
    for (server, open) in
        told.iter().map(|(server, said)| (server, said.open_slots())).filter(|(_, open)| !open.is_empty())
    {
        let text = format!("moving slots was begun and is not done: {}", open.join(", "));
        let advice = "finish it: held locks are not extended where they came to. After CLUSTER SETSLOT SLOT STABLE on both \
                      masters these are lost, and the slot is guarded";
        findings.push(Finding::new(Change, server, text, advice));
    }
    let covering = with(members, "cluster-require-full-coverage", "yes");
    if !covering.is_empty() {
        let text = "cluster-require-full-coverage is yes: while one master is down, no lock of any other is granted or extended";
        let advice = "CONFIG SET cluster-require-full-coverage no, and in redis.conf";
        findings.push(Finding::new(Change, &covering.join(" and "), text, advice));
    }
    findings.extend(found.all);
    findings
}

/// Returns the members that have this setting.
fn with<'a>(members: &[&'a Patient], setting: &str, value: &str) -> Vec<&'a str> {
    members.iter().filter(|member| member.setting(setting) == value).map(|member| &*member.view.node).collect()
}

fn settings(members: &[&Patient], found: &mut Findings<'_>) {
    let timeouts: BTreeSet<u64> =
        members.iter().filter_map(|member| member.setting("cluster-node-timeout").parse().ok()).collect();
    let guard_ms = members.iter().map(|member| member.view.max_ttl_ms).max().unwrap_or(0);
    match &Vec::from_iter(timeouts)[..] {
        [] => {}
        [timeout_ms] => {
            let (timeout, guard) = (time(*timeout_ms), time(guard_ms));
            let text = format!(
                "when a master dies, its replica takes over some moments after {timeout}, and is guarded for {guard}"
            );
            found.add(Ok, text, "");
        }
        several => {
            let each: Vec<String> = several.iter().map(|ms| time(*ms)).collect();
            let text = format!(
                "cluster-node-timeout differs: {}. A master that is cut off may grant for longer than the others wait",
                each.join(", ")
            );
            found.add(Change, text, "set the same on all: CONFIG SET cluster-node-timeout, and in redis.conf");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::finding::{Level, assert_worst};
    use super::super::patient::Part;
    use super::*;
    use crate::info::Info;
    use crate::node_view::NodeView;

    const INFO: &str =
        "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_size:3\r\ncluster_current_epoch:3\r\n";

    fn line(n: usize, flags: &str, slots: &str) -> String {
        format!("id{n} h:{n}@1{n} {flags} - 0 0 {n} connected{slots}\n")
    }

    fn member(n: usize) -> Patient {
        let nodes = (1..=3).map(|other| line(other, if other == n { "myself,master" } else { "master" }, " 0-5"));
        let settings = [("cluster-require-full-coverage", "no"), ("cluster-node-timeout", "15000")];
        let settings: HashMap<_, _> = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Patient {
            view: NodeView { number: 1, node: format!("h:{n}"), max_ttl_ms: 60_000, ..NodeView::default() },
            settings: Some(settings),
            part: Part::OfCluster,
            cluster: Some(Membership { info: Info::of(INFO), nodes: nodes.collect() }),
            ..Patient::default()
        }
    }

    fn say(patient: &mut Patient, from: &str, to: &str) {
        patient.cluster.as_mut().unwrap().info = Info::of(&INFO.replace(from, to));
    }

    fn know(patient: &mut Patient, line: &str) {
        patient.cluster.as_mut().unwrap().nodes += line;
    }

    fn set(patient: &mut Patient, name: &str, value: &str) {
        patient.settings.as_mut().unwrap().insert(name.to_owned(), value.to_owned());
    }

    #[test]
    fn each_fault_is_found_and_nothing_else() {
        let cases: [(&str, fn(&mut Vec<Patient>), Level); 10] = [
            ("takes over some moments after 15s, and is guarded for 1m", |_| {}, Ok),
            ("cluster_state:fail", |p| say(&mut p[1], "state:ok", "state:fail"), Fail),
            ("84 slots have no master", |p| say(&mut p[0], "16384", "16300"), Fail),
            ("2 masters have slots", |p| p.iter_mut().for_each(|p| say(p, "size:3", "size:2")), Change),
            ("down, as the others say", |p| p.iter_mut().for_each(|p| know(p, &line(4, "slave,fail", ""))), Change),
            ("some moments after", |p| p.iter_mut().for_each(|p| know(p, &line(4, "slave,fail?", ""))), Ok),
            (
                "is not done: 7629, 12",
                |p| p[2].cluster.as_mut().unwrap().nodes = line(3, "myself,master", " 0-5 [7629->-x] [12-<-y]"),
                Change,
            ),
            ("full-coverage is yes", |p| set(&mut p[0], "cluster-require-full-coverage", "yes"), Change),
            ("node-timeout differs: 3s, 15s", |p| set(&mut p[0], "cluster-node-timeout", "3000"), Change),
            ("none of its servers tells", |p| p.iter_mut().for_each(|p| p.cluster = None), Note),
        ];
        for (text, change, level) in cases {
            let mut members: Vec<_> = (1..=3).map(member).collect();
            change(&mut members);
            assert_worst(&check("cluster of h:1", &members.iter().collect::<Vec<_>>()), text, level);
        }
    }
}
