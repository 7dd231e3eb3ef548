//! `palisade break`: breaks a lock, or the grant of one of its holders.

use palisade_quorum::token_of;
use redis::{Cmd, Value, cmd};
use serde::Serialize;

use crate::exit::{End, Failure};
use crate::lock_view::{LockView, tokens_with};
use crate::look::ask;
use crate::nodes::{Nodes, Reply, answers};
use crate::show::{print, printable};

/// The JSON output for programs.
#[derive(Serialize)]
struct Broken {
    key: String,
    /// The number of nodes on which somebody held the lock.
    nodes: usize,
    /// The token of the broken grant, as in `why` and `history`; of several, the largest.
    token: Option<u64>,
}

/// `palisade break KEY [--token T]`
///
/// # Errors
/// Too few nodes can be asked; the person declines.
pub async fn break_lock(
    nodes: &Nodes,
    key: &[u8],
    token: Option<u64>,
    yes: bool,
    as_json: bool,
) -> Result<End, Failure> {
    let name = printable(key);
    let (view, replies) = LockView::ask(nodes, key).await;
    nodes.need_majority(&replies).map_err(|failure| failure.about(key))?;
    if let (Some(view), false) = (view, yes) {
        let text = format!("{name} is {}. Who holds it goes on until it learns of that.", view.state_line(nodes.len()));
        let whose = token.map_or(String::new(), |token| format!(" for the holder with token {token}"));
        ask(&text, &format!("Break {name}{whose}?"))?;
    }
    let told: Vec<&Value> = answers(&replies).map(|reply| &reply.value).collect();
    // A holder's tokens may differ between nodes; each node receives its own.
    let tokens = tokens_with(&told, token);
    let mut tokens = tokens.into_iter();
    let of_node = replies.iter().map(|said| match (token, &said.said) {
        (None, _) => vec![command(key, None)],
        (Some(_), Ok(_)) => tokens.next().into_iter().flatten().map(|token| command(key, Some(token))).collect(),
        (Some(token), Err(_)) => vec![command(key, Some(token))],
    });
    let replies = nodes.ask_each_about(key, of_node.collect()).await;
    let largest = |replies: &Vec<Reply>| {
        let tokens = replies.iter().filter_map(|reply| match &reply.value {
            Value::Int(token) => u64::try_from(*token).ok(),
            _ => None,
        });
        tokens.max()
    };
    let tokens: Vec<u64> = answers(&replies).filter_map(largest).collect();
    let enough = nodes.need_majority(&replies).map_err(|failure| failure.about(key));
    if tokens.is_empty() {
        enough.clone()?;
    }
    let broken = Broken { key: name.clone(), nodes: tokens.len(), token: token_of(nodes.majority(), tokens) };
    print(as_json, &broken, || match broken.token {
        Some(token) => format!("{name}: broken on {} of {} nodes, token {token}\n", broken.nodes, nodes.len()),
        None => format!("{name}: no node has it, nothing was broken\n"),
    })?;
    enough.map(|()| End::OK)
}

fn command(key: &[u8], token: Option<u64>) -> Cmd {
    let mut command = cmd("LOCK.BREAK");
    command.arg(key);
    if let Some(token) = token {
        command.arg("TOKEN").arg(token);
    }
    command
}
