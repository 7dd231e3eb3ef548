//! A story with five nodes: one client waits, nodes are killed and come back, the holder is paused, and its late write
//! is refused.
//!
//! `make demo` runs it. It starts its own servers, checks each fact that it reports, and leaves nothing behind.

mod holder;
mod nodes;
mod register;
mod show;
mod story;

use std::process::ExitCode;
use std::time::Duration;

/// The longest time for the story. It takes half a minute, so after this it is stuck.
const LIMIT: Duration = Duration::from_secs(120);

/// A failure, which ends the story with its text.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &arguments[..] {
        // The holder of the story is a process of its own: this program with these arguments.
        ["holder", key, ttl_ms, addresses @ ..] => holder::run(key, ttl_ms, addresses),
        ["--server", server, "--module", module] => tell(server, module),
        _ => {
            eprintln!("usage: demo --server redis-server --module target/release/libpalisade.so");
            ExitCode::from(2)
        }
    }
}

#[tokio::main]
async fn tell(server: &str, module: &str) -> ExitCode {
    // Servers, processes and the folder belong to the story: they are removed when it ends, fails or is interrupted.
    let told = tokio::select! {
        told = tokio::time::timeout(LIMIT, story::tell(server, module)) => {
            told.unwrap_or_else(|_| Err(format!("it was not over after {LIMIT:?}").into()))
        }
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("The story ends here: {why}");
            ExitCode::FAILURE
        }
    }
}
