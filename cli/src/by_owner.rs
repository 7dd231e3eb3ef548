//! `palisade acquire`, `release` and `extend`: for scripts that name the owner themselves, so that one process takes a
//! lock and another one extends or releases it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use nix::unistd::Pid;
use palisade_client::by_owner::{Granted, Take, Wanted, reliable};
use palisade_client::{Error, ErrorKind};
use serde::Serialize;
use tokio::time::Instant;

use crate::arguments::{Acquire, Extend, Owner, TakeArgs};
use crate::clock;
use crate::exit::{End, Failure, LOST, USAGE};
use crate::holder::{HolderId, note_of};
use crate::nodes::Nodes;
use crate::show::{json, print, printable};
use crate::signals::Signals;
use crate::taking::{Patience, conflict, connect, connect_in, not_in_time, saying_for_what, seen_holder, taken_line};

/// The JSON output of `palisade acquire` and `extend`.
#[derive(Serialize)]
struct GrantOutput {
    key: String,
    owner: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permit: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    /// The time for which the lock is still valid, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_ms: Option<u64>,
}

impl GrantOutput {
    fn of(key: &OsStr, owner: &OsStr) -> Self {
        let text = |text: &OsStr| text.to_string_lossy().into_owned();
        Self { key: text(key), owner: text(owner), token: None, permit: None, waited_ms: None, valid_ms: None }
    }
}

/// Runs `palisade acquire KEY --owner NAME`.
///
/// # Errors
/// The lock was not granted.
pub async fn acquire(nodes: &Nodes, acquire: &Acquire, as_json: bool) -> Result<End, Failure> {
    let mut signals = Signals::listen()?;
    let asked = &acquire.asked;
    let mut take = Take {
        key: asked.key.as_bytes().to_vec(),
        owner: acquire.owner.as_bytes().to_vec(),
        ttl: asked.ttl,
        wanted: wanted(asked, acquire.permit)?,
        wait: acquire.wait.unwrap_or_default(),
        retry: acquire.retry,
        note: note(asked),
        keepalive: None,
    };
    let (began, patience) = (Instant::now(), Patience::of(acquire.wait, acquire.wait.is_none()));
    let taking = async {
        match acquire.wait {
            Some(limit) => take.wait = connect_in(nodes, Some(limit)).await?.unwrap_or_default(),
            None => connect(nodes.client()).await?,
        }
        let came = clock::since_boot();
        let locks = nodes.client().by_owner();
        let granted = saying_for_what(nodes, asked.key.as_bytes(), locks.take(take)).await?;
        Ok(granted.map(|granted| (came, granted)))
    };
    let taken: Result<_, Error> = tokio::select! {
        biased;
        signal = signals.end() => return Ok(End::Signal(signal)),
        taken = taking => taken,
    };
    let (came, granted) = match taken {
        Ok(Some(granted)) => granted,
        refused => {
            let over = patience.over(began);
            let failure = match refused {
                Err(error) => failed(nodes, asked.key.as_os_str(), error),
                Ok(_) => self::refused(nodes, acquire, over).await,
            };
            if let Some(over) = over {
                nodes.given_back_by(over).await;
            }
            return Err(failure);
        }
    };
    let Granted { token, waited, number } = granted;
    let permit = asked.limit.map(|_| number);
    let waited_ms = Some(waited.as_millis() as u64);
    let valid_ms = Some(lease_left_ms(came + waited, asked.ttl));
    let said =
        GrantOutput { token: Some(token), permit, waited_ms, valid_ms, ..GrantOutput::of(&asked.key, &acquire.owner) };
    print(as_json, &said, || taken_line(token, permit))?;
    Ok(End::OK)
}

/// Runs `palisade release KEY --owner NAME`.
///
/// # Errors
/// This owner does not hold the lock, or too few nodes answered.
pub async fn release(nodes: &Nodes, owner: &Owner, as_json: bool) -> Result<End, Failure> {
    // Releases all holds: a caller that re-entered the lock through an agent has ended, too.
    let level = Some(1);
    let released = async {
        connect(nodes.client()).await?;
        let locks = nodes.client().by_owner();
        locks.release(owner.key.as_bytes(), owner.owner.as_bytes(), level, None).await
    };
    let released = released.await.map_err(|error| failed(nodes, &owner.key, error))?;
    released.ok_or_else(|| not_held(owner))?;
    if as_json {
        json(&GrantOutput::of(&owner.key, &owner.owner))?;
    }
    Ok(End::OK)
}

