//! The state file on the disk: found, locked, read and replaced.
//!
//! Two record locks (`fcntl`) keep a second server away while this process lives; forked children do not inherit them.
//! The first is on `….lock`, which is never replaced. The second is on the state file itself, and is taken anew at each
//! write. A write replaces the file as a whole: it is written under another name, synced and renamed, and the folder is
//! synced. If someone removes one of the two files, a second server still finds the other one locked.
//!
//! Foreign files are never moved or overwritten. That holds for a device or another file that was configured as a state
//! file, and for a file whose name is needed for one of the module's files.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use palisade_core::limits::TOKEN_STRIPES;
use palisade_core::{FileId, NodeState, Unreadable};
use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;

use super::file_id::file_id;
use crate::ffi::warn;

/// The bytes with which every state file begins.
const BEGINNING: &[u8] = b"palisade-node ";

/// The bytes with which every file begins that the module writes and replaces as a whole.
const ANY_BEGINNING: &[u8] = b"palisade-";

/// The most bytes that are read of a file. A state file has fewer, also with a ceiling for each stripe of tokens.
const READ_BYTES_MAX: u64 = 64 * TOKEN_STRIPES as u64;

/// The most symbolic links that are followed in a row, the same number as in Linux.
const LINKS_MAX: usize = 40;

/// The most names that are tried for a new file beside the state file.
const NAMES_MAX: usize = 100;

/// The state file of this process, and its locks.
#[derive(Debug)]
pub struct StateFile {
    /// The path of the file, with symbolic links resolved.
    path: PathBuf,
    /// The `….lock` file, locked; `None` if it could not be created yet.
    lock: Option<File>,
    /// True if the `….lock` file was removed or replaced, and nothing was written since. Another server may have used
    /// the state file meanwhile.
    lock_was_lost: bool,
    /// The file that was last read or written, locked.
    file: Option<File>,
}

/// A state file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The state in the file.
    pub state: NodeState,
    /// The identity of the file from which the state was read.
    pub file: FileId,
}

/// The reason why the state was not written.
#[derive(Debug)]
pub enum Failure {
    /// The disk failed, or the file at the path cannot be used.
    Disk(String),
    /// Another server now has the state file, so this node may no longer use the id in it.
    Taken(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Disk(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Disk(why) | Self::Taken(why)) = self;
        f.write_str(why)
    }
}

impl StateFile {
    /// Locks and reads the state file at `path`. A damaged file counts as absent, and then nothing is proved.
    pub fn open(path: &Path) -> Result<(Self, Option<Read>), String> {
        let path = without_links(path)?;
        let lock = lock(&path).map_err(|failure| failure.to_string())?;
        let mut file = Self { path, lock, lock_was_lost: false, file: None };
        let last = file.read()?;
        Ok((file, last))
    }

    /// Reads the state in the file, if there is one. A damaged file counts as absent and is kept aside. A file that
    /// cannot be read, or is not the module's, must not be replaced.
    fn read(&mut self) -> Result<Option<Read>, String> {
        let path = &self.path;
        let told = path.display();
        let unreadable = |error: io::Error| {
            format!(
                "the state file {told} cannot be read: {error}. See to its permissions; if it is lost, move it away, and the \
                 node starts as a new one"
            )
        };
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => {}
            Ok(found) => return Err(not_a_file(path, &found)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        }
        let file = open_carefully(OpenOptions::new().read(true), path).map_err(unreadable)?;
        if fcntl_lock(&file, FlockOperation::NonBlockingLockShared).is_err_and(is_locked) {
            return Err(taken(path));
        }
        let mut bytes = Vec::new();
        (&file).take(READ_BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
        if !is_ours(&bytes, BEGINNING) {
            return Err(not_ours(path));
        }
        let (why, suffix) = match NodeState::from_text(&String::from_utf8_lossy(&bytes)) {
            Ok(state) => {
                let id = file_id(&file.metadata().map_err(unreadable)?);
                self.file = Some(file);
                return Ok(Some(Read { state, file: id }));
            }
            Err(Unreadable::Damaged) => ("is damaged".to_owned(), ".damaged"),
            Err(Unreadable::Version(version)) => {
                (format!("is of version {version}, which this module does not know"), ".other-version")
            }
        };
        let kept = match move_aside(path, suffix) {
            Ok(aside) => format!("kept as {}", aside.display()),
            Err(error) => format!("not kept aside: {error}"),
        };
        warn(&format!("the state file {told} {why}. It is treated as absent, and {kept}"));
        Ok(None)
    }

    /// Replaces the file by one with the text that `text` returns for the new file's id. When this returns, the new
    /// file is on the disk.
    pub fn replace(&mut self, text: impl FnOnce(FileId) -> String) -> Result<(), Failure> {
        self.keep_lock()?;
        self.ensure_replaceable()?;
        let file = rename_new(&self.path, text)?;
        self.file = Some(file);
        self.lock_was_lost = false;
        Ok(sync_folder(&self.path)?)
    }

    /// Gives up the locks, so that another server may use the file.
    pub fn unlock(&mut self) {
        (self.lock, self.file) = (None, None);
    }

    /// Ensures that this process has the lock on the `….lock` file at the path: that file may have been removed or
    /// replaced.
    fn keep_lock(&mut self) -> Result<(), Failure> {
        let beside = beside(&self.path, ".lock");
        if self.lock.as_ref().is_some_and(|lock| is_same(lock, &beside)) {
            return Ok(());
        }
        self.lock_was_lost = true;
        self.lock = lock(&self.path)?;
        Ok(())
    }

    /// Refuses to replace a file that is not the module's, or that another server wrote while this process had no lock
    /// on it.
    fn ensure_replaceable(&self) -> Result<(), Failure> {
        if self.file.as_ref().is_some_and(|file| is_same(file, &self.path)) {
            return Ok(());
        }
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(found) if !found.is_file() => return Err(Failure::Disk(not_a_file(&self.path, &found))),
            Ok(_) if self.lock_was_lost => return Err(Failure::Taken(taken(&self.path))),
            Ok(_) => {}
        }
        if starts_as_ours(&self.path, BEGINNING)? { Ok(()) } else { Err(Failure::Disk(not_ours(&self.path))) }
    }
}

