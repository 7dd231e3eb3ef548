//! `palisade exec`: runs a command under a lock.
//!
//! The command runs in its own process group. No process of that group outlives the lock. When the lock is being lost,
//! SIGTERM is sent early enough for the grace period and SIGKILL to fit in the rest of its validity.

pub mod group;
mod lease;
pub mod terminal;
pub mod watchdog;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;
use palisade_client::{Guard, Loss, Released};
use tokio::time::{Instant, sleep, sleep_until};

use self::group::{Event, Group};
use self::terminal::{Terminal, stop_job};
use self::watchdog::Watchdog;
use crate::arguments::{Exec, Take};
use crate::clock;
use crate::exit::{End, Failure};
use crate::holder::{self, HolderId};
use crate::lock_view::hex;
use crate::losing;
use crate::nodes::Nodes;
use crate::show::{print_message, printable};
use crate::signals::Signals;
use crate::taking::{Held, Patience, Taken, give_back, take};

/// The number of times per lease that the lock's validity is checked and reported to the watchdog. So the watchdog
/// knows of an extension long before it would act.
const LOOKS_A_LEASE: u32 = 6;

/// Runs the command under the lock.
///
/// # Errors
/// The lock was not granted, or was lost; the command cannot be started.
pub async fn run(nodes: &Nodes, exec: &Exec) -> Result<End, Failure> {
    let Take { asked, max_hold } = &exec.take;
    let job = Job::new(&exec.command, asked.ttl, *max_hold, exec.grace)?;
    let program = &exec.command[0];
    let mut signals = Signals::listen()?;
    let patience = Patience::of(exec.wait, exec.no_wait);
    let holder = HolderId::of_process();
    let Held { guard, permit } = match take(nodes, &exec.take, patience, program, &holder, &mut signals).await? {
        Taken::Held(held) => held,
        Taken::Interrupted(signal) => return Ok(End::Signal(signal)),
    };
    let began = Instant::now();
    let permit = permit.map(|number| (group::PERMIT, number.to_string()));
    // Locks that the command takes with this program, and those that it waits for, get the same holder id.
    let more = permit.into_iter().chain([(holder::VARIABLE, holder.to_string())]);
    let end = job.run(nodes, &guard, more, &mut signals).await;
    if let (Some(at_least), true) = (exec.min_hold, end.is_ok()) {
        // A user who does not want to wait for `--min-hold` sends a signal.
        tokio::select! {
            () = sleep_until(began + at_least) => {}
            _ = guard.lost() => {}
            _ = signals.end() => {}
        }
        give_back(guard).await;
        return end;
    }
    let why = losing::reason(nodes, &Loss::TakenAway(vec![]), *max_hold);
    let gone = losing::failure(guard.key(), &why);
    match give_back(guard).await {
        // The lock was lost, and this program has not noticed before.
        Released::AlreadyExpired if end.is_ok() => Err(gone),
        _ => end,
    }
}

/// A command and the lease under which it runs.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    command: &'a [OsString],
    ttl: Duration,
    max_hold: Duration,
    /// The time between SIGTERM and SIGKILL.
    grace: Duration,
}

impl<'a> Job<'a> {
    /// Creates the job. Checks that the command exists, and that the lease is long enough for this grace period or the default.
    ///
    /// # Errors
    ///
    /// An argument is wrong; the failure says which.
    pub fn new(
        command: &'a [OsString],
        ttl: Duration,
        max_hold: Duration,
        grace: Option<Duration>,
    ) -> Result<Self, Failure> {
        let grace = lease::grace(ttl, grace).map_err(Failure::usage)?;
        group::find(&command[0]).map(|()| Self { command, ttl, max_hold, grace })
    }

