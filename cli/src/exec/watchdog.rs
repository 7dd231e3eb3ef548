//! The watchdog: a process that ends the command when the program that keeps its lock cannot, because it was killed or
//! stopped.
//!
//! It reads lines from a pipe: the process group, the end of the lock's validity (microseconds since boot, repeatedly),
//! and `done`. If the pipe ends without `done`, nothing extends the lock any longer. Then the watchdog ends the
//! command, and releases the lock once none of its processes is left. The data for the release is in its environment,
//! which only its user can see.

use std::ffi::OsStr;
use std::io::{Read, Write, stdin};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::Pid;
use palisade_client::Guard;
use redis::cmd;

use super::group::{self, THIS_PROGRAM};
use super::lease::WATCHDOG_MARGIN;
use crate::clock;
use crate::exit::Failure;
use crate::lock_view::hex;
use crate::members::present::present;
use crate::nodes::Nodes;
use crate::reaching::Reaching;

/// The longest time for the release of the lock, since nodes may be down. It takes two seconds until all nodes of the
/// set are known, and two until they have answered, if some are silent all the time.
const GIVING_BACK: Duration = Duration::from_secs(4);

/// The name in the list of processes. This program acts as the watchdog if it was started under this name.
const NAME: &str = "palisade-watchdog";

/// The interval between two checks of a group that was sent SIGTERM.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The number of checks of a group for each inspection of its processes. Processes that have ended stay in the group if
/// nobody waits for them, as in some containers, and the inspection finds that.
const CLOSER_LOOK: u64 = 10;

/// The environment variables that name the lock which the watchdog releases: the key, and the owner in hexadecimal.
const KEY: &str = "PALISADE_KEY";
const OWNER: &str = "PALISADE_OWNER";

/// The watchdog process of a `palisade exec`, which has started it and writes to the pipe.
pub struct Watchdog {
    process: Child,
    pipe: ChildStdin,
}