/// Replaces the file at `path`, as a whole, by one with the text that `text` returns for the new file's id, and waits
/// until it is on the disk.
pub fn replace_file(path: &Path, text: impl FnOnce(FileId) -> String) -> io::Result<()> {
    rename_new(path, text)?;
    sync_folder(path)
}

/// Writes the new file, and renames it to `path`. Returns the file, locked.
fn rename_new(path: &Path, text: impl FnOnce(FileId) -> String) -> io::Result<File> {
    let (new, mut file) = beside_to_write(path)?;
    let write = || {
        let text = text(file_id(&file.metadata()?));
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    if let Err(error) = write() {
        // If this fails too, the file that stays only takes space.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    Ok(file)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

/// Returns `path` as an absolute path whose last part is not a link, so that a file renamed over it stays where the
/// link points. A path whose folder cannot be found is returned unchanged: the error when the lock file is created in
/// it explains more.
fn without_links(path: &Path) -> Result<PathBuf, String> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = folder(&path).join(target),
            Err(_) => {
                let name = path.file_name().ok_or_else(|| format!("{} is no name for a state file", path.display()))?;
                return Ok(folder(&path).canonicalize().map_or_else(|_| path.clone(), |folder| folder.join(name)));
            }
        }
    }
    Err(format!("the state file {} is a link that leads in a circle", path.display()))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Iterates over names for files beside `path`: with `suffix`, then with `suffix` and a number.
fn names_beside(path: &Path, suffix: &str) -> impl Iterator<Item = PathBuf> {
    let numbered = (2..=NAMES_MAX).map(move |n| beside(path, &format!("{suffix}-{n}")));
    std::iter::once(beside(path, suffix)).chain(numbered)
}

fn no_name(path: &Path, suffix: &str) -> io::Error {
    io::Error::other(format!("every name like {} is taken: move those files away", beside(path, suffix).display()))
}

/// Opens a file with `options`. It follows no symbolic link, and does not wait for the other end of a pipe.
fn open_carefully(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    let found = file.metadata()?;
    if found.is_file() { Ok(file) } else { Err(io::Error::other(kind(&found))) }
}

/// Takes the lock on the `….lock` file, which keeps other servers away from the state file at `path`. `None` if that
/// file cannot be created.
fn lock(path: &Path) -> Result<Option<File>, Failure> {
    let beside = beside(path, ".lock");
    let file = match open_carefully(OpenOptions::new().create(true).truncate(false).write(true), &beside) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => {
            // No process can write a state there either, so grants will soon stop.
            warn(&format!("the lock file {} cannot be made: {error}", beside.display()));
            return Ok(None);
        }
        Err(error) => {
            return Err(Failure::Disk(format!(
                "the lock file {} cannot be made, so another server could use the same state: {error}. See to the folder \
                 and its permissions",
                beside.display()
            )));
        }
    };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(error) if is_locked(error) => Err(Failure::Taken(taken(path))),
        Err(error) => Err(Failure::Disk(format!("the lock file {} cannot be locked: {error}", beside.display()))),
    }
}

