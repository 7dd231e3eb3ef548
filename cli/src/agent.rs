//! `palisade agent`: serves the LOCK commands on a local socket, or checks the health of such an agent.

use std::fs::File;
use std::io::{IsTerminal, Read, stderr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use palisade_agent::{Address, Agent, Config, Http, Listener, OnEnd, Password};
use palisade_client::direct::{Access, Place};
use palisade_client::{Client, Credentials};
use palisade_quorum::Members;
use redis::{Value, cmd};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::arguments::{Agent as Arguments, AtTheEnd};
use crate::exit::{End, FAILED, Failure};
use crate::fields::Fields;
use crate::members::survey::{Standing, Survey};
use crate::nodes::Nodes;
use crate::reaching::Reaching;
use crate::show;
use crate::signals::Signals;

/// The variable that may hold the password instead of a file.
const PASSWORD_VARIABLE: &str = "PALISADE_AGENT_PASSWORD";

/// The longest time for an agent to answer whether locks are granted; it asks its nodes.
const HEALTH_TIME: Duration = Duration::from_secs(3);

/// The user to which an agent's password belongs.
const USER: &str = "default";

/// The exit status for an unhealthy agent, which container health checks expect.
const UNWELL: u8 = 1;

/// Runs `palisade agent`: serves clients until a signal arrives.
///
/// # Errors
///
/// The agent cannot listen, or some locks could not be released.
pub async fn run(reaching: &Reaching, arguments: &Arguments) -> Result<End, Failure> {
    let password = password(arguments)?;
    if arguments.health {
        return health(arguments, password.as_deref()).await;
    }
    // systemd's sockets are taken before anything is opened, because the environment refers to them by number.
    let inherited = Listener::inherited().map_err(Failure::usage)?;
    let nodes = Nodes::given(reaching, arguments.node_timeout)?;
    let config = Config {
        listen: arguments.listen.clone(),
        socket_mode: arguments.socket_mode,
        password: password.map(|password| Password::new(&password)).transpose().map_err(Failure::usage)?,
        metrics: arguments.metrics,
        http: http(arguments)?,
        on_end: match arguments.on_end {
            AtTheEnd::Leave => OnEnd::Leave,
            AtTheEnd::Release => OnEnd::Release,
        },
        connections_max: arguments.max_connections,
        tell: show::print_message,
    };
    let mut signals = Signals::listen()?;
    let (client, count) = (nodes.client().clone(), nodes.len());
    let (end, ends) = oneshot::channel();
    let (tell, told) = oneshot::channel();
    // Runs on the thread of the agent's client, so that requests need not pass between threads.
    let agent = async move { drop(tell.send(serve(config, client, count, inherited, ends).await)) };
    nodes.client().spawn(agent).map_err(|why| Failure::new(FAILED, why.to_string()))?;
    let mut told = std::pin::pin!(told);
    // When a terminal is closed, the programs that were started on it end.
    let at_terminal = stderr().is_terminal();
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut told => break ended,
            signal = signals.end() => if signal == Signal::SIGHUP && !at_terminal {
                tokio::select! {
                    biased;
                    ended = &mut told => break ended,
                    line = standing(&nodes) => show::print_message(&line),
                }
            } else {
                drop(end);
                break told.await;
            }
        }
    };
    ended.unwrap_or_else(|_| Err(Failure::new(FAILED, "the agent ended by itself"))).map(|()| End::OK)
}

/// Serves clients over `count` nodes until `ends` returns.
async fn serve(
    config: Config,
    client: Client,
    count: usize,
    inherited: Vec<Listener>,
    ends: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    let agent = Agent::listen(config, client, inherited).await.map_err(Failure::usage)?;
    for name in agent.names() {
        show::print_message(&format!("agent of {count} nodes listens on {name}"));
    }
    if let Some(address) = agent.http_address() {
        show::print_message(&format!("Terraform's locks are at http://{address}/"));
    }
    if let Some(address) = agent.metrics_address() {
        show::print_message(&format!("metrics are at http://{address}/metrics"));
    }
    agent.run(async { drop(ends.await) }).await.map_err(|why| Failure::new(FAILED, why))
}

