//! Runs a command under `palisade elect`, and twice takes a majority of the nodes away for longer than the lease. The
//! command must end each time, and start again in a larger term when the nodes are back. `palisade elect` itself must
//! not end.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use palisade_core::quorum::majority;
use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::campaign::faults::On;
use crate::campaign::link::Mode;
use crate::campaign::machine::signal_to;
use crate::campaign::patience::{PATIENCE, until};
use crate::campaign::world::{NODES, World};

/// The length of a leader's lease, and the time for its command to end.
const TTL: Duration = Duration::from_millis(1_000);
const GRACE: Duration = Duration::from_millis(200);

/// The time for which a majority is cut off. A lease and the attempts to extend it end within it.
const CUT_OFF: Duration = Duration::from_millis(2_500);

/// The time for which a majority is stopped. A starting client stops waiting for silent nodes within it.
const STOPPED: Duration = Duration::from_millis(5_500);

/// Runs `palisade elect` while a majority of the nodes is first cut off, and later stopped.
pub async fn under_elect(world: &Arc<World>) {
    let Some(palisade) = &world.settings.palisade else { return };
    let folder = match tempfile::Builder::new().prefix("palisade-chaos-elect-").tempdir() {
        Ok(folder) => folder,
        Err(why) => return world.log.found(format!("no folder for a leader: {why}")),
    };
    let terms = folder.path().join("terms");
    let mut candidate = start(world, palisade, &terms);
    if let Err(why) = outlast(world, &mut candidate, &terms).await {
        world.log.found(format!("palisade elect: {why}"));
    }
    signal_to(Some(&candidate), Signal::TERM);
    if tokio::time::timeout(PATIENCE, candidate.wait()).await.is_err() {
        world.log.found("palisade elect: it does not end by SIGTERM");
        let _ = candidate.kill().await;
    }
}

fn start(world: &World, palisade: &Path, terms: &Path) -> Child {
    let nodes = world.addresses(0);
    let mut command = Command::new(palisade);
    command.args(["--nodes", &nodes.join(","), "elect", "--ttl", &format!("{}ms", TTL.as_millis())]);
    command.args(["--grace", &format!("{}ms", GRACE.as_millis()), "chaos:outages", "--", "sh", "-c"]);
    command.arg("echo $PALISADE_TERM >> \"$0\"; exec sleep 1000").arg(terms);
    let log = fs::File::options().create(true).append(true).open(world.common.logs.join("elect.log"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    command.stderr(log.map_or_else(|_| Stdio::null(), Stdio::from));
    command.spawn().expect("the program can be started")
}

/// Returns the terms in which the command ran.
fn led(terms: &Path) -> Vec<u64> {
    let text = fs::read_to_string(terms).unwrap_or_default();
    text.lines().filter_map(|term| term.parse().ok()).collect()
}

/// Waits until the candidate has led `times` times. The error says that it ended or did not lead again.
async fn until_it_leads(candidate: &mut Child, terms: &Path, times: usize) -> Result<(), String> {
    let leads = until!(
        PATIENCE,
        match candidate.try_wait() {
            _ if led(terms).len() >= times => Some(Ok(())),
            Ok(Some(status)) => Some(Err(format!("it ended with {status} after {} outages", times - 1))),
            _ => None,
        }
    );
    leads.unwrap_or_else(|| Err(format!("it does not lead again after {} outages", times - 1)))
}

async fn outlast(world: &World, candidate: &mut Child, terms: &Path) -> Result<(), String> {
    let begin = |what, time: Duration| world.log.begin(what, On::AllNodes, format!("{} ms", time.as_millis()));
    until_it_leads(candidate, terms, 1).await?;
    let fault = begin("majority cut off under palisade elect", CUT_OFF);
    let links = || world.links_of(0).iter().take(majority(NODES));
    links().for_each(|link| link.set(Mode::Cut));
    sleep(CUT_OFF).await;
    links().for_each(|link| link.set(Mode::Pass));
    drop(fault);
    until_it_leads(candidate, terms, 2).await?;
    let fault = begin("majority stopped under palisade elect", STOPPED);
    let stopped = world.stop(NODES - majority(NODES)..NODES).await;
    sleep(STOPPED).await;
    drop(stopped);
    drop(fault);
    until_it_leads(candidate, terms, 3).await?;
    let led = led(terms);
    if led.is_sorted_by(|one, next| one < next) { Ok(()) } else { Err(format!("its terms do not rise: {led:?}")) }
}