    /// Runs the command under a held lock, with the variables `more` in its environment.
    ///
    /// # Errors
    /// The lock was lost; the command cannot be started.
    pub async fn run(
        self,
        nodes: &'a Nodes,
        guard: &'a Guard,
        more: impl IntoIterator<Item = (&'static str, String)>,
        signals: &mut Signals,
    ) -> Result<End, Failure> {
        Running::start(nodes, self, guard, more).await?.finish(signals).await
    }
}

/// Returns the end of the lock's validity, in time since boot. The clock is read first, since a pause between the two
/// readings must not make the end later.
fn end_of(guard: &Guard) -> Duration {
    let now = clock::since_boot();
    now + guard.valid_for()
}

/// A running command.
struct Running<'a> {
    nodes: &'a Nodes,
    job: Job<'a>,
    guard: &'a Guard,
    group: Group,
    terminal: Terminal,
    watchdog: Watchdog,
    began: Instant,
    /// The end of the lock's validity, as reported to the watchdog, in time since boot.
    valid_until: Duration,
    /// The time at which processes that the command left behind are sent SIGTERM.
    term_at: Option<Instant>,
    /// The time at which processes that were sent SIGTERM are sent SIGKILL.
    kill_at: Option<Instant>,
    /// The reason, if the lock was lost.
    lost: Option<String>,
    /// True if this process has stopped itself together with its job: then the stop signal that it receives is not
    /// meant for the command.
    own_stop: bool,
}

