//! The agent: the LOCK commands of a node on a local socket, with a quorum of nodes behind it. Every Redis client works over several nodes
//! with it, as it works with one.
//!
//! It translates: the words of a request into a call of [`palisade_client::by_owner`], and what that returns into a reply. What a lock is,
//! which arguments there are and what is refused is the nodes' (`palisade-quorum`); how several of them are one is the client's.
//!
//! | file | subject |
//! |---|---|
//! | `listening` | sockets; their files; what systemd hands over |
//! | `admission`, `strangers` | places for connections; which ones give way |
//! | `connection` | one connection: requests in, answers out, in order |
//! | `requests`, `reply` | the protocol: what is read, what is written |
//! | `commands` | a request becomes work; the table of commands, whose arguments `palisade_quorum::request` declares |
//! | `state`, `session`, `counts` | what all connections share; what is known of one; what was done |
//! | `refused` | errors |
//! | `metrics`, `standing`, `ending`, `notify` | for those who run it |
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

/// What an agent is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens, beside what systemd hands over.
    pub listen: Vec<Address>,
    /// The mode of its sockets in the file system.
    pub socket_mode: u32,
    /// What connections have to give.
    pub password: Option<Password>,
    /// Where metrics are.
    pub metrics: Option<SocketAddr>,
    /// What becomes of the locks when it ends.
    pub on_end: OnEnd,
    /// Most connections.
    pub connections_max: usize,
    /// Is told what people should know, a line at a time.
    pub tell: fn(&str),
}

/// What becomes of locks when an agent ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnEnd {
    /// They are left to their leases: their holders go on, with another agent.
    #[default]
    Leave,
    /// They are given back.
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
    /// Listens. `inherited` are the sockets that systemd handed over: [`Listener::inherited`].
    ///
    /// # Errors
    /// Why it cannot, in a line.
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

    /// Where it listens.
    pub fn names(&self) -> &[String] {
        &self.state.listening
    }

    /// Where its metrics are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until `end` returns; then answers what is under way, and sends those away who wait.
    ///
    /// # Errors
    /// Not all that was to be given back could be.
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
        // Those that listen end by themselves, and take their files with them; the others see nobody any more.
        let is_quiet = timeout(END_TIME, absence.all_gone()).await.is_ok();
        tasks.shutdown().await;
        if !is_quiet {
            (config.tell)(&format!("{} connections are cut off", state.counts.connections.get()));
        }
        match config.on_end {
            OnEnd::Leave => {
                // What is left to its lease is held, and that is no failure.
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

/// Takes connections until the agent ends.
async fn accept(state: Arc<State>, listener: Listener, present: Present) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = state.ended() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match Open::admit(&state, &present).await {
                // A panic ends this connection alone.
                Some(open) => drop(tokio::spawn(connection::serve(open, stream, peer))),
                None => turn_away(&state, stream),
            },
            // It has hung up before it was accepted.
            Err(why) if why.kind() == ErrorKind::ConnectionAborted => {}
            Err(_) => sleep(ACCEPT_AGAIN).await,
        }
    }
}
