//! Flushes a database without any held lock on all nodes: no lock of another database may be lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Witness, keep, options, tell};
use crate::campaign::nemesis;
use crate::campaign::patience::PATIENCE;
use crate::campaign::world::{NODES, World};

/// The number of locks held during the flush.
const KEYS: u32 = 8;

/// Flushes database 1 while `KEYS` locks are held in database 0. The locks are then held for longer than their leases.
pub async fn other_database(world: &Arc<World>) {
    let witness = Arc::new(Witness::of(world));
    let client = world.client();
    // The limits are long, because a busy machine may answer late.
    let options = options(world).wait(PATIENCE).node_timeout(Duration::from_millis(world.settings.max_ttl_ms / 5));
    let mut guards = vec![];
    for key in 0..KEYS {
        // A failure is ignored here, because other checks require that locks can be acquired.
        if let Ok(guard) = client.with(&options).lock(format!("chaos:flush:{key}")).await {
            guards.push(guard);
        }
    }
    let time = Duration::from_millis(world.settings.max_ttl_ms * 3 / 2);
    let mut holders = JoinSet::new();
    for guard in guards {
        let (world, witness) = (Arc::clone(world), Arc::clone(&witness));
        holders.spawn(async move { keep(&world, &witness, guard, time).await });
    }
    nemesis::flush_other(world, 0..NODES).await;
    tell(world, "FLUSHDB of another database", KEYS as usize, holders).await;
}
