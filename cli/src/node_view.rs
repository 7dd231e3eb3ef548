//! A node's description of itself, for `palisade nodes` and `palisade guard`.

use std::sync::Arc;
use std::time::Duration;

use palisade_client::Why;
use palisade_client::direct::{Place, Server, ServerLink};
use redis::{Value, cmd};
use serde::Serialize;
use tokio::time::Instant;

use crate::arguments::{Guard, Word};
use crate::exit::{End, Failure, NO_QUORUM, USAGE};
use crate::fields::Fields;
use crate::info::Info;
use crate::look::ask;
use crate::node_failure::{in_json, line, strange, with_remedy};
use crate::nodes::{Nodes, ServerAnswer, failures};
use crate::reaching::Reaching;
use crate::refusing::Refusing;
use crate::show::{print, print_message, table, time};

/// The number of round trips that are measured; the shortest counts.
const ROUND_TRIPS: usize = 3;

/// A server's description of itself, as `palisade nodes` shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeView {
    pub number: usize,
    /// The address, without passwords.
    pub node: String,
    /// The reason why the server cannot be asked; all other fields are empty then.
    #[serde(serialize_with = "in_json")]
    pub error: Option<Why>,
    /// The number of slots that the server serves in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u16>,
    pub id: String,
    pub incarnation: u64,
    pub version: String,
    pub protocol: u64,
    pub role: String,
    /// `serving` or `guarded`.
    pub state: String,
    pub guard_ms: u64,
    pub guard_reason: String,
    pub max_ttl_ms: u64,
    pub held: u64,
    pub waiters: u64,
    pub grants: u64,
    pub contended: u64,
    pub token_high: u64,
    /// The floor: the node issues only tokens above it.
    #[serde(skip)]
    pub token_floor: u64,
    pub round_trip_us: u64,
    /// The wall clock at the middle of the round trip, in microseconds.
    pub clock_us: u64,
    /// The node's INFO: the fields of it for which this struct has none are read from here.
    #[serde(skip)]
    pub info: Info,
    /// Why the server refuses every lock; `None` if it grants, or its guard is the only reason.
    pub refusing: Option<Refusing>,
    /// The reason why INFO is missing: a user that takes locks may lack the permission.
    #[serde(skip)]
    pub info_refused: Option<Why>,
}

impl NodeView {
    /// Asks the servers of all nodes now.
    pub async fn all(nodes: &Nodes) -> Vec<Self> {
        let looked = nodes.of_each(Self::read).await;
        let view = |ServerAnswer { number, server, said }| match said {
            Ok((Self { info_refused: Some(why), .. }, _)) | Err(why) => Self::unreachable(number, server, why),
            Ok((view, _)) => view,
        };
        looked.into_iter().map(view).collect()
    }

    /// Returns the view of a node that cannot be asked.
    pub fn unreachable(number: usize, node: String, why: Why) -> Self {
        Self { number, node, error: Some(why), ..Self::default() }
    }

    /// Asks the server over this connection. Returns the view and the connection.
    ///
    /// # Errors
    /// It cannot be asked.
    pub async fn read(mut link: ServerLink) -> Result<(Self, ServerLink), Why> {
        // All nodes are asked at the same time, so that their clocks can be compared. The command is one that every
        // user that takes locks may send.
        let (mut round_trip, mut told) = (Duration::MAX, Value::Nil);
        for _ in 0..ROUND_TRIPS {
            let sent = Instant::now();
            told = link.ask(&cmd("LOCK.NODE")).await?;
            round_trip = round_trip.min(sent.elapsed());
        }
        let told = Fields::of(told).ok_or_else(|| strange("LOCK.NODE", "it has no fields"))?;
        let (info, info_refused) = match Info::ask(&mut link).await {
            Err(why) if why.code() == Some("NOPERM") => (Info::default(), Some(why)),
            info => (info?, None),
        };
        let refusing = Refusing::ask(&mut link, &info).await;
        let view = Self {
            number: link.server.number,
            node: link.server.name().to_owned(),
            error: None,
            slots: link.server.slots.as_ref().map(|slots| slots.iter().map(|(first, last)| last - first + 1).sum()),
            id: told.get("id"),
            incarnation: told.get("incarnation"),
            version: told.get("version"),
            protocol: told.get("protocol"),
            role: told.get("role"),
            state: told.get("state"),
            guard_ms: told.get("guard_ms"),
            guard_reason: told.get("guard_reason"),
            max_ttl_ms: told.get("max_ttl"),
            clock_us: told.get("clock_us"),
            held: info.number("lock_held"),
            waiters: info.number("lock_waiters"),
            grants: info.number("lock_grants"),
            contended: info.number("lock_contended"),
            token_high: info.number("lock_token_high"),
            token_floor: info.number("lock_token_floor"),
            round_trip_us: round_trip.as_micros() as u64,
            info,
            refusing,
            info_refused,
        };
        Ok((view, link))
    }

    /// Returns the state, and its remaining time.
    pub fn state_line(&self) -> String {
        match &self.error {
            Some(Why::NoModule) => "no lock module".to_owned(),
            Some(Why::Full(_)) => "no room for clients".to_owned(),
            Some(Why::Stranger(_)) => "no lock node".to_owned(),
            Some(Why::SameServer(name)) => format!("same server as {name}"),
            Some(why) => why.code().unwrap_or("unreachable").to_owned(),
            None if let Some(Refusing { code, .. }) = &self.refusing => format!("refuses ({code})"),
            None if self.guard_ms > 0 => format!("guarded {} ({})", time(self.guard_ms), self.guard_reason),
            None => self.state.clone(),
        }
    }

    /// Returns the round trip in milliseconds.
    pub fn round_trip_ms(&self) -> String {
        format!("{:.2}ms", self.round_trip_us as f64 / 1_000.0)
    }
}

