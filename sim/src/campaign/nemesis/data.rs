//! Faults of the servers that have what the locks protect: kills, a replica that takes over, full synchronisations, and
//! the crash recovery of PostgreSQL.

use std::fs;
use std::sync::Arc;

use redis::Value;
use rustix::process::Signal;
use tokio::time::sleep;

use super::dice::{Dice, pause};
use crate::campaign::faults::On;
use crate::campaign::gated::judge::TAKE_OVER;
use crate::campaign::gated::pair::Pair;
use crate::campaign::gated::postgresql::PostgreSql;
use crate::campaign::gated::trials::Over;
use crate::campaign::journal::now_us;
use crate::campaign::link::Mode;
use crate::campaign::machine::{self, Machine};
use crate::campaign::patience::{PATIENCE, comes_true};
use crate::campaign::resource::{GATES, IN_POSTGRESQL};
use crate::campaign::world::World;
use crate::history::TimeUs;

/// The lines in the INFO of a server whose AOF is on and is not being rewritten.
const REWRITTEN: [&str; 3] = ["aof_enabled:1", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"];

/// A fault of the two servers with gates.
#[derive(Clone, Copy, Debug)]
enum Of {
    /// The master dies, and the replica takes over without its last writes.
    TakenOver,
    /// The master dies, and comes back.
    Killed,
    /// The replica synchronises fully, replaces its data, and takes over at once.
    Synced,
    /// The replica loses its disk, synchronises fully, and takes over at once.
    Emptied,
    /// The master is stopped, and later performs the commands that arrived meanwhile.
    Stopped,
    /// The master loads its data again.
    Reloaded,
}

/// Injects faults on the two servers with gates. A storm does not end before each of them has happened.
pub async fn servers(world: Arc<World>, mut dice: Dice) {
    let Some(pair) = &world.data.pair else { return };
    let mut pair = pair.lock().await;
    let all = [Of::TakenOver, Of::Killed, Of::Synced, Of::Stopped, Of::Emptied, Of::Reloaded];
    for turn in 0.. {
        if !world.storms() && turn >= all.len() {
            return;
        }
        pause(&world, dice.ms(100, 1_500)).await;
        if let Err(why) = act(&world, &mut pair, all[turn % all.len()], &mut dice).await {
            return world.log.found(format!("data: {why}"));
        }
    }
}

async fn act(world: &World, pair: &mut Pair, fault: Of, dice: &mut Dice) -> Result<(), String> {
    let from = now_us();
    match fault {
        Of::TakenOver => take_over(world, pair, None, dice).await,
        Of::Killed => {
            // A server that was fully synced has an AOF again only after the first rewrite.
            let has_aof = comes_true!(PATIENCE, {
                let info = pair.master().ask::<String>(&["INFO", "persistence"]).await.unwrap_or_default();
                REWRITTEN.iter().all(|line| info.contains(line))
            });
            if !has_aof {
                return Err("the AOF is never rewritten".to_owned());
            }
            let _fault = world.log.begin("data master killed (-9)", On::Others, "");
            let from = now_us();
            pair.master().kill().await;
            sleep(dice.ms(1, 500)).await;
            pair.master().start(&world.common, None).await?;
            world.data.trials.record(Over::Kill, 0..GATES, from);
            Ok(())
        }
        Of::Synced => {
            let fault = world.log.begin("data replica fully synced", On::Others, "");
            ask(pair.master(), &["DEBUG", "CHANGE-REPL-ID"]).await?;
            ask(pair.master(), &["CLIENT", "KILL", "TYPE", "replica"]).await?;
            in_step(pair).await?;
            drop(fault);
            take_over(world, pair, Some(from), dice).await
        }
        Of::Emptied => {
            let fault = world.log.begin("data replica lost its disk", On::Others, "");
            pair.replica().kill().await;
            let dir = pair.replica().dir().to_owned();
            fs::remove_dir_all(&dir).and_then(|()| fs::create_dir(&dir)).map_err(|why| why.to_string())?;
            pair.start_replica(&world.common).await?;
            in_step(pair).await?;
            drop(fault);
            take_over(world, pair, Some(from), dice).await
        }
        Of::Stopped => {
            let time = dice.ms(30, 3_000);
            let _fault = world.log.begin("data master stopped", On::Others, format!("{} ms", time.as_millis()));
            pair.master().signal(Signal::STOP);
            sleep(time).await;
            pair.master().signal(Signal::CONT);
            Ok(())
        }
        Of::Reloaded => {
            let _fault = world.log.begin("data master loads again", On::Others, "");
            ask(pair.master(), &["DEBUG", "RELOAD"]).await?;
            world.data.trials.record(Over::Restart, 0..GATES, from);
            Ok(())
        }
    }
}

/// Kills the master, and lets the replica take over. The replica lacks the last writes, unless a full synchronisation
/// began at `synced` and has just ended.
async fn take_over(world: &World, pair: &mut Pair, synced: Option<TimeUs>, dice: &mut Dice) -> Result<(), String> {
    let _fault = world.log.begin(TAKE_OVER, On::Others, "");
    in_step(pair).await?;
    if synced.is_none() {
        pair.link.set(Mode::Swallow);
        sleep(dice.ms(1, 800)).await;
    }
    let killed = now_us();
    pair.master().kill().await;
    sleep(dice.ms(1, 200)).await;
    pair.promote().await?;
    pair.link.set(Mode::Pass);
    world.data.trials.record(Over::Promotion, 0..GATES, killed);
    if let Some(from) = synced {
        world.data.trials.record(Over::FullSync, 0..GATES, from);
    }
    sleep(dice.ms(1, 500)).await;
    pair.start_replica(&world.common).await
}

/// Sends a command, which may take long on a busy machine.
async fn ask(machine: &Machine, words: &[&str]) -> Result<(), String> {
    machine::ask::<Value>(&machine.socket(), words, PATIENCE).await.map(drop)
}

async fn in_step(pair: &Pair) -> Result<(), String> {
    if pair.is_in_step().await { Ok(()) } else { Err("the replica never has what its master has".to_owned()) }
}

/// Kills and restarts PostgreSQL, in each of several ways in turn. A storm does not end before each has happened.
pub async fn postgresql(world: Arc<World>, mut dice: Dice) {
    let Some(server) = &world.data.postgresql else { return };
    let mut server = server.lock().await;
    for turn in 0.. {
        if !world.storms() && turn >= 3 {
            return;
        }
        pause(&world, dice.ms(500, 4_000)).await;
        if let Err(why) = act_on_postgresql(&world, &mut server, turn % 3, &mut dice).await {
            return world.log.found(format!("PostgreSQL: {why}"));
        }
    }
}

async fn act_on_postgresql(world: &World, server: &mut PostgreSql, turn: usize, dice: &mut Dice) -> Result<(), String> {
    let kinds = ["PostgreSQL killed (-9)", "PostgreSQL: a connection's process killed (-9)", "PostgreSQL restarted"];
    let _fault = world.log.begin(kinds[turn], On::Others, "");
    let from = now_us();
    match turn {
        0 => server.kill().await,
        1 => server.kill_one().await,
        _ => server.end(Signal::INT).await,
    }
    sleep(dice.ms(1, 500)).await;
    server.start().await?;
    // A server that lost one process may answer once more before it recovers, so the end of this fault is not known.
    let over = [Some(Over::Kill), None, Some(Over::Restart)][turn];
    over.into_iter().for_each(|over| world.data.trials.record(over, [IN_POSTGRESQL], from));
    Ok(())
}
