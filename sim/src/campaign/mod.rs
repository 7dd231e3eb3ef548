//! The fault campaign: real servers, real client processes, and a nemesis, which injects faults.
//!
//! Several client processes ([`contender`]) reach five servers with the module (`machine`) over links that can fail
//! (`link`). Clients take locks and access a register under them (`register`). Each client records what it relies on
//! (`journal`). The `nemesis` kills and stops processes, cuts links, fills disks and sets clocks, at random from a
//! seed. The records of all processes are merged and judged by the referee, while the campaign runs and at the end
//! (`judge`). An `exam` checks the promises of a single node, `drills` test promises that can only be judged without
//! faults, and `aftermath` checks the conditions that must hold once everything is healed. docs/chaos.md tells users
//! what a campaign shows.

mod aftermath;
pub mod agent;
mod candidate;
mod cluster;
mod connection;
pub mod contender;
mod disk;
mod drills;
mod elected;
mod exam;
mod faults;
mod gated;
mod given_back;
mod journal;
mod judge;
mod keeper;
mod kept;
mod kinds;
mod link;
mod machine;
mod nemesis;
mod patience;
mod process;
mod register;
pub mod report;
mod resource;
pub mod settings;
mod through;
mod timeline;
mod watch;
mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use aftermath::EndState;
use drills::Drills;
use faults::{Fault, Wrong};
use journal::now_us;
use judge::History;
use patience::PATIENCE;
use settings::Settings;
use watch::{Guarded, Guards};
use world::{CONTENDED_KEYS, World};

use crate::history::TimeUs;

/// The length of a storm, in which the nemesis injects faults. Afterwards everything is healed, and locks must become
/// available again.
const STORM: Duration = Duration::from_secs(30);

/// The length of the calm period between storms.
const CALM: Duration = Duration::from_secs(2);

/// The pause between two checks whether every contended lock was acquired again.
const LOOK: Duration = Duration::from_millis(50);

/// A recovery: everything was healed, and then every contended lock was acquired again.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// The moment at which the last fault was healed; the recovery begins here.
    pub from: TimeUs,
    /// The time, in microseconds, until enough nodes were no longer guarded: a majority, or all servers of a cluster.
    pub guard_us: u64,
    /// The time from `from` until every contended lock was acquired again, in microseconds.
    pub took_us: u64,
}

/// The result of a campaign.
#[derive(Debug)]
pub struct Outcome {
    /// The settings.
    pub settings: Settings,
    /// The moment at which the campaign began.
    pub from: TimeUs,
    /// The moment at which the campaign ended.
    pub until: TimeUs,
    /// The merged records of all processes.
    pub history: History,
    /// Every fault that was injected.
    pub faults: Vec<Fault>,
    /// All violations that were found.
    pub wrong: Vec<Wrong>,
    /// The moment at which the first finding was noticed.
    pub noticed: Option<TimeUs>,
    /// All guards that the campaign observed.
    pub guards: Vec<Guarded>,
    /// One recovery for each time that all faults were healed.
    pub recoveries: Vec<Recovery>,
    /// The number of majorities that granted every key at the end, while the other nodes were unreachable.
    pub majorities: usize,
    /// The servers at the end.
    pub ends: Vec<EndState>,
    /// The number of starts whose state file proved that the node remembers every grant, and the number of other
    /// starts.
    pub starts: (usize, usize),
    /// The client of each life (a run of a client process from its start to its end), from life 1 on.
    pub lives: Vec<usize>,
    /// The result of judging the leases that KEEPALIVE kept.
    pub kept: kept::KeptLeases,
    /// The result of judging the elections.
    pub elections: elected::Elections,
    /// The result of judging the agents' answers to RELEASE.
    pub given_back: given_back::GivenBack,
    /// The result of judging writes to resources that check tokens.
    pub gated: gated::judge::Gated,
    /// True if one of these resources was in PostgreSQL.
    pub postgresql: bool,
    /// True if disks could fill up.
    pub full_disks: bool,
    /// The folder of the report and the journals.
    pub out: PathBuf,
}

