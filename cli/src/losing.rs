//! The texts that say that a lock was lost, and why, for all commands that hold one.

use std::time::Duration;

use palisade_client::Loss;

use crate::exit::{Failure, LOST};
use crate::node_failure::{line, with_remedy};
use crate::nodes::Nodes;
use crate::show::{duration, printable};

/// Returns why the lock was lost, with the nodes' answers and, if known, what to do. `max_hold` is the limit of its
/// extension.
pub fn reason(nodes: &Nodes, loss: &Loss, max_hold: Duration) -> String {
    let summary = match loss {
        Loss::MaxHold => format!("it is extended for no longer than --max-hold {}", duration(max_hold)),
        loss => loss.summary().to_owned(),
    };
    let said = loss.nodes().iter().map(|error| (&*error.node, with_remedy(&error.why.clone().of_node())));
    match line(said, nodes.of_client().len()) {
        said if said.is_empty() => summary,
        said => format!("{summary}: {said}"),
    }
}

/// Returns the failure of a lock that was lost for the reason `why`.
pub fn failure(key: &[u8], why: &str) -> Failure {
    Failure::new(LOST, format!("{} was lost: {why}", printable(key)))
}
