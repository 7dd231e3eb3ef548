//! Earlier versions of Palisade, which `make test-upgrade` builds.

use std::path::PathBuf;

/// An earlier version: its name, and the folder with its module and its program.
pub struct Earlier {
    pub name: String,
    folder: PathBuf,
}

impl Earlier {
    /// Returns the path of its module.
    pub fn module(&self) -> PathBuf {
        self.folder.join("libpalisade.so")
    }

    /// Returns the path of its program.
    pub fn program(&self) -> PathBuf {
        self.folder.join("palisade")
    }

    /// Returns true for the version that knows only exclusive locks. Nothing ties its state file to its data, so a start
    /// on what it wrote proves nothing, and it does not read every record of later versions.
    pub fn is_the_first(&self) -> bool {
        self.name == "0.1.0"
    }
}

/// Returns the earlier versions. `PALISADE_EARLIER` has a word `name=folder` for each.
pub fn earlier() -> Vec<Earlier> {
    let words = std::env::var("PALISADE_EARLIER").expect("PALISADE_EARLIER names the earlier versions");
    let parted = words.split_whitespace().map(|word| word.split_once('=').expect("name=folder"));
    let versions: Vec<_> =
        parted.map(|(name, folder)| Earlier { name: name.to_owned(), folder: folder.into() }).collect();
    assert!(!versions.is_empty());
    versions
}