/// Runs a campaign. Calls `tell` with a progress line from time to time.
///
/// # Errors
///
/// The campaign cannot run here; the text says what is missing.
pub async fn run(settings: Settings, mut tell: impl FnMut(String)) -> Result<Outcome, String> {
    let folder = tempfile::Builder::new().prefix("palisade-chaos-").tempdir().map_err(|why| why.to_string())?;
    let out = settings.out.clone();
    let world = World::make(settings, folder.path()).await?;
    if world.data.postgresql.is_none() && world.cluster.is_none() {
        tell("LEFT OUT: writes behind fences of PostgreSQL, which is not installed here".to_owned());
    }
    // The campaign begins: its processes have just been started.
    let from = now_us();
    let guards = Guards::default();
    let mut watchers = tokio::task::JoinSet::new();
    for node in 0..world.slots.len() {
        watchers.spawn(watch::node(Arc::clone(&world), node, guards.clone()));
    }
    for process in 0..world.processes.len() {
        watchers.spawn(watch::process(Arc::clone(&world), process));
    }
    let mut campaign = Campaign { world, guards, history: History::default(), from, noticed: None };
    watchers.spawn(gated::reader::watch(Arc::clone(&campaign.world)));
    let recoveries = campaign.storms(&mut tell).await;
    tell("all faults are healed: every client finishes".to_owned());
    let Campaign { world, guards, mut history, from, noticed } = campaign;
    // A process that ends after this point was asked to end.
    watchers.shutdown().await;
    aftermath::finish(&world).await;
    history.read(&world);
    aftermath::read_resources(&world).await;
    aftermath::probe(&world, &mut history).await;
    let majorities = if world.cluster.is_some() { 0 } else { aftermath::majorities(&world, &mut history).await };
    let ends = aftermath::inspect(&world).await;
    for slot in &world.slots {
        slot.machine.lock().await.kill().await;
    }
    let mut wrong = history.judge(TimeUs::MAX);
    wrong.extend(counters(&world, &history));
    let kept = kept::judge(&history.lines, &world.log.faults(), &world.lives());
    let elections = elected::judge(&history.lines);
    let given_back = given_back::judge(&history.seen, &history.lines);
    let (landed, trials) = (world.data.landed.all(), world.data.trials.all());
    let gated = gated::judge::judge(&history.lines, &landed, &world.log.faults(), &trials, !world.settings.cluster);
    for found in [&kept.wrong, &elections.wrong, &given_back.wrong, &gated.wrong] {
        wrong.extend_from_slice(found);
    }
    wrong.extend(world.log.findings());
    wrong.sort_by_key(|wrong| wrong.at);
    let noticed = noticed.or_else(|| (!wrong.is_empty()).then(now_us));
    Ok(Outcome {
        settings: world.settings.clone(),
        from,
        until: now_us(),
        history,
        faults: world.log.faults(),
        wrong,
        noticed,
        guards: guards.all(),
        recoveries,
        majorities,
        ends,
        starts: aftermath::starts(&world),
        lives: world.lives(),
        kept,
        elections,
        given_back,
        gated,
        postgresql: world.data.postgresql.is_some(),
        full_disks: world.slots.iter().all(|slot| slot.disk.can_be_full()),
        out,
    })
}

/// Checks that every register's number equals the number of its accepted updates.
fn counters(world: &World, history: &History) -> Vec<Wrong> {
    let taken = |key: u32| {
        let of_key = history.seen.iter().filter_map(|seen| seen.arrival).filter(|arrival| arrival.event.key == key);
        of_key.filter(|arrival| arrival.taken && arrival.writes).count() as u64
    };
    let numbers = world.register.numbers().into_iter();
    let wrong = numbers.filter(|&(key, number)| number != taken(key)).map(|(key, number)| {
        let what = format!("counter: key {key} counted to {number}, and {} updates were taken", taken(key));
        Wrong { at: now_us(), key: Some(key), what }
    });
    wrong.collect()
}

struct Campaign {
    world: Arc<World>,
    guards: Guards,
    history: History,
    from: TimeUs,
    noticed: Option<TimeUs>,
}

