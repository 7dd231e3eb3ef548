//! The folder of a state file, which can disappear, so that the file cannot be written.

use std::fs;

use tempfile::TempDir;

use super::Setup;

/// A folder for the state file of a server. It can disappear, like a node's disk.
pub struct StateFolder(TempDir);

impl StateFolder {
    pub fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::create_dir(folder.0.path().join("folder")).unwrap();
        folder
    }

    /// Returns the setup of a server whose state file is in this folder.
    pub fn setup(&self) -> Setup {
        Setup::new().module_arguments(&["state-file", self.0.path().join("folder/node.state").to_str().unwrap()])
    }

    /// Makes the folder disappear: from here on, the state file does not change.
    pub fn take_away(&self) {
        self.rename("folder", "away");
    }

    /// Brings the folder back, with the state file as it was.
    pub fn bring_back(&self) {
        self.rename("away", "folder");
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.0.path().join(from), self.0.path().join(to)).unwrap();
    }
}
