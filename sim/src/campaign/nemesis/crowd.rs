//! What happens to client processes and agents: they are stopped, for less and for more than a lease, and killed.

use std::sync::Arc;

use rustix::process::Signal;
use tokio::time::sleep;

use super::dice::{Dice, pause};
use crate::campaign::faults::On;
use crate::campaign::world::{CLIENTS, World};

/// One client at a time.
pub async fn processes(world: Arc<World>, mut dice: Dice) {
    while world.storms() {
        pause(&world, dice.ms(100, 2_500)).await;
        let client = dice.below(CLIENTS);
        let Ok(mut contender) = world.contenders[client].try_lock() else { continue };
        if dice.once_in(5) {
            let fault = world.log.begin("client killed (-9)", On::Client(client), "");
            contender.kill().await;
            sleep(dice.ms(10, 1_000)).await;
            world.start_contender(client, &mut contender);
            world.log.end(fault);
        } else {
            let stopped = dice.ms(30, 4_000);
            let fault = world.log.begin("client stopped", On::Client(client), format!("{} ms", stopped.as_millis()));
            contender.signal(Signal::STOP);
            sleep(stopped).await;
            // Killed in its sleep, now and then.
            if dice.once_in(8) {
                world.log.moment("client killed (-9)", On::Client(client), "while it was stopped");
                contender.kill().await;
                world.start_contender(client, &mut contender);
            } else {
                contender.signal(Signal::CONT);
            }
            world.log.end(fault);
        }
    }
}

/// One agent at a time. Whoever asks it for locks goes to another one.
pub async fn agents(world: Arc<World>, mut dice: Dice) {
    while world.storms() {
        pause(&world, dice.ms(200, 2_500)).await;
        let agent = dice.below(CLIENTS);
        let Ok(mut process) = world.agents[agent].try_lock() else { continue };
        if dice.once_in(2) {
            let fault = world.log.begin("agent killed (-9)", On::Agent(agent), "");
            process.kill().await;
            sleep(dice.ms(1, 1_000)).await;
            world.start_agent(agent, &mut process);
            world.log.end(fault);
        } else {
            let stopped = dice.ms(30, 4_000);
            let fault = world.log.begin("agent stopped", On::Agent(agent), format!("{} ms", stopped.as_millis()));
            process.signal(Signal::STOP);
            sleep(stopped).await;
            process.signal(Signal::CONT);
            world.log.end(fault);
        }
    }
}
