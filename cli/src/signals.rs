//! Signals that this program passes on to the command, or that end its wait.

use std::fs;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid, getpgrp, getsid};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio::time::Instant;

use crate::exit::Failure;

/// Signals that are passed on to the command. The terminal's stop signal is among them: the command is stopped first,
/// then this program.
const PASSED_ON: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// A listener for the signals that end a wait or are passed on.
pub struct Signals {
    streams: Vec<(Signal, Stream)>,
    /// The last signal that asks a program to end, and the time at which it came.
    end: Option<(Signal, Instant)>,
}

impl Signals {
    /// Begins to receive signals. A signal that was ignored when this program started, as under nohup, stays ignored,
    /// here and in the command.
    ///
    /// # Errors
    ///
    /// The system does not allow it.
    pub fn listen() -> Result<Self, Failure> {
        let ignored = ignored();
        let heard = PASSED_ON.into_iter().filter(|signal| ignored & (1 << (*signal as u32 - 1)) == 0);
        let listen = |kind: Signal| Ok((kind, signal(SignalKind::from_raw(kind as i32))?));
        let streams: std::io::Result<Vec<_>> = heard.map(listen).collect();
        streams
            .map(|streams| Self { streams, end: None })
            .map_err(|why| Failure::of("signals cannot be listened to", why))
    }

    /// Waits for the next signal, and returns it.
    pub async fn next(&mut self) -> Signal {
        let heard = poll_fn(|context| {
            let heard = self
                .streams
                .iter_mut()
                .find_map(|(signal, stream)| stream.poll_recv(context).is_ready().then_some(*signal));
            heard.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        let asks_to_end = matches!(heard, Signal::SIGINT | Signal::SIGTERM);
        if asks_to_end || (may_ask_to_end(heard) && self.end.is_none_or(|(last, _)| may_ask_to_end(last))) {
            self.end = Some((heard, Instant::now()));
        }
        heard
    }

    /// Returns the last signal that came and that asks a program to end, if one came. SIGINT and SIGTERM outrank the
    /// others.
    pub fn end_signal(&self) -> Option<Signal> {
        self.end.map(|(signal, _)| signal)
    }

    /// Forgets a signal that the command has outlived by `grace`, if it is one that programs may handle without ending.
    pub fn forget_outlived(&mut self, grace: Duration) {
        self.end.take_if(|(signal, came)| may_ask_to_end(*signal) && came.elapsed() > grace);
    }

    /// Returns the next signal that asks a program to end. The terminal's stop signal stops this process meanwhile.
    pub async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::SIGWINCH | Signal::SIGCONT => {}
                Signal::SIGTSTP => drop(stop_self()),
                signal => return signal,
            }
        }
    }
}

/// Returns whether a signal asks some programs to end, and others not: daemons read their files again at SIGHUP, and Java
/// prints its threads at SIGQUIT.
fn may_ask_to_end(signal: Signal) -> bool {
    matches!(signal, Signal::SIGHUP | Signal::SIGQUIT)
}

/// Stops this process. Returns false if there is no shell to continue it.
pub fn stop_self() -> bool {
    has_shell() && kill(Pid::this(), Signal::SIGSTOP).is_ok()
}

/// Returns true if this process belongs to a job that a shell can stop and continue.
pub fn has_shell() -> bool {
    let own = getpgrp();
    let parent = status_field(own, "PPid").and_then(|pid| pid.parse().ok()).map(Pid::from_raw);
    parent.is_some_and(|parent| {
        getpgid(Some(parent)).is_ok_and(|group| group != own) && getsid(Some(parent)) == getsid(None)
    })
}

/// Returns the signals that this process ignores, one bit each.
fn ignored() -> u64 {
    status_field(Pid::this(), "SigIgn").and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0)
}

/// Returns a field of a process's status.
fn status_field(pid: Pid, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}
