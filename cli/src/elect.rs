//! `palisade elect`, which runs a command while this host leads, and `palisade leader`, which shows the leader.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use palisade_client::{Election, Error, ErrorKind, Leader, Leadership};
use serde::Serialize;
use tokio::time::sleep;

use crate::arguments::Elect;
use crate::exec::{self, Job};
use crate::exit::{CONFLICT, End, Failure, LOST};
use crate::holder::{self, HolderId, note};
use crate::nodes::Nodes;
use crate::show::{json_line, out, print_message, printable};
use crate::signals::Signals;
use crate::taking::{connect, connect_in, options, saying_for_what};

/// The pause before the next campaign after one that failed for a temporary reason.
const AGAIN: Duration = Duration::from_secs(1);

/// The JSON output for programs; empty if nobody leads.
#[derive(Serialize)]
struct LeaderOutput {
    #[serde(skip_serializing_if = "Option::is_none")]
    term: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

/// Campaigns, and runs the command while this process leads. After a loss it campaigns again, until the command ends by itself.
///
/// # Errors
///
/// This process cannot campaign, or the command cannot be started.
pub async fn run(nodes: &Nodes, elect: &Elect) -> Result<End, Failure> {
    let job = Job::new(&elect.command, elect.ttl, elect.max_hold.unwrap_or(Duration::MAX), elect.grace)?;
    let program = &elect.command[0];
    let value = elect.value.clone().map_or_else(|| note(program).into_bytes(), |value| value.as_bytes().to_vec());
    let (note, holder) = (note(program), HolderId::of_process());
    let mut options = options(elect.ttl, &note, &holder, elect.node_timeout);
    if let Some(limit) = elect.max_hold {
        options = options.max_hold(limit);
    }
    let election = nodes.client().with(&options).election(elect.name.as_bytes());
    let mut signals = Signals::listen()?;
    loop {
        let leadership = tokio::select! {
            biased;
            signal = signals.end() => return Ok(End::Signal(signal)),
            leadership = campaign(nodes, elect.name.as_bytes(), &election, &value) => {
                leadership.map_err(|error| nodes.failed(error).about(elect.name.as_bytes()))?
            }
        };
        let term = leadership.term();
        print_message(&format!("{} leads in term {term}", printable(&value)));
        let more = [(exec::group::TERM, term.to_string()), (holder::VARIABLE, holder.to_string())];
        let end = job.run(nodes, &leadership, more, &mut signals).await;
        leadership.resign().await;
        match (end, signals.end_signal()) {
            (Err(failure), None) if failure.code == LOST => {
                print_message(&format!("{}; it campaigns again", failure.text))
            }
            (Err(failure), Some(signal)) if failure.code == LOST => return Ok(End::Signal(signal)),
            (end, _) => return end,
        }
    }
}

/// Waits until this process leads, however long nodes are unavailable.
async fn campaign(nodes: &Nodes, name: &[u8], election: &Election, value: &[u8]) -> Result<Leadership, Error> {
    loop {
        connect_in(nodes, None).await?;
        match saying_for_what(nodes, name, election.campaign(value)).await {
            Err(error) if !error.is_lasting() => {
                print_message(&format!("{}; it campaigns again", nodes.failed(error).text))
            }
            done => return done,
        }
        sleep(AGAIN).await;
    }
}

/// Prints the current leader, or each change of the leader.
///
/// # Errors
///
/// Nobody leads, or too few nodes can be asked.
pub async fn leader(nodes: &Nodes, name: &OsStr, follow: bool, as_json: bool) -> Result<End, Failure> {
    connect(nodes.client()).await.map_err(|error| nodes.failed(error).about(name.as_bytes()))?;
    let election = nodes.client().election(name.as_bytes());
    if follow {
        return self::follow(&election, as_json).await;
    }
    let leader = election.leader().await.map_err(|error| nodes.failed(error).about(name.as_bytes()))?;
    if leader.is_none() && !as_json {
        return Err(Failure::new(CONFLICT, format!("nobody leads {}", printable(name.as_bytes()))));
    }
    print_leader(leader.as_ref(), as_json)?;
    Ok(if leader.is_some() { End::OK } else { End::Code(CONFLICT) })
}

async fn follow(election: &Election, as_json: bool) -> Result<End, Failure> {
    let mut signals = Signals::listen()?;
    let mut changes = election.observe()?;
    loop {
        let change = tokio::select! {
            biased;
            signal = signals.end() => return Ok(End::Signal(signal)),
            change = changes.changed() => change,
        };
        match change {
            Ok(leader) => print_leader(leader.as_ref(), as_json)?,
            Err(error) if error.kind() == ErrorKind::Closed => return Ok(End::OK),
            Err(error) => return Err(error.into()),
        }
    }
}

fn print_leader(leader: Option<&Leader>, as_json: bool) -> Result<(), Failure> {
    let text = |leader: &Leader| String::from_utf8_lossy(&leader.value).into_owned();
    if as_json {
        return json_line(&LeaderOutput {
            term: leader.map(|leader| leader.term),
            sequence: leader.map(|leader| leader.sequence),
            value: leader.map(text),
        });
    }
    out(&leader.map_or("-\n".to_owned(), |leader| format!("{} {}\n", leader.term, printable(&leader.value))))
}
