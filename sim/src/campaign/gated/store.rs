//! A writer's connection to the servers or the database that have a resource.

use std::time::Duration;

use palisade_client::GateError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, cmd};
use tokio::time::{sleep, timeout};
use tokio_postgres::NoTls;

use crate::campaign::resource::{Answer, Entry, Place, Resource};

/// The longest time for a server to answer. A server may be stopped for longer: its answer is unknown then.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most servers that are asked for one write.
const SERVERS_MAX: usize = 8;

/// The SQLSTATE of a fence that has seen a newer token.
const FENCED: &str = "PF001";

/// The settings of a connection to PostgreSQL: the server ends a session that is idle in a transaction for 1.5 s, and a
/// wait for a row lock after 5 s.
const SETTINGS: &str = "SET idle_in_transaction_session_timeout = '1500ms'; SET lock_timeout = '5s'";

/// A connection to the servers of a resource, opened when it is needed.
pub(super) enum Store {
    Servers { urls: Vec<String>, open: Option<(String, MultiplexedConnection)> },
    PostgreSql { address: String, open: Option<tokio_postgres::Client> },
}

impl Store {
    pub(super) fn new(place: &Place) -> Self {
        match place.clone() {
            Place::Servers(urls) => Self::Servers { urls, open: None },
            Place::PostgreSql(address) => Self::PostgreSql { address, open: None },
        }
    }

    /// Writes an entry, whether or not its lock is still held. `behind` is the LOCK.GATE command with the write, to
    /// which this appends the entry's text. A writer to PostgreSQL waits for `pause` within its transaction.
    pub(super) async fn write(&mut self, to: &Resource, mut behind: Cmd, entry: Entry, pause: Duration) -> Answer {
        let text = serde_json::to_string(&entry).expect("plain data");
        match self {
            Self::Servers { urls, open } => write_behind_gate(urls, open, behind.arg(text)).await,
            Self::PostgreSql { address, open } => {
                if open.as_ref().is_none_or(tokio_postgres::Client::is_closed) {
                    *open = connect(address).await;
                }
                let Some(client) = open else { return Answer::NotDone };
                let written = write_behind_fence(client, to, (entry.token, &text), pause).await;
                written.unwrap_or_else(|error| match error.code() {
                    Some(code) if code.code() == FENCED => Answer::Fenced,
                    _ => Answer::NotDone,
                })
            }
        }
    }
}

/// Sends the command to the server that has the gate. Finds that server by redirections, or by asking one server after
/// another.
async fn write_behind_gate(
    urls: &[String],
    open: &mut Option<(String, MultiplexedConnection)>,
    command: &Cmd,
) -> Answer {
    let mut others = urls.iter().cycle();
    for _ in 0..SERVERS_MAX {
        let (url, mut connection) = match open.take() {
            Some(open) => open,
            None => {
                let Some(url) = others.next() else { return Answer::NotDone };
                let Ok(connection) = connect_to(url).await else { continue };
                (url.clone(), connection)
            }
        };
        let error = match timeout(PATIENCE, command.exec_async(&mut connection)).await {
            Err(_) => return Answer::Unknown,
            Ok(Ok(())) => {
                *open = Some((url, connection));
                return Answer::Landed;
            }
            Ok(Err(error)) => match GateError::from(error) {
                GateError::Redis(error) => error,
                _ => {
                    *open = Some((url, connection));
                    return Answer::Fenced;
                }
            },
        };
        match error.kind() {
            ErrorKind::Server(kind) => match redirected(&error, kind, command).await {
                Redirected::Answered(answer) => return answer,
                Redirected::To(there) => *open = Some(there),
                Redirected::Nowhere => sleep(Duration::from_millis(10)).await,
            },
            // The server refused with a code that the crate does not know, such as LOADING of some servers, and did
            // nothing.
            ErrorKind::Extension => {}
            _ => return Answer::Unknown,
        }
    }
    Answer::NotDone
}

enum Redirected {
    Answered(Answer),
    /// The command has to go to this server, which has the slot from now on.
    To((String, MultiplexedConnection)),
    Nowhere,
}

/// Follows a redirection. After ASK, only this command goes to the other server.
async fn redirected(error: &RedisError, kind: ServerErrorKind, command: &Cmd) -> Redirected {
    let Some((host, port)) = error.redirect_node() else { return Redirected::Nowhere };
    let url = format!("redis://{host}:{port}");
    let Ok(mut connection) = connect_to(&url).await else { return Redirected::Nowhere };
    if kind != ServerErrorKind::Ask {
        return Redirected::To((url, connection));
    }
    let asked = async {
        cmd("ASKING").exec_async(&mut connection).await.map_err(GateError::from)?;
        command.exec_async(&mut connection).await.map_err(GateError::from)
    };
    match timeout(PATIENCE, asked).await {
        Ok(Ok(())) => Redirected::Answered(Answer::Landed),
        Ok(Err(GateError::Redis(error))) if matches!(error.kind(), ErrorKind::Server(_)) => Redirected::Nowhere,
        Ok(Err(GateError::Fenced { .. })) => Redirected::Answered(Answer::Fenced),
        _ => Redirected::Answered(Answer::Unknown),
    }
}

/// Connects to a server at this URL.
pub(super) async fn connect_to(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(None);
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// Connects to PostgreSQL.
pub(super) async fn connect(address: &str) -> Option<tokio_postgres::Client> {
    let (client, connection) = timeout(PATIENCE, tokio_postgres::connect(address, NoTls)).await.ok()?.ok()?;
    tokio::spawn(connection);
    client.batch_execute(SETTINGS).await.ok()?;
    Some(client)
}

/// Passes the fence, waits, and writes, in one transaction. After an error, nothing was written.
async fn write_behind_fence(
    client: &mut tokio_postgres::Client,
    to: &Resource,
    (token, text): (u64, &str),
    pause: Duration,
) -> Result<Answer, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    let token = i64::try_from(token).expect("tokens have 53 bits");
    transaction.execute("SELECT palisade.fence($1, $2)", &[&to.lock(), &token]).await?;
    sleep(pause).await;
    transaction.execute("INSERT INTO landed (entry) VALUES ($1)", &[&text]).await?;
    // If the server ends now, it may have committed the transaction.
    Ok(transaction.commit().await.map_or(Answer::Unknown, |()| Answer::Landed))
}
