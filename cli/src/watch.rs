//! `palisade watch`: prints a line each time a lock changes hands.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use futures_util::stream::{SelectAll, StreamExt};
use palisade_client::Holder;
use serde::Serialize;

use crate::exit::{End, Failure, USAGE};
use crate::lock_view::{LockView, note_of};
use crate::nodes::Nodes;
use crate::show::{json_line, out, print_message, printable};
use crate::signals::Signals;
use crate::taking::{connect, too_few_grant};

/// The JSON output for programs; only the key if its lock is free.
#[derive(Serialize)]
struct WatchOutput {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ms: Option<u64>,
}

/// Prints the current state of each lock, and then each change, until a signal ends it.
///
/// # Errors
///
/// Too few nodes can be asked.
pub async fn run(nodes: &Nodes, keys: &[OsString], as_json: bool) -> Result<End, Failure> {
    let mut signals = Signals::listen()?;
    connect(nodes.client()).await.map_err(|error| nodes.failed(error))?;
    let mut changes = SelectAll::new();
    for key in keys {
        let key = key.as_bytes().to_vec();
        let of_nodes = nodes.of_client();
        let (_, replies) = LockView::ask(&of_nodes, &key).await;
        let waits_for = match of_nodes.need_majority(&replies) {
            Err(failure) if failure.code == USAGE => return Err(failure.about(&key)),
            Err(failure) => Some(failure.text),
            Ok(()) => too_few_grant(&of_nodes, &replies),
        };
        if let Some(text) = waits_for {
            print_message(&format!("waits for nodes: {text}"));
        }
        changes.push(nodes.client().watch(&key)?.map(move |holder| (key.clone(), holder)));
    }
    loop {
        let (key, holder) = tokio::select! {
            biased;
            signal = signals.end() => return Ok(End::Signal(signal)),
            change = changes.next() => match change {
                Some(change) => change,
                None => return Ok(End::OK),
            },
        };
        print_holder(&key, holder.as_ref(), as_json)?;
    }
}

fn print_holder(key: &[u8], holder: Option<&Holder>, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return json_line(&WatchOutput {
            key: String::from_utf8_lossy(key).into_owned(),
            token: holder.map(|holder| holder.token),
            note: holder.map(|holder| note_of(holder.note.as_bytes()).0),
            held_ms: holder.map(|holder| holder.held_for.as_millis() as u64),
        });
    }
    let key = printable(key);
    out(&match holder {
        None => format!("{key} -\n"),
        Some(Holder { token, note, .. }) => match note_of(note.as_bytes()).0 {
            note if note.is_empty() => format!("{key} {token}\n"),
            note => format!("{key} {token} {}\n", printable(note.as_bytes())),
        },
    })
}
