//! A node in this process.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use palisade_quorum::{Mode, Wanted};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::key::{Grant, Key, Waiter, granted};
use crate::resp::{Reply, command};

/// A node; its connections end with it.
pub struct Node {
    port: u16,
    state: Arc<Mutex<State>>,
    up: Arc<watch::Sender<bool>>,
    tasks: Vec<JoinHandle<()>>,
}

struct State {
    id: u128,
    keys: HashMap<Vec<u8>, Key>,
    heard: Vec<String>,
    /// Commands of this name are answered with an error.
    refuses: Option<&'static str>,
    waits: u64,
}

enum Answer {
    Now(Reply),
    /// As soon as it is told, or in vain after so long.
    Later(oneshot::Receiver<Reply>, Duration, Reply),
}

impl Node {
    /// The server `id`.
    pub async fn start(id: u128) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State { id, keys: HashMap::new(), heard: vec![], refuses: None, waits: 0 };
        let (state, up) = (Arc::new(Mutex::new(state)), Arc::new(watch::Sender::new(true)));
        let accepts = tokio::spawn({
            let (state, up) = (Arc::clone(&state), Arc::clone(&up));
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    if *up.borrow() {
                        let (state, mut up) = (Arc::clone(&state), up.subscribe());
                        tokio::spawn(async move {
                            tokio::select! {
                                () = talk(stream, state, up.clone()) => {}
                                _ = up.wait_for(|up| !up) => {}
                            }
                        });
                    }
                }
            }
        });
        let expires = tokio::spawn({
            let state = Arc::clone(&state);
            async move {
                loop {
                    sleep(Duration::from_millis(2)).await;
                    lock(&state).keys.values_mut().for_each(Key::serve);
                }
            }
        });
        Self { port, state, up, tasks: vec![accepts, expires] }
    }

    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its connections end, and it takes none.
    pub fn goes_down(&self) {
        self.up.send_replace(false);
    }

    /// It takes connections again.
    pub fn comes_up(&self) {
        self.up.send_replace(true);
    }

    /// It has forgotten `key`, but its tokens.
    pub fn forgets(&self, key: &str) {
        if let Some(key) = lock(&self.state).keys.get_mut(key.as_bytes()) {
            key.grants.clear();
        }
    }

    /// It answers this command with an error; `None`: it refuses none.
    pub fn refuses(&self, command: Option<&'static str>) {
        lock(&self.state).refuses = command;
    }

    /// What holds `key`.
    pub fn grants(&self, key: &str) -> Vec<Grant> {
        let mut state = lock(&self.state);
        let Some(key) = state.keys.get_mut(key.as_bytes()) else { return vec![] };
        key.serve();
        key.grants.clone()
    }

    /// How many wait for `key`, or have been told that it is their turn.
    pub fn waiters(&self, key: &str) -> usize {
        let mut state = lock(&self.state);
        let Some(key) = state.keys.get_mut(key.as_bytes()) else { return 0 };
        key.serve();
        key.queue.len() + key.kept.len()
    }

    /// It holds the lock for a stranger, in this mode and with this token.
    pub fn grants_to(&self, owner: &str, key: &str, wanted: Wanted, token: u64) {
        let mut state = lock(&self.state);
        let key = state.keys.entry(key.as_bytes().to_vec()).or_default();
        let granted = key.acquire(owner.as_bytes(), wanted, token, Duration::from_secs(60), b"", false);
        assert!(granted.is_ok_and(|granted| granted.is_some()));
    }

    /// The stranger is gone.
    pub fn releases(&self, owner: &str, key: &str) {
        let mut state = lock(&self.state);
        let key = state.keys.get_mut(key.as_bytes()).unwrap();
        key.grants.retain(|grant| grant.owner != owner.as_bytes());
        key.serve();
    }

    /// How often it was asked this command.
    pub fn asked(&self, command: &str) -> usize {
        lock(&self.state).heard.iter().filter(|heard| *heard == command).count()
    }

    /// What it was asked so far does not count.
    pub fn hear_no_more(&self) {
        lock(&self.state).heard.clear();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.goes_down();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap()
}