/// Runs `palisade extend KEY --owner NAME --ttl TIME`.
///
/// # Errors
/// This owner does not hold the lock, or too few nodes extended it.
pub async fn extend(nodes: &Nodes, extend: &Extend, as_json: bool) -> Result<End, Failure> {
    let owner = &extend.owner;
    let came = clock::since_boot();
    let extended = async {
        connect(nodes.client()).await?;
        let locks = nodes.client().by_owner();
        locks.extend(owner.key.as_bytes(), owner.owner.as_bytes(), extend.ttl, None).await
    };
    let extended = extended.await.map_err(|error| failed(nodes, &owner.key, error))?;
    let token = extended.ok_or_else(|| not_held(owner))?;
    let valid_ms = Some(lease_left_ms(came, extend.ttl));
    let said = GrantOutput { token: Some(token), valid_ms, ..GrantOutput::of(&owner.key, &owner.owner) };
    print(as_json, &said, || taken_line(token, None))?;
    Ok(End::OK)
}

/// Returns the note, with the holder id if the script has set one. Without one none is added, because this process ends
/// at once.
fn note(asked: &TakeArgs) -> Vec<u8> {
    let note = asked.note.clone().unwrap_or_else(note_of_caller);
    match HolderId::given() {
        Some(holder) => holder.beside(note.as_bytes()),
        None => note.into_bytes(),
    }
}

fn wanted(asked: &TakeArgs, number: Option<u16>) -> Result<Wanted, Failure> {
    match asked.limit {
        Some(limit) if number.is_some_and(|number| number > limit) => {
            Err(Failure::usage(format!("--permit must be from 1 to --limit {limit}")))
        }
        // With a limit of one, the permit is an exclusive lock.
        None | Some(1) if !asked.shared => Ok(Wanted::Exclusive),
        Some(limit) => Ok(Wanted::Permit { limit, number }),
        None => Ok(Wanted::Shared),
    }
}

/// Returns the milliseconds for which a lease granted at `granted` is still valid.
fn lease_left_ms(granted: Duration, ttl: Duration) -> u64 {
    (granted + reliable(ttl)).saturating_sub(clock::since_boot()).as_millis() as u64
}

/// Returns the failure when another owner has the lock. Asks the nodes for the holder, at most until `over`.
async fn refused(nodes: &Nodes, acquire: &Acquire, over: Option<Instant>) -> Failure {
    // If a node does not answer in time, it is unknown whether others hold the lock or wait for it.
    let others = || Some("held or wanted by others".to_owned());
    let holder = seen_holder(nodes, acquire.asked.key.as_bytes(), over).await.unwrap_or_else(others);
    match acquire.wait {
        Some(limit) => not_in_time(&acquire.asked, limit, holder),
        None => conflict(&acquire.asked, holder),
    }
}

fn failed(nodes: &Nodes, key: &OsStr, error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Owned => {
            let key = printable(key.as_bytes());
            Failure::new(USAGE, format!("this owner holds {key} already: say --retry if this may repeat a request"))
        }
        _ => nodes.failed(error).about(key.as_bytes()),
    }
}

fn not_held(owner: &Owner) -> Failure {
    let (key, owner) = (printable(owner.key.as_bytes()), printable(owner.owner.as_bytes()));
    Failure::new(LOST, format!("{owner} does not hold {key}: it was given back before, or its lease has ended"))
}

/// Returns the default note, which names the parent process, because this one ends at once.
fn note_of_caller() -> String {
    let caller = Pid::parent();
    let name = fs::read(format!("/proc/{caller}/comm")).unwrap_or_default();
    note_of(caller, &OsString::from_vec(name.trim_ascii_end().to_vec()))
}
