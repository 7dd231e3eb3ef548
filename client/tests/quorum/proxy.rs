//! A TCP proxy in front of a server, which can delay, swallow or cut the traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use palisade_client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::fixture::{Nodes, connected};
use crate::harness::Server;

const PASS: u8 = 0;
const SWALLOW: u8 = 1;
const CUT: u8 = 2;
const SWALLOW_ANSWERS: u8 = 3;
const HOLD_ANSWERS: u8 = 4;
const CUT_LOOK: u8 = 5;
const ANSWER_EVERY_OTHER: u8 = 6;
const LOSE_LISTENER: u8 = 7;
const HOLD_BREAK: u8 = 8;
const HOLD_EXTEND: u8 = 9;

/// Starts a proxy in front of each of `nodes`, and a client that is connected through them.
pub async fn proxied(nodes: &Nodes) -> (Vec<Proxy>, Client) {
    let (proxies, addresses) = before_each(&nodes.0).await;
    let client = Client::new(addresses).unwrap();
    connected(&client).await;
    (proxies, client)
}

/// Starts a proxy in front of each of these servers, and returns them with their addresses.
pub async fn before_each(servers: &[Server]) -> (Vec<Proxy>, Vec<String>) {
    let mut proxies = vec![];
    for server in servers {
        proxies.push(Proxy::before(server).await);
    }
    let addresses = proxies.iter().map(Proxy::address).collect();
    (proxies, addresses)
}

/// A proxy, whose connections end when it is dropped.
pub struct Proxy {
    port: u16,
    mode: Arc<AtomicU8>,
    delay_us: Arc<AtomicU64>,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy in front of `server`.
    pub async fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mode, delay_us) = (Arc::new(AtomicU8::new(PASS)), Arc::new(AtomicU64::new(0)));
        let (socket, connections) = (server.socket(), Arc::new(AtomicUsize::new(0)));
        let task = tokio::spawn({
            let (mode, delay_us, connections) = (Arc::clone(&mode), Arc::clone(&delay_us), Arc::clone(&connections));
            async move {
                let mut is_answered = false;
                loop {
                    let (client, _) = listener.accept().await.unwrap();
                    connections.fetch_add(1, Ordering::Relaxed);
                    let mut mode = Arc::clone(&mode);
                    match mode.load(Ordering::Relaxed) {
                        CUT => continue,
                        ANSWER_EVERY_OTHER => {
                            is_answered = !is_answered;
                            let of_this_one = if is_answered { PASS } else { SWALLOW_ANSWERS };
                            mode = Arc::new(AtomicU8::new(of_this_one));
                        }
                        _ => {}
                    }
                    let Ok(server) = UnixStream::connect(&socket).await else { continue };
                    tokio::spawn(carry(client, server, mode, Arc::clone(&delay_us)));
                }
            }
        });
        Self { port, mode, delay_us, connections, task }
    }

    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the name by which clients reach this proxy.
    pub fn name(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the number of connections that the proxy has accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Delays all traffic by this time, each way.
    pub fn delay(&self, delay: Duration) {
        self.delay_us.store(delay.as_micros() as u64, Ordering::Relaxed);
    }

    /// Drops all traffic without closing connections, so that they are half open.
    pub fn swallow(&self) {
        self.mode.store(SWALLOW, Ordering::Relaxed);
    }

    /// Forwards requests, and drops answers.
    pub fn swallow_answers(&self) {
        self.mode.store(SWALLOW_ANSWERS, Ordering::Relaxed);
    }

    /// Forwards requests, and holds answers until it passes everything again.
    pub fn hold_answers(&self) {
        self.mode.store(HOLD_ANSWERS, Ordering::Relaxed);
    }

    /// Drops the answers on every second connection from now on; the first one is answered.
    pub fn answer_every_other(&self) {
        self.mode.store(ANSWER_EVERY_OTHER, Ordering::Relaxed);
    }

    /// Closes connections, and accepts no new ones.
    pub fn cut(&self) {
        self.mode.store(CUT, Ordering::Relaxed);
    }

    /// Loses the next LOCK.INFO with its connection; passes everything again afterwards.
    pub fn cut_look(&self) {
        self.mode.store(CUT_LOOK, Ordering::Relaxed);
    }

    /// Passes everything, until a LOCK.BREAK comes. From then on holds answers, until it passes everything again.
    pub fn hold_break(&self) {
        self.mode.store(HOLD_BREAK, Ordering::Relaxed);
    }

    /// Does the same once a LOCK.EXTEND comes.
    pub fn hold_extend(&self) {
        self.mode.store(HOLD_EXTEND, Ordering::Relaxed);
    }

    /// The connection of the next LOCK.HEAR is half open from then on, until the proxy ends.
    pub fn lose_listener(&self) {
        self.mode.store(LOSE_LISTENER, Ordering::Relaxed);
    }

    /// Returns whether that has happened.
    pub fn has_lost_listener(&self) -> bool {
        self.mode.load(Ordering::Relaxed) == PASS
    }

    /// Passes everything again.
    pub fn pass(&self) {
        self.mode.store(PASS, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.task.abort();
    }
}

async fn carry(client: TcpStream, server: UnixStream, mode: Arc<AtomicU8>, delay_us: Arc<AtomicU64>) {
    client.set_nodelay(true).unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        let mut buffer = vec![0; 1 << 16];
        let mut is_lost = false;
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            tokio::time::sleep(Duration::from_micros(delay_us.load(Ordering::Relaxed))).await;
            match mode.load(Ordering::Relaxed) {
                CUT => return,
                SWALLOW => {}
                LOSE_LISTENER if names(&buffer[..count], b"LOCK.HEAR") => {
                    mode.store(PASS, Ordering::Relaxed);
                    is_lost = true;
                }
                _ if is_lost => {}
                CUT_LOOK if names(&buffer[..count], b"LOCK.INFO") => {
                    mode.store(PASS, Ordering::Relaxed);
                    return;
                }
                hold @ (HOLD_BREAK | HOLD_EXTEND) if names(&buffer[..count], held_from(hold)) => {
                    mode.store(HOLD_ANSWERS, Ordering::Relaxed);
                    to_server.write_all(&buffer[..count]).await.unwrap_or(());
                }
                _ => to_server.write_all(&buffer[..count]).await.unwrap_or(()),
            }
        }
    };
    let back = async {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            tokio::time::sleep(Duration::from_micros(delay_us.load(Ordering::Relaxed))).await;
            while mode.load(Ordering::Relaxed) == HOLD_ANSWERS {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            match mode.load(Ordering::Relaxed) {
                CUT => return,
                SWALLOW | SWALLOW_ANSWERS => {}
                _ => to_client.write_all(&buffer[..count]).await.unwrap_or(()),
            }
        }
    };
    let cut = async {
        while mode.load(Ordering::Relaxed) != CUT {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! { () = there => {}, () = back => {}, () = cut => {} }
}

/// Returns the command after which answers are held.
fn held_from(mode: u8) -> &'static [u8] {
    if mode == HOLD_BREAK { b"LOCK.BREAK" } else { b"LOCK.EXTEND" }
}

/// Returns whether a request names this command.
fn names(request: &[u8], command: &[u8]) -> bool {
    request.windows(command.len()).any(|word| word == command)
}
