//! What changing the set of nodes would come to: nothing is changed, and no node is told anything.

use std::sync::Arc;

use futures_util::future::join_all;
use palisade_quorum::{Member, Members, step_towards};

use super::changing::Changer;
use crate::net::nodes::Nodes;
use crate::net::ways::NO_SERVER;
use crate::{Error, ErrorKind};

/// The steps from the present set to another one.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The set as it is. Version 0: no node knows one, so the first step founds it with the nodes of the client.
    pub present: Members,
    /// What each version after it has: none if the set is as it should be.
    pub steps: Vec<Members>,
    /// For how many milliseconds nodes that are to be added are guarded: that is waited for.
    pub guarded: Vec<(String, u64)>,
}

impl Plan {
    fn new(present: Members, wanted: &[Member]) -> Self {
        let mut steps: Vec<Members> = vec![];
        if present.version == 0 {
            steps.push(Members { version: 1, list: present.list.clone() });
        }
        while let Some(list) = step_towards(&steps.last().unwrap_or(&present).list, wanted) {
            let version = present.version.saturating_add(1 + steps.len() as u64);
            steps.push(Members { version, list });
        }
        Self { present, steps, guarded: vec![] }
    }
}

/// The steps from the present set to one of the nodes at these addresses.
///
/// # Errors
/// As of [`set_nodes`](super::set_nodes), if it would fail at once.
pub async fn plan(nodes: &Arc<Nodes>, addresses: &[String]) -> Result<Plan, Error> {
    if !nodes.set.ways.can_change() {
        return Err(Error::new(ErrorKind::Configuration, NO_SERVER));
    }
    let first = nodes.set.ways.first();
    let wanted = nodes.set.ways.name(addresses)?;
    let changer = Changer::new(nodes);
    let present = changer.survey(first).await.present(first)?;
    let wanted = changer.wanted(&present, &wanted).await?;
    let added = wanted.iter().filter(|member| !present.list.contains(member));
    let guard = added.map(async |member| (member.address.clone(), changer.knows(&member.address).await));
    let guards = join_all(guard).await.into_iter().filter_map(|(address, knows)| Some((address, knows.ok()?.guard_ms)));
    let guarded = guards.filter(|(_, guard_ms)| *guard_ms > 0).collect();
    Ok(Plan { guarded, ..Plan::new(present, &wanted) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ids: &[u128]) -> Vec<Member> {
        ids.iter().map(|&id| Member { id: Some(id), address: format!("10.0.0.{id}:6379") }).collect()
    }

    #[test]
    fn a_set_that_no_node_knows_is_founded_first() {
        let plan = Plan::new(Members { version: 0, list: list(&[1, 2, 3]) }, &list(&[1, 2, 4]));
        let step = |version, ids: &[u128]| Members { version, list: list(ids) };
        assert_eq!(plan.steps, [step(1, &[1, 2, 3]), step(2, &[1, 2, 3, 4]), step(3, &[1, 2, 4])]);
        assert_eq!(Plan::new(step(7, &[1, 2]), &list(&[2])).steps, [step(8, &[2])]);
        assert!(Plan::new(step(7, &[1, 2]), &list(&[2, 1])).steps.is_empty());
    }
}
