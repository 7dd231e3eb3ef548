//! The agent: the LOCK commands of a node on a local socket, with a quorum of nodes behind it. So every Redis client
//! can use several nodes as if they were one.
//!
//! It translates the words of a request into a call of [`palisade_client::by_owner`], and the result into a reply.
//! `palisade-quorum`, which the nodes use too, defines locks, arguments and refusals; the client combines several
//! nodes.
//!
//! | file | subject |
//! |---|---|
//! | `listening` | sockets; their files; sockets from systemd |
//! | `admission`, `strangers` | places for connections; who gives way |
//! | `connection` | one connection: requests in, answers out, in order |
//! | `requests`, `reply` | the protocol: reading requests, writing replies |
//! | `commands` | the work of a request; the table of commands; `palisade_quorum::request` has their arguments |
//! | `state`, `session`, `counts` | what all connections share; the data of one; the counters |
//! | `refused` | errors |
//! | `metrics`, `standing`, `ending`, `notify` | for operators |
//! | `limits` | every limit with its reason |

mod admission;
mod commands;
mod connection;
mod counts;
mod ending;
pub mod limits;
mod listening;
mod metrics;
mod notify;
mod open_files;
mod password;
mod refused;
mod reply;
mod requests;
mod session;
mod standing;
mod state;
mod strangers;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use palisade_client::Client;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::admission::{Open, turn_away};
use crate::counts::Counts;
use crate::ending::{Present, presence};
use crate::limits::{ACCEPT_AGAIN, END_TIME};
pub use crate::listening::{Address, Listener};
pub use crate::password::Password;
use crate::state::State;

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses to listen on, in addition to the sockets from systemd.
    pub listen: Vec<Address>,
    /// The mode of the Unix sockets' files.
    pub socket_mode: u32,
    /// The password that connections must give.
    pub password: Option<Password>,
    /// The address of the metrics.
    pub metrics: Option<SocketAddr>,
    /// The treatment of the agent's locks when it ends.
    pub on_end: OnEnd,
    /// The most connections at a time.
    pub connections_max: usize,
    /// Receives messages for operators, one line at a time.
    pub tell: fn(&str),
}

/// The treatment of an agent's locks when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnEnd {
    /// Locks stay until their leases end: their holders continue with another agent.
    #[default]
    Leave,
    /// Locks are released.
    Release,
}

/// An agent that listens.
#[derive(Debug)]
pub struct Agent {
    config: Config,
    client: Client,
    state: Arc<State>,
    listeners: Vec<Listener>,
    metrics: Option<tokio::net::TcpListener>,
}

impl Agent {
    /// Listens on all addresses, and on the sockets from systemd (`inherited`, see [`Listener::inherited`]).
    ///
    /// # Errors
    ///
    /// The agent cannot listen on an address; the error is one line that says why.
    pub async fn listen(config: Config, client: Client, inherited: Vec<Listener>) -> Result<Self, String> {
        let mut listeners = inherited;
        for address in &config.listen {
            listeners.push(Listener::bind(address, config.socket_mode).await?);
        }
        if listeners.is_empty() {
            return Err("where to listen? Say --listen unix:///run/palisade/agent.sock".to_owned());
        }
        if let Some(open) = listeners.iter().find(|listener| !listener.is_local())
            && config.password.is_none()
        {
            return Err(format!(
                "{} can be reached from other machines, and whoever gets there has the locks: set a password (--password-file), or listen on a \
                 loopback address",
                open.name
            ));
        }
        let metrics = match config.metrics {
            Some(address) => Some(metrics::listen(address).await?),
            None => None,
        };
        let connections_max = open_files::make_room(config.connections_max);
        if connections_max < config.connections_max {
            (config.tell)(&format!(
                "the system lets this process have files for {connections_max} connections, not for {}: raise its limit of open files \
                 (LimitNOFILE, ulimit -n)",
                config.connections_max
            ));
        }
        let counts = Counts::new(commands::names());
        let names: Vec<String> = listeners.iter().map(|listener| listener.name.clone()).collect();
        let state = Arc::new(State::new(&client, counts, config.password.clone(), connections_max, names));
        Ok(Self { config, client, state, listeners, metrics })
    }

    /// Returns the names of the sockets that the agent listens on.
    pub fn names(&self) -> &[String] {
        &self.state.listening
    }

    /// Returns the address of the metrics.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until `end` returns, then completes pending work and answers waiting clients with an error.
    ///
    /// # Errors
    ///
    /// A lock that was to be released could not be.
    pub async fn run(self, end: impl Future<Output = ()>) -> Result<(), String> {
        let Self { config, client, state, listeners, metrics } = self;
        let (present, mut absence) = presence();
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(accept(Arc::clone(&state), listener, present.clone()));
        }
        if let Some(listener) = metrics {
            tasks.spawn(metrics::serve(Arc::clone(&state), listener));
        }
        notify::ready();
        tasks.spawn(notify::report(Arc::clone(&state)));
        tasks.spawn(standing::report(Arc::clone(&state), config.tell));
        if let Some(every) = notify::watchdog() {
            tasks.spawn(notify::beat(every));
        }
        end.await;
        notify::stopping();
        state.end();
        drop(present);
        // Tasks that listen end by themselves and remove their files; tasks of connections have no more work.
        let is_quiet = timeout(END_TIME, absence.all_gone()).await.is_ok();
        tasks.shutdown().await;
        if !is_quiet {
            (config.tell)(&format!("{} connections are cut off", state.counts.connections.get()));
        }
        match config.on_end {
            OnEnd::Leave => {
                // A lock that stays until its lease ends is still held, which is no failure.
                let _ = client.close().await;
                Ok(())
            }
            OnEnd::Release => {
                state.locks.give_back();
                client.close().await.map_err(|why| why.to_string())
            }
        }
    }
}

/// Accepts connections until the agent ends.
async fn accept(state: Arc<State>, listener: Listener, present: Present) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = state.ended() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match Open::admit(&state, &present).await {
                // A panic ends only this connection.
                Some(open) => drop(tokio::spawn(connection::serve(open, stream, peer))),
                None => turn_away(&state, stream),
            },
            // The client disconnected before it was accepted.
            Err(why) if why.kind() == ErrorKind::ConnectionAborted => {}
            Err(_) => sleep(ACCEPT_AGAIN).await,
        }
    }
}
