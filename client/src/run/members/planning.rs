//! Plans a change of the set of nodes, without changing anything.

use std::sync::Arc;

use palisade_quorum::{Member, Members, step_towards};

use super::changing::{Changer, Guarded, OnWait};
use crate::net::nodes::Nodes;
use crate::net::ways::NO_SERVER;
use crate::{Error, ErrorKind};

/// The steps from the present set to another one.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The present set. At version 0, no node knows a set, and the first step founds one with the nodes of the client.
    pub present: Members,
    /// The members of each later version; empty if the set is already right.
    pub steps: Vec<Members>,
    /// The guards of nodes that will be added: the change waits until they have ended.
    pub guarded: Guarded,
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

/// Returns the steps from the present set to the set of the nodes at these addresses. Calls `waits` for each new node
/// that does not answer and is asked again.
///
/// # Errors
/// Those of [`set_nodes`](super::set_nodes), if it would fail at once.
pub async fn plan(nodes: &Arc<Nodes>, addresses: &[String], waits: &OnWait) -> Result<Plan, Error> {
    if !nodes.set.ways.can_change() {
        return Err(Error::new(ErrorKind::Configuration, NO_SERVER));
    }
    let first = nodes.set.ways.first();
    let wanted = nodes.set.ways.name(addresses)?;
    let changer = Changer::new(nodes, waits);
    let present = changer.survey(first).await.present(first)?;
    let (wanted, guarded) = changer.wanted(&present, &wanted).await?;
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
