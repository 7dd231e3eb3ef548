//! The connection of a client process to a node: a proxy that can close connections, and drop, hold back or delay the
//! bytes that pass.
//!
//! The proxy does only what a network can do to TCP. A connection that lost a byte delivers no later byte: it is dead,
//! and ends when the network has recovered. Bytes that are held back arrive late, in order.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::sleep;

/// The way in which a link treats the bytes that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Lets everything pass.
    Pass,
    /// Closes every connection, and accepts no new one.
    Cut,
    /// Resets every connection at once, and accepts new connections.
    Reset,
    /// Drops requests and answers.
    Swallow,
    /// Drops requests.
    SwallowRequests,
    /// Drops answers.
    SwallowAnswers,
    /// Holds everything back, and delivers it when the link lets everything pass again.
    Hold,
}

impl Mode {
    /// The modes that are faults.
    pub const FAULTS: [Self; 6] =
        [Self::Cut, Self::Reset, Self::Swallow, Self::SwallowRequests, Self::SwallowAnswers, Self::Hold];

    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Cut => "connections cut",
            Self::Reset => "connections reset",
            Self::Swallow => "both ways swallowed",
            Self::SwallowRequests => "requests swallowed",
            Self::SwallowAnswers => "answers swallowed",
            Self::Hold => "delivered late",
        }
    }
}

/// The interval at which a connection whose bytes are held back checks whether they may pass again.
const LOOK_AGAIN: Duration = Duration::from_millis(3);

/// The server to which a node's links lead now.
pub type Target = Arc<Mutex<PathBuf>>;

#[derive(Debug)]
struct State {
    mode: AtomicU8,
    delay_us: AtomicU64,
}

impl State {
    fn is(&self, mode: Mode) -> bool {
        self.mode.load(Ordering::Relaxed) == mode as u8
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Requests,
    Answers,
}

/// A link: the proxy between a client process and a node. Its connections end when it is dropped.
#[derive(Debug)]
pub struct Link {
    port: u16,
    state: Arc<State>,
    listens: tokio::task::AbortHandle,
}

impl Link {
    /// Opens a link to `target`, on a port of its own.
    ///
    /// # Errors
    /// No port is free.
    pub async fn to(target: Target) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State { mode: AtomicU8::new(Mode::Pass as u8), delay_us: AtomicU64::new(0) });
        let shared = Arc::clone(&state);
        let listens = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.is(Mode::Cut) {
                    continue;
                }
                let socket = target.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let state = Arc::clone(&shared);
                tokio::spawn(async move {
                    if let Ok(server) = UnixStream::connect(socket).await {
                        carry(client, server, state).await;
                    }
                });
            }
        });
        Ok(Self { port, state, listens: listens.abort_handle() })
    }

    /// Returns the link's port on the loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the link's address, in the form that a client takes.
    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sets what the link does from now on.
    pub fn set(&self, mode: Mode) {
        self.state.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Delays everything by `delay` from now on, each way.
    pub fn delay(&self, delay: Duration) {
        self.state.delay_us.store(delay.as_micros() as u64, Ordering::Relaxed);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.set(Mode::Cut);
        self.listens.abort();
    }
}

async fn carry(mut client: TcpStream, server: UnixStream, state: Arc<State>) {
    let _ = client.set_nodelay(true);
    let (from_server, to_server) = server.into_split();
    let (from_client, to_client) = client.split();
    let closed = async {
        while !state.is(Mode::Cut) && !state.is(Mode::Reset) {
            sleep(LOOK_AGAIN).await;
        }
    };
    tokio::select! {
        () = pump(from_client, to_server, &state, Way::Requests) => {}
        () = pump(from_server, to_client, &state, Way::Answers) => {}
        () = closed => {}
    }
    if state.is(Mode::Reset) {
        // Closing without lingering shows the client a reset instead of an end.
        let _ = client.set_zero_linger();
    }
}

async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, state: &State, way: Way) {
    let mut buffer = vec![0; 1 << 16];
    let mut dead = false;
    loop {
        let count = tokio::select! {
            count = from.read(&mut buffer) => count.unwrap_or(0),
            // A connection that lost a byte ends as soon as bytes pass again, since the later bytes cannot be
            // delivered.
            () = passes(state, way), if dead => return,
        };
        let delay = state.delay_us.load(Ordering::Relaxed);
        if delay > 0 {
            sleep(Duration::from_micros(delay)).await;
        }
        while state.is(Mode::Hold) {
            sleep(LOOK_AGAIN).await;
        }
        if count == 0 {
            // While bytes are dropped, the end of a connection is not delivered either.
            while swallows(state, way) {
                sleep(LOOK_AGAIN).await;
            }
            return;
        }
        dead |= swallows(state, way);
        if !dead && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

fn swallows(state: &State, way: Way) -> bool {
    state.is(Mode::Swallow)
        || (way == Way::Requests && state.is(Mode::SwallowRequests))
        || (way == Way::Answers && state.is(Mode::SwallowAnswers))
}

/// Waits until bytes pass in this direction.
async fn passes(state: &State, way: Way) {
    while swallows(state, way) {
        sleep(LOOK_AGAIN).await;
    }
}
