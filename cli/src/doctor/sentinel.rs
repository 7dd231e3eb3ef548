//! Checks whether Sentinels can agree, and whether they do.

use std::collections::BTreeSet;

use palisade_client::Why;
use redis::cmd;

use super::finding::Level::{Change, Fail, Note, Ok};
use super::finding::{Finding, Findings};
use super::patient::Patient;
use palisade_client::direct::Server;

use crate::fields::Fields;
use crate::node_failure::{strange, words};
use crate::show::time;

/// The least number of Sentinels: with fewer, they cannot agree after the loss of one.
const LEAST: u64 = 3;

/// A Sentinel, and its view of the master.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// The Sentinel's address.
    pub name: String,
    pub said: Result<Watching, Why>,
}

/// A Sentinel's view of the master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watching {
    /// The master's address, as this Sentinel knows it.
    pub master: String,
    /// The Sentinel's flags for the master: `master`, or `s_down,master`.
    pub flags: String,
    /// The number of Sentinels that must agree that the master is down.
    pub quorum: u64,
    /// The number of other Sentinels that this Sentinel knows.
    pub others: u64,
    /// The number of the master's replicas that this Sentinel knows.
    pub replicas: u64,
    pub down_after_ms: u64,
    /// The reason why the Sentinels cannot agree on a fail-over now; empty if they can, or if it is not reported.
    pub no_quorum: String,
}

impl Watcher {
    /// Asks a Sentinel about the master with this name.
    pub async fn ask(sentinel: &Server, master: &str) -> Self {
        Self { name: sentinel.name().to_owned(), said: Self::watching(sentinel, master).await }
    }

    async fn watching(sentinel: &Server, master: &str) -> Result<Watching, Why> {
        let mut link = sentinel.reach().await?;
        let said = link.ask(cmd("SENTINEL").arg("MASTER").arg(master)).await?;
        let said = Fields::of(said).ok_or_else(|| strange("SENTINEL MASTER", "it has no fields"))?;
        let no_quorum = match link.ask(cmd("SENTINEL").arg("CKQUORUM").arg(master)).await {
            Err(Why::Refused { code, text }) if code == "NOQUORUM" => text,
            _ => String::new(),
        };
        let text = |name| said.get::<String>(name);
        Result::Ok(Watching {
            master: format!("{}:{}", text("ip"), text("port")),
            flags: text("flags"),
            quorum: said.get("quorum"),
            others: said.get("num-other-sentinels"),
            replicas: said.get("num-slaves"),
            down_after_ms: said.get("down-after-milliseconds"),
            no_quorum,
        })
    }
}

/// Checks the Sentinels of the master with this name; `master` is the server that they name.
pub fn check(name: &str, watchers: &[Watcher], master: Option<&Patient>) -> Vec<Finding> {
    let about = format!("sentinels of {name}");
    let silent = watchers.iter().filter_map(|Watcher { name, said }| Some(unreachable(name, said.as_ref().err()?)));
    let mut findings: Vec<Finding> = silent.collect();
    let told: Vec<(&str, &Watching)> =
        watchers.iter().filter_map(|watcher| Some((&*watcher.name, watcher.said.as_ref().ok()?))).collect();
    let total = told.iter().map(|(_, said)| said.others + 1).max().unwrap_or(0);
    findings.extend(count(&about, told.len() as u64, total, watchers.len() as u64));
    findings.extend(told.iter().flat_map(|(sentinel, said)| check_one(sentinel, said, total)));
    findings.extend(differ(&about, &told));
    let down_after_ms = told.iter().map(|(_, said)| said.down_after_ms).min();
    if let (Some(down_after_ms), Some(master)) = (down_after_ms, master) {
        findings.push(cut_off_master(master, down_after_ms));
    }
    findings
}

