//! Takes the lock, now or after a wait, with messages for the user who waits.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write, stderr};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use palisade_client::{Client, Error, ErrorKind, Guard, Options, Released};
use rand::RngExt;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use crate::arguments::{Take, TakeArgs};
use crate::exit::{CONFLICT, Failure, TIMED_OUT};
use crate::holder::{HolderId, note};
use crate::lock_view::{LockView, note_of, unsure};
use crate::node_failure::line;
use crate::nodes::{Nodes, Reply, ServerAnswer, answers};
use crate::show::{print_message, printable, time};
use crate::signals::Signals;

/// The time for which an attempt is repeated if several clients asked at once and none got a majority.
const COLLISIONS: Duration = Duration::from_secs(2);

/// The time that nodes have for the first connection.
const CONNECTING: Duration = Duration::from_secs(3);

/// The time in which a first connection succeeds unless a node has a problem.
const AT_ONCE: Duration = Duration::from_millis(500);

/// The time after the end of a wait for the last requests: for asking the nodes for the holder, and for releases.
const LATE: Duration = Duration::from_millis(100);

/// The shortest and longest pause before an attempt is repeated because several clients asked at once, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 2..50;

/// The interval at which the holder is shown to a user who waits.
const LOOK: Duration = Duration::from_secs(1);

/// The time for which a user or script waits for a lock.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    No,
    Until(Duration),
    Always,
}

impl Patience {
    /// Returns the moment by which all requests to the nodes have to be done, for a wait that began at `began`; `None`
    /// without a limit.
    pub fn over(self, began: Instant) -> Option<Instant> {
        match self {
            Self::Until(limit) => Some(began + limit + LATE),
            Self::No | Self::Always => None,
        }
    }

    /// Returns the patience that `--wait` and `--no-wait` ask for.
    pub fn of(wait: Option<Duration>, no_wait: bool) -> Self {
        match wait {
            _ if no_wait => Self::No,
            Some(limit) => Self::Until(limit),
            None => Self::Always,
        }
    }
}

/// The result of taking a lock.
pub enum Taken {
    Held(Held),
    /// A signal arrived first. The current attempt is being released in the background.
    Interrupted(Signal),
}

/// A lock that is held.
pub struct Held {
    pub guard: Guard,
    /// The number of the permit, if one of several was requested.
    pub permit: Option<u16>,
}

/// Takes the lock; `program` and `holder` are for its note.
///
/// # Errors
///
/// The lock was not granted; the failure says why.
pub async fn take(
    nodes: &Nodes,
    take: &Take,
    patience: Patience,
    program: &OsStr,
    holder: &HolderId,
    signals: &mut Signals,
) -> Result<Taken, Failure> {
    let client = nodes.client();
    let asked = &take.asked;
    let key = asked.key.as_bytes();
    let note = asked.note.clone().unwrap_or_else(|| note(program));
    let mut options = options(asked.ttl, &note, holder, asked.node_timeout).max_hold(take.max_hold);
    let began = Instant::now();
    let granted = async {
        let limit = match patience {
            Patience::No => {
                connect(client).await?;
                return now(nodes, client, asked, &options).await;
            }
            Patience::Until(limit) => Some(limit),
            Patience::Always => None,
        };
        if let Some(left) = connect_in(nodes, limit).await? {
            options = options.wait(left);
        }
        let waiting = in_mode(client, asked, &options, true);
        // At a terminal, the progress says it.
        if stderr().is_terminal() { waiting.await } else { saying_for_what(nodes, key, waiting).await }
    };
    let result = tokio::select! {
        biased;
        signal = signals.end() => return Ok(Taken::Interrupted(signal)),
        result = granted => result,
        () = progress(nodes, key, began), if stderr().is_terminal() => unreachable!("it goes on until it is dropped"),
    };
    match result {
        Ok(held) => Ok(Taken::Held(held)),
        Err(error) => {
            let over = patience.over(began);
            let failure = refused(nodes, asked, patience, error, over).await;
            if let Some(over) = over {
                nodes.given_back_by(over).await;
            }
            Err(failure)
        }
    }
}

/// Returns options for a lease of this length with this note, to which the holder id is added if there is room.
pub fn options(ttl: Duration, note: &str, holder: &HolderId, node_timeout: Option<Duration>) -> Options {
    let mut options = Options::new().ttl(ttl).note(note);
    if let Some(id) = holder.id_beside(note) {
        options = options.holder(id);
    }
    match node_timeout {
        Some(timeout) => options.node_timeout(timeout),
        None => options,
    }
}

