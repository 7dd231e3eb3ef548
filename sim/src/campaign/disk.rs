//! A node's disk: a small file system in memory, which can be full. Where mounting is not permitted, a plain folder that
//! never is.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its size: a few rewrites of the AOF, and the state file.
const SIZE: &str = "size=24m";

/// What fills it.
const FILLER: &str = "filler";

/// A disk; unmounted with its value.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    mounted: bool,
}

impl Disk {
    /// A new, empty one at `path`.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(&path).output();
        let mounted = mounted.is_ok_and(|output| output.status.success());
        Ok(Self { path, mounted })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is one that can be full.
    pub fn can_be_full(&self) -> bool {
        self.mounted
    }

    /// Leaves no free byte.
    pub fn fill(&self) {
        let block = [0; 1 << 12];
        if let Ok(mut filler) = File::create(self.path.join(FILLER)) {
            while self.mounted && filler.write_all(&block).is_ok() {}
        }
    }

    /// Frees what was filled.
    pub fn empty(&self) {
        let _ = fs::remove_file(self.path.join(FILLER));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg("--lazy").arg(&self.path).output();
        }
    }
}