/// Describes the agent's set of nodes, and how it is changed. The agent does not reload its own list:
/// docs/decisions/0013.
async fn standing(nodes: &Nodes) -> String {
    let survey = Survey::of(nodes).await;
    let Members { version, list } = &survey.latest;
    if *version == 0 {
        return "no node knows a set: a restart takes another list of nodes, in the order that docs/operations.md has; `palisade members set` has all clients follow".to_owned();
    }
    let members: Vec<&str> = list.iter().map(|member| member.address.as_str()).collect();
    let is_same = survey.rows().iter().all(|row| row.number.is_some() && row.standing != Standing::NoMember);
    let own = if is_same { "" } else { "; its own list is another one: correct that before the next start" };
    format!(
        "the agent follows the set of nodes, version {version}: {}; `palisade members set` changes it, and no list does{own}",
        members.join(", ")
    )
}

/// Returns the password that clients of the agent need, if there is one.
fn password(arguments: &Arguments) -> Result<Option<Vec<u8>>, Failure> {
    match &arguments.password_file {
        Some(path) => read_password(path).map(Some),
        None => Ok(std::env::var_os(PASSWORD_VARIABLE).map(|password| password.as_bytes().to_vec())),
    }
}

/// Returns the configuration of Terraform's locks, if they are served.
fn http(arguments: &Arguments) -> Result<Option<Http>, Failure> {
    let (Some(address), Some(locks)) = (arguments.http, arguments.http_locks.clone()) else { return Ok(None) };
    let credentials = match &arguments.http_credentials {
        Some(path) => {
            let bytes = read_password(path)?;
            if !bytes.contains(&b':') {
                let text = format!("{} has no name and password: write name:password", path.display());
                return Err(Failure::usage(text));
            }
            Some(Password::new(&bytes).map_err(Failure::usage)?)
        }
        None => None,
    };
    Ok(Some(Http { address, credentials, locks }))
}

/// Reads a file with a password.
fn read_password(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |why| Failure::usage(format!("the password in {} cannot be read: {why}", path.display()));
    let mut password = vec![];
    // A wrong file may be large, so it is read only up to the longest password.
    let most = palisade_agent::limits::PASSWORD_BYTES_MAX as u64 + 3;
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut password)).map_err(failed)?;
    Ok(password)
}

/// Asks the agent at each address, and reports its health.
async fn health(arguments: &Arguments, password: Option<&[u8]>) -> Result<End, Failure> {
    if arguments.listen.is_empty() {
        return Err(Failure::usage("which agent? Say --listen unix:///run/palisade/agent.sock"));
    }
    let password = password.map(|password| String::from_utf8_lossy(password).trim_end_matches(['\r', '\n']).to_owned());
    for address in &arguments.listen {
        let unwell = |why: &str| Failure::new(UNWELL, format!("{address}: {why}"));
        let told = match timeout(HEALTH_TIME, ask(address, password.as_deref())).await {
            Ok(told) => told.map_err(|why| unwell(&why))?,
            Err(_) => return Err(unwell("no answer in time")),
        };
        let told = Fields::of(told).unwrap_or_default();
        let (state, serving): (String, u64) = (told.get("state"), told.get("serving"));
        let (nodes, majority): (u64, u64) = (told.get("nodes"), told.get("majority"));
        if majority == 0 {
            return Err(unwell("this is no agent"));
        }
        let line = format!("{state}, {serving} of {nodes} nodes serve, {majority} are needed");
        if serving < majority {
            return Err(unwell(&line));
        }
        show::out(&format!("{address}: {line}\n"))?;
    }
    Ok(End::OK)
}

/// Asks the agent at this address for the state of its nodes.
async fn ask(address: &Address, password: Option<&str>) -> Result<Value, String> {
    let url = match address {
        Address::Unix(path) => format!("unix://{}", path.display()),
        Address::Tcp(address) => format!("redis://{address}"),
    };
    let credentials = password.map(str::to_owned).map(|password| {
        let of_agent = move || Ok((USER.to_owned(), password.clone()));
        Credentials::from_fn(of_agent)
    });
    let place = Place::parse(1, &url, &Arc::new(Access { credentials, ..Access::default() }));
    let place = place.map_err(|why| why.to_string())?;
    let mut link = place.named(1).remove(0).reach().await.map_err(|why| why.to_string())?;
    link.patience = HEALTH_TIME;
    link.ask(&cmd("LOCK.NODE")).await.map_err(|why| why.to_string())
}