/// Returns the line printed for a lock that was taken: its token and, for a permit, the number.
pub fn taken_line(token: u64, permit: Option<u16>) -> String {
    permit.map_or_else(|| format!("{token}\n"), |number| format!("{token} {number}\n"))
}

/// Releases the lock, and prints a message if too few nodes confirm the release.
pub async fn give_back(guard: Guard) -> Released {
    let key = printable(guard.key());
    let released = guard.release().await;
    if let Released::PartlyUnreachable(nodes) = &released {
        let whys: Vec<_> = nodes.iter().map(ToString::to_string).collect();
        let whys = whys.join("; ");
        print_message(&format!(
            "{key} may stay locked until its lease ends: too few nodes confirmed the release ({whys})"
        ));
    }
    released
}

/// Connects to a majority. Refusals end the attempt at once; for nodes that do not answer yet it waits a moment longer.
pub async fn connect(client: &Client) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        match client.connect().await {
            Err(_) if asked.elapsed() > AT_ONCE && began.elapsed() < CONNECTING => {}
            done => return done,
        }
    }
}

/// Connects to a majority before a wait for a lock that has this limit. Returns the rest of the limit. Nodes that are
/// temporarily unavailable do not end the wait: the program prints once that it waits for them.
pub async fn connect_in(nodes: &Nodes, limit: Option<Duration>) -> Result<Option<Duration>, Error> {
    let began = Instant::now();
    let connecting = connect(nodes.client());
    let connected = match limit {
        // Even a short wait leaves time for the first connection.
        Some(limit) => timeout(limit.max(AT_ONCE), connecting).await,
        None => Ok(connecting.await),
    };
    match connected {
        Ok(Ok(())) => {}
        Ok(Err(error)) if error.is_lasting() => return Err(error),
        Ok(Err(error)) => print_message(&format!("waits for nodes: {}", nodes.failed(error).text)),
        Err(_) => {}
    }
    Ok(limit.map(|limit| limit.saturating_sub(began.elapsed())))
}

