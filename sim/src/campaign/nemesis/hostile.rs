//! Attacks that exhaust tokens. A client with access to a few keys raises their tokens as far as it can, and a wall
//! clock shows a year that is too late for tokens. Other keys must stay available: [`crate::campaign::aftermath`]
//! checks this for every majority of the nodes.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::sleep;

use super::dice::{Dice, pause};
use super::servers;
use crate::campaign::exam::{Exam, say_as};
use crate::campaign::faults::On;
use crate::campaign::journal::wall_us;
use crate::campaign::machine::Machine;
use crate::campaign::world::{NODES, World};

/// The hostile user, as parameters of a URL.
const EVIL: &str = "&user=evil&pass=any";

/// The most keys that the hostile user may use.
const KEYS: usize = 4;

const DAY_US: u64 = 86_400_000_000;

/// The most times that a FENCE with one token is sent while the node refuses it, for example with NOTYET.
const REPEATS: usize = 50;

/// 1 January 2113, in seconds since 1970. Tokens follow wall clocks up to 2^52 microseconds, in September 2112.
const YEAR_2113_S: u64 = 4_512_672_000;

/// Raises tokens on one node at a time, and usually restarts the node afterwards.
pub async fn fences(world: Arc<World>, mut dice: Dice) {
    while world.storms() {
        pause(&world, dice.ms(300, 4_000)).await;
        let node = dice.below(NODES);
        let Some(mut machine) = world.take_machine(node).await else { continue };
        let _fault = world.log.begin("LOCK.FENCE far ahead", On::Node(node), machine.durability.name());
        raise(&world, &machine, &mut dice).await;
        if !dice.once_in(3) {
            sleep(dice.ms(1, 500)).await;
            restart(&world, node, &mut machine, &mut dice).await;
        }
    }
}

async fn raise(world: &World, machine: &Machine, dice: &mut Dice) {
    let socket = machine.socket();
    // Recreates the user, since a server forgets its users when it ends. Open connections of the user stay open.
    let rules = ["ACL", "SETUSER", "evil", "on", "nopass", "resetkeys", "~evil:*", "-@all", "+lock.acquire"];
    say_as("", &socket, &[&rules[..], &["+lock.fence", "+lock.release"]].concat()).await;
    for key in 0..=dice.below(KEYS) {
        let key = format!("evil:{key}");
        let Some(mut exam) = Exam::take(EVIL, &socket, &key, world.settings.max_ttl_ms).await else { continue };
        let now = wall_us();
        let ahead = [1 << 52, now + 365 * DAY_US - 60_000_000, now + 30 * DAY_US, now + DAY_US, now + DAY_US / 24];
        // Tries the tokens from a random one down, until the node accepts one.
        for &token in &ahead[dice.below(ahead.len())..] {
            let repeats = dice.one_of(&[1, REPEATS]);
            let mut raised = exam.raise(&socket, token).await;
            for _ in 1..repeats {
                if raised.is_ok() {
                    break;
                }
                sleep(Duration::from_millis(5)).await;
                raised = exam.raise(&socket, token).await;
            }
            if raised.is_ok() {
                break;
            }
        }
    }
}

async fn restart(world: &World, node: usize, machine: &mut Machine, dice: &mut Dice) {
    if dice.once_in(2) {
        servers::end_clean(machine, dice).await;
    } else {
        machine.signal(Signal::KILL);
        machine.kill().await;
    }
    sleep(dice.ms(1, 300)).await;
    world.start(node, machine).await;
}

/// Sets the wall clock of one node at a time beyond the year 2112, for a while. Waits until clocks may be stepped by
/// hours.
pub async fn clocks_beyond_2112(world: Arc<World>, mut dice: Dice) {
    while world.storms() {
        pause(&world, dice.ms(500, 5_000)).await;
        let node = dice.below(NODES);
        if !world.is_wild() || !world.storms() {
            continue;
        }
        let Ok(mut machine) = world.slots[node].machine.try_lock() else { continue };
        let _fault = world.log.begin("wall clock beyond 2112", On::Node(node), "");
        let ahead_s = YEAR_2113_S - wall_us() / 1_000_000 + dice.below(10 * 365 * 86_400) as u64;
        machine.clock.set(ahead_s.cast_signed());
        pause(&world, dice.ms(100, 2_000)).await;
        let at_start = dice.once_in(2);
        if at_start {
            restart(&world, node, &mut machine, &mut dice).await;
            pause(&world, dice.ms(100, 2_000)).await;
        }
        machine.clock.set(0);
        // The server measures a pause of clients by its wall clock. A pause that began under the late clock would last
        // for decades.
        say_as("", &machine.socket(), &["CLIENT", "UNPAUSE"]).await;
        if !at_start || dice.once_in(2) {
            restart(&world, node, &mut machine, &mut dice).await;
        }
    }
}
