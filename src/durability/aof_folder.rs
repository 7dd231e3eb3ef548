//! The files of the server's AOF, and their lengths.
//!
//! A node that was killed proves by its AOF that it remembers every grant. So its state file names the file to which
//! the AOF was written. If another AOF was put there later, the start notices it.

use std::fs;
use std::path::{Path, PathBuf};

use palisade_core::AofFile;

use super::file_id::file_id;
use crate::ffi::Context;

/// The folder of the server's AOF, with the manifest that lists its files (Redis from 7.0).
#[derive(Clone, Debug)]
pub struct AofFolder {
    folder: PathBuf,
    manifest: PathBuf,
}

impl AofFolder {
    /// Returns the folder of the AOF, in the server's working folder. `None` if the server does not reveal its
    /// configuration.
    pub fn of(ctx: Context<'_>) -> Option<Self> {
        let folder = std::env::current_dir().ok()?.join(ctx.parameter(c"appenddirname")?);
        let manifest = folder.join(format!("{}.manifest", ctx.parameter(c"appendfilename")?));
        Some(Self { folder, manifest })
    }

    /// Returns the files of the AOF in the order in which they are loaded. Empty if there is no AOF, or its manifest
    /// cannot be read.
    pub fn files(&self) -> Vec<AofFile> {
        let manifest = fs::read_to_string(&self.manifest).unwrap_or_default();
        manifest.lines().filter_map(listed).filter_map(|name| aof_file(&self.folder.join(name))).collect()
    }

    /// Returns the file of the AOF to which the server writes now.
    pub fn current(&self) -> Option<AofFile> {
        self.files().pop()
    }
}

/// Returns the name of the file in a line of the manifest such as `file appendonly.aof.1.incr.aof seq 1 type i`. `None`
/// for type `h` (history), which is not loaded, and for a name in quotes, with unusual characters: such an AOF proves
/// nothing.
fn listed(line: &str) -> Option<&str> {
    let mut words = line.split(' ');
    let (mut name, mut is_loaded) = (None, false);
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        match key {
            "file" => name = Some(value),
            "type" => is_loaded = matches!(value, "b" | "i"),
            _ => {}
        }
    }
    name.filter(|name| is_loaded && !name.starts_with('"'))
}

fn aof_file(path: &Path) -> Option<AofFile> {
    let metadata = fs::metadata(path).ok()?;
    Some(AofFile { id: file_id(&metadata), bytes: metadata.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_manifest_lists_is_there_and_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let aof = AofFolder { folder: dir.path().to_owned(), manifest: dir.path().join("manifest") };
        assert_eq!(aof.files(), []);
        for (name, text) in [("base", "12"), ("old", "123"), ("new", "1234"), ("\"odd\"", "12345")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let lines = "file base seq 1 type b\nfile gone seq 1 type i\nfile old seq 1 type h\n\
                     file new seq 2 type i startoffset 7\nfile \"odd\" seq 3 type i\nnonsense\n";
        fs::write(&aof.manifest, lines).unwrap();
        assert_eq!(aof.files().iter().map(|file| file.bytes).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(aof.current().map(|file| file.bytes), Some(4));
    }
}