/// Runs `palisade nodes`.
///
/// # Errors
///
/// Too few nodes can be asked; the table is printed all the same.
pub async fn list(nodes: &Nodes, as_json: bool) -> Result<End, Failure> {
    let views = NodeView::all(nodes).await;
    print(as_json, &views, || rows(&views))?;
    let said = |view: &NodeView| ServerAnswer {
        number: view.number,
        server: view.node.clone(),
        said: view.error.clone().map_or(Ok(()), Err),
    };
    let said: Vec<ServerAnswer<()>> = views.iter().map(said).collect();
    nodes.need_whole_majority(&said)?;
    let wrong = line(failures(&said), nodes.len());
    if !wrong.is_empty() {
        print_message(&wrong);
    }
    Ok(End::OK)
}

/// Returns the nodes' servers as a table, one per row.
pub fn rows(views: &[NodeView]) -> String {
    let shows_slots = views.iter().any(|view| view.slots.is_some());
    let mut headings =
        vec!["#", "NODE", "STATE", "HELD", "WAITERS", "TOKEN HIGH", "ROUND TRIP", "INCARNATION", "VERSION", "ID"];
    if shows_slots {
        headings.insert(3, "SLOTS");
    }
    let headings = headings;
    let row = |view: &NodeView| {
        let mut row = vec![view.number.to_string(), view.node.clone(), view.state_line()];
        if shows_slots {
            row.push(view.slots.map_or(String::new(), |slots| slots.to_string()));
        }
        if view.error.is_none() {
            let count = |count: u64| count.to_string();
            row.extend([count(view.held), count(view.waiters), count(view.token_high), view.round_trip_ms()]);
            row.extend([count(view.incarnation), view.version.clone(), view.id.clone()]);
        }
        row.resize(headings.len(), String::new());
        row
    };
    let numbers: Vec<usize> = (3..headings.len() - 2).collect();
    table(&headings, &numbers, views.iter().map(row))
}

/// The JSON output for a guarded node.
#[derive(Serialize)]
pub struct Guarded {
    pub node: String,
    pub guard_ms: u64,
}

/// Runs `palisade guard NODE [lift|arm TIME]`.
///
/// # Errors
/// There is no such node, it cannot be asked, or the user declines.
pub async fn guard(reaching: &Reaching, guard: &Guard, as_json: bool) -> Result<End, Failure> {
    let node = choose(reaching, &guard.node).await?;
    let failed = |why: Why| {
        Failure::new(
            if why.is_lasting() { USAGE } else { NO_QUORUM },
            format!("{}: {}", node.name(), with_remedy(&why)),
        )
    };
    let mut link = node.connect().await.map_err(failed)?;
    let mut command = cmd("LOCK.GUARD");
    match guard.word {
        Some(Word::Lift { yes }) => {
            if !yes {
                let text = "this is your word that nobody relies on a lock that the node may have forgotten";
                ask(text, &format!("Lift the guard of {}?", node.name()))?;
            }
            command.arg("LIFT");
        }
        Some(Word::Arm { time }) => drop(command.arg("ARM").arg(time.as_millis().to_string())),
        None => {}
    }
    let guard_ms = match link.ask(&command).await.map_err(failed)? {
        Value::Int(ms) => u64::try_from(ms).unwrap_or(0),
        other => return Err(failed(strange("LOCK.GUARD", format!("{other:?}")))),
    };
    print(as_json, &Guarded { node: node.name().to_owned(), guard_ms }, || match guard_ms {
        0 => format!("{} serves\n", node.name()),
        ms => format!("{} is guarded for {}\n", node.name(), time(ms)),
    })?;
    Ok(End::OK)
}

/// Returns the server that `word` names: by the number or the name of its node in the list, by its own name, or by an
/// address.
async fn choose(reaching: &Reaching, word: &str) -> Result<Server, Failure> {
    let alone = async || one_of(Nodes::at(&reaching.only(word))?.servers().await, word);
    if word.contains("://") {
        return alone().await;
    }
    let nodes = match Nodes::at(reaching) {
        // A host without a port may be a typing error, so it is accepted only if it is in the list.
        Err(_) if word.contains(':') => return alone().await,
        nodes => nodes?,
    };
    let full = Place::parse(0, word, &Arc::default()).map_or(String::new(), |place| place.name());
    let is_named = |name: &str| [word, &full].contains(&name);
    let servers = nodes.servers().await;
    let is_meant = |said: &ServerAnswer<Server>| {
        is_named(&said.server) || said.number.to_string() == word || is_named(&nodes.list[said.number - 1].name)
    };
    let (meant, others): (Vec<_>, Vec<_>) = servers.into_iter().partition(is_meant);
    match meant.is_empty() {
        false => one_of(meant, word),
        true if word.contains(':') => alone().await,
        true => Err(Failure::usage(format!("{word} is none of the nodes: {}", names(&others)))),
    }
}

/// Returns the only server that `word` can mean; fails if there are several.
fn one_of(mut meant: Vec<ServerAnswer<Server>>, word: &str) -> Result<Server, Failure> {
    if meant.len() > 1 {
        return Err(Failure::usage(format!("{word} is a cluster: say which of its masters: {}", names(&meant))));
    }
    let ServerAnswer { server, said, .. } = meant.remove(0);
    said.map_err(|why| {
        Failure::new(if why.is_lasting() { USAGE } else { NO_QUORUM }, format!("{server}: {}", with_remedy(&why)))
    })
}

fn names(servers: &[ServerAnswer<Server>]) -> String {
    servers.iter().map(|said| format!("{} {}", said.number, said.server)).collect::<Vec<_>>().join(", ")
}