impl Watchdog {
    /// Starts the watchdog of this lock, which does not watch a command yet.
    ///
    /// # Errors
    ///
    /// The watchdog cannot be started.
    pub fn start(nodes: &Nodes, guard: &Guard) -> Result<Self, Failure> {
        let started = Command::new(THIS_PROGRAM)
            .arg0(NAME)
            .env_clear()
            .envs(nodes.reaching().environment())
            .env(KEY, OsStr::from_bytes(guard.key()))
            .env(OWNER, hex(guard.owner()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // In a process group of its own the watchdog receives no signals for the terminal's group or the command's.
            .process_group(0)
            .current_dir("/")
            .spawn();
        let mut process = started.map_err(|why| Failure::of("the watchdog cannot be started", why))?;
        let pipe = process.stdin.take().ok_or_else(|| Failure::of("the watchdog cannot be started", "no pipe"))?;
        Ok(Self { process, pipe })
    }

    /// Watches this process group from now on; the lock is valid until `end`, in time since boot.
    pub fn watch(&mut self, group: Pid, end: Duration) {
        self.valid_until(end);
        self.send(&format!("group {group}"));
    }

    /// Sets the end of the lock's validity, in time since boot.
    pub fn valid_until(&mut self, end: Duration) {
        self.send(&format!("until {}", end.as_micros()));
    }

    /// Ends the watch: no process of the command is left.
    pub fn end(mut self) {
        self.send("done");
        let _ = self.process.wait();
    }

    fn send(&mut self, line: &str) {
        // A failure means that the watchdog is gone. This program still ends the command in time.
        let _ = self.pipe.write_all(format!("{line}\n").as_bytes());
    }
}

/// Returns true if this process is a watchdog.
pub fn is_meant() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// Runs the watchdog.
pub fn run() -> ExitCode {
    // A signal to all processes of a service at once is not meant for the watchdog, which has to end last.
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
        let _ = signal_hook::flag::register(signal as i32, Arc::new(AtomicBool::new(false)));
    }
    match watch() {
        Ok(Watched::Done) => ExitCode::SUCCESS,
        Ok(Watched::Ended) if give_back().is_some() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The reason why the watchdog stops watching.
enum Watched {
    /// Nothing is left to release: the program has done it, or the lease has ended.
    Done,
    /// The program that kept the lock is gone, and no process of the command is left.
    Ended,
}

/// The instructions that the watchdog has read from the pipe.
#[derive(Debug, Default)]
struct Instructions {
    text: String,
    group: Option<Pid>,
    until: Duration,
    is_done: bool,
}

impl Instructions {
    /// Adds text that was read from the pipe, and does what each complete line says.
    fn more(&mut self, text: &str) {
        self.text.push_str(text);
        while let Some(end) = self.text.find('\n') {
            let line: String = self.text.drain(..=end).collect();
            match line.trim_end().split_once(' ') {
                Some(("group", group)) => self.group = group.parse().ok().map(Pid::from_raw),
                Some(("until", us)) => self.until = us.parse().map_or(self.until, Duration::from_micros),
                _ => self.is_done = line.trim_end() == "done",
            }
        }
    }

    /// Returns the time until the group is killed; `None` if that is now.
    fn remaining(&self) -> Option<Duration> {
        let left = self.until.saturating_sub(WATCHDOG_MARGIN).saturating_sub(clock::since_boot());
        (!left.is_zero()).then_some(left)
    }
}

fn watch() -> nix::Result<Watched> {
    let mut told = Instructions::default();
    // This clock also runs while the machine sleeps. So after a sleep in which the lock ended, the command is killed at
    // once.
    let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
    let mut bytes = [0; 256];
    loop {
        if let Some(group) = told.group {
            let Some(left) = told.remaining() else {
                return killpg(group, Signal::SIGKILL).map(|()| Watched::Done);
            };
            timer.set(Expiration::OneShot(TimeSpec::from_duration(left)), TimerSetTimeFlags::empty())?;
        }
        let stdin = stdin();
        let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN), PollFd::new(timer.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::NONE) {
            Err(nix::errno::Errno::EINTR) => continue,
            result => result?,
        };
        if !ready[0].any().unwrap_or(false) {
            continue;
        }
        match stdin.lock().read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => told.more(&String::from_utf8_lossy(&bytes[..read])),
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        if told.is_done {
            return Ok(Watched::Done);
        }
    }
    // The program is gone. Without a group, the command had not begun.
    told.group.map_or(Ok(Watched::Ended), |group| end(group, &told))
}

/// Ends the command while the lock is still valid, because the program that kept the lock is gone.
fn end(group: Pid, told: &Instructions) -> nix::Result<Watched> {
    // An error means that no process of the group is left.
    let mut asked = killpg(group, Signal::SIGTERM).and_then(|()| killpg(group, Signal::SIGCONT));
    for look in 1_u64.. {
        let (Ok(()), Some(left)) = (asked, told.remaining()) else { break };
        if look.is_multiple_of(CLOSER_LOOK) && group::is_left_unwaited(group) {
            // This also ends processes that were started during the inspection, so that they start no others.
            asked = killpg(group, Signal::SIGKILL);
            if group::is_left_unwaited(group) {
                return Ok(Watched::Ended);
            }
        }
        std::thread::sleep(left.min(LOOK_AGAIN));
        asked = asked.and_then(|()| killpg(group, None));
    }
    match asked {
        Err(Errno::ESRCH) => Ok(Watched::Ended),
        // The lease has ended, so there is nothing to release.
        _ => killpg(group, Signal::SIGKILL).map(|()| Watched::Done),
    }
}

/// Releases the lock on all nodes that answer within [`GIVING_BACK`]; on the others it ends with its lease.
fn give_back() -> Option<()> {
    let key = std::env::var_os(KEY)?.into_vec();
    let owner = from_hex(&std::env::var(OWNER).ok()?)?;
    let nodes = Nodes::at(&Reaching::from_environment()).ok()?;
    let release = cmd("LOCK.RELEASE").arg(&key).arg(owner).arg("LEVEL").arg(1).take();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    // The nodes of the list are asked at once, since a silent one would delay the release until the set is known.
    let on_others = async {
        let mut others = present(&nodes).await;
        others.list.retain(|node| node.number > nodes.len());
        others.ask_about(&key, &release).await
    };
    let released = async { tokio::join!(nodes.ask_about(&key, &release), on_others) };
    let given = runtime.block_on(async { tokio::time::timeout(GIVING_BACK, released).await });
    // A thread of the runtime may still look up a name, which is not waited for.
    runtime.shutdown_background();
    given.ok().map(drop)
}

/// Returns the bytes of a hexadecimal text.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_come_in_pieces() {
        let mut told = Instructions::default();
        told.more("group 4");
        assert_eq!(told.group, None);
        told.more("2\nuntil 1000000\nuntil 2");
        assert_eq!((told.group, told.until), (Some(Pid::from_raw(42)), Duration::from_secs(1)));
        assert_eq!(told.remaining(), None);
        told.more("000000\ndone\n");
        assert!(told.is_done);
        assert_eq!(told.until, Duration::from_secs(2));
    }

    #[test]
    fn owners_are_any_bytes() {
        let owner: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&hex(&owner)), Some(owner));
    }
}
