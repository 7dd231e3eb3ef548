//! `palisade lock` and `palisade try`: hold a lock until a user or a script is done.

use std::ffi::OsStr;
use std::io::{IsTerminal, stdin};
use std::os::unix::ffi::OsStrExt;

use nix::sys::stat::{fstat, stat};
use palisade_client::{Loss, Released};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::arguments::Take;
use crate::exit::{End, Failure};
use crate::holder::HolderId;
use crate::lock_view::hex;
use crate::losing;
use crate::nodes::Nodes;
use crate::show::{print, print_message, printable};
use crate::signals::Signals;
use crate::taking::{Held, Patience, Taken, give_back, take, taken_line};

/// The JSON output of `palisade lock` and `try`.
#[derive(Serialize)]
struct HoldOutput {
    key: String,
    token: u64,
    owner: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    permit: Option<u16>,
    valid_ms: u64,
}

/// Takes the lock and holds it.
///
/// # Errors
/// The lock was not granted, or was lost.
pub async fn run(nodes: &Nodes, options: &Take, patience: Patience, as_json: bool) -> Result<End, Failure> {
    let mut signals = Signals::listen()?;
    let (program, holder) = (OsStr::new("palisade lock"), HolderId::of_process());
    let held = match take(nodes, options, patience, program, &holder, &mut signals).await? {
        Taken::Held(held) => held,
        Taken::Interrupted(signal) => return Ok(End::Signal(signal)),
    };
    let said = print_held(&held, as_json);
    let guard = held.guard;
    let key = printable(options.asked.key.as_bytes());
    if stdin().is_terminal() {
        print_message(&format!("{key} is held; Enter gives it back"));
    }
    let end = tokio::select! {
        biased;
        loss = guard.lost() => Err(loss),
        signal = signals.end() => Ok(End::Signal(signal)),
        () = enter(), if said.is_ok() => Ok(End::OK),
    };
    let lost = |loss| losing::failure(options.asked.key.as_bytes(), &losing::reason(nodes, &loss, options.max_hold));
    let released = give_back(guard).await;
    match (said, end) {
        (Err(failure), _) => Err(failure),
        (_, Err(loss)) => Err(lost(loss)),
        _ if released == Released::AlreadyExpired => Err(lost(Loss::TakenAway(vec![]))),
        (_, Ok(end)) => Ok(end),
    }
}

fn print_held(Held { guard, permit }: &Held, as_json: bool) -> Result<(), Failure> {
    let said = HoldOutput {
        key: String::from_utf8_lossy(guard.key()).into_owned(),
        token: guard.token(),
        owner: hex(guard.owner()),
        permit: *permit,
        valid_ms: guard.valid_for().as_millis() as u64,
    };
    print(as_json, &said, || taken_line(guard.token(), *permit))
}

/// Waits for Enter, or for the end of the input, which comes when the process at its other end is gone. The input of a
/// script's background job is at its end from the start, so such a job holds the lock until a signal.
async fn enter() {
    let is_null = || Some(fstat(stdin()).ok()?.st_rdev == stat("/dev/null").ok()?.st_rdev);
    if is_null() == Some(true) {
        std::future::pending::<()>().await;
    }
    let mut line = vec![];
    let _ = BufReader::new(tokio::io::stdin()).read_until(b'\n', &mut line).await;
}
