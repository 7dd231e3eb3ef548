//! The present set of nodes, for questions about locks.

use super::survey::Survey;
use crate::nodes::Nodes;

/// Asks these nodes, which are those of `--nodes`, for the newest set of nodes, and returns its members. Clients take
/// locks on these, however old their lists are. If no node tells a set, returns these nodes.
pub async fn present(nodes: &Nodes) -> Nodes {
    if nodes.has_many_servers() {
        return nodes.clone();
    }
    let survey = Survey::of(nodes).await;
    nodes.of_set(&survey.latest, |member| survey.number_of(member))
}