/// Returns the finding about a Sentinel that cannot be asked.
fn unreachable(sentinel: &str, why: &Why) -> Finding {
    let advice = match why.code() {
        Some("NOPERM") => "give its user what `palisade acl sentinel` prints",
        Some("NOAUTH" | "WRONGPASS") => {
            "say its password: sentinelUsername and sentinelPassword in the address, or --sentinel-credentials"
        }
        Some(_) => "SENTINEL MASTERS there tells what it watches",
        None => "start it, or take it out of the address",
    };
    Finding::new(Change, sentinel, format!("cannot be asked: {}", words(why)), advice)
}

/// Checks that there are enough Sentinels: `total` of them know each other, the address names `named` of these, and
/// `answer` of them answer.
fn count(about: &str, answer: u64, total: u64, named: u64) -> Vec<Finding> {
    let (mut found, all) = (Findings::about(about), total.max(named));
    if answer < all / 2 + 1 {
        let text = format!(
            "{answer} of {all} can be asked: no majority is known to be there that could let a replica take over"
        );
        found.add(Fail, text, "bring them back");
    }
    if total > 0 && total < LEAST {
        let text = format!("there are {total}: with one lost, no majority is left to let a replica take over");
        found.add(Change, text, "three at least, on machines that do not fail together");
    }
    if total > named {
        let text = format!("there are {total}, and the address names {named}");
        found.add(Note, text, "name all: clients believe the majority of those that they ask");
    }
    found.all
}

/// Checks the answer of one of `total` Sentinels.
fn check_one(sentinel: &str, said: &Watching, total: u64) -> Vec<Finding> {
    let mut found = Findings::about(sentinel);
    if said.quorum > total {
        let text = format!("its quorum is {}, of {total} Sentinels: no master is ever replaced", said.quorum);
        found.add(Fail, text, "SENTINEL SET MASTER quorum: a majority of them");
    } else if !said.no_quorum.is_empty() {
        let text = format!("no fail-over can be agreed upon now: {}", said.no_quorum);
        found.add(Fail, text, "see which Sentinels are down, or cannot be reached from there");
    }
    if said.flags.contains("_down") {
        let text = format!("it takes the master {} for down", said.master);
        found.add(Change, text, "see the log there: the master hangs, or cannot be reached from there");
    }
    if said.replicas == 0 {
        let text = "it knows of no replica that could take over";
        found.add(Change, text, "give the master a replica, on another machine");
    }
    found.all
}

/// Returns findings where the Sentinels' views differ.
fn differ(about: &str, told: &[(&str, &Watching)]) -> Vec<Finding> {
    let mut found = Findings::about(about);
    let everywhere = "SENTINEL SET, the same on all";
    let lower_epoch = "SENTINEL RESET on those with the lower config-epoch, once they see the others";
    let questions: [(_, _, fn(&Watching) -> String, _); 3] = [
        (Fail, "they name different masters", |said| said.master.clone(), lower_epoch),
        (Change, "down-after-milliseconds differs", |said| time(said.down_after_ms), everywhere),
        (Change, "the quorum differs", |said| said.quorum.to_string(), everywhere),
    ];
    for (level, text, of, advice) in questions {
        let values: BTreeSet<String> = told.iter().map(|(_, said)| of(said)).collect();
        if values.len() > 1 {
            let each: Vec<String> = told.iter().map(|(name, said)| format!("{name} {}", of(said))).collect();
            found.add(level, format!("{text}: {}", each.join(", ")), advice);
        }
    }
    found.all
}