async fn talk(stream: TcpStream, state: Arc<Mutex<State>>, up: watch::Receiver<bool>) {
    stream.set_nodelay(true).unwrap();
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::new(from);
    while let Some(arguments) = command(&mut from).await {
        if !*up.borrow() {
            return;
        }
        let answer = lock(&state).answer(&arguments);
        let reply = match answer {
            Answer::Now(reply) => reply,
            Answer::Later(mut told, patience, in_vain) => tokio::select! {
                reply = &mut told => reply.unwrap_or(in_vain),
                () = sleep(patience) => in_vain,
                // Closed meanwhile: the request leaves the queue with this connection.
                _ = from.get_ref().readable() => return,
            },
        };
        if to.write_all(&reply.bytes()).await.is_err() {
            return;
        }
    }
}

/// The value behind `name` among the arguments.
fn option<T: FromStr>(arguments: &[Vec<u8>], name: &str) -> Option<T> {
    let at = arguments.iter().skip(3).position(|argument| argument == name.as_bytes())? + 4;
    std::str::from_utf8(arguments.get(at)?).ok()?.parse().ok()
}

fn has(arguments: &[Vec<u8>], name: &str) -> bool {
    arguments.iter().skip(3).any(|argument| argument == name.as_bytes())
}

fn wanted(arguments: &[Vec<u8>]) -> Wanted {
    match option(arguments, "LIMIT") {
        Some(limit) => palisade_quorum::request::permit(limit, option(arguments, "PERMIT")).unwrap(),
        None if has(arguments, "SHARED") => Wanted::Shared,
        None => Wanted::Exclusive,
    }
}

fn or_null(token: Option<u64>) -> Reply {
    token.map_or(Reply::Null, Reply::Int)
}

impl State {
    fn answer(&mut self, arguments: &[Vec<u8>]) -> Answer {
        let name = String::from_utf8_lossy(&arguments[0]).to_uppercase();
        self.heard.push(name.clone());
        if self.refuses == Some(&*name) {
            return Answer::Now(Reply::Error("NOTNOW it is told not to"));
        }
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        match &*name {
            "HELLO" => Answer::Now(Reply::Map(vec![("server", text("fake")), ("proto", Reply::Int(3))])),
            "LOCK.NODE" => Answer::Now(Reply::Map(vec![
                ("id", text(&format!("{:032x}", self.id))),
                ("protocol", Reply::Int(1)),
                ("role", text("master")),
            ])),
            name if name.starts_with("LOCK.") => self.about(name, arguments),
            _ => Answer::Now(Reply::Ok),
        }
    }

