//! The command in its own process group, with the processes that it leaves there.

use std::ffi::OsString;
use std::fs;
use std::future::poll_fn;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::task::{Poll, ready};

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{AccessFlags, Pid, access};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::{End, Failure, LOST, NOT_STARTED};
use crate::show::printable;

/// The system's path to this program, also if its file has been replaced since.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// The environment variable with the number of the command's permit.
pub const PERMIT: &str = "PALISADE_PERMIT";
/// The environment variable with the term of a leader.
pub const TERM: &str = "PALISADE_TERM";

/// The name of a process that is about to become the command.
const NAME: &str = "palisade-start";

/// A process group whose leader is the command.
pub struct Group {
    pub leader: Pid,
    ended: Option<End>,
    children: Stream,
}

/// An event of the processes in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command ended, but left processes behind.
    Ended,
    /// The command was stopped by this signal, and can be continued.
    Stopped(Signal),
    /// The command ended, and nothing is left of the group.
    Gone,
}

impl Group {
    /// Creates the group, with a process that becomes the command once [`go`](Self::go) is called. So the watchdog
    /// knows the group before the command runs.
    ///
    /// # Errors
    ///
    /// The system does not allow it.
    pub async fn make(
        command: &[OsString],
        environment: impl Iterator<Item = (&str, OsString)>,
    ) -> Result<Self, Failure> {
        // Processes that the command leaves behind become children of this process, so that their end is noticed.
        set_child_subreaper(true).map_err(|why| Failure::of("processes cannot be watched", why))?;
        let children = signal(SignalKind::child()).map_err(|why| Failure::of("processes cannot be watched", why))?;
        let mut start = Command::new(THIS_PROGRAM);
        // These variables may be set by an outer command, for another lock.
        start.env_remove(PERMIT).env_remove(TERM);
        start.arg0(NAME).arg(Pid::this().to_string()).args(command).envs(environment).process_group(0);
        let started = start.spawn().map_err(|why| Failure::of("the command cannot be started", why))?;
        let mut group = Self { leader: Pid::from_raw(started.id() as i32), ended: None, children };
        // The process stops itself when it is ready, unless somebody has ended it.
        let _ = group.event().await;
        Ok(group)
    }

    /// Lets the waiting process become the command.
    pub fn go(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Returns how the command ended, if it has.
    pub fn ended(&self) -> Option<End> {
        self.ended
    }

    /// Returns the next event. After `Gone`, there is none.
    ///
    /// Looks at the processes each time that the task is woken, not only after SIGCHLD: if this program did not run for
    /// a while, a timer may wake it before the signal has been passed on.
    pub async fn event(&mut self) -> Event {
        poll_fn(|context| {
            loop {
                if let Some(event) = self.poll() {
                    return Poll::Ready(event);
                }
                ready!(self.children.poll_recv(context));
            }
        })
        .await
    }

    /// Sends `signal` to the whole group, which may be gone.
    pub fn signal(&self, signal: Signal) {
        let _ = killpg(self.leader, signal);
    }

    /// Asks the whole group to end, and wakes stopped processes so that they can.
    pub fn terminate(&self) {
        self.pass_on(Signal::SIGTERM);
    }

    /// Sends `signal` to the whole group, and wakes stopped processes so that they receive it now.
    pub fn pass_on(&self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::SIGCONT);
    }

    fn poll(&mut self) -> Option<Event> {
        const NOW: WaitPidFlag = WaitPidFlag::WNOHANG;
        let was_running = self.ended.is_none();
        if was_running {
            self.ended = match waitpid(self.leader, Some(NOW | WaitPidFlag::WUNTRACED)) {
                Ok(WaitStatus::Exited(_, code)) => Some(End::Code(code as u8)),
                Ok(WaitStatus::Signaled(_, signal, _)) => Some(End::Signal(signal)),
                Ok(WaitStatus::Stopped(_, signal)) => return Some(Event::Stopped(signal)),
                _ => return None,
            };
        }
        loop {
            match waitpid(Pid::from_raw(-self.leader.as_raw()), Some(NOW)) {
                Ok(WaitStatus::StillAlive) => return was_running.then_some(Event::Ended),
                Err(Errno::ECHILD) => return Some(Event::Gone),
                _ => {}
            }
        }
    }
}