/// Checks that a master that is cut off from its replica stops granting before the replica takes over.
fn cut_off_master(master: &Patient, down_after_ms: u64) -> Finding {
    let number = |name| master.setting(name).parse::<u64>().ok();
    let (replicas, lag_s) = (number("min-replicas-to-write"), number("min-replicas-max-lag"));
    let (level, found, advice) = match (replicas, lag_s) {
        (Some(0), _) => (
            Change,
            "min-replicas-to-write is 0: cut off from its replica, it goes on granting beside that one".to_owned(),
            "min-replicas-to-write 1, and a min-replicas-max-lag below down-after-milliseconds, on it and its replicas",
        ),
        (Some(_), Some(lag_s)) if lag_s == 0 || lag_s * 1_000 > down_after_ms => (
            Change,
            format!(
                "min-replicas-max-lag is {}, and it may be replaced after {}: cut off, it may grant for longer than that",
                time(lag_s * 1_000),
                time(down_after_ms)
            ),
            "a min-replicas-max-lag below down-after-milliseconds, on it and its replicas",
        ),
        _ => (
            Ok,
            format!(
                "when it dies, its replica takes over some moments after {}, and is guarded for {}",
                time(down_after_ms),
                time(master.view.max_ttl_ms)
            ),
            "",
        ),
    };
    Finding::new(level, &master.view.node, found, advice)
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Level, assert_worst};
    use super::*;
    use crate::node_view::NodeView;

    fn watching() -> Watching {
        Watching {
            master: "h:1".to_owned(),
            flags: "master".to_owned(),
            quorum: 2,
            others: 2,
            replicas: 1,
            down_after_ms: 5_000,
            no_quorum: String::new(),
        }
    }

    fn master(replicas: &str, lag: &str) -> Patient {
        let settings = [("min-replicas-to-write", replicas), ("min-replicas-max-lag", lag)];
        Patient {
            view: NodeView { node: "h:1".to_owned(), max_ttl_ms: 60_000, ..NodeView::default() },
            settings: Some(settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            ..Patient::default()
        }
    }

    fn all(watchers: &mut [Watcher], change: impl Fn(&mut Watching)) {
        watchers.iter_mut().for_each(|watcher| change(watcher.said.as_mut().unwrap()));
    }

    fn one(watchers: &mut [Watcher]) -> &mut Watching {
        watchers[1].said.as_mut().unwrap()
    }

    #[test]
    fn each_fault_is_found_and_nothing_else() {
        let cases: [(&str, fn(&mut Vec<Watcher>), Level); 12] = [
            ("takes over some moments after 5s, and is guarded for 1m", |_| {}, Ok),
            ("cannot be asked: down", |w| w[0].said = Err(Why::Unreachable("down".to_owned())), Change),
            ("1 of 3 can be asked", |w| (0..2).for_each(|n| w[n].said = Err(Why::late())), Fail),
            (
                "there are 2",
                |w| {
                    w.pop();
                    all(w, |said| said.others = 1);
                },
                Change,
            ),
            ("the address names 2", |w| drop(w.pop()), Note),
            ("its quorum is 4, of 3", |w| all(w, |said| said.quorum = 4), Fail),
            ("agreed upon now: 1 usable", |w| one(w).no_quorum = "1 usable".to_owned(), Fail),
            ("takes the master h:1 for down", |w| one(w).flags = "s_down,master".to_owned(), Change),
            ("no replica", |w| one(w).replicas = 0, Change),
            ("different masters: s0 h:1, s1 h:2, s2 h:1", |w| one(w).master = "h:2".to_owned(), Fail),
            ("down-after-milliseconds differs", |w| one(w).down_after_ms = 6_000, Change),
            ("the quorum differs", |w| one(w).quorum = 1, Change),
        ];
        for (text, change, level) in cases {
            let said = |n: usize| Watcher { name: format!("s{n}"), said: Result::Ok(watching()) };
            let mut watchers: Vec<_> = (0..3).map(said).collect();
            change(&mut watchers);
            assert_worst(&check("locks", &watchers, Some(&master("1", "4"))), text, level);
        }
    }

    #[test]
    fn a_master_that_is_cut_off_must_stop_in_time() {
        for (replicas, lag, text, level) in [
            ("0", "10", "min-replicas-to-write is 0", Change),
            ("1", "10", "min-replicas-max-lag is 10s, and it may be replaced after 5s", Change),
            ("1", "0", "min-replicas-max-lag is 0", Change),
            ("1", "5", "takes over", Ok),
        ] {
            let finding = cut_off_master(&master(replicas, lag), 5_000);
            assert!(finding.level == level && finding.found.contains(text), "{finding:?}");
        }
    }
}
