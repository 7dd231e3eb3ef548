//! The words that say that a lock is lost, and why: the same of each command that holds one.

use std::time::Duration;

use palisade_client::Loss;

use crate::exit::{Failure, LOST};
use crate::node_failure::{line, with_remedy};
use crate::nodes::Nodes;
use crate::show::{duration, printable};

/// Tells why the lock is lost, with what its nodes said and, where that is known, what to do; `max_hold` is how long it was to be extended.
pub fn why(nodes: &Nodes, loss: &Loss, max_hold: Duration) -> String {
    let summary = match loss {
        Loss::MaxHold => format!("it is extended for no longer than --max-hold {}", duration(max_hold)),
        loss => loss.summary().to_owned(),
    };
    let said = loss.nodes().iter().map(|error| (&*error.node, with_remedy(&error.why.clone().of_node())));
    match line(said, nodes.len()) {
        said if said.is_empty() => summary,
        said => format!("{summary}: {said}"),
    }
}

/// Returns the failure of a lock that was lost, which is `why`.
pub fn failure(key: &[u8], why: &str) -> Failure {
    Failure::new(LOST, format!("{} was lost: {why}", printable(key)))
}
