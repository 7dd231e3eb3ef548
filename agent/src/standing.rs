//! Log lines for operators: which nodes are missing or back, whether there is a majority, and which set of nodes the
//! agent works with. A state is reported if it differs from what was reported last. So a short change is rarely
//! reported, but the last line is always right.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use palisade_client::by_owner::{Reach, Standing};
use palisade_quorum::majority;
use tokio::time::{Instant, sleep};

use crate::limits::{LINE_EVERY, LINES_AT_ONCE, STANDING_EVERY};
use crate::state::State;

/// Passes each new line to `tell`, until the future is dropped.
pub async fn report(state: Arc<State>, tell: fn(&str)) {
    let mut log = Log::new(Instant::now());
    loop {
        sleep(STANDING_EVERY).await;
        log.check(&state.locks.standing(), Instant::now()).iter().for_each(|line| tell(line));
    }
}

/// The latest reports, from which it follows which lines are logged next.
struct Log {
    version: Option<u64>,
    nodes: BTreeMap<String, OfNode>,
    /// The time at which it was reported that no majority can be asked; `None` if that is not reported.
    no_quorum: Option<Instant>,
    budget: Budget,
}

/// The last report about one node.
#[derive(Default)]
struct OfNode {
    /// The number of checks in a row that found the node away.
    seen_away: u32,
    /// The time at which the node was reported as away; `None` if it is not.
    told_away: Option<Instant>,
}

/// A limit on the number of log lines.
struct Budget {
    lines: u32,
    last: Instant,
}

impl Budget {
    /// Counts one line at `now`. Returns false if the limit is reached, so that the line must not be logged.
    fn take_line(&mut self, now: Instant) -> bool {
        let more = now.duration_since(self.last).as_secs() / LINE_EVERY.as_secs();
        if more > 0 {
            self.lines = u32::try_from(more).unwrap_or(u32::MAX).saturating_add(self.lines).min(LINES_AT_ONCE);
            self.last = now;
        }
        let takes = self.lines > 0;
        self.lines -= u32::from(takes);
        takes
    }
}

impl OfNode {
    /// Returns true if the node counts as away. A node that failed to answer only once may just be slow.
    fn is_away(&self) -> bool {
        self.seen_away > 1
    }
}

impl Log {
    fn new(now: Instant) -> Self {
        let budget = Budget { lines: LINES_AT_ONCE, last: now };
        Self { version: None, nodes: BTreeMap::new(), no_quorum: None, budget }
    }

    /// Returns the log lines about what has changed since the last check.
    fn check(&mut self, seen: &Standing, now: Instant) -> Vec<String> {
        let mut lines = vec![];
        self.take_up(seen, now, &mut lines);
        for (name, reach) in &seen.nodes {
            let node = self.nodes.entry(name.clone()).or_default();
            node.seen_away = if matches!(reach, Reach::Away(_)) { node.seen_away + 1 } else { 0 };
        }
        // The majority matters for all locks, so its line is counted first, in case the budget does not last for all
        // lines.
        let quorum = self.quorum(seen, now);
        for (name, reach) in &seen.nodes {
            lines.extend(self.node(name, reach, now));
        }
        lines.extend(quorum);
        lines
    }

    /// Adds a line if the agent works with another version of the set than before.
    fn take_up(&mut self, seen: &Standing, now: Instant, lines: &mut Vec<String>) {
        let told = *self.version.get_or_insert(seen.version);
        if told != seen.version && self.budget.take_line(now) {
            let names: Vec<&str> = seen.nodes.iter().map(|(name, _)| name.as_str()).collect();
            lines.push(format!("follows version {} of the set of nodes: {}", seen.version, names.join(", ")));
            self.version = Some(seen.version);
        }
        self.nodes.retain(|name, _| seen.nodes.iter().any(|(node, _)| node == name));
    }