impl Campaign {
    async fn storms(&mut self, tell: &mut impl FnMut(String)) -> Vec<Recovery> {
        let seconds = self.world.settings.seconds;
        let (half, end) = (self.from + seconds * 500_000, self.from + seconds * 1_000_000);
        // New nodes are guarded. The first storm begins once they serve.
        let mut recoveries = vec![self.recover(tell).await];
        let mut drills = Drills::of(&self.world);
        for era in 0.. {
            let left = end.saturating_sub(now_us());
            // On a busy machine, the guards of new nodes may use up the whole time. At least one storm runs even so.
            if left == 0 && era > 0 {
                break;
            }
            let storm_ends = now_us() + left.min(STORM.as_micros() as u64);
            self.world.storm.store(true, Ordering::Relaxed);
            let mut storm = tokio::spawn({
                let world = Arc::clone(&self.world);
                async move { nemesis::storm(&world, era).await }
            });
            let mut interrupted = false;
            loop {
                tokio::select! {
                    ended = &mut storm => {
                        if let Err(why) = ended {
                            self.world.log.found(format!("the nemesis failed: {why}"));
                        }
                        break;
                    }
                    _ = tokio::signal::ctrl_c() => interrupted = true,
                    () = sleep(Duration::from_secs(2)) => self.progress(tell),
                }
                // From half of the time on, clocks may be stepped by hours. Even a short campaign thus has both phases.
                self.world.wild_clocks.store(now_us() > half, Ordering::Relaxed);
                if now_us() >= storm_ends || interrupted {
                    self.world.storm.store(false, Ordering::Relaxed);
                }
            }
            recoveries.push(self.recover(tell).await);
            let failed = recoveries.last().is_some_and(|recovery| recovery.took_us > PATIENCE.as_micros() as u64);
            if interrupted || failed {
                return recoveries;
            }
            drills.next(&self.world).await;
            if now_us() < end && self.world.cluster.is_none() {
                // At the end, every majority must grant every key.
                aftermath::majorities_in_calm(&self.world).await;
            }
            self.progress(tell);
            if !self.world.settings.brief {
                sleep(CALM).await;
            }
        }
        drills.rest(&self.world).await;
        self.progress(tell);
        recoveries
    }

    /// Waits, once all faults are healed, until every contended key has been acquired again.
    async fn recover(&mut self, tell: &mut impl FnMut(String)) -> Recovery {
        let from = now_us();
        let mut left = vec![];
        for slot in &self.world.slots {
            left.push(watch::guard_left_ms(&slot.socket()).await);
        }
        left.sort_unstable();
        // Once the guard at this position has ended, a majority has no guard. A cluster needs all its servers.
        let needed = if self.world.cluster.is_some() { left.len() - 1 } else { left.len() / 2 };
        let guard_us = left[needed] * 1_000;
        loop {
            self.history.read(&self.world);
            let first = self.history.first_held(from);
            if (0..CONTENDED_KEYS).all(|key| first.contains_key(&key)) {
                let last = (0..CONTENDED_KEYS).map(|key| first[&key]).max().unwrap_or(from);
                let took_us = last - from;
                tell(format!("healed: every lock was had again after {} ms", took_us / 1_000));
                return Recovery { from, guard_us, took_us };
            }
            if now_us() - from > PATIENCE.as_micros() as u64 {
                self.world.log.found(format!("not every lock can be had {PATIENCE:?} after the last fault was healed"));
                return Recovery { from, guard_us, took_us: now_us() - from };
            }
            sleep(LOOK).await;
        }
    }

    fn progress(&mut self, tell: &mut impl FnMut(String)) {
        let mut wrong = self.history.judge_settled(&self.world);
        wrong.extend(self.world.log.findings());
        if !wrong.is_empty() && self.noticed.is_none() {
            self.noticed = Some(now_us());
            let seconds = (now_us() - self.from) as f64 / 1e6;
            tell(format!("VIOLATION, noticed after {seconds:.1} s: {}", wrong[0].what));
        }
        tell(report::progress(self.from, &self.history, &self.world.log.faults(), wrong.len()));
    }
}
