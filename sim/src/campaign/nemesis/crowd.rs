//! Faults of client processes and agents: they are killed, or stopped for less or more than a lease.

use std::sync::Arc;

use rustix::process::Signal;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::dice::{Dice, pause};
use crate::campaign::world::{Process, World};

/// A group of processes, and the names of their faults.
#[derive(Clone, Copy)]
pub struct Crowd {
    of: fn(&World) -> &[Mutex<Process>],
    killed: &'static str,
    stopped: &'static str,
    /// One in `kills_of` faults is a kill.
    kills_of: u32,
}

/// The clients.
pub const CLIENTS: Crowd =
    Crowd { of: World::clients, killed: "client killed (-9)", stopped: "client stopped", kills_of: 5 };

/// The agents. When an agent fails, its clients use another one.
pub const AGENTS: Crowd =
    Crowd { of: World::agents, killed: "agent killed (-9)", stopped: "agent stopped", kills_of: 2 };

/// Stops or kills one process at a time.
pub async fn processes(world: Arc<World>, mut dice: Dice, crowd: Crowd) {
    while world.storms() {
        pause(&world, dice.ms(150, 2_500)).await;
        let all = (crowd.of)(&world);
        let Ok(mut process) = all[dice.below(all.len())].try_lock() else { continue };
        if dice.once_in(crowd.kills_of) {
            let _fault = world.log.begin(crowd.killed, process.on, "");
            process.kill().await;
            sleep(dice.ms(5, 1_000)).await;
            world.run(&mut process);
        } else {
            let stopped = dice.ms(30, 4_000);
            let _fault = world.log.begin(crowd.stopped, process.on, format!("{} ms", stopped.as_millis()));
            process.signal(Signal::STOP);
            sleep(stopped).await;
            // Some processes are killed while they are stopped.
            if dice.once_in(8) {
                world.log.moment(crowd.killed, process.on, "while it was stopped");
                process.kill().await;
                world.run(&mut process);
            } else {
                process.signal(Signal::CONT);
            }
        }
    }
}
