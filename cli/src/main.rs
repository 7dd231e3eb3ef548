//! The `palisade` program: locks for shells, cron and people on call.
//!
//! It takes locks on a quorum, with `palisade-client`. For facts about single nodes (identity, locks, guard) it asks
//! each node directly.

mod acl;
mod addresses;
mod agent;
mod arguments;
mod break_lock;
mod by_owner;
mod clock;
mod contention;
mod deadlocks;
mod doctor;
mod elect;
mod exec;
mod exit;
mod fields;
mod gate;
mod history;
mod hold;
mod holder;
mod info;
mod lock_log;
mod lock_view;
mod look;
mod losing;
mod members;
mod moment;
mod node_failure;
mod node_view;
mod nodes;
mod reaching;
mod refusing;
mod roles;
mod scan;
mod settings;
mod show;
mod signals;
mod taking;
mod top;
mod watch;
mod why;

use std::io::{Write, stderr, stdout};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

use crate::arguments::{Arguments, Command};
use crate::exec::terminal::Terminal;
use crate::exec::{group, watchdog};
use crate::exit::{End, Failure, USAGE};
use crate::nodes::Nodes;
use crate::show::print_message;
use crate::taking::Patience;

fn main() -> ExitCode {
    if watchdog::is_meant() {
        return watchdog::run();
    }
    if group::is_meant() {
        return failed(&group::become_command());
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    // One thread is enough: it does nothing slow, and locks are kept on the client's own thread.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(why) => return failed(&Failure::of("no thread can be started", why)),
    };
    let end = runtime.block_on(run(arguments));
    // A thread of the runtime may still wait for a line of input, or for the address of a host. The program does not
    // wait for it.
    runtime.shutdown_background();
    match end {
        Ok(End::Signal(signal @ (Signal::SIGINT | Signal::SIGQUIT))) if Terminal::open().is_ours() => {
            // If the command was ended by a signal of the terminal, this process ends itself by the same signal. Only
            // then does a shell end its script.
            let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
            let _ = signal_hook::low_level::emulate_default_handler(signal as i32);
            ExitCode::from(End::Signal(signal).code())
        }
        Ok(end) => ExitCode::from(end.code()),
        Err(failure) => failed(&failure),
    }
}

async fn run(arguments: Arguments) -> Result<End, Failure> {
    let Arguments { shared, command } = arguments;
    let json = shared.json;
    let nodes = || Nodes::at(&shared.reaching);
    // Who asks about locks may have a list that is older than the present set of nodes.
    let present = async || Ok::<_, Failure>(members::present::present(&nodes()?).await);
    match command {
        Command::Exec(exec) => locking(nodes()?, async |nodes| exec::run(nodes, &exec).await).await,
        Command::Lock(lock) => {
            let patience = Patience::of(lock.wait, false);
            locking(nodes()?, async |nodes| hold::run(nodes, &lock.take, patience, json).await).await
        }
        Command::Try(take) => locking(nodes()?, async |nodes| hold::run(nodes, &take, Patience::No, json).await).await,
        Command::Acquire(acquire) => {
            let nodes = Nodes::given(&shared.reaching, acquire.asked.node_timeout)?;
            locking(nodes, async |nodes| by_owner::acquire(nodes, &acquire, json).await).await
        }
        Command::Release(owner) => {
            let nodes = Nodes::given(&shared.reaching, owner.node_timeout)?;
            locking(nodes, async |nodes| by_owner::release(nodes, &owner, json).await).await
        }
        Command::Extend(extend) => {
            let nodes = Nodes::given(&shared.reaching, extend.owner.node_timeout)?;
            locking(nodes, async |nodes| by_owner::extend(nodes, &extend, json).await).await
        }
        Command::Elect(elect) => locking(nodes()?, async |nodes| elect::run(nodes, &elect).await).await,
        Command::Leader { name, follow } => elect::leader(&nodes()?, &name, follow, json).await,
        Command::Watch { keys } => watch::run(&nodes()?, &keys, json).await,
        Command::Info { key } => look::info(&present().await?, key.as_bytes(), json).await,
        Command::Why { key } => why::run(&present().await?, key.as_bytes(), json).await,
        Command::History { key, limit } => {
            history::run(&present().await?, key.as_ref().map(|key| key.as_bytes()), limit.into(), json).await
        }
        Command::Deadlocks => deadlocks::run(&present().await?, json).await,
        Command::Ls { pattern, limit } => look::list(&present().await?, pattern.as_bytes(), limit, json).await,
        Command::Break { key, token, yes } => {
            break_lock::break_lock(&present().await?, key.as_bytes(), token, yes, json).await
        }
        Command::Gate(gate) => gate::run(&nodes()?, &gate, json).await,
        Command::Nodes => node_view::list(&nodes()?, json).await,
        Command::Members(arguments) => {
            locking(nodes()?, async |nodes| members::run(nodes, &arguments, json).await).await
        }
        Command::Guard(guard) => node_view::guard(&shared.reaching, &guard, json).await,
        Command::Top(top) => top::run(&nodes()?, &top, json).await,
        Command::Agent(agent) => agent::run(&shared.reaching, &agent).await,
        Command::Acl { role, user, keys, cluster } => {
            let nodes = if shared.reaching.addresses().is_empty() { None } else { Some(nodes()?) };
            acl::run(nodes.as_ref(), role, user.as_deref(), &keys, cluster).await
        }
        Command::Doctor { role, user, key, legacy } => {
            let whose =
                doctor::RightsSubject { role, user: user.as_deref(), key: key.as_ref().map(|key| key.as_bytes()) };
            doctor::run(&nodes()?, &whose, legacy.as_deref(), json).await
        }
        Command::Completions { shell } => completions(shell).map(|()| End::OK),
        Command::Man { into } => man(into.as_deref()).map(|()| End::OK),
    }
}

/// Prints the completions for this shell.
fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut text = vec![];
    clap_complete::generate(shell, &mut Arguments::command(), "palisade", &mut text);
    show::raw(&String::from_utf8_lossy(&text))
}

/// Prints the man page of the program, or writes all man pages into this folder.
fn man(into: Option<&Path>) -> Result<(), Failure> {
    if let Some(folder) = into {
        let written =
            std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Arguments::command(), folder));
        let what = format!("no man pages can be written into {}", folder.display());
        return written.map_err(|why| Failure::of(&what, why));
    }
    let mut text = vec![];
    let rendered = clap_mangen::Man::new(Arguments::command()).render(&mut text);
    rendered.map_err(|why| Failure::of("the man page cannot be made", why))?;
    show::raw(&String::from_utf8_lossy(&text))
}

/// Runs a function that takes locks. Returns once these have been released.
async fn locking(nodes: Nodes, run: impl AsyncFnOnce(&Nodes) -> Result<End, Failure>) -> Result<End, Failure> {
    let end = run(&nodes).await;
    nodes.given_back().await;
    end
}

/// Prints an error in the arguments in one line. Without any arguments, prints the commands instead. Help and version
/// are not errors.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = write!(stdout(), "{}", error.render());
        return ExitCode::SUCCESS;
    }
    if std::env::args_os().len() == 1 {
        // A user who types no arguments wants an overview.
        let _ = write!(stderr(), "{}", Arguments::command().render_help());
        return ExitCode::from(USAGE);
    }
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.trim_start_matches("error:").split_whitespace().collect();
    failed(&Failure::usage(format!("{} (palisade help tells more)", words.join(" "))))
}

fn failed(failure: &Failure) -> ExitCode {
    if !failure.text.is_empty() {
        print_message(&failure.text);
    }
    ExitCode::from(failure.code)
}
