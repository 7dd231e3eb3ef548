//! `palisade break`: breaks a lock, or the grant of one of its holders.

use std::collections::BTreeMap;

use palisade_quorum::{Breaking, ShownTokens, token_of};
use redis::{Cmd, FromRedisValue, cmd};
use serde::Serialize;

use crate::exit::{End, Failure, NO_QUORUM};
use crate::lock_view::{LockView, tokens};
use crate::look::ask;
use crate::node_failure::line;
use crate::nodes::{Nodes, Reply, ServerAnswer, failures};
use crate::show::{print, printable};

/// The JSON output of `palisade break`.
#[derive(Serialize)]
struct Broken {
    key: String,
    /// The number of nodes on which somebody held the lock.
    nodes: usize,
    /// The token of the broken grant, as in `why` and `history`; of several, the largest.
    token: Option<u64>,
}

/// Runs `palisade break KEY [--token T]`.
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
    if let (Some(view), false) = (&view, yes) {
        let text = format!("{name} is {}. Who holds it goes on until it learns of that.", view.state_line(nodes.len()));
        let whose = token.map_or(String::new(), |token| format!(" for the holder with token {token}"));
        ask(&text, &format!("Break {name}{whose}?"))?;
    }
    let mut ended = Ended::default();
    let nothing = match token {
        None => {
            ended.end(nodes, key, vec![vec![None]; nodes.len()]).await;
            nobody(&ended.said)
        }
        Some(token) => end_with(nodes, key, token, (view, replies), &mut ended).await?,
    };
    let tokens: Vec<u64> = ended.tokens.into_values().collect();
    let enough = nodes.need_majority(&ended.said).map_err(|failure| failure.about(key));
    if tokens.is_empty() {
        enough.clone()?;
    }
    let broken = Broken { key: name.clone(), nodes: tokens.len(), token: token_of(nodes.majority(), tokens) };
    print(as_json, &broken, || match broken.token {
        Some(token) => format!("{name}: broken on {} of {} nodes, token {token}\n", broken.nodes, nodes.len()),
        None => format!("{name}: {nothing}, nothing was broken\n"),
    })?;
    enough.map(|()| End::OK)
}

/// Returns the words for a lock that no node has, as far as the nodes `said`.
fn nobody<T>(said: &[ServerAnswer<T>]) -> String {
    let are_silent = said.iter().any(|node| node.said.is_err());
    if are_silent { "no node that answered has it" } else { "no node has it" }.to_owned()
}

/// The nodes' answers to LOCK.BREAK so far.
#[derive(Default)]
struct Ended {
    /// Each node's last answer, or why it has none.
    said: Vec<ServerAnswer<()>>,
    /// For each node, the largest token of the grants that it has ended.
    tokens: BTreeMap<usize, u64>,
}

impl Ended {
    /// Makes each node end the grants with the tokens listed for it, or all grants (`None`). Returns for each node
    /// whether it had all of them; `None`: it did not answer.
    async fn end(&mut self, nodes: &Nodes, key: &[u8], of_node: Vec<Vec<Option<u64>>>) -> Vec<Option<bool>> {
        let commands = of_node.iter().map(|tokens| tokens.iter().map(|token| command(key, *token)).collect());
        let replies = nodes.ask_each_about(key, commands.collect()).await;
        let ended = |(place, said): (usize, &ServerAnswer<Vec<Reply>>)| {
            let replies = said.said.as_ref().ok()?;
            let tokens: Vec<u64> =
                replies.iter().filter_map(|reply| u64::from_redis_value_ref(&reply.value).ok()).collect();
            let largest = tokens.iter().chain(self.tokens.get(&place)).max().copied();
            self.tokens.extend(largest.map(|token| (place, token)));
            Some(tokens.len() == replies.len())
        };
        let all = replies.iter().enumerate().map(ended).collect();
        self.said = replies.into_iter().map(|said| said.map(|_| ())).collect();
        all
    }
}

/// Ends the grants with `token`, and the grants of the same owners on other nodes, where their tokens may differ.
/// `shown` is what the nodes showed at first. Returns the text to print if no node had such a grant.
///
/// # Errors
/// A node that does not answer may be the only one that has the token.
async fn end_with(
    nodes: &Nodes,
    key: &[u8],
    token: u64,
    mut shown: (Option<LockView>, Vec<ServerAnswer<Reply>>),
    ended: &mut Ended,
) -> Result<String, Failure> {
    let mut breaking = Breaking::begin(token, []);
    loop {
        let by_node = shown.1.iter().map(|said| said.said.as_ref().ok().map(|reply| tokens(&reply.value)));
        let of_node = breaking.on_shown(&by_node.collect::<Vec<ShownTokens>>()).into_iter();
        let of_node = of_node.map(|tokens| tokens.into_iter().map(Some).collect()).collect();
        if !breaking.on_ended(&ended.end(nodes, key, of_node).await) {
            break;
        }
        shown = LockView::ask(nodes, key).await;
    }
    let Some(view) = shown.0.filter(|_| ended.tokens.is_empty()) else { return Ok(nobody(&shown.1)) };
    let now = match &*view.grants {
        [one] => format!("its holder has token {} now", one.token),
        several => {
            let tokens: Vec<_> = several.iter().map(|grant| grant.token.to_string()).collect();
            format!("its holders have tokens {} now", tokens.join(", "))
        }
    };
    if breaking.is_hidden() {
        let whys = line(failures(&shown.1), nodes.len());
        let text = format!(
            "{}: nothing was broken: no node that answered has token {token}, {now}; a node that did not answer may have it: {whys}",
            printable(key)
        );
        return Err(Failure::new(NO_QUORUM, text));
    }
    Ok(format!("no node has token {token}, {now}"))
}

fn command(key: &[u8], token: Option<u64>) -> Cmd {
    let mut command = cmd("LOCK.BREAK");
    command.arg(key);
    if let Some(token) = token {
        command.arg("TOKEN").arg(token);
    }
    command
}
