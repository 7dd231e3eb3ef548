//! The state file: read when the module is loaded, written by a thread of its own from then on.
//!
//! The event loop hands a state over and goes on; what is on the disk it learns from two numbers. It waits for a write
//! only at the end of a start, before anything is granted, at a shutdown, and where an operator's command ends what a
//! later life would believe. A file is replaced as a whole: written beside, synced, renamed, and the folder synced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use palisade_core::{FileId, NodeState, Unreadable};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::aof_folder::AofFolder;
use crate::ffi::warn;
use crate::file_id::file_id;

/// How long the thread waits before it tries a failed write again.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Writes the state file.
pub struct Keeper {
    shared: Arc<Shared>,
    /// A record lock on it keeps a second server away for as long as this process lives. It is on a file of its own,
    /// because the state file itself is replaced. Forked children do not have it.
    _lock: Option<File>,
}

/// What the event loop and the thread share.
struct Shared {
    path: PathBuf,
    wanted: Mutex<Wanted>,
    wake: Condvar,
    /// Held while a file is being written: the number of the state written last.
    written: Mutex<u64>,
    saved: AtomicU64,
    ceiling: AtomicU64,
    failure: Mutex<Option<String>>,
}

/// The state to be on the disk.
struct Wanted {
    number: u64,
    state: Option<Stated>,
    closed: bool,
}

/// What a life says of itself, but for what only shows when that is written: which file it is written to, and how far the AOF
/// has got.
#[derive(Clone, Debug)]
pub struct Stated {
    /// All else.
    pub state: NodeState,
    /// The AOF that everything granted in this life is in.
    pub aof: Option<AofFolder>,
}

/// A state file as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// What it says.
    pub state: NodeState,
    /// Which file it is.
    pub file: FileId,
}

impl Keeper {
    /// Locks and reads the state file at `path`. What is damaged is as good as absent: nothing is proved.
    pub fn open(path: PathBuf) -> Result<(Self, Option<Read>), String> {
        let lock = lock(&path)?;
        let last = read(&path)?;
        let shared = Arc::new(Shared {
            path,
            wanted: Mutex::new(Wanted { number: 0, state: None, closed: false }),
            wake: Condvar::new(),
            written: Mutex::new(0),
            saved: AtomicU64::new(0),
            ceiling: AtomicU64::new(last.as_ref().map_or(0, |last| last.state.ceiling)),
            failure: Mutex::new(None),
        });
        let thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("lock-state".to_owned())
            .spawn(move || thread.keep())
            .map_err(|error| format!("no thread can be had for the state file: {error}"))?;
        Ok((Self { shared, _lock: lock }, last))
    }

    /// Has `state` written; the number tells when it is: see [`Keeper::saved`].
    pub fn save(&self, state: Stated) -> u64 {
        let mut wanted = relock(&self.shared.wanted);
        if !wanted.closed {
            wanted.number += 1;
            wanted.state = Some(state);
            self.shared.wake.notify_one();
        }
        wanted.number
    }

    /// Writes `state` and waits for the disk; if that fails the thread goes on trying.
    pub fn save_now(&self, state: Stated) -> u64 {
        let number = self.save(state.clone());
        self.shared.write(number, &state);
        number
    }

    /// Writes `state` and waits for the disk; nothing is written after it.
    pub fn close(&self, state: Stated) {
        let number = self.save(state.clone());
        relock(&self.shared.wanted).closed = true;
        self.shared.write(number, &state);
        self.shared.wake.notify_one();
    }

    /// The number of the newest state that is on the disk.
    pub fn saved(&self) -> u64 {
        self.shared.saved.load(Ordering::Acquire)
    }

    /// The ceiling that is on the disk.
    pub fn ceiling(&self) -> u64 {
        self.shared.ceiling.load(Ordering::Acquire)
    }

    /// Why the last write failed, if it did.
    pub fn failure(&self) -> Option<String> {
        relock(&self.shared.failure).clone()
    }
}

impl Shared {
    /// The thread: writes whatever is wanted and not yet written.
    fn keep(&self) {
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

    /// Writes state number `number`, unless a newer one is on the disk already.
    fn write(&self, number: u64, stated: &Stated) -> bool {
        let mut written = relock(&self.written);
        if number <= *written {
            return true;
        }
        let mut state = stated.state.clone();
        state.aof = stated.aof.as_ref().and_then(AofFolder::current);
        let result = replace_file(&self.path, |file| {
            state.file = Some(file);
            state.to_text()
        });
        *relock(&self.failure) = result.as_ref().err().map(ToString::to_string);
        if result.is_ok() {
            *written = number;
            self.ceiling.store(state.ceiling, Ordering::Release);
            self.saved.store(number, Ordering::Release);
        }
        result.is_ok()
    }
}

/// The lock of a mutex; nothing that is done under one can be left half done.
fn relock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Takes the record lock that keeps other servers away from the state file at `path`.
fn lock(path: &Path) -> Result<Option<File>, String> {
    let beside = beside(path, ".lock");
    let file = match OpenOptions::new().create(true).truncate(false).write(true).open(&beside) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            // No state can be written there either, by nobody, and nothing will be granted for long.
            warn(&format!("the lock file {} cannot be made: {error}", beside.display()));
            return Ok(None);
        }
        Err(error) => {
            return Err(format!(
                "the lock file {} cannot be made, so another server could use the same state: {error}. See to the folder \
                 and its permissions",
                beside.display()
            ));
        }
    };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::ACCESS | Errno::AGAIN) => Err(format!(
            "another server uses the state file {}: two nodes must not pass for one. Give this one a lock.state-file, a \
             port or a dir of its own",
            path.display()
        )),
        Err(error) => Err(format!("the lock file {} cannot be locked: {error}", beside.display())),
    }
}

