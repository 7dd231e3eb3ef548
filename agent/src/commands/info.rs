//! `INFO`: the state of the agent and its nodes, in lines like those of a server.

use std::fmt::Write;
use std::sync::Arc;

use super::command::{Command, Invocation, Work};
use super::handshake::AS_SERVER;
use super::node;
use crate::refused::Refused;
use crate::reply::Reply;
use crate::state::State;

/// INFO: shows the state of the agent and its nodes.
pub const INFO: Command = Command::of_connection(
    "INFO",
    "Describes the agent and its nodes, in sections: server, clients, stats, commandstats, palisade.",
    info,
);

/// The sections of INFO, in the order in which they are shown.
const SECTIONS: [&str; 5] = ["server", "clients", "stats", "commandstats", "palisade"];

fn info(Invocation { state, words, .. }: Invocation<'_>) -> Result<Work, Refused> {
    let all = words.is_empty()
        || words
            .iter()
            .any(|word| ["all", "default", "everything"].iter().any(|w| word.eq_ignore_ascii_case(w.as_bytes())));
    let asked = |section: &&str| all || words.iter().any(|word| word.eq_ignore_ascii_case(section.as_bytes()));
    let sections: Vec<&str> = SECTIONS.into_iter().filter(asked).collect();
    let state = Arc::clone(state);
    if !sections.contains(&"palisade") {
        return Ok(Work::Done(Reply::text(text(&state, &sections))));
    }
    Ok(Work::read(async move {
        let mut lines = text(&state, &sections);
        of_nodes(&state, &mut lines).await;
        Ok(Reply::text(lines))
    }))
}

/// Returns these sections, without the fields for which the agent has to ask the nodes.
fn text(state: &State, sections: &[&str]) -> String {
    let (counts, mut text) = (&state.counts, String::new());
    for section in sections {
        let (first, rest) = section.split_at(1);
        let gap = if text.is_empty() { "" } else { "\r\n" };
        let _ = write!(text, "{gap}# {}{rest}\r\n", first.to_uppercase());
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            let _ = write!(text, "{name}:{value}\r\n");
        };
        match *section {
            "server" => {
                // Client libraries conclude from this version which commands they may send.
                line("redis_version", &AS_SERVER);
                line("redis_mode", &"standalone");
                line("process_id", &std::process::id());
                line("uptime_in_seconds", &state.started.elapsed().as_secs());
                line("loading", &0);
                line("role", &"master");
                line("listens_on", &state.listening.join(","));
            }
            "clients" => {
                line("connected_clients", &counts.connections.get());
                line("maxclients", &state.connections_max);
                line("blocked_clients", &counts.blocked.get());
            }
            "stats" => {
                line("total_connections_received", &counts.accepted.get());
                line("rejected_connections", &counts.turned_away.get());
                line("total_commands_processed", &counts.commands.iter().map(|of| of.calls.get()).sum::<u64>());
                line("closed_for_garbage", &counts.garbage.get());
                line("closed_for_slowness", &counts.too_slow.get());
                line("acl_access_denied_auth", &counts.wrong_passwords.get());
                line("unknown_commands", &counts.unknown.get());
                line("panics", &counts.panics.get());
            }
            "commandstats" => {
                for of in counts.commands.iter().filter(|of| of.calls.get() > 0) {
                    let value = format!("calls={},failed_calls={}", of.calls.get(), of.errors.get());
                    line(&format!("cmdstat_{}", of.name.to_lowercase()), &value);
                }
            }
            _ => {
                line("palisade_version", &env!("CARGO_PKG_VERSION"));
                let (held, waiting, watching) = state.locks.counts();
                line("held", &held);
                line("waiting", &waiting);
                line("watching", &watching);
                line("validity_margin_ms", &VALIDITY_MARGIN_MS);
                line("validity_margin_percent", &palisade_quorum::limits::DRIFT_PERCENT);
            }
        }
    }
    text
}

/// The time by which a holder's validity is shorter than its lease, in milliseconds. The drift of clocks shortens it
/// further.
const VALIDITY_MARGIN_MS: u64 = 2;

/// Adds to the last section the fields for which the agent asks the nodes.
async fn of_nodes(state: &State, text: &mut String) {
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = write!(text, "{name}:{value}\r\n");
    };
    let failed = match state.nodes_soon().await {
        Some(Ok(nodes)) => {
            line("state", &node::state(&nodes));
            line("nodes", &nodes.nodes);
            line("nodes_serving", &nodes.serving);
            line("nodes_majority", &nodes.majority);
            if let Some((left, reason)) = &nodes.guarded {
                line("guard_ms", &left.as_millis());
                line("guard_reason", reason);
            }
            if let Some(longest) = nodes.max_ttl {
                line("max_ttl_ms", &longest.as_millis());
            }
            nodes.unreachable
        }
        Some(Err(error)) => {
            line("state", &"unreachable");
            if error.nodes().is_empty() {
                line("why", &error.summary());
            }
            error.nodes().to_vec()
        }
        None => {
            line("state", &"unreachable");
            line("why", &"no answer in time");
            vec![]
        }
    };
    for (n, node) in failed.iter().enumerate() {
        line(
            &format!("node_failed{n}"),
            &format!("node={},why={}", one_line(&node.node), one_line(&node.why.to_string())),
        );
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
