//! Makes the replicas of a cluster's shards take over under load: a master dies, steps down, is not asked, or is cut
//! off from the other servers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::dice::{Dice, pause};
use crate::campaign::cluster::shards::{is_master, roles, say};
use crate::campaign::cluster::{Cluster, SHARDS};
use crate::campaign::exam::{self, Exam, starts_above};
use crate::campaign::faults::On;
use crate::campaign::gated::trials::Over;
use crate::campaign::journal::now_us;
use crate::campaign::link::Mode;
use crate::campaign::patience::{LOOK, comes_true};
use crate::campaign::world::World;

/// The longest wait for a replica's promotion, which may fail because links are cut.
const PROMOTION: Duration = Duration::from_secs(20);

/// The way in which the replica takes over.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// The master is killed, and restarts later. Its last grant does not reach the replica, and an exam checks that
    /// grant.
    Killed,
    /// The master and the replica agree: CLUSTER FAILOVER.
    SteppedDown,
    /// The replica does not ask the master, which keeps running: CLUSTER FAILOVER FORCE.
    PassedOver,
    /// The master and the other servers do not reach each other, for less or more than the time until the replica takes
    /// over. Clients still reach the master.
    CutOff,
}

/// Fails over one shard at a time, in each way in turn. The storm (the period of faults) does not end before a replica
/// has taken over.
pub async fn shards(world: Arc<World>, mut dice: Dice) {
    let Some(cluster) = &world.cluster else { return };
    let ways = [Manner::Killed, Manner::SteppedDown, Manner::CutOff, Manner::PassedOver];
    // A brief campaign uses one way only: the one in which a grant is lost.
    let mut turn = if world.settings.brief { 0 } else { dice.below(ways.len()) };
    let mut took_over = false;
    while world.storms() || !took_over {
        pause(&world, dice.ms(300, if world.settings.brief { 1_000 } else { 3_000 })).await;
        sleep(LOOK).await;
        let (shard, how) = (dice.below(SHARDS), ways[turn % ways.len()]);
        if take_over(&world, cluster, shard, how, &mut dice).await {
            turn += 1;
            took_over |= !matches!(how, Manner::CutOff);
        }
    }
}

/// Makes the replica of a shard take over. Returns true if that was possible.
async fn take_over(world: &World, cluster: &Cluster, shard: usize, how: Manner, dice: &mut Dice) -> bool {
    // A replica takes over by the votes of a majority, so no other server may be down while its master dies. No other
    // task waits for two servers, so this cannot deadlock.
    let mut others = vec![];
    for (node, slot) in world.slots.iter().enumerate() {
        if matches!(how, Manner::Killed) && node % SHARDS != shard {
            others.push(slot.machine.lock().await);
        }
    }
    let mut one = world.slots[shard].machine.lock().await;
    let mut other = world.slots[shard + SHARDS].machine.lock().await;
    let Some((master, replica)) = roles(world, shard).await else { return false };
    let old = if master == shard { &mut *one } else { &mut *other };
    let resources = resources(world, cluster, shard, master).await;
    match how {
        Manner::Killed => {
            let _fault = world.log.begin("master killed, replica takes over", On::Node(master), "");
            // The last grant never reaches the replica.
            let link = &world.links[0][master];
            link.set(Mode::Swallow);
            sleep(dice.ms(50, 800)).await;
            let exam = granted(world, cluster, shard, master).await;
            let from = now_us();
            old.kill().await;
            link.set(Mode::Pass);
            if promoted(world, replica).await {
                world.data.trials.record(Over::Promotion, resources, from);
            }
            pause(world, dice.ms(1, 1_500)).await;
            world.start(master, old).await;
            if let Some(exam) = exam {
                let (socket, tokens) = (world.slots[replica].socket(), starts_above(world, exam.token));
                exam.examine(world, &socket, exam::GUARD, tokens, "a replica that took over").await;
            }
        }
        Manner::SteppedDown | Manner::PassedOver => {
            let (kind, words): (_, &[&str]) = match how {
                Manner::SteppedDown => ("CLUSTER FAILOVER", &["CLUSTER", "FAILOVER"]),
                _ => ("CLUSTER FAILOVER FORCE", &["CLUSTER", "FAILOVER", "FORCE"]),
            };
            let from = now_us();
            if say::<()>(world, replica, words).await.is_err() {
                return false;
            }
            let _fault = world.log.begin(kind, On::Node(replica), "");
            // After CLUSTER FAILOVER FORCE, the old master may still answer, so the end of this fault is not known.
            if promoted(world, replica).await && matches!(how, Manner::SteppedDown) {
                world.data.trials.record(Over::Promotion, resources, from);
            }
        }
        Manner::CutOff => {
            let time = dice.ms(500, 8_000);
            let _fault =
                world.log.begin("cut off from its cluster", On::Node(master), format!("{} ms", time.as_millis()));
            cluster.bus.cut(master, true);
            pause(world, time).await;
            cluster.bus.cut(master, false);
        }
    }
    true
}

/// Returns a lock of this shard that no client wants, granted by its master; `None` if the master grants none now.
async fn granted(world: &World, cluster: &Cluster, shard: usize, master: usize) -> Option<Exam> {
    for n in 0.. {
        let key = format!("exam:{n}");
        let slot: u16 = say(world, master, &["CLUSTER", "KEYSLOT", &key]).await.ok()?;
        if cluster.shard_of(slot) == shard {
            return Exam::take("", &world.slots[master].socket(), &key, world.settings.max_ttl_ms).await;
        }
    }
    None
}

/// Waits until the replica has taken over. Returns true if it has.
async fn promoted(world: &World, replica: usize) -> bool {
    comes_true!(PROMOTION, is_master(world, replica).await == Some(true))
}

/// Returns the numbers of the resources in this shard.
async fn resources(world: &World, cluster: &Cluster, shard: usize, node: usize) -> Vec<u32> {
    let mut here = vec![];
    for resource in &world.data.resources {
        let slot = say(world, node, &["CLUSTER", "KEYSLOT", &resource.key]).await;
        if slot.is_ok_and(|slot| cluster.shard_of(slot) == shard) {
            here.push(resource.number);
        }
    }
    here
}