/// Returns true if all processes of a group have ended, and only remain because their parent has not waited for them.
/// Processes started meanwhile may be missed.
pub fn is_left_unwaited(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let group = group.to_string();
    let state = |process: std::io::Result<fs::DirEntry>| {
        let stat = fs::read(process.ok()?.path().join("stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat).into_owned();
        // The fields are: pid (name) state parent group …, and the name may contain anything.
        let mut fields = stat.rsplit(") ").next()?.split(' ');
        let state = fields.next()?.to_owned();
        (fields.nth(1)? == group).then_some(state)
    };
    let states: Vec<String> = processes.filter_map(state).collect();
    !states.is_empty() && states.iter().all(|state| state == "Z")
}

/// Returns true if this process was started to become the command.
pub fn is_meant() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// Waits until the program that keeps the lock allows it, and becomes the command. Returns why it did not, if that
/// program ends first or the command cannot run.
pub fn become_command() -> Failure {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [keeper, program, arguments @ ..] = &arguments[..] else {
        return Failure::usage("this is for the program itself");
    };
    let lives = || *keeper == *Pid::parent().to_string();
    if lives() {
        let _ = kill(Pid::this(), Signal::SIGSTOP);
    }
    if !lives() {
        return Failure::new(LOST, "the program that keeps the lock is gone: the command is not started");
    }
    not_started(program, &Command::new(program).args(arguments).exec())
}

/// Checks, before waiting for a lock, that the command exists.
///
/// # Errors
///
/// The command does not exist, or cannot be run.
pub fn find(program: &OsString) -> Result<(), Failure> {
    let paths: Vec<PathBuf> = if Path::new(program).components().count() > 1 {
        vec![program.into()]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
    };
    let runs = |path: &PathBuf| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    if paths.iter().any(runs) {
        return Ok(());
    }
    let there = paths.iter().any(|path| path.exists());
    let kind = if there { Errno::EACCES } else { Errno::ENOENT };
    Err(not_started(program, &kind.into()))
}

fn not_started(program: &OsString, why: &std::io::Error) -> Failure {
    let why = match why.kind() {
        std::io::ErrorKind::NotFound => "there is no such command".to_owned(),
        std::io::ErrorKind::PermissionDenied => "it cannot be run: is it an executable file?".to_owned(),
        _ => why.to_string(),
    };
    Failure::new(NOT_STARTED, format!("{}: {why}", printable(program.as_bytes())))
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::process::Stdio;
    use std::task::{Context, Waker};

    use nix::sys::wait::{Id, waitid};

    use super::*;

    /// A timer wakes this program after a pause. It sees the end of the command, although no signal has told it of that
    /// yet.
    #[test]
    #[expect(clippy::zombie_processes, reason = "the group waits for it")]
    fn an_end_is_seen_before_its_signal() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _runs = runtime.enter();
        let mut command = Command::new("cat");
        let mut started = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let leader = Pid::from_raw(started.id() as i32);
        let mut group = Group { leader, ended: None, children: signal(SignalKind::child()).unwrap() };
        {
            // The runtime does not run, so it passes no signal on.
            let mut context = Context::from_waker(Waker::noop());
            let mut event = pin!(group.event());
            assert_eq!(event.as_mut().poll(&mut context), Poll::Pending);
            drop(started.stdin.take());
            waitid(Id::Pid(leader), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
            assert_eq!(event.as_mut().poll(&mut context), Poll::Ready(Event::Gone));
        }
        assert_eq!(group.ended(), Some(End::Code(0)));
    }
}