/// The state in the file at `path`, if there is one. What is damaged is as good as absent and kept aside; a file that is
/// there and cannot be read is not to be replaced.
fn read(path: &Path) -> Result<Option<Read>, String> {
    let read = || -> io::Result<(Vec<u8>, FileId)> {
        let mut file = File::open(path)?;
        let mut bytes = vec![];
        file.read_to_end(&mut bytes)?;
        Ok((bytes, file_id(&file.metadata()?)))
    };
    let (bytes, file) = match read() {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(format!(
                "the state file {} cannot be read: {error}. See to its permissions; if it is lost, move it away, and the \
                 node starts as a new one",
                path.display()
            ));
        }
    };
    let (why, suffix) = match NodeState::from_text(&String::from_utf8_lossy(&bytes)) {
        Ok(state) => return Ok(Some(Read { state, file })),
        Err(Unreadable::Damaged) => ("is damaged".to_owned(), ".damaged"),
        Err(Unreadable::Version(version)) => {
            (format!("is of version {version}, which this module does not know"), ".other-version")
        }
    };
    let aside = beside(path, suffix);
    let kept = match fs::rename(path, &aside) {
        Ok(()) => format!("kept as {}", aside.display()),
        Err(error) => format!("not kept aside: {error}"),
    };
    warn(&format!("the state file {} {why}. It is treated as absent, and {kept}", path.display()));
    Ok(None)
}

/// Replaces the file at `path`, as a whole, by one with the text that `text` makes once it knows which file that is, and waits
/// until it is on the disk.
pub fn replace_file(path: &Path, text: impl FnOnce(FileId) -> String) -> io::Result<()> {
    let new = beside(path, ".new");
    let mut file = File::create(&new)?;
    let text = text(file_id(&file.metadata()?));
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_core::record::BootId;

    fn state(ceiling: u64) -> Stated {
        Stated { state: NodeState { ceiling, ..NodeState::new(1, BootId([0; 16])) }, aof: None }
    }

    #[test]
    fn what_was_saved_is_read_by_the_next_life() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let (keeper, last) = Keeper::open(path.clone()).unwrap();
        assert_eq!((last, keeper.saved(), keeper.ceiling()), (None, 0, 0));
        let number = keeper.save_now(state(5));
        assert_eq!((keeper.saved(), keeper.ceiling()), (number, 5));
        let number = keeper.save(state(6));
        while keeper.saved() < number {
            std::thread::yield_now();
        }
        keeper.close(state(7));
        keeper.save(state(8));
        let last = read(&path).unwrap().unwrap();
        assert_eq!(last.state.ceiling, 7, "nothing is written after the end");
        assert!(!last.state.is_copy(Some(last.file)));
        fs::copy(&path, dir.path().join("copy")).unwrap();
        let copy = read(&dir.path().join("copy")).unwrap().unwrap();
        assert!(copy.state.is_copy(Some(copy.file)));
    }

    #[test]
    fn a_write_that_fails_is_tried_again_until_it_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("absent");
        let shared = Shared {
            path: folder.join("state"),
            wanted: Mutex::new(Wanted { number: 0, state: None, closed: false }),
            wake: Condvar::new(),
            written: Mutex::new(0),
            saved: AtomicU64::new(0),
            ceiling: AtomicU64::new(3),
            failure: Mutex::new(None),
        };
        let keeper = Keeper { shared: Arc::new(shared), _lock: None };
        let thread = Arc::clone(&keeper.shared);
        let thread = std::thread::spawn(move || thread.keep());
        let number = keeper.save(state(9));
        while keeper.failure().is_none() {
            std::thread::yield_now();
        }
        assert_eq!((keeper.saved(), keeper.ceiling()), (0, 3));
        fs::create_dir(&folder).unwrap();
        while keeper.saved() < number {
            std::thread::yield_now();
        }
        assert_eq!((keeper.ceiling(), keeper.failure()), (9, None));
        keeper.close(state(9));
        thread.join().unwrap();
    }
}
