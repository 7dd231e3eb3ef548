//! The identity of a holder: the holder id of this process and of the commands that it runs, and the note for people.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use nix::unistd::{Pid, gethostname};
use palisade_client::direct::holder_id::{self, HOLDER_ID_BYTES_MAX};

/// The variable by which `palisade exec` passes its holder id to the command, and in which a script can set one itself.
pub const VARIABLE: &str = "PALISADE_HOLDER";

/// The longest note that the nodes allow, in bytes.
const NOTE_BYTES: usize = 1024;

/// The bytes that have to stay free in a note for the longest id.
const TOLD_BYTES_MAX: usize = HOLDER_ID_BYTES_MAX + " [holder=]".len();

/// The most characters of this machine's name in a new id.
const HOST_CHARS: usize = 32;

/// A holder id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderId(String);

impl HolderId {
    /// Returns the id given to this process; `None` if there is none or it is invalid.
    pub fn given() -> Option<Self> {
        std::env::var(VARIABLE).ok().filter(|id| holder_id::is_one(id)).map(Self)
    }

    /// Returns the given id, or a new one from host, process id, and some random digits, since process ids repeat.
    pub fn of_process() -> Self {
        Self::given().unwrap_or_else(|| {
            let host = gethostname().map_or(String::new(), |host| host.to_string_lossy().into_owned());
            let allowed = host.chars().filter(|c| holder_id::is_one(c.encode_utf8(&mut [0; 4])));
            let host: String = allowed.take(HOST_CHARS).collect();
            Self(format!("{host}/{}/{:08x}", Pid::this(), rand::random::<u32>()))
        })
    }

    /// Returns this id, if the note has room for it.
    pub fn id_beside(&self, note: &str) -> Option<String> {
        (holder_id::noted(note.as_bytes(), &self.0).len() <= NOTE_BYTES).then(|| self.0.clone())
    }

    /// Returns the note with this id added, if it has room for the id.
    pub fn beside(&self, note: &[u8]) -> Vec<u8> {
        let noted = holder_id::noted(note, &self.0);
        if noted.len() <= NOTE_BYTES { noted } else { note.to_vec() }
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the default note: host, process, program. The arguments are left out, because they may contain a password,
/// and everybody who can reach the nodes can read the note.
pub fn note(program: &OsStr) -> String {
    note_of(Pid::this(), program)
}

/// Returns the default note for a lock held by another process.
pub fn note_of(process: Pid, program: &OsStr) -> String {
    let host = gethostname().map_or("unknown host".into(), |host| host.to_string_lossy().into_owned());
    let program = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let note = format!("{host} pid {process}: {program}");
    note.chars()
        .scan(0, |bytes, c| {
            *bytes += c.len_utf8();
            (*bytes <= NOTE_BYTES - TOLD_BYTES_MAX).then_some(c)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_and_has_room() {
        let id = HolderId::of_process();
        assert!(holder_id::is_one(&id.0), "{id}");
        assert_eq!(holder_id::of(&id.beside(b"note")), (&b"note"[..], Some(id.0.as_str())));
        let long = "n".repeat(NOTE_BYTES);
        assert_eq!((id.id_beside(&long), id.beside(long.as_bytes())), (None, long.into_bytes()));
        assert!(id.id_beside(&"n".repeat(NOTE_BYTES - TOLD_BYTES_MAX)).is_some());
    }
}
