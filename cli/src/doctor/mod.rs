//! `palisade doctor`: whether a set of nodes is fit for locks, and what to change.

mod announced;
mod cluster;
mod each;
mod members;
mod rights;
mod sentinel;
mod set;

use std::collections::HashMap;

use futures_util::future::join_all;
use palisade_client::direct::Place;
use redis::{FromRedisValue, cmd};
use serde::Serialize;

use self::cluster::Membership;
pub use self::rights::Whose;
use self::sentinel::Watcher;
use crate::exit::{End, Failure};
use crate::members::survey::Survey;
use crate::node_view::NodeView;
use crate::nodes::{Node, Nodes, Said};
use crate::server::{Link, Server};
use crate::show::{json, out};

/// Settings that are looked at.
const SETTINGS: [&str; 11] = [
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "maxmemory",
    "maxmemory-policy",
    "timeout",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "tls-replication",
    "cluster-*",
    "lock.*",
];

/// What a server is to its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Alone,
    /// One of those that Sentinels watch.
    OfSentinels,
    /// One of a cluster.
    OfCluster,
}

/// A server, and how it is set up.
#[derive(Clone, Debug, Default)]
pub struct Patient {
    pub view: NodeView,
    /// By name; `None`: it does not tell.
    pub settings: Option<HashMap<String, String>>,
    pub part: Part,
    /// It stands by for one that locks are asked of.
    pub is_replica: bool,
    /// Of a cluster, as it says; `None`: it does not tell.
    pub cluster: Option<Membership>,
}

impl Patient {
    /// A setting, or nothing where it is not known.
    fn setting(&self, name: &str) -> &str {
        self.settings.as_ref().and_then(|settings| settings.get(name)).map_or("", String::as_str)
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Something should be changed.
    Change,
    /// Locks are not safe, or cannot be had.
    Fail,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    /// A node, or all of them.
    pub about: String,
    pub found: String,
    /// What to do; empty: nothing.
    pub advice: String,
}

impl Finding {
    fn new(level: Level, about: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level, about: about.to_owned(), found: found.into(), advice: advice.into() }
    }
}

/// Checks the nodes and says what was found, the worst last.
///
/// # Errors
/// The output cannot be written.
pub async fn run(nodes: &Nodes, whose: &Whose<'_>, as_json: bool) -> Result<End, Failure> {
    let (masters, servers) = look(nodes).await;
    let replicas =
        join_all(masters.iter().zip(&servers).flat_map(|(master, server)| standing_by(master, server))).await;
    let (replicas, standing): (Vec<_>, Vec<_>) = replicas.into_iter().unzip();
    let mut findings = set::check(nodes.len(), &masters, &replicas);
    findings.extend(members::check(nodes.len(), &Survey::of(nodes).await));
    for node in &nodes.list {
        findings.extend(of_places(node, &masters, &replicas).await);
    }
    findings.extend(masters.iter().chain(&replicas).flat_map(each::check));
    let servers = servers.into_iter().flatten().chain(standing);
    findings.extend(rights::check(nodes, servers.collect(), whose).await);
    findings.sort_by_key(|finding| finding.level);
    let worst = findings.last().map_or(Level::Ok, |finding| finding.level);
    if as_json {
        json(&findings)?;
    } else {
        out(&text(&findings))?;
    }
    Ok(End::Code(match worst {
        Level::Ok | Level::Note => 0,
        Level::Change => 1,
        Level::Fail => 2,
    }))
}

/// The servers that locks are asked of, all at one moment, and how each is asked that is known.
async fn look(nodes: &Nodes) -> (Vec<Patient>, Vec<Option<Server>>) {
    let examined = nodes.servers().await.into_iter().map(async |Said { number, server, said }| {
        let part = part(&nodes.list[number - 1]);
        match said {
            Ok(there) => (examine(&there, part, false).await, Some(there)),
            Err(why) => {
                let view = NodeView::unreachable(number, server, why);
                (Patient { view, part, ..Patient::default() }, None)
            }
        }
    });
    join_all(examined).await.into_iter().unzip()
}

fn part(node: &Node) -> Part {
    match *node.place {
        Place::Server(_) => Part::Alone,
        Place::Cluster(_) => Part::OfCluster,
        Place::Sentinel(_) => Part::OfSentinels,
    }
}

/// The replicas of a master that has some by its place.
fn standing_by(master: &Patient, server: &Option<Server>) -> Vec<impl Future<Output = (Patient, Server)> + use<>> {
    let part = master.part;
    let replicas = if part == Part::Alone { vec![] } else { master.view.info.replicas() };
    let at = |(host, port): (&str, u16)| server.as_ref().map(|server| server.to(host, port));
    let replicas: Vec<Server> = replicas.into_iter().filter_map(at).collect();
    replicas.into_iter().map(|server| async move { (examine(&server, part, true).await, server) }).collect()
}

async fn examine(server: &Server, part: Part, is_replica: bool) -> Patient {
    let looked = match server.connect().await {
        Ok(link) => NodeView::look(server, link).await,
        Err(why) => Err(why),
    };
    match looked {
        Ok((view, mut link)) => {
            let cluster = if part == Part::OfCluster { Membership::ask(&mut link).await.ok() } else { None };
            Patient { view, settings: settings(&mut link).await, part, is_replica, cluster }
        }
        Err(why) => {
            let view = NodeView::unreachable(server.number, server.name.clone(), why);
            Patient { view, part, is_replica, ..Patient::default() }
        }
    }
}

/// What is to be said of a cluster, or of Sentinels.
async fn of_places(node: &Node, masters: &[Patient], replicas: &[Patient]) -> Vec<Finding> {
    let of_node = |patient: &&Patient| patient.view.number == node.number;
    match &*node.place {
        Place::Server(_) => vec![],
        Place::Cluster(seeds) => {
            let members: Vec<&Patient> = masters.iter().chain(replicas).filter(of_node).collect();
            let mut findings = announced::check(node, seeds, &members).await;
            findings.extend(cluster::check(&node.name, &members));
            findings
        }
        Place::Sentinel(sentinels) => {
            let name = sentinels.master_name();
            let servers = sentinel_servers(node);
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

/// The Sentinels that are to be asked about a node.
fn sentinel_servers(node: &Node) -> Vec<Server> {
    match &*node.place {
        Place::Sentinel(sentinels) => sentinels.ways().map(|way| Server::at(node.number, way.clone())).collect(),
        Place::Server(_) | Place::Cluster(_) => vec![],
    }
}

async fn settings(link: &mut Link) -> Option<HashMap<String, String>> {
    let mut all = HashMap::new();
    // One name each: servers before 7.0 take no more.
    for name in SETTINGS {
        let reply = link.ask(cmd("CONFIG").arg("GET").arg(name)).await.ok()?;
        all.extend(HashMap::<String, String>::from_redis_value(reply).ok()?);
    }
    Some(all)
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
