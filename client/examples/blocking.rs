//! Locks without async: the same names, and threads that block.

mod addresses;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use palisade_client::{Client, Error, ErrorKind, Options, blocking};

const KEY: &str = "stock:apples";

fn main() -> ExitCode {
    let nodes = addresses::of_nodes();
    match run(&nodes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(nodes: &[String]) -> Result<(), Error> {
    let defaults = Options::new().ttl(Duration::from_secs(5));
    // One client per process: its clones share connections. `blocking::Client::new` does the same with the default
    // options.
    let locks: blocking::Client = Client::builder().nodes(nodes).defaults(defaults.clone()).build()?.into();

    // Waits in turn, and extends the lease in the background until the guard is released or dropped.
    let guard = locks.lock(KEY)?;
    println!("held with token {}, valid for {} ms", guard.token(), guard.valid_for().as_millis());

    // This call does not wait: it is refused, with the age and the note of the holder's lock.
    match locks.try_lock(KEY) {
        Err(error) if error.kind() == ErrorKind::Contended => println!("refused: {error}"),
        Err(error) => return Err(error),
        Ok(_) => println!("the lock was lost meanwhile, and taken again"),
    }
    println!("released: {:?}", guard.release());

    // Threads take turns. The body checks its lock before each step that must not happen without it.
    let patient = defaults.wait(Duration::from_secs(10)).note("counting apples");
    let count = |name: &str| {
        locks.with(&patient).with_lock(KEY, |guard| {
            for apple in 1..=3 {
                if !guard.is_valid() {
                    return println!("{name}: the lock is lost, stopped");
                }
                println!("{name}: apple {apple}, token {}", guard.token());
                thread::sleep(Duration::from_millis(100));
            }
        })
    };
    let count = &count;
    thread::scope(|scope| {
        let threads = ["left", "right"].map(|name| scope.spawn(move || count(name)));
        threads.into_iter().try_for_each(|thread| thread.join().expect("counting does not panic"))
    })
}
