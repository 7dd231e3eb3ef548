//! Keeps the state file up to date. It is read when the module is loaded, then written by a thread of its own.
//!
//! The event loop hands a state with a number to the thread, and goes on. The number of the newest state on the disk
//! shows when it is written. The event loop waits for a write only at the end of a start, when nothing has been granted
//! yet, at a shutdown, and for commands of operators that make the file untrue.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use palisade_core::NodeState;

use super::aof_folder::AofFolder;
use super::state_file::{Failure, Read, StateFile};

/// The pause before a failed write is repeated.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Hands states to the thread that writes the state file.
pub struct StateWriter {
    shared: Arc<Shared>,
}

/// The data that the event loop and the writing thread share.
struct Shared {
    wanted: Mutex<Wanted>,
    wake: Condvar,
    /// The state that is on the disk. It is locked while a file is being written.
    written: Mutex<Written>,
    saved: AtomicU64,
    ceiling: AtomicU64,
    failure: Mutex<Option<String>>,
    taken: AtomicBool,
}

/// The state that should be on the disk, if the thread has not written it yet.
struct Wanted {
    number: u64,
    state: Option<Stated>,
    closed: bool,
}

/// The state file, and the number of the newest state in it.
struct Written {
    number: u64,
    file: StateFile,
}

/// An incarnation's state to write. It lacks what is known only at the time of writing: the file's identity, and the
/// length of the AOF.
#[derive(Clone, Debug)]
pub struct Stated {
    /// The state, without what is known only at the time of writing.
    pub state: NodeState,
    /// The AOF, if it contains every grant of this incarnation.
    pub aof: Option<AofFolder>,
}

impl StateWriter {
    /// Locks and reads the state file at `path`, and starts the thread. A damaged file counts as absent, and then
    /// nothing is proved.
    pub fn open(path: PathBuf) -> Result<(Self, Option<Read>), String> {
        let (file, last) = StateFile::open(&path)?;
        let shared = Arc::new(Shared {
            wanted: Mutex::new(Wanted { number: 0, state: None, closed: false }),
            wake: Condvar::new(),
            written: Mutex::new(Written { number: 0, file }),
            saved: AtomicU64::new(0),
            ceiling: AtomicU64::new(last.as_ref().map_or(0, |last| last.state.ceiling)),
            failure: Mutex::new(None),
            taken: AtomicBool::new(false),
        });
        let thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("lock-state".to_owned())
            .spawn(move || thread.write_whatever_is_wanted())
            .map_err(|error| format!("no thread can be had for the state file: {error}"))?;
        Ok((Self { shared }, last))
    }

    /// Requests that `state` is written, in place of a state that is not written yet. Once it is written,
    /// [`StateWriter::saved`] returns `number` or more.
    pub fn save(&self, number: u64, state: Stated) {
        let mut wanted = relock(&self.shared.wanted);
        if !wanted.closed {
            wanted.number = number;
            wanted.state = Some(state);
            self.shared.wake.notify_one();
        }
    }

    /// Writes `state`, and waits for the disk. If that fails, the thread tries again.
    pub fn save_now(&self, number: u64, state: Stated) {
        self.save(number, state.clone());
        self.shared.write(number, &state);
    }

    /// Writes `state`, and waits for the disk. Nothing is written after it.
    pub fn close(&self, number: u64, state: Stated) {
        self.save(number, state.clone());
        relock(&self.shared.wanted).closed = true;
        self.shared.write(number, &state);
        self.shared.wake.notify_one();
    }

    /// Returns the number of the newest state that is on the disk.
    pub fn saved(&self) -> u64 {
        self.shared.saved.load(Ordering::Acquire)
    }

    /// Returns the ceiling that is on the disk.
    pub fn ceiling(&self) -> u64 {
        self.shared.ceiling.load(Ordering::Acquire)
    }

    /// Returns why the last write failed, if it did.
    pub fn failure(&self) -> Option<String> {
        relock(&self.shared.failure).clone()
    }

    /// Returns whether another server has taken the state file. Then this node may promise nothing under its name.
    pub fn is_taken(&self) -> bool {
        self.shared.taken.load(Ordering::Acquire)
    }
}

/// Ends the thread, and gives up the locks on the files, which belong to the process. If a server unloads the module
/// and loads it anew, the next incarnation can take them.
impl Drop for StateWriter {
    fn drop(&mut self) {
        relock(&self.shared.wanted).closed = true;
        self.shared.wake.notify_one();
        relock(&self.shared.written).file.unlock();
    }
}

