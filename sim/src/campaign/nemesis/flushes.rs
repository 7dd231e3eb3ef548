//! Flushes a database that has none of the campaign's locks. On a separate server, flushes a lock that is held; an
//! operator then lifts the guard that the flush armed, and the server is killed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::alone;
use super::dice::{Dice, pause};
use crate::campaign::exam::{Exam, say_as};
use crate::campaign::faults::On;
use crate::campaign::machine::{Durability, Machine, ask_as};
use crate::campaign::patience::PATIENCE;
use crate::campaign::world::{NODES, World};

/// Database 1, which has none of the campaign's locks, as a parameter of a URL.
pub const OTHER: &str = "&db=1";

/// The longest time for one question.
const ANSWER: Duration = Duration::from_secs(1);

/// Flushes the other database, on one node or on all at once. The [`crate::campaign::drills`] check later, without
/// other faults, that no lock is lost by such a flush.
pub async fn of_another_database(world: Arc<World>, mut dice: Dice) {
    while world.storms() {
        pause(&world, dice.ms(500, 4_000)).await;
        let first = dice.below(NODES);
        let nodes = if dice.once_in(3) { 0..NODES } else { first..first + 1 };
        flush_other(&world, nodes).await;
    }
}

/// Fills database 1 of `nodes` with locks whose leases run, and flushes that database.
pub async fn flush_other(world: &World, nodes: std::ops::Range<usize>) {
    let on = if nodes.len() == 1 { On::Node(nodes.start) } else { On::AllNodes };
    let _fault = world.log.begin("FLUSHDB of another database", on, "");
    let sockets: Vec<_> = nodes.map(|node| world.slots[node].socket()).collect();
    join_all(sockets.iter().map(|socket| Exam::take(OTHER, socket, "elsewhere", world.settings.max_ttl_ms))).await;
    join_all(sockets.iter().map(|socket| say_as(OTHER, socket, &["FLUSHDB"]))).await;
}

/// Flushes a separate server, lifts its guard, and kills it. No other fault happens to it, and its AOF is always
/// complete.
pub async fn lifted_and_killed(world: Arc<World>, mut dice: Dice) {
    let alone = alone::server(&world, &mut dice, Durability::AofAlways).await;
    let Some((_folder, mut machine)) = alone else { return };
    while world.storms() {
        let fault = world.log.begin("LIFT after a flush, killed (-9)", On::Others, "");
        lift_and_kill(&world, &mut machine, &mut dice).await;
        drop(fault);
        pause(&world, dice.ms(500, 5_000)).await;
    }
    machine.kill().await;
}

async fn lift_and_kill(world: &World, machine: &mut Machine, dice: &mut Dice) {
    let socket = machine.socket();
    let ttl_ms = world.settings.max_ttl_ms;
    // The server is new, or every lease that it ever granted has ended.
    say_as("", &socket, &["LOCK.GUARD", "LIFT"]).await;
    let (word, of) = dice.one_of(&[("FLUSHDB", OTHER), ("FLUSHALL", ""), ("FLUSHDB", "")]);
    let dropped = loop {
        match Exam::take(of, &socket, "dropped", ttl_ms).await {
            Some(dropped) => break dropped,
            None => sleep(dice.ms(5, 20)).await,
        }
        if !world.storms() {
            return;
        }
    };
    say_as(of, &socket, &[word]).await;
    // The operator knows the holder of that lock, and has told it that the lock is lost.
    say_as(of, &socket, &["LOCK.GUARD", "LIFT"]).await;
    if dice.once_in(2) {
        sleep(dice.ms(1, 300)).await;
    }
    machine.kill().await;
    drop(dropped);
    if let Err(why) = machine.start(&world.common, None).await {
        return world.log.found(format!("{}: {why}", machine.name()));
    }
    let begun = Instant::now();
    for database in ["", OTHER] {
        let words = ["LOCK.ACQUIRE", "another", "anybody", "1", "RETRY"];
        loop {
            match ask_as::<Option<u64>>(database, &socket, &words, ANSWER).await {
                Err(why) if why.contains("GUARDED") => {
                    let what = "it is guarded after LIFT and kill -9, and its AOF has everything that it ever granted";
                    return world.log.found(format!("{}, {word}: {what}: {why}", machine.name()));
                }
                Err(_) if begun.elapsed() < PATIENCE => sleep(Duration::from_millis(5)).await,
                Err(why) => return world.log.found(format!("{}: it does not serve: {why}", machine.name())),
                Ok(_) => break,
            }
        }
    }
}
