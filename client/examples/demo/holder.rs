//! The first client: a process of its own that takes the lock and does what it is told, line by line.
//!
//! It is asked on its standard input and answers on its standard output: `look`, how the lock is; `check`, the same,
//! before a write; `write`, the token that it writes with, without another look.

use std::io::BufRead;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use palisade_client::{Options, blocking};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Failure;

/// What that process does.
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

/// That process, as the story sees it. It is killed when this is dropped.
pub struct Holder {
    child: Child,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// What it says of its lock.
pub struct Look {
    pub token: u64,
    pub valid_ms: u64,
}

impl Holder {
    /// Starts it, and returns with its first look at the lock that it has taken.
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

    /// How its lock is.
    pub async fn look(&mut self) -> Result<Look, Failure> {
        self.say("look").await?;
        self.answer().await
    }

    /// The last look before a write.
    pub async fn check(&mut self) -> Result<Look, Failure> {
        self.say("check").await?;
        self.answer().await
    }

    /// The token that it writes with: that of its check.
    pub async fn write(&mut self) -> Result<u64, Failure> {
        self.say("write").await?;
        Ok(self.answer().await?.token)
    }

    /// Pauses it: nothing in it runs until it goes on, neither its checks nor the extending in the background.
    pub fn pause(&self) -> Result<(), Failure> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub fn go_on(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    /// Its process.
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
