//! The agent: the LOCK commands of a node on a local socket, with a quorum of nodes behind it. So every Redis client
//! can use several nodes as if they were one.
//!
//! The agent translates the words of a request into a call of [`palisade_client::by_owner`], and the result into a
//! reply. `palisade-quorum`, which the nodes use too, defines locks, arguments and refusals; the client combines
//! several nodes.
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
//! | `http` | bounded requests over HTTP, for the next two |
//! | `terraform` | Terraform's state locks, extended and continued for its runs |
//! | `metrics`, `standing`, `ending`, `notify` | for operators |
//! | `limits` | every limit with its reason |

mod admission;
mod commands;
mod connection;
mod counts;
mod ending;
mod http;
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
mod terraform;

use std::future::pending;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use palisade_client::Client;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::admission::{Open, turn_away};
use crate::counts::Counts;
use crate::ending::{Present, presence};
use crate::limits::{ACCEPT_AGAIN, END_TIME};
pub use crate::listening::{Address, Listener};
pub use crate::password::Password;
use crate::state::State;
pub use crate::terraform::Http;
use crate::terraform::Terraform;

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses at which to listen. Sockets that systemd opened come in addition.
    pub listen: Vec<Address>,
    /// The file mode of the Unix sockets.
    pub socket_mode: u32,
    /// The password that connections must give; `None` if they need none.
    pub password: Option<Password>,
    /// The address at which the metrics are served; `None` for no metrics.
    pub metrics: Option<SocketAddr>,
    /// Terraform's state locks; `None` for none.
    pub http: Option<Http>,
    /// The treatment of the agent's locks when it ends: stay or be released.
    pub on_end: OnEnd,
    /// The most connections that may be open at a time.
    pub connections_max: usize,
    /// Receives each line for operators, such as those about missing nodes.
    pub tell: fn(&str),
}

/// The treatment of an agent's locks when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnEnd {
    /// Locks stay until their leases end, so that their holders can go on with another agent.
    #[default]
    Leave,
    /// Locks are released on the nodes, except those of Terraform's runs, which the next agent continues.
    Release,
}

/// An agent that listens, but serves nobody before [`Agent::run`].
#[derive(Debug)]
pub struct Agent {
    config: Config,
    client: Client,
    state: Arc<State>,
    listeners: Vec<Listener>,
    metrics: Option<TcpListener>,
    http: Option<(TcpListener, Arc<Terraform>)>,
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
        if listeners.is_empty() && config.http.is_none() {
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
        if let Some(Http { address, credentials: None, .. }) = &config.http
            && !address.ip().is_loopback()
        {
            return Err(format!(
                "--http {address} can be reached from other machines, and whoever gets there has the locks: set a user and a password \
                 (--http-credentials), or listen on a loopback address"
            ));
        }
        let metrics = match config.metrics {
            Some(address) => Some(http::listen("metrics", address).await?),
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
        let http = match &config.http {
            Some(of_http) => {
                let listener = http::listen("http", of_http.address).await?;
                Some((listener, Terraform::open(of_http, &state, config.tell)?))
            }
            None => None,
        };
        Ok(Self { config, client, state, listeners, metrics, http })
    }

    /// Returns the names of the sockets at which the agent listens, for people.
    pub fn names(&self) -> &[String] {
        &self.state.listening
    }

    /// Returns the address at which the metrics are served, if they are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Returns the address at which Terraform's locks are served, if they are.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }

    /// Serves connections until `end` returns. Then it completes changes that are under way, and answers waiting
    /// clients with an error.
    ///
    /// # Errors
    ///
    /// A lock that had to be released could not be.
    pub async fn run(self, end: impl Future<Output = ()>) -> Result<(), String> {
        let Self { config, client, state, listeners, metrics, http } = self;
        let (present, mut absence) = presence();
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(accept(Arc::clone(&state), listener, present.clone()));
        }
        if let Some(listener) = metrics {
            tasks.spawn(serve_metrics(Arc::clone(&state), listener));
        }
        let (listener, terraform) = http.unzip();
        if let (Some(listener), Some(terraform)) = (listener, &terraform) {
            tasks.spawn(serve_terraform(Arc::clone(&state), listener, Arc::clone(terraform), present.clone()));
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
        // The tasks that listen end by themselves and remove their files. The tasks of connections finish what they do.
        // Both then drop their [`Present`] handles.
        let is_quiet = timeout(END_TIME, absence.all_gone()).await.is_ok();
        tasks.shutdown().await;
        if !is_quiet {
            (config.tell)(&format!("{} connections are cut off", state.counts.connections.get()));
        }
        match config.on_end {
            OnEnd::Leave => {
                // An error says that a lock is still held. With `Leave` that is as it should be: it stays until its
                // lease ends.
                let _ = client.close().await;
                Ok(())
            }
            OnEnd::Release => {
                let stays = |key: &[u8], owner: &[u8]| terraform.as_ref().is_some_and(|its| its.continues(key, owner));
                state.locks.give_back(stays);
                client.close().await.map_err(|why| why.to_string())
            }
        }
    }
}

/// Answers requests for metrics and for the agent's health, until the future is dropped: also while the agent ends.
async fn serve_metrics(state: Arc<State>, listener: TcpListener) {
    let answer = move |request| {
        let state = Arc::clone(&state);
        async move { metrics::answer(&state, request).await }
    };
    http::serve(listener, pending(), answer).await;
}

/// Answers requests of Terraform until the agent ends.
async fn serve_terraform(state: Arc<State>, listener: TcpListener, terraform: Arc<Terraform>, present: Present) {
    http::serve(listener, state.ended(), move |request| Arc::clone(&terraform).answer(request)).await;
    drop(present);
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
                // A panic in this task ends only this connection.
                Some(open) => drop(tokio::spawn(connection::serve(open, stream, peer))),
                None => turn_away(&state, stream),
            },
            // The client disconnected before its connection was accepted, which needs no message.
            Err(why) if why.kind() == ErrorKind::ConnectionAborted => {}
            Err(_) => sleep(ACCEPT_AGAIN).await,
        }
    }
}
