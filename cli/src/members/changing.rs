//! `palisade members set`: shows the steps, and takes them one by one.

use std::time::Duration;

use palisade_client::NodeError;
use palisade_client::direct::{Plan, plan};
use palisade_quorum::{Member, Members, majority};
use serde::Serialize;
use tokio::time::sleep;

use super::survey::Survey;
use super::{addresses, even, show};
use crate::addresses::{like, split};
use crate::arguments::WantedSet;
use crate::exit::{End, Failure};
use crate::look::ask;
use crate::node_failure::with_remedy;
use crate::node_view::Guarded;
use crate::nodes::Nodes;
use crate::show::{out, print, print_message, time};

/// The interval between checks of the progress.
const LOOK: Duration = Duration::from_secs(1);

/// The JSON output of `palisade members set`: the steps.
#[derive(Serialize)]
struct Steps {
    /// The version of the current set; 0 if no node knows a set.
    version: u64,
    members: Vec<String>,
    steps: Vec<Step>,
    /// Nodes that are added after their guards have ended.
    guarded: Vec<Guarded>,
    /// The approximate time that the steps wait for leases to end, in milliseconds.
    waits_ms: u64,
}

#[derive(Serialize)]
struct Step {
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    adds: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removes: Option<String>,
    /// The number of nodes in the new set, and how many of them a lock needs.
    members: usize,
    majority: usize,
}

/// Runs `palisade members set ADDRESS…`.
///
/// # Errors
/// Those of the client's `set_nodes`; the user declines.
pub async fn set(nodes: &Nodes, wanted: &WantedSet, as_json: bool) -> Result<End, Failure> {
    let own = nodes.reaching().addresses();
    let given: Vec<String> = wanted.addresses.iter().flat_map(|list| split(list)).collect();
    let urls: Vec<String> = given.iter().map(|address| like(&own[0], address)).collect();
    let waits = |failed: NodeError| {
        let why = with_remedy(&failed.why.of_node());
        print_message(&format!("{}: {why}: it is asked again, for up to 10 s", failed.node));
    };
    let plan = plan(nodes.client(), urls.clone(), waits).await.map_err(|error| nodes.failed(error))?;
    let survey = Survey::of(nodes).await;
    let steps = Steps::of(&plan, &survey);
    if wanted.dry_run {
        return print(as_json, &steps, || steps.text()).map(|()| End::OK);
    }
    if !as_json {
        out(&steps.text())?;
    }
    if !steps.steps.is_empty() && !wanted.yes {
        let founds =
            if steps.version == 0 { FOUNDS } else { "locks are held and taken meanwhile, and all clients follow" };
        ask(founds, "Change the set?")?;
    }
    // This runs even if there is nothing to change, because members that know an earlier version are informed.
    let changing = nodes.client().set_nodes(urls);
    tokio::pin!(changing);
    let mut version = steps.version;
    let done = loop {
        tokio::select! {
            done = &mut changing => break done,
            () = sleep(LOOK) => {
                let now = Survey::of(nodes).await.latest;
                if now.version > version {
                    version = now.version;
                    print_message(&format!("version {version}: {}", addresses(&now.list)));
                }
            }
        }
    };
    done.map_err(|error| nodes.failed(error))?;
    if plan.steps.last().is_some_and(|last| !is_same(last, &plan.present)) {
        print_message(
            "have the new list in PALISADE_NODES and in the configurations of all clients: of nodes that are gone for good nobody can ask",
        );
    }
    show(nodes, &Survey::of(nodes).await, as_json)
}

/// The text before the first set is stored.
const FOUNDS: &str = "no node knows a set yet: --nodes are written down as the first one, so all clients must have been given exactly these";

fn is_same(one: &Members, other: &Members) -> bool {
    one.list.len() == other.list.len() && one.list.iter().all(|member| other.list.contains(member))
}

impl Steps {
    fn of(plan: &Plan, survey: &Survey) -> Self {
        let mut before: &[Member] = &plan.present.list;
        let mut steps = vec![];
        for after in &plan.steps {
            let only = |one: &[Member], other: &[Member]| {
                one.iter().find(|member| !other.contains(member)).map(|member| member.address.clone())
            };
            let members = after.list.len();
            steps.push(Step {
                version: after.version,
                adds: only(&after.list, before),
                removes: only(before, &after.list),
                members,
                majority: majority(members),
            });
            before = &after.list;
        }
        // A step waits for the leases of clients that use versions before the present one. So the first two steps of a
        // new set do not wait.
        let waiting = steps.iter().filter(|step| step.version > 2).count() as u64;
        let first = if plan.present.version > 1 && waiting > 0 { survey.unsettled_ms() } else { survey.max_ttl_ms() };
        let waits_ms = if waiting == 0 { 0 } else { first + (waiting - 1) * survey.max_ttl_ms() };
        let members = plan.present.list.iter().map(|member| member.address.clone()).collect();
        let guarded = plan.guarded.iter().map(|(node, guard_ms)| Guarded { node: node.clone(), guard_ms: *guard_ms });
        Self { version: plan.present.version, members, steps, guarded: guarded.collect(), waits_ms }
    }

    fn text(&self) -> String {
        let mut text = match self.version {
            0 => format!("no node knows a set; --nodes: {}\n", self.members.join(", ")),
            version => format!("version {version}: {}\n", self.members.join(", ")),
        };
        for Step { version, adds, removes, members, majority } in &self.steps {
            let change = match (adds, removes) {
                (Some(address), _) => format!("adds {address}"),
                (None, Some(address)) => format!("removes {address}"),
                (None, None) => "the set is founded".to_owned(),
            };
            text += &format!("version {version}: {change}; members: {members}, majority: {majority}\n");
        }
        let count = self.steps.last().map_or(self.members.len(), |last| last.members);
        if let Some(why) = even(count) {
            text += &format!("{count} are {why}\n");
        }
        for Guarded { node, guard_ms } in &self.guarded {
            text += &format!("{node} is guarded for {}: it is added when it serves\n", time(*guard_ms));
        }
        match (self.steps.len(), self.waits_ms) {
            (0, _) => text += "the set is as it should be\n",
            (_, 0) => {}
            (_, ms) => text += &format!("they wait for leases to end: about {}\n", time(ms)),
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(version: u64, ids: &[u128]) -> Members {
        let list = ids.iter().map(|&id| Member { id: Some(id), address: format!("10.0.0.{id}:6379") }).collect();
        Members { version, list }
    }

    #[test]
    fn the_steps_in_words() {
        let survey = Survey { told: vec![], latest: Members::default() };
        let plan = Plan {
            present: members(0, &[1, 2]),
            steps: vec![members(1, &[1, 2]), members(2, &[1, 2, 4]), members(3, &[1, 4])],
            guarded: vec![("10.0.0.4:6379".to_owned(), 40_000)],
        };
        assert_eq!(
            Steps::of(&plan, &survey).text(),
            "no node knows a set; --nodes: 10.0.0.1:6379, 10.0.0.2:6379\n\
             version 1: the set is founded; members: 2, majority: 2\n\
             version 2: adds 10.0.0.4:6379; members: 3, majority: 2\n\
             version 3: removes 10.0.0.2:6379; members: 2, majority: 2\n\
             2 are an even number: 2 are needed, so no more may be down than of 1\n\
             10.0.0.4:6379 is guarded for 40s: it is added when it serves\n"
        );
        let nothing = Steps::of(&Plan { present: members(3, &[1]), steps: vec![], guarded: vec![] }, &survey);
        assert_eq!(nothing.text(), "version 3: 10.0.0.1:6379\nthe set is as it should be\n");
    }
}
