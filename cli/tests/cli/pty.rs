//! A terminal, and a simulated user at it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::pty::{Winsize, openpty};

use crate::fixture::{Nodes, PALISADE, Running};
use crate::harness::{patience, wait_until};

/// A simulated user at a terminal. `$P` is the program.
pub struct Person {
    keyboard: File,
    seen: Arc<Mutex<String>>,
    read_up_to: usize,
    shell: Option<Running>,
    /// The reader of the screen, which ends once no process has the terminal open.
    reader: JoinHandle<()>,
}

impl Person {
    /// Starts an interactive shell.
    pub fn at_a_shell(nodes: &Nodes) -> Self {
        let mut person = Self::at(nodes, &["bash", "--norc", "--noprofile", "--noediting", "-i"]);
        person.types("PS1='ready> '\n");
        person.sees("ready> ");
        person.sees("ready> ");
        person
    }

    /// Starts a terminal that runs only this command.
    pub fn at(nodes: &Nodes, command: &[&str]) -> Self {
        let size = Winsize { ws_row: 40, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        let mut setsid = Command::new("env");
        setsid
            .args(["--default-signal", "setsid", "--ctty", "--wait"])
            .args(command)
            .env("P", PALISADE)
            .envs(nodes.environment());
        setsid.env("TERM", "xterm").current_dir(nodes.file(""));
        setsid.stdin(end(&pty.slave)).stdout(end(&pty.slave)).stderr(end(&pty.slave));
        let shell = Running::start(setsid);
        drop(pty.slave);
        let keyboard = File::from(pty.master);
        let seen = Arc::new(Mutex::new(String::new()));
        let (mut screen, shown) = (keyboard.try_clone().unwrap(), Arc::clone(&seen));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error means that no process has the terminal open any longer.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { keyboard, seen, read_up_to: 0, shell: Some(shell), reader }
    }

    pub fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this text appears on the screen, after the text that was seen before.
    #[track_caller]
    pub fn sees(&mut self, text: &str) {
        let start = std::time::Instant::now();
        loop {
            let seen = self.seen.lock().unwrap();
            if let Some(at) = seen[self.read_up_to..].find(text) {
                self.read_up_to += at + text.len();
                return;
            }
            let (before, after) = seen.split_at(self.read_up_to);
            assert!(start.elapsed() < patience(), "waited in vain for {text:?} in {after:?}, after {before:?}");
            drop(seen);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Returns everything that was on the screen.
    pub fn seen(&self) -> String {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until the command at the terminal has ended. Returns its exit status, and the screen.
    pub fn end(mut self) -> (Option<i32>, String) {
        let ended = self.shell.take().unwrap().end();
        wait_until("all of its output is there", || self.reader.is_finished());
        (ended.code(), self.seen())
    }
}
