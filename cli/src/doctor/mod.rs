//! `palisade doctor`: checks whether a set of nodes is fit for locks, and says what to change.

mod announced;
mod around;
mod cluster;
mod each;
mod finding;
mod legacy;
mod members;
mod patient;
mod rights;
mod sentinel;
mod set;
mod verdict;

use futures_util::future::join_all;
use palisade_client::direct::{Place, Server};

use self::finding::{Finding, Level};
use self::patient::{Part, Patient};
use self::sentinel::Watcher;
pub use self::verdict::RightsSubject;
use crate::exit::{End, Failure};
use crate::members::survey::Survey;
use crate::node_view::NodeView;
use crate::nodes::{Node, Nodes, ServerAnswer};
use crate::show::print;

/// Checks the nodes and prints the findings, the worst last. `legacy` is the pattern of another library's locks.
///
/// # Errors
/// The output cannot be written.
pub async fn run(
    nodes: &Nodes,
    whose: &RightsSubject<'_>,
    legacy: Option<&str>,
    as_json: bool,
) -> Result<End, Failure> {
    let (masters, servers) = examine(nodes).await;
    let replicas =
        join_all(masters.iter().zip(&servers).flat_map(|(master, server)| standing_by(master, server))).await;
    let (replicas, standing): (Vec<_>, Vec<_>) = replicas.into_iter().unzip();
    let survey = Survey::of(nodes).await;
    let mut findings = set::check(nodes.len(), &survey.latest, &masters, &replicas);
    findings.extend(members::check(nodes.len(), &survey));
    for node in &nodes.list {
        findings.extend(of_places(node, &masters, &replicas).await);
    }
    findings.extend(masters.iter().chain(&replicas).flat_map(each::check));
    if let Some(pattern) = legacy {
        let old = join_all(servers.iter().flatten().map(|server| legacy::check(server, pattern))).await;
        findings.extend(old.into_iter().flatten());
    }
    let servers: Vec<Server> = servers.into_iter().flatten().chain(standing).collect();
    findings.extend(rights::check(nodes, servers, whose).await);
    findings.sort_by_key(|finding| finding.level);
    let worst = findings.last().map_or(Level::Ok, |finding| finding.level);
    print(as_json, &findings, || text(&findings))?;
    Ok(End::Code(match worst {
        Level::Ok | Level::Note => 0,
        Level::Change => 1,
        Level::Fail => 2,
    }))
}

/// Examines the servers that serve locks, all at once. Returns each result, with the server if it could be reached.
async fn examine(nodes: &Nodes) -> (Vec<Patient>, Vec<Option<Server>>) {
    let examined = nodes.servers().await.into_iter().map(async |ServerAnswer { number, server, said }| {
        let part = Part::of(&nodes.list[number - 1]);
        match said {
            Ok(there) => (Patient::examine(&there, part, false).await, Some(there)),
            Err(why) => {
                let view = NodeView::unreachable(number, server, why);
                (Patient { view, part, ..Patient::default() }, None)
            }
        }
    });
    join_all(examined).await.into_iter().unzip()
}

/// Returns the replicas of a master in a cluster or behind Sentinels.
fn standing_by(master: &Patient, server: &Option<Server>) -> Vec<impl Future<Output = (Patient, Server)> + use<>> {
    let part = master.part;
    let replicas = if part == Part::Alone { vec![] } else { master.view.info.replicas() };
    let at = |(host, port): (&str, u16)| server.as_ref().map(|server| server.to(host, port));
    let replicas: Vec<Server> = replicas.into_iter().filter_map(at).collect();
    replicas.into_iter().map(|server| async move { (Patient::examine(&server, part, true).await, server) }).collect()
}

/// Returns the findings about a node as a whole: a cluster, or the Sentinels of a master.
async fn of_places(node: &Node, masters: &[Patient], replicas: &[Patient]) -> Vec<Finding> {
    let of_node = |patient: &&Patient| patient.view.number == node.number;
    match &*node.place {
        Place::Server(_) | Place::Nowhere(..) => vec![],
        Place::Cluster(_) => {
            let members: Vec<&Patient> = masters.iter().chain(replicas).filter(of_node).collect();
            let mut findings = announced::check(node, &members).await;
            findings.extend(cluster::check(&node.name, &members));
            findings
        }
        Place::Sentinel(sentinels) => {
            let name = sentinels.master_name();
            let servers = node.sentinels();
            let watchers = join_all(servers.iter().map(|server| Watcher::ask(server, name))).await;
            let master = masters.iter().filter(of_node).find(|master| master.view.error.is_none());
            let mut findings = sentinel::check(name, &watchers, master);
            if sentinels.like().is_encrypted() {
                findings.extend(masters.iter().chain(replicas).filter(of_node).filter_map(announced::to_sentinels));
            }
            findings
        }
    }
}

fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let level = match finding.level {
            Level::Ok => "ok    ",
            Level::Note => "note  ",
            Level::Change => "CHANGE",
            Level::Fail => "FAIL  ",
        };
        let advice = if finding.advice.is_empty() { String::new() } else { format!("\n        {}", finding.advice) };
        format!("{level}  {}: {}{advice}\n", finding.about, finding.found)
    };
    findings.iter().map(line).collect()
}
