//! `LOCK.NODE`: shows the state of all nodes together, in the fields that a node has.

use palisade_client::by_owner::NodeSet;
use palisade_quorum::grammar::Spec;
use palisade_quorum::request;

use super::command::{Call, Command, Work};
use crate::refused::Refused;
use crate::reply::Reply;

/// The version of the protocol of the commands, the same as a node's.
const PROTOCOL: u64 = 1;

/// LOCK.NODE: shows the state of all nodes together, and whether they grant locks.
pub const NODE: Command = Command::of_locks(
    Spec {
        summary: "Describes the nodes together: identity, guard, bounds, clock, how many there are, how many are needed and \
                  how many serve.",
        ..request::Node::SPEC
    },
    node,
);

fn node(call: Call) -> Result<Work, Refused> {
    // A quorum has no slots.
    request::Node::read(call.words(), call.bounds)?;
    let state = call.state;
    Ok(Work::read(async move { Ok(Reply::Map(fields(&state.nodes().await?))) }))
}

/// Returns `serving` if enough nodes are ready to grant locks, otherwise the reason.
pub fn state(nodes: &NodeSet) -> &'static str {
    match nodes {
        _ if nodes.serving >= nodes.majority => "serving",
        NodeSet { guarded: Some(_), .. } => "guarded",
        _ => "unreachable",
    }
}

fn fields(nodes: &NodeSet) -> Vec<(&'static str, Reply)> {
    let (guard_ms, reason) = match &nodes.guarded {
        Some((left, reason)) => (left.as_millis() as u64, reason.as_str()),
        None => (0, ""),
    };
    vec![
        ("id", Reply::text(format!("{:032x}", nodes.id))),
        // A node counts its starts. The agent stores nothing, so its starts do not matter.
        ("incarnation", Reply::Integer(0)),
        ("state", Reply::text(state(nodes))),
        ("guard_ms", Reply::Integer(guard_ms)),
        ("guard_reason", Reply::text(reason)),
        ("max_ttl", Reply::Integer(nodes.max_ttl.map_or(0, |ttl| ttl.as_millis() as u64))),
        ("role", Reply::text("master")),
        ("clock_us", Reply::Integer(nodes.clock_us)),
        ("version", Reply::text(env!("CARGO_PKG_VERSION"))),
        ("protocol", Reply::Integer(PROTOCOL)),
        // There are no features beyond the first version of the protocol.
        ("features", Reply::text("")),
        ("nodes", Reply::Integer(nodes.nodes as u64)),
        ("majority", Reply::Integer(nodes.majority as u64)),
        ("serving", Reply::Integer(nodes.serving as u64)),
    ]
}