    fn about(&mut self, name: &str, arguments: &[Vec<u8>]) -> Answer {
        let key = self.keys.entry(arguments[1].clone()).or_default();
        let none = vec![];
        let owner = arguments.get(2).unwrap_or(&none);
        let third = |default: u64| {
            let number = arguments.get(3).and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok());
            number.unwrap_or(default)
        };
        let reply = match name {
            "LOCK.ACQUIRE" => {
                let (ttl, wanted) = (Duration::from_millis(third(0)), wanted(arguments));
                let proposal = option(arguments, "FENCE").unwrap_or(1);
                let note: String = option(arguments, "NOTE").unwrap_or_default();
                let patience = option(arguments, "WAIT").map(Duration::from_millis);
                let is_permit = matches!(wanted, Wanted::Permit { .. });
                match key.acquire(owner, wanted, proposal, ttl, note.as_bytes(), has(arguments, "RETRY")) {
                    Err(error) => error,
                    Ok(Some((token, number))) if is_permit || patience.is_some() => {
                        granted(token, Duration::ZERO, number, wanted)
                    }
                    Ok(Some((token, _))) => Reply::Int(token),
                    Ok(None) => match patience.filter(|patience| !patience.is_zero()) {
                        None => Reply::Null,
                        Some(patience) => {
                            let acquires = Some((ttl, proposal, note.into_bytes()));
                            return self.queues(arguments, u64::MAX, wanted, acquires, patience, Reply::Null);
                        }
                    },
                }
            }
            "LOCK.WAIT" => {
                let (patience, ticket) = (Duration::from_millis(third(0)), option(arguments, "TICKET").unwrap_or(0));
                return self.queues(arguments, ticket, wanted(arguments), None, patience, Reply::Int(0));
            }
            "LOCK.RELEASE" => {
                let held = key.grant_of(owner).is_some();
                key.grants.retain(|grant| grant.owner != *owner);
                key.kept.retain(|(other, ..)| other != owner);
                key.queue.retain(|waiter| waiter.owner != *owner);
                key.serve();
                if held { Reply::Int(0) } else { Reply::Null }
            }
            "LOCK.EXTEND" => {
                let (until, token) =
                    (Instant::now() + Duration::from_millis(third(0)), option::<u64>(arguments, "TOKEN"));
                let own = key.grant_of(owner).filter(|own| token.is_none_or(|token| token == own.token));
                or_null(own.map(|own| {
                    own.until = own.until.max(until);
                    own.token
                }))
            }
            "LOCK.FENCE" => or_null(key.raise(owner, third(0))),
            "LOCK.REENTER" => or_null(key.grant_of(owner).map(|_| option(arguments, "LEVEL").unwrap_or(2))),
            "LOCK.CONVERT" => {
                let token = key.share(owner);
                key.serve();
                or_null(token)
            }
            "LOCK.INFO" => info(key),
            _ => Reply::Error("ERR unknown command"),
        };
        Answer::Now(reply)
    }

    fn queues(
        &mut self,
        arguments: &[Vec<u8>],
        ticket: u64,
        wanted: Wanted,
        acquires: Option<(Duration, u64, Vec<u8>)>,
        patience: Duration,
        in_vain: Reply,
    ) -> Answer {
        self.waits += 1;
        let (told, hears) = oneshot::channel();
        let key = self.keys.entry(arguments[1].clone()).or_default();
        let (order, owner) = ((ticket, self.waits), arguments[2].clone());
        key.queue.push(Waiter { order, owner, wanted, acquires, since: Instant::now(), told });
        key.serve();
        Answer::Later(hears, patience, in_vain)
    }
}

fn info(key: &mut Key) -> Reply {
    key.serve();
    let Some(oldest) = key.grants.first() else { return Reply::Null };
    let ms = |duration: Duration| Reply::Int(duration.as_millis() as u64);
    let fields = |grant: &Grant| {
        let (mode, limit) = match grant.mode {
            Mode::Exclusive => ("exclusive", 1),
            Mode::Shared => ("shared", 1),
            Mode::Permit(permit) => ("permit", permit.limit()),
        };
        vec![
            ("owner", Reply::Text(grant.owner.clone())),
            ("token", Reply::Int(grant.token)),
            ("mode", Reply::Text(mode.as_bytes().to_vec())),
            ("permit", Reply::Int(grant.mode.number().into())),
            ("limit", Reply::Int(limit.into())),
            ("holds", Reply::Int(1)),
            ("ttl", ms(grant.until.saturating_duration_since(Instant::now()))),
            ("held", ms(grant.granted.elapsed())),
            ("note", Reply::Text(grant.note.clone())),
        ]
    };
    let mut all = fields(oldest);
    all.push(("waiters", Reply::Int(key.queue.len() as u64)));
    all.push(("holders", Reply::Int(key.grants.len() as u64)));
    all.push(("grants", Reply::List(key.grants.iter().map(|grant| Reply::Map(fields(grant))).collect())));
    Reply::Map(all)
}