impl<'a> Running<'a> {
    async fn start(
        nodes: &'a Nodes,
        job: Job<'a>,
        guard: &'a Guard,
        more: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<Self, Failure> {
        let terminal = Terminal::open();
        let mut watchdog = Watchdog::start(nodes, guard)?;
        let valid_until = end_of(guard);
        let environment = [
            ("PALISADE_KEY", OsStr::from_bytes(guard.key()).to_owned()),
            ("PALISADE_TOKEN", guard.token().to_string().into()),
            ("PALISADE_OWNER", hex(guard.owner()).into()),
            ("PALISADE_VALID_UNTIL_MS", valid_until.as_millis().to_string().into()),
        ];
        let more = more.into_iter().map(|(name, value)| (name, value.into()));
        let group = match Group::make(job.command, environment.into_iter().chain(more)).await {
            Ok(group) => group,
            Err(failure) => {
                watchdog.end();
                return Err(failure);
            }
        };
        // The lock may have been extended while the process was made.
        let valid_until = end_of(guard);
        watchdog.watch(group.leader, valid_until);
        let mut running = Self {
            nodes,
            job,
            guard,
            group,
            terminal,
            watchdog,
            began: Instant::now(),
            valid_until,
            term_at: None,
            kill_at: None,
            lost: None,
            own_stop: false,
        };
        running.terminal.offer(running.group.leader);
        running.begin().await;
        Ok(running)
    }

    /// Lets the command begin, unless the lock has ended meanwhile: making the process may have taken long.
    async fn begin(&mut self) {
        match self.over().await {
            None => self.group.go(),
            Some(why) => {
                // SIGTERM would need SIGCONT, with which the process becomes the command if it ignores SIGTERM.
                self.group.signal(Signal::SIGKILL);
                self.lost = Some(why);
            }
        }
    }

    /// Waits until no process of the command is left. Returns how the command ended.
    async fn finish(mut self, signals: &mut Signals) -> Result<End, Failure> {
        loop {
            if self.lost.is_none() && self.group.ended().is_none() {
                signals.forget_outlived(self.job.grace);
            }
            let now = Instant::now();
            let (term_at, kill_at) = (self.term_at.unwrap_or(now), self.kill_at.unwrap_or(now));
            let look = lease::until_term(self.guard.valid_for(), self.job.grace).min(self.job.ttl / LOOKS_A_LEASE);
            tokio::select! {
                // An end of the command that can be seen outranks a loss.
                biased;
                event = self.group.event() => match event {
                    Event::Gone => break,
                    Event::Ended => self.term_at = Some(now + self.job.grace),
                    Event::Stopped(signal) => self.on_stop(signal),
                },
                () = sleep_until(kill_at), if self.kill_at.is_some() => {
                    self.group.signal(Signal::SIGKILL);
                    self.kill_at = Some(Instant::now() + lease::KILL_MARGIN);
                }
                loss = self.guard.lost(), if self.lost.is_none() => self.lose(&loss),
                () = sleep(look), if self.lost.is_none() => self.check_lease(),
                () = sleep_until(term_at), if self.term_at.is_some() => {
                    self.term_at = None;
                    self.end(self.job.grace);
                    print_message("what the command left behind is ended: nothing of it outlives the lock");
                }
                signal = signals.next() => self.on_signal(signal),
            }
        }
        let over = self.over().await;
        self.watchdog.end();
        let end = self.group.ended().unwrap_or(End::OK);
        let was_lent = self.terminal.is_lent();
        self.terminal.take_back(matches!(end, End::Signal(_)));
        if let (true, End::Signal(signal @ (Signal::SIGINT | Signal::SIGQUIT))) = (was_lent, end) {
            // A signal typed at the terminal reached only the command, but is meant for all programs that the user
            // started.
            let _ = killpg(getpgrp(), signal);
        }
        match self.lost.or(over) {
            Some(why) => Err(losing::failure(self.guard.key(), &why)),
            None => Ok(end),
        }
    }

    /// Returns why the lock is lost; `None` if it is not.
    async fn over(&self) -> Option<String> {
        let loss = match self.guard.is_lost() {
            true => self.guard.lost().await,
            // With so little validity left, the watchdog may have ended the command.
            false if lease::until_kill(self.remaining()).is_zero() => Loss::Asleep,
            false => return None,
        };
        Some(losing::reason(self.nodes, &loss, self.job.max_hold))
    }

    /// Returns the remaining validity of the lock, as it was last reported to the watchdog.
    fn remaining(&self) -> Duration {
        self.valid_until.saturating_sub(clock::since_boot())
    }

    /// Reports the end of the lock's validity to the watchdog.
    fn report_to_watchdog(&mut self) {
        let end = end_of(self.guard);
        self.valid_until = self.valid_until.max(end);
        self.watchdog.valid_until(end);
    }

    /// Ends the command if the lease was not extended in time. Otherwise informs the watchdog how long the lock is
    /// valid.
    fn check_lease(&mut self) {
        if lease::until_kill(self.remaining()).is_zero() {
            // Even if the lock is valid now, the watchdog did not know that in time and may have ended the command.
            return self.lose(&Loss::Asleep);
        }
        let valid_for = self.guard.valid_for();
        if lease::until_term(valid_for, self.job.grace).is_zero() {
            let is_held_long = self.began.elapsed() + self.job.ttl >= self.job.max_hold;
            let too_few = || Loss::TooFewNodes(self.guard.not_extended());
            self.lose(&if is_held_long { Loss::MaxHold } else { too_few() });
        } else {
            self.report_to_watchdog();
        }
    }

    /// Ends the command, because the lock is lost.
    fn lose(&mut self, loss: &Loss) {
        let why = losing::reason(self.nodes, loss, self.job.max_hold);
        self.end(lease::until_kill(self.remaining()).min(self.job.grace));
        self.term_at = None;
        print_message(&format!("{} is being lost ({why}): the command is ended", printable(self.guard.key())));
        self.lost = Some(why);
    }

    /// Sends SIGTERM to the command, and SIGKILL after `grace`; if that is zero, SIGKILL at once.
    fn end(&mut self, grace: Duration) {
        if !grace.is_zero() {
            self.group.terminate();
        }
        self.kill_at = Some(Instant::now() + grace);
    }

    fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::SIGTSTP if self.own_stop => {}
            Signal::SIGCONT => self.resume(),
            // A stopped process would receive the signal only when it is continued.
            signal @ (Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM) => {
                self.group.pass_on(signal)
            }
            signal => self.group.signal(signal),
        }
        self.own_stop &= signal == Signal::SIGTSTP;
    }

    /// Handles a stop of the command, by the terminal that it wants to use or by the user.
    fn on_stop(&mut self, signal: Signal) {
        if matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU) {
            self.terminal.is_wanted = true;
            if self.terminal.is_ours() {
                return self.resume();
            }
        }
        if !self.terminal.exists() {
            return;
        }
        // The job is stopped as a whole. The lease is not extended meanwhile; when it ends, the watchdog ends the
        // command.
        self.terminal.take_back(false);
        self.report_to_watchdog();
        self.own_stop = true;
        if !stop_job() {
            self.own_stop = false;
            self.resume();
        }
    }

    /// Continues the command, in the foreground if the terminal is available.
    fn resume(&mut self) {
        if self.terminal.is_wanted {
            self.terminal.lend(self.group.leader);
        }
        self.group.signal(Signal::SIGCONT);
    }
}
