//! The terminal, which only one process group at a time may read. It is lent to the command.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, stderr, stdin, stdout};

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use crate::signals::{has_shell, stop_self};

/// This process's controlling terminal, if any.
pub struct Terminal {
    file: Option<File>,
    modes: Option<Termios>,
    own: Pid,
    lent: bool,
    /// True if the command has used the terminal or tried to.
    pub is_wanted: bool,
}

impl Terminal {
    /// Opens the terminal in its current state.
    pub fn open() -> Self {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").ok();
        let modes = file.as_ref().and_then(|file| tcgetattr(file).ok());
        Self { file, modes, own: getpgrp(), lent: false, is_wanted: false }
    }

    /// Returns true if this process, or the command to which it lent the terminal, is in the foreground.
    pub fn is_ours(&self) -> bool {
        self.lent || self.file.as_ref().is_some_and(|file| tcgetpgrp(file) == Ok(self.own))
    }

    /// Lends the terminal to a command at once if no other command can want it. In a pipeline another one may want it.
    /// There the command gets the terminal only when it tries to use it: the system then stops the command, which
    /// counts as a request.
    pub fn offer(&mut self, group: Pid) {
        if stdin().is_terminal() && stdout().is_terminal() && stderr().is_terminal() {
            self.lend(group);
        }
    }

    /// Lends the terminal to this process group, if this process has it.
    pub fn lend(&mut self, group: Pid) {
        self.is_wanted = true;
        if self.is_ours() {
            self.lent = self.give(group);
        }
    }

    /// Takes the terminal back from the command, and restores its former modes if the command was ended by force.
    pub fn take_back(&mut self, by_force: bool) {
        if !self.lent {
            return;
        }
        self.give(self.own);
        self.lent = false;
        if let (true, Some(file), Some(modes)) = (by_force, &self.file, &self.modes) {
            let _ = tcsetattr(file, SetArg::TCSADRAIN, modes);
        }
    }

    /// Returns true if there is a terminal.
    pub fn exists(&self) -> bool {
        self.file.is_some()
    }

    /// Returns true if the terminal is lent to the command.
    pub fn is_lent(&self) -> bool {
        self.lent
    }

    fn give(&self, group: Pid) -> bool {
        let Some(file) = &self.file else { return false };
        // From the background the terminal can be changed only while this signal is blocked.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let _ = stop.thread_block();
        let given = tcsetpgrp(file, group).is_ok();
        let _ = stop.thread_unblock();
        given
    }
}

/// Stops this process and its group, as the terminal does. Returns false if there is no shell to continue them.
pub fn stop_job() -> bool {
    if has_shell() {
        // The first stop reaches the rest of a pipeline or script. This process catches it, and stops itself by the
        // next.
        let _ = killpg(getpgrp(), Signal::SIGTSTP);
    }
    stop_self()
}