impl Shared {
    /// Writes each state that is wanted and not written yet; this is what the thread does.
    fn write_whatever_is_wanted(&self) {
        let mut wanted = relock(&self.wanted);
        loop {
            if wanted.closed {
                return;
            }
            let due = wanted.state.clone().filter(|_| wanted.number > self.saved.load(Ordering::Acquire));
            let Some(state) = due else {
                wanted = self.wake.wait(wanted).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let number = wanted.number;
            drop(wanted);
            let done = self.write(number, &state);
            wanted = relock(&self.wanted);
            if !done && !wanted.closed {
                wanted = self.wake.wait_timeout(wanted, TRY_AGAIN).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Writes the state with this number, unless a newer one is on the disk already. Returns whether it, or a newer
    /// one, is on the disk.
    fn write(&self, number: u64, stated: &Stated) -> bool {
        let mut written = relock(&self.written);
        if number <= written.number {
            return true;
        }
        let mut state = stated.state.clone();
        state.aof = stated.aof.as_ref().and_then(AofFolder::current);
        let result = written.file.replace(|file| {
            state.file = Some(file);
            state.to_text()
        });
        *relock(&self.failure) = result.as_ref().err().map(ToString::to_string);
        self.taken.store(matches!(result, Err(Failure::Taken(_))), Ordering::Release);
        if result.is_ok() {
            written.number = number;
            self.ceiling.store(state.ceiling, Ordering::Release);
            self.saved.store(number, Ordering::Release);
        }
        result.is_ok()
    }
}

/// Locks a mutex, even if a thread panicked while it had it: no change that is made under these mutexes can be left
/// half done.
fn relock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_core::limits::{TOKEN_LIMIT, TOKEN_STRIPES};
    use palisade_core::{BootId, StripeCeiling};
    use std::fs;

    fn state(ceiling: u64) -> Stated {
        Stated { state: NodeState { ceiling, ..NodeState::new(1, BootId([0; 16])) }, aof: None }
    }

    #[test]
    fn what_was_saved_is_read_by_the_next_incarnation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let (writer, last) = StateWriter::open(path.clone()).unwrap();
        assert_eq!((last, writer.saved(), writer.ceiling()), (None, 0, 0));
        writer.save_now(1, state(5));
        assert_eq!((writer.saved(), writer.ceiling()), (1, 5));
        writer.save(2, state(6));
        while writer.saved() < 2 {
            std::thread::yield_now();
        }
        writer.close(3, state(7));
        writer.save(4, state(8));
        drop(writer);
        let (writer, last) = StateWriter::open(path.clone()).unwrap();
        let last = last.unwrap();
        assert_eq!(last.state.ceiling, 7, "nothing is written after the end");
        assert!(!last.state.is_copy(Some(last.file)));
        drop(writer);
        fs::copy(&path, dir.path().join("copy")).unwrap();
        let copy = StateWriter::open(dir.path().join("copy")).unwrap().1.unwrap();
        assert!(copy.state.is_copy(Some(copy.file)));
    }

    /// Each stripe of tokens may have a ceiling of its own.
    #[test]
    fn the_largest_state_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let (writer, _) = StateWriter::open(path.clone()).unwrap();
        let mut largest = state(5);
        let ceilings = (0..TOKEN_STRIPES as u32).map(|stripe| StripeCeiling { stripe, ceiling: TOKEN_LIMIT - 1 });
        largest.state.stripes = ceilings.collect();
        writer.close(1, largest);
        let (_, last) = StateWriter::open(path).unwrap();
        assert_eq!(last.map(|last| last.state.stripes.len()), Some(TOKEN_STRIPES));
    }

    #[test]
    fn a_write_that_fails_is_tried_again_until_it_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, away) = (dir.path().join("folder"), dir.path().join("away"));
        fs::create_dir(&folder).unwrap();
        let (writer, _) = StateWriter::open(folder.join("state")).unwrap();
        writer.save_now(1, state(3));
        fs::rename(&folder, &away).unwrap();
        writer.save(2, state(9));
        while writer.failure().is_none() {
            std::thread::yield_now();
        }
        assert_eq!((writer.saved(), writer.ceiling()), (1, 3));
        fs::rename(&away, &folder).unwrap();
        while writer.saved() < 2 {
            std::thread::yield_now();
        }
        assert_eq!((writer.ceiling(), writer.failure()), (9, None));
        writer.close(3, state(9));
    }
}