    fn node(&mut self, name: &str, reach: &Reach, now: Instant) -> Option<String> {
        let node = self.nodes.get_mut(name)?;
        match (node.told_away, reach) {
            (None, Reach::Away(why)) if node.is_away() && self.budget.take_line(now) => {
                node.told_away = Some(now);
                Some(format!("{name} is away: {why}"))
            }
            (Some(since), Reach::Up) if self.budget.take_line(now) => {
                node.told_away = None;
                Some(format!("{name} is back after {}", seconds(now - since)))
            }
            _ => None,
        }
    }

    fn quorum(&mut self, seen: &Standing, now: Instant) -> Option<String> {
        let (count, needed) = (seen.nodes.len(), majority(seen.nodes.len()));
        let up = count - self.nodes.values().filter(|node| node.is_away()).count();
        match self.no_quorum {
            None if up < needed && self.budget.take_line(now) => {
                self.no_quorum = Some(now);
                Some(format!(
                    "NOQUORUM begins: {up} of {count} nodes can be asked, and {needed} are needed; no lock is granted or extended"
                ))
            }
            Some(since) if up >= needed && self.budget.take_line(now) => {
                self.no_quorum = None;
                Some(format!("NOQUORUM ends after {}: {up} of {count} nodes can be asked", seconds(now - since)))
            }
            _ => None,
        }
    }
}

/// Formats a length of time for people.
fn seconds(time: Duration) -> String {
    format!("{}s", time.as_secs())
}

#[cfg(test)]
mod tests {
    use palisade_client::Why;

    use super::*;

    fn standing(version: u64, nodes: &str) -> Standing {
        let reach = |up: char| match up {
            '+' => Reach::Up,
            '-' => Reach::Away(Why::late()),
            _ => Reach::Unknown,
        };
        let nodes = nodes.chars().enumerate().map(|(n, up)| (format!("node{n}"), reach(up))).collect();
        Standing { version, nodes }
    }

    /// Returns the lines that these checks produce, each with its time in seconds and the state that it finds.
    fn told(looks: &[(u64, &str)]) -> Vec<String> {
        let start = Instant::now();
        let mut log = Log::new(start);
        let looks = looks.iter().zip(1..);
        looks
            .flat_map(|((version, nodes), n)| log.check(&standing(*version, nodes), start + Duration::from_secs(n)))
            .collect()
    }

    #[test]
    fn a_node_and_a_majority_are_lost_and_back() {
        assert_eq!(told(&[(0, "???"), (0, "+++"), (0, "++-"), (0, "+++")]), [""; 0], "one late answer is no loss");
        let lines =
            told(&[(0, "+++"), (0, "++-"), (0, "++-"), (0, "+--"), (0, "+--"), (0, "+--"), (0, "+++"), (0, "+++")]);
        assert_eq!(
            lines,
            [
                "node2 is away: it does not answer",
                "node1 is away: it does not answer",
                "NOQUORUM begins: 1 of 3 nodes can be asked, and 2 are needed; no lock is granted or extended",
                "node1 is back after 2s",
                "node2 is back after 4s",
                "NOQUORUM ends after 2s: 3 of 3 nodes can be asked",
            ]
        );
    }

    #[test]
    fn another_set_of_nodes() {
        assert_eq!(told(&[(3, "+++"), (4, "++"), (4, "++")]), ["follows version 4 of the set of nodes: node0, node1"]);
    }

    /// A node comes and goes for a day. There is at most one line in ten seconds, and the last one is right.
    #[test]
    fn lines_are_bounded() {
        let mut looks: Vec<(u64, &str)> = (0..86_400).map(|n| (0, if n % 4 < 2 { "++-" } else { "+++" })).collect();
        looks.extend([(0, "+++"); 60]);
        let lines = told(&looks);
        assert!(lines.len() <= 8_646 + LINES_AT_ONCE as usize, "{}", lines.len());
        assert!(lines.last().unwrap().contains("is back"), "{:?}", lines.last());
    }
}
