//! This incarnation of the node: its files, and when they are written.
//!
//! A restart must not lose three facts: the ceiling above which no token was issued, the guard, and whether the AOF is
//! complete. The node relies on such a fact only once it is on the disk. Until then promises are refused with NOTYET; a
//! write takes a few milliseconds. The event loop waits for a write only if an operator's action makes the file untrue
//! (the AOF's settings, the role, a flush of live locks, an armed guard). Promises of the same transaction may depend
//! on that action.

use std::cell::RefCell;

use palisade_core::Now;

use super::aof_folder::AofFolder;
use super::data_stamp::DataStamp;
use super::state_writer::{StateWriter, Stated};
use crate::ffi::{notice, warn};
use crate::{clock, state};

/// The files of this incarnation.
pub struct Incarnation {
    /// The writer of the state file; `None` if the node has none.
    pub state_writer: Option<StateWriter>,
    /// The stamp beside the data, which names the incarnation that uses it.
    pub stamp: DataStamp,
    /// The AOF, if it contains every grant of this incarnation.
    pub aof: Option<AofFolder>,
    /// True if the last write of the state file failed, and the log says so.
    pub failing: bool,
    /// True if the stamp could not be written, and the log says so.
    pub is_stamp_failing: bool,
}

thread_local! {
    static INCARNATION: RefCell<Option<Incarnation>> = const { RefCell::new(None) };
}

/// Drops what is left of an earlier load of the module that the server refused. It would keep the state file locked.
pub fn forget() {
    INCARNATION.take();
}

/// Sets the files that this incarnation uses.
pub fn begin(incarnation: Incarnation) {
    INCARNATION.set(Some(incarnation));
}

/// Calls `body` with this incarnation. `body` must not call functions of the server that call the module back.
pub fn with<T>(body: impl FnOnce(&mut Incarnation) -> T) -> T {
    INCARNATION
        .with_borrow_mut(|incarnation| body(incarnation.as_mut().expect("the module is loaded before it is called")))
}

/// Tells the node which of its states are on the disk by now.
pub fn read_written_states() {
    with(|incarnation| {
        if let Some(writer) = &incarnation.state_writer {
            state::with(|node| {
                node.on_written(writer.saved(), writer.ceiling());
                node.set_file_taken(writer.is_taken());
            });
        }
    });
}

/// Writes the stamp of this incarnation beside the data. Promises wait for it, so every tick tries again if that fails.
/// The log says once that it fails, and once that it works again.
pub fn put_stamp() {
    let id = state::with(|node| node.ledger().incarnation());
    let (result, was_failing) = with(|incarnation| {
        let result = incarnation.stamp.put(id);
        let was_failing = std::mem::replace(&mut incarnation.is_stamp_failing, result.is_err());
        (result, was_failing)
    });
    if result.is_ok() {
        state::with(|node| node.on_stamped());
    }
    match result {
        Err(why) if !was_failing => warn(&format!(
            "{why}. It says that another incarnation used the data here, and would be believed later: nothing is granted until \
             it can be replaced"
        )),
        Ok(()) if was_failing => notice("the stamp of another incarnation beside the data is gone: grants go on"),
        _ => {}
    }
}

/// Starts to write the node's state, without waiting for the disk.
pub fn save(now: Now) {
    give_to_writer(false, now, StateWriter::save);
}

/// Writes the state and waits for the disk, because the file is no longer true, and promises of the present command may
/// already depend on the new state. Only an operator's action causes this. If the disk fails, promises are refused
/// until it works.
pub fn save_at_once(now: Now) {
    give_to_writer(true, now, StateWriter::save_now);
    read_written_states();
}

/// Hands the node's state to `write`, if one has to be written now.
fn give_to_writer(is_needed: bool, now: Now, write: impl FnOnce(&StateWriter, u64, Stated)) {
    with(|incarnation| {
        if let Some((number, state)) = state::with(|node| node.state_to_write(is_needed, now))
            && let Some(writer) = &incarnation.state_writer
        {
            write(writer, number, Stated { state, aof: incarnation.aof.clone() });
        }
    });
}

/// Handles a fork of the server. If the child rewrites the AOF, the server continues with a new file, which the state
/// file should name.
pub fn on_fork() {
    if with(|incarnation| incarnation.aof.is_some()) {
        save(clock::now());
    }
}

/// Notes that from now on the AOF may lack grants, perhaps even those of the present transaction.
pub fn not_all_in_aof() {
    if with(|incarnation| incarnation.aof.take()).is_some() {
        save_at_once(clock::now());
    }
}

/// Logs once when the state file cannot be written, and once when it can again.
pub fn log_failures() {
    let failure = with(|incarnation| {
        let failure = incarnation.state_writer.as_ref().and_then(StateWriter::failure);
        let changed = failure.is_some() != incarnation.failing;
        incarnation.failing = failure.is_some();
        changed.then_some((failure, incarnation.state_writer.as_ref().is_some_and(StateWriter::is_taken)))
    });
    match failure {
        Some((Some(why), true)) => warn(&format!(
            "{why}. Its lock file was removed or replaced while this server ran. Nothing is promised here from now on \
             (NOTYET), releasing works: end one of the two, then restart the other"
        )),
        Some((Some(why), false)) => warn(&format!(
            "the state file cannot be written: {why}. Grants go on up to the ceiling that is on the disk, then they are \
             refused with NOTYET until it can be written again"
        )),
        Some((None, _)) => notice("the state file can be written again"),
        None => {}
    }
}

/// Writes to the server's log how long the node is guarded, and why.
pub fn log_guard(now: Now) {
    let armed = state::with(|node| Some((node.guard().armed(now.boot)?.cause, node.guard().left_ms(now.boot))));
    if let Some((cause, left_ms)) = armed {
        notice(&format!(
            "this node may have forgotten grants ({}) and grants nothing for {left_ms} ms: LOCK.GUARD LIFT ends that if \
             you know that nobody holds a lock here",
            cause.word()
        ));
    }
}