fn is_locked(error: Errno) -> bool {
    matches!(error, Errno::ACCESS | Errno::AGAIN)
}

/// Returns whether `file`, which is open, is the one that is at `path` now.
fn is_same(file: &File, path: &Path) -> bool {
    let id = |found: Metadata| (found.dev(), found.ino());
    file.metadata().is_ok_and(|held| fs::symlink_metadata(path).is_ok_and(|found| id(held) == id(found)))
}

/// Returns whether these are the bytes of a file that begins with `beginning`. A file that a crash of the file system
/// damaged counts too.
fn is_ours(bytes: &[u8], beginning: &[u8]) -> bool {
    bytes.starts_with(beginning) || beginning.starts_with(bytes) || bytes.iter().all(|&byte| byte == 0)
}

/// Returns whether the file at `path` begins with `beginning`. This process must not have it open, because closing it
/// would give up the lock.
fn starts_as_ours(path: &Path, beginning: &[u8]) -> io::Result<bool> {
    let mut bytes = Vec::new();
    open_carefully(OpenOptions::new().read(true), path)?.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(is_ours(&bytes, beginning))
}

/// Creates a new file beside the one at `path`, and locks it. Half-written files of earlier incarnations are removed;
/// foreign files stay.
fn beside_to_write(path: &Path) -> io::Result<(PathBuf, File)> {
    for name in names_beside(path, ".new") {
        if fs::symlink_metadata(&name).is_ok_and(|found| found.is_file()) && starts_as_ours(&name, ANY_BEGINNING)? {
            fs::remove_file(&name)?;
        }
        match OpenOptions::new().create_new(true).write(true).open(&name) {
            Ok(file) => {
                // The new file is locked before it becomes the state file. If the file system has no locks, the
                // `….lock` file is not locked either.
                let _ = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
                return Ok((name, file));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(no_name(path, ".new"))
}

/// Moves the file at `path` to a free name beside it, which begins with `suffix`.
fn move_aside(path: &Path, suffix: &str) -> io::Result<PathBuf> {
    let is_free = |name: &PathBuf| fs::symlink_metadata(name).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let aside = names_beside(path, suffix).find(is_free).ok_or_else(|| no_name(path, suffix))?;
    fs::rename(path, &aside).map(|()| aside)
}

fn kind(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    if kind.is_dir() {
        "it is a folder"
    } else if kind.is_fifo() {
        "it is a pipe"
    } else if kind.is_socket() {
        "it is a socket"
    } else if kind.is_symlink() {
        "it is a link"
    } else {
        "it is a device"
    }
}

fn not_a_file(path: &Path, found: &Metadata) -> String {
    format!(
        "the state file {} cannot be used, {}: give lock.state-file the path of a file of its own, or \"\" for none",
        path.display(),
        kind(found)
    )
}

fn not_ours(path: &Path) -> String {
    format!(
        "{} is not a state file of this module: it is left as it is. Give lock.state-file the path of a file of its own, \
         or move this one away",
        path.display()
    )
}

fn taken(path: &Path) -> String {
    format!(
        "another server uses the state file {}: two nodes must not pass for one. Give this one a lock.state-file, a port or \
         a dir of its own",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_core::BootId;

    #[test]
    fn what_is_written_is_known_as_ours_whatever_is_left_of_it() {
        let state = NodeState::new(1, BootId([0; 16]));
        let text = state.to_text().into_bytes();
        for len in 0..=text.len() {
            assert!(is_ours(&text[..len], BEGINNING), "{len}");
        }
        assert!(is_ours(&[0; 4_096], BEGINNING), "zeros, as some file systems leave after a power cut");
        for foreign in [&b"palisade-nodes\n"[..], b"p4", b"\0\0x", b"root:x:0:0", b"Palisade-node 1\n"] {
            assert!(!is_ours(foreign, BEGINNING), "{foreign:?}");
        }
    }

    #[test]
    fn names_beside_are_chosen_among_free_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        fs::write(beside(&path, ".new"), "somebody's").unwrap();
        fs::write(beside(&path, ".new-2"), "palisade-no").unwrap();
        let (name, _) = beside_to_write(&path).unwrap();
        assert_eq!(name, beside(&path, ".new-2"), "what was left half written is replaced");
        assert_eq!(fs::read_to_string(beside(&path, ".new")).unwrap(), "somebody's");
        for n in 2..=NAMES_MAX {
            fs::write(beside(&path, &format!(".new-{n}")), "somebody's").unwrap();
        }
        assert!(beside_to_write(&path).unwrap_err().to_string().contains("taken"));
    }
}
