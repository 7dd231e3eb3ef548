//! Watches nodes and clients while a campaign runs: guards of nodes, and processes that end by themselves.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use super::journal::now_us;
use super::machine::ask;
use super::world::World;
use crate::history::TimeUs;

/// The pause between two checks.
const EVERY: Duration = Duration::from_millis(150);

/// The longest time for a node to answer a check.
const LOOK: Duration = Duration::from_millis(250);

/// A time during which a node was guarded.
#[derive(Clone, Debug)]
pub struct Guarded {
    /// The number of the node, from 0.
    pub node: usize,
    /// The moment at which the guard was first observed.
    pub from: TimeUs,
    /// The end of the guard, past or expected.
    pub until: TimeUs,
    /// The node's reason for the guard.
    pub reason: String,
}

/// The times during which nodes were observed to be guarded.
#[derive(Clone, Debug, Default)]
pub struct Guards(Arc<Mutex<Vec<Guarded>>>);

impl Guards {
    /// Returns all guards so far.
    pub fn all(&self) -> Vec<Guarded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn see(&self, node: usize, left_ms: u64, reason: String) {
        let now = now_us();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = all.iter_mut().rev().find(|guarded| guarded.node == node);
        // A guard that was observed a moment ago and still runs counts as the same one.
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

/// Watches one node, forever.
pub async fn node(world: Arc<World>, node: usize, guards: Guards) {
    loop {
        sleep(EVERY).await;
        drop(world.take_machine(node).await);
        if let Some((left_ms, reason)) = guard(&world.slots[node].socket()).await {
            guards.see(node, left_ms, reason);
        }
    }
}

/// Returns the remaining guard of the node at `socket` in milliseconds, and its reason; `None` if the node does not
/// answer.
async fn guard(socket: &Path) -> Option<(u64, String)> {
    let told: HashMap<String, String> = ask(socket, &["LOCK.NODE"], LOOK).await.ok()?;
    Some((told.get("guard_ms")?.parse().ok()?, told.get("guard_reason")?.clone()))
}

/// Returns the remaining guard of the node at `socket`, in milliseconds.
pub async fn guard_left_ms(socket: &Path) -> u64 {
    guard(socket).await.map_or(0, |(left_ms, _)| left_ms)
}

/// Watches one client or agent, forever.
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
