//! A node's disk: a small file system in memory, which can fill up. If mounting is not permitted, it is a plain folder,
//! which never fills up.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The size, which suffices for the state file and a few rewrites of the AOF.
const SIZE: &str = "size=24m";

/// The file that fills the disk.
const FILLER: &str = "filler";

/// A disk; dropping it unmounts it.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    mounted: bool,
}

impl Disk {
    /// Creates a new, empty disk at `path`.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(&path).output();
        let mounted = mounted.is_ok_and(|output| output.status.success());
        Ok(Self { path, mounted })
    }

    /// Returns the disk's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the disk can fill up.
    pub fn can_be_full(&self) -> bool {
        self.mounted
    }

    /// Fills the disk to the last byte.
    pub fn fill(&self) {
        let block = [0; 1 << 12];
        if let Ok(mut filler) = File::create(self.path.join(FILLER)) {
            while self.mounted && filler.write_all(&block).is_ok() {}
        }
    }

    /// Frees the space that `fill` used.
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
