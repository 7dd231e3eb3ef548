//! Looks at the nodes and clients while a campaign runs: who is guarded, and whether a process ended by itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use super::journal::now_us;
use super::machine::ask;
use super::world::World;
use crate::history::TimeUs;

/// Pause between two looks.
const EVERY: Duration = Duration::from_millis(150);

/// How long a node may take to answer a look.
const LOOK: Duration = Duration::from_millis(250);

/// A time for which a node was guarded.
#[derive(Clone, Debug)]
pub struct Guarded {
    /// Which node.
    pub node: usize,
    /// When that was seen first.
    pub from: TimeUs,
    /// When it ended, or will.
    pub until: TimeUs,
    /// Why.
    pub reason: String,
}

/// All guards that were seen.
#[derive(Clone, Debug, Default)]
pub struct Guards(Arc<Mutex<Vec<Guarded>>>);

impl Guards {
    /// All of them so far.
    pub fn all(&self) -> Vec<Guarded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn see(&self, node: usize, left_ms: u64, reason: String) {
        let now = now_us();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = all.iter_mut().rev().find(|guarded| guarded.node == node);
        // One that was seen to go on a moment ago is the same.
        match open {
            Some(open) if open.until >= now && left_ms == 0 => open.until = now,
            Some(open) if open.until + LOOK.as_micros() as u64 >= now && open.reason == reason && left_ms > 0 => {
                open.until = now + left_ms * 1_000;
            }
            _ if left_ms > 0 => all.push(Guarded { node, from: now, until: now + left_ms * 1_000, reason }),
            _ => {}
        }
    }
}

/// Watches one node, for ever.
pub async fn node(world: Arc<World>, node: usize, guards: Guards) {
    loop {
        sleep(EVERY).await;
        drop(world.take_machine(node).await);
        if let Some((left_ms, reason)) = guard(&world.slots[node].socket()).await {
            guards.see(node, left_ms, reason);
        }
    }
}

/// For how long the node at `socket` is guarded still, and why; `None`: it does not tell.
async fn guard(socket: &Path) -> Option<(u64, String)> {
    let told: HashMap<String, String> = ask(socket, &["LOCK.NODE"], LOOK).await.ok()?;
    Some((told.get("guard_ms")?.parse().ok()?, told.get("guard_reason")?.clone()))
}

/// For how long the node at `socket` is guarded still, in milliseconds.
pub async fn guard_left_ms(socket: &Path) -> u64 {
    guard(socket).await.map_or(0, |(left_ms, _)| left_ms)
}

/// Watches one client or agent, for ever.
pub async fn process(world: Arc<World>, number: usize) {
    loop {
        sleep(EVERY).await;
        if let Ok(mut process) = world.processes[number].try_lock()
            && process.has_ended()
        {
            world.log.found(format!("{} ended by itself: see its log", process.on));
            world.run(&mut process);
        }
    }
}
