//! A server starts on an older copy of its folder or of its AOF: a restored backup, or a virtual machine that was
//! rolled back to a snapshot.
//!
//! The server cannot know what it granted since the copy was made, and nothing in the copy says so. Its last grant
//! before it is killed is that of an [`Exam`], which no copy contains.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::sleep;

use super::alone::Change;
use super::dice::{Dice, pause};
use super::servers;
use crate::campaign::exam::{Exam, GUARD, starts_above, starts_above_all};
use crate::campaign::machine::{Durability, Machine};
use crate::campaign::patience::comes_true;
use crate::campaign::world::World;

/// The folder of the AOF, inside a server's folder.
const AOF: &str = "appendonlydir";

/// The longest wait for a state file to be written. The node writes it every 2.5 s.
const STATE_WRITTEN: Duration = Duration::from_secs(5);

/// The number of attempts to copy the folder while the server changes its files.
const TRIES: usize = 5;

/// The files that are put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// All files, copied while the server served.
    Hot,
    /// All files, copied after a clean end. The grants of the next incarnation are not in them.
    Cold,
    /// Only the AOF, as new files.
    Aof,
    /// Only the AOF, over the existing files.
    AofInPlace,
}

impl Change for Copy {
    const ALL: &'static [Self] = &[Self::Hot, Self::Aof, Self::Cold, Self::AofInPlace];

    fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot copy of the folder put back",
            Self::Cold => "cold copy of the folder put back",
            Self::Aof => "older AOF put back",
            Self::AofInPlace => "older AOF copied over",
        }
    }

    /// Returns true if the copy may be put back now. With an older state file, a node starts its tokens from its clock,
    /// so every earlier token must be smaller. A copy of the AOF alone needs a server with an AOF.
    fn may_be_done(self, world: &World, machine: &Machine) -> bool {
        if self.has_state_file() { starts_above_all(world) } else { machine.durability == Durability::AofAlways }
    }

    fn durability(self, dice: &mut Dice) -> Durability {
        match self.has_state_file() && dice.once_in(2) {
            true => dice.one_of(&Durability::ALL),
            false => Durability::AofAlways,
        }
    }

    async fn run(self, world: &World, who: &str, machine: &mut Machine, dice: &mut Dice) {
        let Ok(kept) = tempfile::Builder::new().prefix("palisade-chaos-copy-").tempdir() else { return };
        if self == Copy::Cold {
            servers::end_clean(machine, dice).await;
        }
        let copied = keep(machine.dir(), &kept);
        if self == Copy::Cold {
            world.start_as(who, machine).await;
        }
        pause(world, dice.ms(300, 4_000)).await;
        // The copy was made earlier, and does not contain this lock.
        let exam = Exam::take("", &machine.socket(), "exam", world.settings.max_ttl_ms).await;
        if self == Copy::AofInPlace && !state_file_knows_more(machine.dir(), kept.path()).await {
            return;
        }
        if dice.once_in(4) && self.has_state_file() {
            servers::end_clean(machine, dice).await;
        } else {
            machine.signal(Signal::KILL);
            machine.kill().await;
        }
        let back = copied.and_then(|()| put(machine.dir(), &kept, self));
        sleep(dice.ms(1, 200)).await;
        if self.has_state_file() {
            machine.clock.set(0);
        }
        // With an older state file, a node starts its tokens from its clock, so it may not know of a token far ahead of
        // that.
        let known = exam.as_ref().is_some_and(|exam| starts_above(world, exam.token));
        world.start_as(who, machine).await;
        let known = known && machine.clock.is_right();
        let (Some(exam), Ok(())) = (exam, back) else { return };
        let after = format!("{who}, {}, {}", self.name(), machine.durability.name());
        let tokens = known || !self.has_state_file();
        exam.examine(world, &machine.socket(), GUARD, tokens, &after).await;
    }
}

impl Copy {
    /// Returns true if the copy includes the state file.
    fn has_state_file(self) -> bool {
        matches!(self, Self::Hot | Self::Cold)
    }
}

/// Waits until the state file in `dir` records a longer AOF than the copy in `kept`. Returns false at the time limit. A
/// start cannot notice before that time that the copy was written over the original AOF: a known limit.
async fn state_file_knows_more(dir: &Path, kept: &Path) -> bool {
    let length = |path: &PathBuf| fs::metadata(path).map_or(0, |about| about.len());
    let is_increment = |path: &PathBuf| path.to_string_lossy().contains(".incr.");
    let copied = files(&kept.join(AOF)).unwrap_or_default().iter().filter(|path| is_increment(path)).map(length).max();
    comes_true!(STATE_WRITTEN, {
        let states =
            files(dir).unwrap_or_default().into_iter().filter(|path| path.extension() == Some("state".as_ref()));
        let texts = states.filter_map(|path| fs::read_to_string(path).ok()).collect::<Vec<_>>();
        let lines = texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("aof "));
        let bytes = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).max();
        bytes > copied
    })
}

/// Copies every file of the server's folder, while the server may be running.
fn keep(from: &Path, kept: &TempDir) -> io::Result<()> {
    let manifest = from.join(AOF).join("appendonly.aof.manifest");
    for _ in 0..TRIES {
        let _ = fs::remove_dir_all(kept.path().join(AOF));
        let before = fs::read(&manifest).ok();
        // A file that the server replaced in between is missing from the copy. This matters only if the manifest names
        // the file.
        if copy_files(from, kept.path()).is_ok() && fs::read(&manifest).ok() == before {
            return Ok(());
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

fn put(dir: &Path, kept: &TempDir, copy: Copy) -> io::Result<()> {
    match copy {
        Copy::Hot | Copy::Cold => {
            for path in files(dir)? {
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
            copy_files(kept.path(), dir)
        }
        Copy::Aof => {
            fs::remove_dir_all(dir.join(AOF))?;
            copy_files(&kept.path().join(AOF), &dir.join(AOF))
        }
        // Writing over the files in place keeps their inodes.
        Copy::AofInPlace => copy_files(&kept.path().join(AOF), &dir.join(AOF)),
    }
}

fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}

/// Copies files and folders, but not sockets.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for path in files(from)? {
        let to = to.join(path.file_name().unwrap_or_default());
        // A file that a server wrote and renamed may be gone by now.
        let Ok(about) = fs::metadata(&path) else { continue };
        if about.is_dir() {
            copy_files(&path, &to)?;
        } else if about.is_file() {
            fs::copy(&path, &to)?;
        }
    }
    Ok(())
}
