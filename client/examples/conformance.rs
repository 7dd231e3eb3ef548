//! The driver through which the conformance suite runs this crate: one JSON request per line on stdin, one JSON answer
//! per line on stdout, in any order. `conformance/README.md` of the repository describes requests and answers.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use palisade_client::{
    Client, Error, ErrorKind, GateError, Guard, Leadership, Options, Permit, ReadGuard, Released, Session, WriteGuard,
};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

/// A generous timeout, since the machine that runs the suite may be busy.
const PATIENT: Duration = Duration::from_secs(10);

/// A lock in any mode.
enum Lock {
    Plain(Guard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(Permit),
}

impl Lock {
    fn guard(&self) -> &Guard {
        match self {
            Self::Plain(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permit(permit) => permit,
        }
    }

    fn number(&self) -> Option<u16> {
        match self {
            Self::Permit(permit) => Some(permit.number()),
            _ => None,
        }
    }

    async fn release(self) -> Released {
        match self {
            Self::Plain(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}

#[derive(Default)]
struct State {
    client: Option<Client>,
    /// The first of the addresses, which also has the data.
    address: String,
    /// The locks by name; `None` once released.
    held: HashMap<String, Option<Arc<Lock>>>,
    leading: HashMap<String, Leadership>,
    groups: HashMap<String, Session>,
    requests: HashMap<u64, AbortHandle>,
}

type Shared = Arc<Mutex<State>>;

#[tokio::main]
async fn main() {
    let state = Shared::default();
    let (lines, mut read) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    while let Some(line) = read.recv().await {
        let request: Value = serde_json::from_str(&line).expect("a request is JSON");
        let id = request["id"].as_u64().expect("a request has an id");
        let (answering, shared) = (Arc::clone(&state), request.clone());
        let task = tokio::spawn(async move { answer(&answering, &shared).await });
        state.lock().unwrap().requests.insert(id, task.abort_handle());
        tokio::spawn(async move {
            let mut answer = task.await.unwrap_or_else(|why| {
                if why.is_cancelled() { json!({"error": "cancelled"}) } else { json!({"error": "other"}) }
            });
            answer["id"] = json!(id);
            println!("{answer}");
            let _ = std::io::stdout().flush();
        });
    }
}

async fn answer(state: &Shared, request: &Value) -> Value {
    perform(state, request).await.unwrap_or_else(|error| {
        let retry_after_ms = error.retry_after().map(|after| after.as_millis() as u64);
        json!({"error": class(&error), "message": error.to_string(), "retry_after_ms": retry_after_ms})
    })
}

fn class(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Contended | ErrorKind::TimedOut | ErrorKind::Expired => "not-acquired",
        ErrorKind::NoQuorum => "unavailable",
        ErrorKind::Guarded => "guarded",
        ErrorKind::Lost => "lost",
        ErrorKind::BadArgument => "bad-argument",
        ErrorKind::Configuration => "misconfigured",
        ErrorKind::Closed => "closed",
        _ => "other",
    }
}

async fn perform(state: &Shared, request: &Value) -> Result<Value, Error> {
    let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
    match text("do").as_str() {
        // The agent is not supported: this driver asks the nodes itself.
        "open" if request["agent"].is_boolean() => Ok(json!({"error": "unsupported"})),
        "open" => {
            let client = Client::builder().nodes(text("address").split(' ')).build()?;
            let address = text("address").split(' ').next().unwrap_or_default().to_owned();
            let opened = State { client: Some(client), address, ..State::default() };
            let before = std::mem::replace(&mut *state.lock().unwrap(), opened);
            drop(before);
            Ok(json!({}))
        }
        how @ ("lock" | "read" | "write" | "permit") => {
            let client = state.lock().unwrap().client.clone().expect("it was opened");
            let lock = take(&client, how, request).await?;
            let answer = json!({"token": lock.guard().token(), "number": lock.number()});
            state.lock().unwrap().held.insert(text("as"), Some(Arc::new(lock)));
            Ok(answer)
        }
        "look" => {
            let lock = held(state, &text("of"));
            let state = state.lock().unwrap();
            let leads = state.leading.get(&text("of")).map(|leadership| &**leadership);
            let guard = lock.as_ref().map(|lock| lock.guard()).or(leads);
            let left = guard.map_or(Duration::ZERO, Guard::valid_for);
            Ok(
                json!({"valid_for_ms": left.as_secs_f64() * 1e3, "valid": !left.is_zero(), "token": guard.map(Guard::token)}),
            )
        }
        "extend" => {
            let Some(lock) = held(state, &text("of")) else { return Ok(json!({"error": "lost"})) };
            lock.guard().extend().await.map(|()| json!({}))
        }
        "reenter" => {
            let Some(lock) = held(state, &text("of")) else { return Ok(json!({"error": "lost"})) };
            let inner = lock.guard().reenter().await?;
            let answer = json!({"token": inner.token()});
            state.lock().unwrap().held.insert(text("as"), Some(Arc::new(Lock::Plain(inner))));
            Ok(answer)
        }
        "release" => {
            let lock = state.lock().unwrap().held.insert(text("of"), None).flatten();
            // The type of a guard allows only one release.
            let Some(lock) = lock.and_then(Arc::into_inner) else { return Ok(json!({"error": "unsupported"})) };
            match lock.release().await {
                Released::PartlyUnreachable(_) => Ok(json!({"was_held": null})),
                released => Ok(json!({"was_held": released != Released::AlreadyExpired})),
            }
        }
        "downgrade" => {
            let lock = state.lock().unwrap().held.insert(text("of"), None).flatten();
            let Some(Lock::Write(writing)) = lock.and_then(Arc::into_inner) else {
                return Ok(json!({"error": "unsupported"}));
            };
            let reading = Lock::Read(writing.downgrade().await?);
            state.lock().unwrap().held.insert(text("of"), Some(Arc::new(reading)));
            Ok(json!({}))
        }
        "gated" => Ok(gated(state, request).await),
        "until_lost" => {
            let lock = held(state, &text("of")).expect("it is held");
            let loss = lock.guard().lost().await;
            Ok(json!({"reason": loss.summary()}))
        }
        "cancel" => {
            let of = request["of"].as_u64().unwrap_or_default();
            state.lock().unwrap().requests.get(&of).expect("it was asked").abort();
            Ok(json!({}))
        }
        "close" => {
            let client = state.lock().unwrap().client.clone().expect("it was opened");
            match client.close().await {
                // As long as guards live, their locks stay held.
                Err(error) if error.kind() == ErrorKind::NotGivenBack => Ok(json!({"error": "unsupported"})),
                closed => closed.map(|()| json!({})),
            }
        }
        _ => build(state, request).await,
    }
}

/// Performs a request about something that consists of locks: an election, a session, a semaphore or a readers-writer
/// lock.
async fn build(state: &Shared, request: &Value) -> Result<Value, Error> {
    let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
    let client = state.lock().unwrap().client.clone().expect("it was opened");
    let ttl = Duration::from_millis(request["ttl_ms"].as_u64().unwrap_or(30_000));
    let within = request["answer_within_ms"].as_u64().map_or(PATIENT, Duration::from_millis);
    let mut options = Options::new().node_timeout(within).ttl(ttl);
    if let Some(ms) = request["wait_ms"].as_u64() {
        options = options.wait(Duration::from_millis(ms));
    }
    let client = client.with(&options);
    match text("do").as_str() {
        "campaign" => {
            let leadership = client.election(text("key")).campaign(text("value")).await?;
            let answer = json!({"term": leadership.term()});
            state.lock().unwrap().leading.insert(text("as"), leadership);
            Ok(answer)
        }
        "leader" => {
            let leader = client.election(text("key")).leader().await?;
            let Some(leader) = leader else { return Ok(json!({"value": null})) };
            Ok(json!({"value": String::from_utf8_lossy(&leader.value), "term": leader.term}))
        }
        "resign" => {
            let leadership = state.lock().unwrap().leading.remove(&text("of")).expect("it leads");
            leadership.resign().await;
            Ok(json!({}))
        }
        "all" => {
            let keys = request["keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let session = client.lock_all(keys).await?;
            state.lock().unwrap().groups.insert(text("as"), session);
            Ok(json!({}))
        }
        "release_all" => {
            let session = state.lock().unwrap().groups.remove(&text("of")).expect("it was acquired");
            session.close().await;
            Ok(json!({}))
        }
        _ => Ok(json!({"error": "unsupported"})),
    }
}

async fn take(client: &Client, how: &str, request: &Value) -> Result<Lock, Error> {
    let key = request["key"].as_str().unwrap_or_default();
    let wait = request["wait_ms"].as_u64();
    let within = request["answer_within_ms"].as_u64().map_or(PATIENT, Duration::from_millis);
    let mut options = Options::new().node_timeout(within);
    if let Some(ms) = request["ttl_ms"].as_u64() {
        options = options.ttl(Duration::from_millis(ms));
    }
    if let Some(ms) = wait {
        options = options.wait(Duration::from_millis(ms));
    }
    if let Some(note) = request["note"].as_str() {
        options = options.note(note);
    }
    if let Some(on) = request["extend"].as_bool() {
        options = options.auto_extend(on);
    }
    let waits = wait != Some(0);
    let limit = request["limit"].as_u64().and_then(|limit| u16::try_from(limit).ok()).unwrap_or_default();
    let (both, permits) = (client.with(&options).rw_lock(key), client.with(&options).semaphore(key, limit));
    Ok(match how {
        "lock" if waits => Lock::Plain(client.with(&options).lock(key).await?),
        "lock" => Lock::Plain(client.with(&options).try_lock(key).await?),
        "read" if waits => Lock::Read(both.read().await?),
        "read" => Lock::Read(both.try_read().await?),
        "write" if waits => Lock::Write(both.write().await?),
        "write" => Lock::Write(both.try_write().await?),
        _ if waits => Lock::Permit(permits.acquire().await?),
        _ => Lock::Permit(permits.try_acquire().await?),
    })
}

/// Sends a command of the data through the gate that is asked for.
async fn gated(state: &Shared, request: &Value) -> Value {
    let Some(lock) = held(state, request["of"].as_str().unwrap_or_default()) else { return json!({"error": "lost"}) };
    let guard = lock.guard();
    let gate = match request["gate"].as_str() {
        Some(name) => guard.gate(name),
        None => guard.gate(guard.key()).held(),
    };
    let words: Vec<&str> = request["words"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let command = gate.cmd(words[0]).arg(&words[1..]).take();
    let address = state.lock().unwrap().address.clone();
    let sent = async {
        let mut data = redis::Client::open(address)?.get_multiplexed_async_connection().await?;
        command.query_async::<String>(&mut data).await.map_err(GateError::from)
    };
    match sent.await {
        Ok(said) => json!({"said": said}),
        Err(GateError::Fenced { largest }) => json!({"error": "fenced", "seen": largest}),
        Err(GateError::NotHeld) => json!({"error": "lost"}),
        Err(other) => json!({"error": "other", "message": other.to_string()}),
    }
}

/// Returns the lock of this name unless it was released.
fn held(state: &Shared, name: &str) -> Option<Arc<Lock>> {
    state.lock().unwrap().held.get(name).cloned().flatten()
}
