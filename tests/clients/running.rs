//! Runs commands in the folder of the recipes.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::harness::{self, wait_until};

/// Returns the folder of the recipes.
pub fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients"))
}

/// The result of a command.
pub struct Ended {
    pub status: ExitStatus,
    pub printed: String,
    pub complaint: String,
}

/// Runs a command, and returns its output. Panics if the command fails, or prints errors.
pub fn output(command: &str, port: u16) -> String {
    let ended = run(command, port);
    assert!(
        ended.status.success() && ended.complaint.is_empty(),
        "{}: {command}\n{}{}If the client is missing: make setup-clients",
        ended.status,
        ended.printed,
        ended.complaint
    );
    ended.printed
}

/// Runs a command for a server at `port`; 0 means no server and no time limit.
pub fn run(command: &str, port: u16) -> Ended {
    let [mut stdout, mut stderr] = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let mut child =
        shell(command, port).stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap()).spawn().unwrap();
    let status = if port == 0 { child.wait().unwrap() } else { end_of(&mut child) };
    let [printed, complaint] = [&mut stdout, &mut stderr].map(|file| {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).unwrap();
        text
    });
    Ended { status, printed, complaint }
}

/// Waits for a recipe, and returns its exit status. Kills it after half of the test's time limit.
fn end_of(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    let mut status = None;
    wait_until("the recipe ends", || {
        status = child.try_wait().unwrap();
        if status.is_none() && start.elapsed() > harness::patience() / 2 {
            let _ = child.kill();
        }
        status.is_some()
    });
    status.expect("it has ended")
}

/// Returns a shell that runs a command for a server at `port`.
pub fn shell(command: &str, port: u16) -> Command {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients");
    fs::create_dir_all(&built).unwrap();
    let path = format!("{}:{}", built.join("python/bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder()).env("PATH", path).env("BUILT", &built);
    shell.env("PORT", port.to_string()).stdin(Stdio::null());
    shell
}