/// Awaits the lock `key`, or the leadership of that name. If that takes longer, says once for which guarded nodes it waits.
pub async fn saying_for_what<T>(nodes: &Nodes, key: &[u8], granted: impl Future<Output = T>) -> T {
    let saying = async {
        sleep(LOOK).await;
        let nodes = nodes.of_client();
        let (_, replies) = LockView::ask(&nodes, key).await;
        if let Some(text) = too_few_grant(&nodes, &replies) {
            print_message(&format!("waits for nodes: {text}"));
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        granted = granted => granted,
        never = saying => never,
    }
}

/// Returns how many of `nodes`, which replied this about a lock, would grant it, and the failures of the others; if too few
/// would and some of them are guarded.
pub fn too_few_grant(nodes: &Nodes, replies: &[ServerAnswer<Reply>]) -> Option<String> {
    let failures = unsure(None, replies);
    let (count, majority) = (nodes.len(), nodes.majority());
    let granting = count - failures.len();
    let is_guarded = answers(replies).any(|reply| reply.guard.is_some());
    (is_guarded && granting < majority)
        .then(|| format!("{granting} of {count} nodes grant, and {majority} are needed: {}", line(failures, count)))
}

/// Takes the lock in the requested mode; waits for it if `waits`.
async fn in_mode(client: &Client, asked: &TakeArgs, options: &Options, waits: bool) -> Result<Held, Error> {
    let key = asked.key.as_bytes();
    let alone = |guard| Held { guard, permit: None };
    if let Some(limit) = asked.limit {
        let permits = client.with(options).semaphore(key, limit);
        let permit = if waits { permits.acquire().await? } else { permits.try_acquire().await? };
        return Ok(Held { permit: Some(permit.number()), guard: permit.into() });
    }
    let lock = client.with(options).rw_lock(key);
    match (asked.shared, waits) {
        (true, true) => lock.read().await.map(|guard| alone(guard.into())),
        (true, false) => lock.try_read().await.map(|guard| alone(guard.into())),
        (false, true) => client.with(options).lock(key).await.map(alone),
        (false, false) => client.with(options).try_lock(key).await.map(alone),
    }
}

/// Takes the lock if it is free. If several clients ask at once, the attempt is repeated, so that one of them gets it.
async fn now(nodes: &Nodes, client: &Client, asked: &TakeArgs, options: &Options) -> Result<Held, Error> {
    let key = asked.key.as_bytes();
    let until = Instant::now() + COLLISIONS;
    loop {
        let error = match in_mode(client, asked, options, false).await {
            Err(error) if error.kind() == ErrorKind::Contended && Instant::now() < until => error,
            result => return result,
        };
        if LockView::ask(&nodes.of_client(), key).await.0.is_some_and(|view| view.first.is_held) {
            return Err(error);
        }
        let pause = rand::rng().random_range(PAUSE_MS);
        sleep(Duration::from_millis(pause)).await;
    }
}

/// Shows the user at the terminal the holder of the lock, repeatedly.
async fn progress(nodes: &Nodes, key: &[u8], began: Instant) {
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A user who gets the lock at once sees nothing.
    look.tick().await;
    look.tick().await;
    let _cleared = Cleared;
    loop {
        let nodes = nodes.of_client();
        let (view, replies) = LockView::ask(&nodes, key).await;
        let state = match view {
            Some(view) => {
                let others = view.waiters.saturating_sub(1);
                let others = if others > 0 { format!(", {others} more waiting") } else { String::new() };
                format!("{}{others}", view.state_line(nodes.len()))
            }
            None => too_few_grant(&nodes, &replies).unwrap_or_else(|| "free, or not to be had now".to_owned()),
        };
        let waited = time(began.elapsed().as_millis() as u64);
        let line = format!("palisade: waiting for {} since {waited}: {state}", printable(key));
        let columns = crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
        let line: String = line.chars().take(columns.saturating_sub(1)).collect();
        let _ = write!(stderr(), "\r\x1b[K{line}");
        look.tick().await;
    }
}

/// Clears the line of the progress when it is dropped.
struct Cleared;

impl Drop for Cleared {
    fn drop(&mut self) {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}

/// Returns the failure for a refusal, with this program's text. Asks the nodes for the holder, at most until `over`.
async fn refused(nodes: &Nodes, asked: &TakeArgs, patience: Patience, error: Error, over: Option<Instant>) -> Failure {
    let key = asked.key.as_bytes();
    // The error names the holder on one node, which may be left over there.
    let on_one = error.holder().map(|holder| {
        let (note, _) = note_of(holder.note.as_bytes());
        let note = if note.is_empty() { "somebody without a note".into() } else { printable(note.as_bytes()) };
        format!("held by {note} for {}", time(holder.held_for.as_millis() as u64))
    });
    let holder = async || seen_holder(nodes, key, over).await.unwrap_or(on_one);
    match (error.kind(), error.in_the_way(), patience) {
        (ErrorKind::Contended, ..) => conflict(asked, holder().await),
        (ErrorKind::TimedOut, Some(ErrorKind::Contended), Patience::Until(limit)) => {
            not_in_time(asked, limit, holder().await)
        }
        _ => nodes.failed(error).about(key),
    }
}

/// Asks the nodes who holds the lock on a majority of them; the holder is `None` if nobody does. Returns `None` if they
/// have not answered at `over`.
pub async fn seen_holder(nodes: &Nodes, key: &[u8], over: Option<Instant>) -> Option<Option<String>> {
    let nodes = nodes.of_client();
    let look = LockView::ask(&nodes, key);
    let (view, _) = match over {
        Some(over) => timeout_at(over, look).await.ok()?,
        None => look.await,
    };
    Some(view.filter(|view| view.first.is_held).map(|view| view.holder_line()))
}

/// Returns the failure when another owner has the lock; `holder` describes it.
pub fn conflict(asked: &TakeArgs, holder: Option<String>) -> Failure {
    let holder = holder.unwrap_or_else(|| "wanted by several at once".to_owned());
    let text = format!("{} is {holder}: wait for it, or try later", printable(asked.key.as_bytes()));
    coded(asked, Failure::new(CONFLICT, text))
}

/// Returns the failure when others held the lock until the limit.
pub fn not_in_time(asked: &TakeArgs, limit: Duration, holder: Option<String>) -> Failure {
    let text = holder.map_or("it is wanted by several at once".to_owned(), |text| format!("it is {text}"));
    let key = printable(asked.key.as_bytes());
    let text = format!("{key} was not free within {}: {text}", time(limit.as_millis() as u64));
    coded(asked, Failure::new(TIMED_OUT, text))
}

/// Returns the failure with the exit status that the caller chose for a conflict.
fn coded(asked: &TakeArgs, failure: Failure) -> Failure {
    match asked.conflict_exit_code {
        // Cron would send a mail if anything were printed.
        Some(0) => Failure::new(0, ""),
        Some(code) => Failure { code, ..failure },
        None => failure,
    }
}
