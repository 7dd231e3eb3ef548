//! `palisade members`: the node set of a quorum, as each node knows it, and its changes.

mod changing;
pub mod present;
pub mod survey;

use palisade_quorum::{Member, majority};
use serde::Serialize;

use self::survey::{Row, Standing, Survey};
use crate::arguments::{Members, MembersWord};
use crate::exit::{End, Failure, NO_QUORUM};
use crate::node_failure::{line, with_remedy};
use crate::nodes::Nodes;
use crate::show::{print, print_message, table, time};

/// Runs `palisade members` or `palisade members set`.
///
/// # Errors
///
/// Too few nodes can be asked, or agree; the user declines; a node of the list is not a single server.
pub async fn run(nodes: &Nodes, arguments: &Members, as_json: bool) -> Result<End, Failure> {
    if nodes.has_many_servers() {
        return Err(Failure::usage(
            "a cluster, or a master that Sentinels name, is no member of a set that changes: docs/operations.md says how to change such nodes by hand",
        ));
    }
    match &arguments.word {
        None => list(nodes, as_json).await,
        Some(MembersWord::Set(wanted)) => changing::set(nodes, wanted, as_json).await,
    }
}

/// The JSON output of `palisade members`.
#[derive(Serialize)]
struct Shown {
    /// The latest version; 0 if no node knows a set.
    version: u64,
    /// The number of members.
    members: usize,
    nodes: Vec<Row>,
}

async fn list(nodes: &Nodes, as_json: bool) -> Result<End, Failure> {
    show(nodes, &Survey::of(nodes).await, as_json)
}

/// Prints the set that the nodes know.
fn show(nodes: &Nodes, survey: &Survey, as_json: bool) -> Result<End, Failure> {
    let (version, members) = (survey.latest.version, survey.latest.list.len());
    let rows = survey.rows();
    print(as_json, &Shown { version, members, nodes: rows.clone() }, || {
        format!("{}\n{}", heading(version, members), text(&rows))
    })?;
    enough(nodes, version, members, &rows)
}

fn heading(version: u64, members: usize) -> String {
    match version {
        0 => "no node knows a set: the first change founds it".to_owned(),
        _ => format!("version {version} of the set, members: {members}, majority: {}", majority(members)),
    }
}

fn text(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            or_none(row.number.map(|number| number.to_string())),
            row.node.clone(),
            row.standing_words().to_owned(),
            or_none(row.version.map(|version| version.to_string())),
            or_none(row.unsettled_ms.map(|ms| if ms == 0 { "now".to_owned() } else { time(ms) })),
            or_none(row.id.clone()),
        ]
    };
    table(&["#", "NODE", "STANDING", "VERSION", "VOTES IN", "ID"], &[3, 4], rows.iter().map(row))
}

/// Returns a warning if the number of nodes is even; `None` otherwise.
pub fn even(count: usize) -> Option<String> {
    let why =
        || format!("an even number: {} are needed, so no more may be down than of {}", majority(count), count - 1);
    (count > 0 && count.is_multiple_of(2)).then(why)
}

/// Checks that a majority of the members, or of the list if there is no set, answered.
fn enough(nodes: &Nodes, version: u64, members: usize, rows: &[Row]) -> Result<End, Failure> {
    let all = if version == 0 { nodes.len() } else { members };
    let is_there = |row: &&Row| matches!(row.standing, Standing::Member | Standing::Behind | Standing::NoSet);
    let there = rows.iter().filter(is_there).count();
    let silent = rows.iter().filter_map(|row| Some((row.node.as_str(), with_remedy(row.error.as_ref()?))));
    let wrong = line(silent, rows.len());
    if there < majority(all) {
        let text = format!("{there} of {all} members can be asked, and {} are needed", majority(all));
        let whys = if wrong.is_empty() { wrong } else { format!(": {wrong}") };
        return Err(Failure::new(NO_QUORUM, text + &whys));
    }
    if !wrong.is_empty() {
        print_message(&wrong);
    }
    Ok(End::OK)
}

/// Returns the addresses of members, for people.
fn addresses(list: &[Member]) -> String {
    list.iter().map(|member| member.address.as_str()).collect::<Vec<_>>().join(", ")
}
