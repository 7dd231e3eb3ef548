//! The first client: a process of its own that acquires the lock and obeys commands, line by line.
//!
//! It reads commands on its standard input and answers on its standard output. `look` reports the state of the lock.
//! `check` does the same before a write. `write` reports the token of the write, without another check.

use std::io::BufRead;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use palisade_client::{Options, blocking};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Failure;

/// Runs the first client's process.
pub fn run(key: &str, ttl_ms: &str, addresses: &[&str]) -> ExitCode {
    match hold(key, ttl_ms, addresses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("The first client: {why}");
            ExitCode::FAILURE
        }
    }
}

fn hold(key: &str, ttl_ms: &str, addresses: &[&str]) -> Result<(), Failure> {
    let options = Options::new()
        .ttl(Duration::from_millis(ttl_ms.parse()?))
        .node_timeout(Duration::from_millis(500))
        .note("the first client");
    let guard = blocking::Client::new(addresses.iter().copied())?.with(&options).lock(key)?;
    let look = || println!("{} {}", guard.token(), guard.valid_for().as_millis());
    look();
    let mut token = guard.token();
    for line in std::io::stdin().lock().lines() {
        match line?.as_str() {
            "look" => look(),
            "check" => {
                token = guard.token();
                look();
            }
            "write" => println!("{token} 0"),
            other => return Err(format!("{other:?} is not known").into()),
        }
    }
    Ok(())
}

/// A handle to the first client's process, which is killed when the handle is dropped.
pub struct Holder {
    child: Child,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// The state of the lock, as its holder reports it.
pub struct Look {
    pub token: u64,
    pub valid_ms: u64,
}

impl Holder {
    /// Starts the process. Returns with its first report on the acquired lock.
    pub async fn start(key: &str, ttl: Duration, addresses: &[String]) -> Result<(Self, Look), Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["holder", key, &ttl.as_millis().to_string()])
            .args(addresses)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take().expect("it was piped");
        let answers = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let mut holder = Self { child, stdin, answers };
        let look = holder.answer().await?;
        Ok((holder, look))
    }

    /// Returns the state of the process's lock.
    pub async fn look(&mut self) -> Result<Look, Failure> {
        self.say("look").await?;
        self.answer().await
    }

    /// Returns the state of the process's lock, for the check before a write.
    pub async fn check(&mut self) -> Result<Look, Failure> {
        self.say("check").await?;
        self.answer().await
    }

    /// Returns the token with which the process writes: that of its last check.
    pub async fn write(&mut self) -> Result<u64, Failure> {
        self.say("write").await?;
        Ok(self.answer().await?.token)
    }

    /// Pauses the process: until it resumes, nothing in it runs, neither its checks nor the background extension.
    pub fn pause(&self) -> Result<(), Failure> {
        self.signal(Signal::STOP)
    }

    /// Resumes the process.
    pub fn go_on(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> Result<u32, Failure> {
        self.child.id().ok_or_else(|| "the first client has ended".into())
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = Pid::from_raw(self.pid()?.try_into()?).ok_or("no process has the number 0")?;
        Ok(kill_process(pid, signal)?)
    }

    async fn say(&mut self, word: &str) -> Result<(), Failure> {
        Ok(self.stdin.write_all(format!("{word}\n").as_bytes()).await?)
    }

    async fn answer(&mut self) -> Result<Look, Failure> {
        let line = self.answers.next_line().await?.ok_or("the first client has ended")?;
        let (token, valid_ms) = line.split_once(' ').ok_or("the first client says what is not understood")?;
        Ok(Look { token: token.parse()?, valid_ms: valid_ms.parse()? })
    }
}
