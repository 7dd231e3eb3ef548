//! A wall clock that a test can step while the server runs: a preloaded library adds an offset from a mapped file. The
//! boot and monotonic clocks are not changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The file with the offset, and the library that reads it.
pub struct WallClock {
    dir: TempDir,
}

impl WallClock {
    pub fn new() -> Self {
        let clock = Self { dir: tempfile::tempdir().unwrap() };
        clock.set(0);
        clock
    }

    /// Makes the wall clock show `seconds` more than the real time from now on.
    pub fn set(&self, seconds: i64) {
        // The file is written in place, because it stays mapped.
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(self.file()).unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    pub fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", shim()).env("WALL_CLOCK_OFFSET_FILE", self.file());
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("offset")
    }
}

/// Returns the library, which is compiled once per run.
fn shim() -> &'static Path {
    static SHIM: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    &SHIM
        .get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            let shim = dir.path().join("wall_clock.so");
            let source = dir.path().join("wall_clock.c");
            fs::write(&source, include_str!("wall_clock.c")).unwrap();
            let status = Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&shim).arg(source).status();
            assert!(status.expect("a C compiler is installed").success());
            (dir, shim)
        })
        .1
}
