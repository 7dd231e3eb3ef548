//! The stamp beside the server's data: the incarnation of the node that uses it.
//!
//! A state file says what an incarnation granted, and that all of it is in the data of the server's working folder. If
//! another incarnation used that data since (under another port, with another state file or none), the state file is
//! about data that no longer exists. So every incarnation puts its stamp into the folder before it grants anything. A
//! start trusts the state file only if the stamp that it finds is of the same incarnation.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use palisade_core::IncarnationId;

use super::state_file::replace_file;
use crate::ffi::warn;

/// The name of the stamp's file in the server's working folder.
const NAME: &str = "lock-data.life";

/// The path of the stamp in a folder with data.
#[derive(Debug)]
pub struct DataStamp(PathBuf);

impl DataStamp {
    /// Returns the path of the stamp in the server's working folder.
    pub fn here() -> Self {
        Self(std::path::absolute(NAME).unwrap_or_else(|_| NAME.into()))
    }

    /// Returns the incarnation that the stamp names, which used the data last; `None` if there is no readable stamp.
    pub fn read(&self) -> Option<IncarnationId> {
        parse(&fs::read_to_string(&self.0).ok()?)
    }

    /// Writes to the disk that the incarnation `id` uses the data from now on.
    ///
    /// # Errors
    /// The stamp of another incarnation is there and cannot be replaced: a later start could believe it.
    pub fn put(&self, id: IncarnationId) -> Result<(), String> {
        let Err(error) = replace_file(&self.0, |_| text(id)) else { return Ok(()) };
        let why = format!("{} cannot be written: {error}", self.0.display());
        // Removes the stamp instead. Without any stamp a later start trusts no incarnation.
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(why),
            _ => {
                warn(&format!("{why}. The next start will be guarded"));
                Ok(())
            }
        }
    }
}

fn text(IncarnationId { node, number }: IncarnationId) -> String {
    format!("palisade-data 1\nid {node:032x}\nincarnation {number}\n")
}

fn parse(text: &str) -> Option<IncarnationId> {
    let rest = text.strip_prefix("palisade-data 1\nid ")?.strip_suffix('\n')?;
    let (node, incarnation) = rest.split_once("\nincarnation ")?;
    Some(IncarnationId { node: u128::from_str_radix(node, 16).ok()?, number: incarnation.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_read_and_what_is_cut_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let stamp = DataStamp(dir.path().join(NAME));
        assert_eq!(stamp.read(), None);
        let id = IncarnationId { node: 7, number: 12 };
        stamp.put(id).unwrap();
        assert_eq!(stamp.read(), Some(id));
        let text = text(id);
        for len in 0..text.len() {
            assert_eq!(parse(&text[..len]), None, "{len} bytes");
        }
    }
}
