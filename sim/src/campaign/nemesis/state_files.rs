//! A server runs for one incarnation with another state file, or with none. Either the file's name changes, or the
//! port, from which the name is derived unless it is set. Afterwards the server uses its first file again, which knows
//! nothing of that incarnation.
//!
//! The operator makes no mistake: the incarnation in between serves out its guard, if it has one. Its grants are in no
//! file of the first incarnation, except in the AOF.

use tokio::time::sleep;

use super::alone::Change;
use super::dice::{Dice, pause};
use super::servers;
use crate::campaign::exam::{Exam, GUARD, starts_above, starts_above_all};
use crate::campaign::machine::{Durability, Machine, free_port};
use crate::campaign::world::World;

/// The state file that the server uses for one incarnation instead of its own: one of another name, that of another
/// port, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    OtherName,
    OtherPort,
    NoFile,
}

impl Change for Between {
    const ALL: &'static [Self] = &[Self::OtherName, Self::NoFile, Self::OtherPort];

    fn name(self) -> &'static str {
        match self {
            Self::OtherName => "an incarnation with another state file",
            Self::OtherPort => "an incarnation on another port",
            Self::NoFile => "an incarnation without a state file",
        }
    }

    /// Returns true if the state file may be changed now. A node without its file starts its tokens from its clock
    /// alone, so every earlier token must be smaller.
    fn may_be_done(self, world: &World, _machine: &Machine) -> bool {
        starts_above_all(world)
    }

    fn durability(self, dice: &mut Dice) -> Durability {
        dice.one_of(&Durability::ALL)
    }

    async fn run(self, world: &World, who: &str, machine: &mut Machine, dice: &mut Dice) {
        let (key, ttl_ms) = ("exam", world.settings.max_ttl_ms);
        let said =
            |what: &str, machine: &Machine| format!("{who}, {what} {}, {}", self.name(), machine.durability.name());
        let first = Exam::take("", &machine.socket(), key, ttl_ms).await;
        servers::end_clean(machine, dice).await;
        let port = machine.port();
        match self {
            Self::OtherName => machine.state_file = Some("lock-node-other.state"),
            Self::NoFile => machine.state_file = Some(""),
            // If no port is free, the port stays, and this is an ordinary clean end.
            Self::OtherPort => machine.listen_on(free_port().unwrap_or(port)),
        }
        sleep(dice.ms(1, 200)).await;
        machine.clock.set(0);
        let known = first.as_ref().is_some_and(|first| starts_above(world, first.token));
        world.start_as(who, machine).await;
        if let Some(first) = first {
            let tokens = known && machine.clock.is_right();
            first.examine(world, &machine.socket(), GUARD, tokens, &said("in", machine)).await;
        }
        pause(world, dice.ms(100, 1_500)).await;
        // The server grants a lock as soon as it serves, and is then killed.
        let mut second = None;
        while world.storms() && second.is_none() {
            second = Exam::take("", &machine.socket(), key, ttl_ms).await;
            sleep(dice.ms(5, 20)).await;
        }
        machine.kill().await;
        machine.state_file = None;
        machine.listen_on(port);
        sleep(dice.ms(1, 200)).await;
        machine.clock.set(0);
        let known = second.as_ref().is_some_and(|second| starts_above(world, second.token));
        world.start_as(who, machine).await;
        if let Some(second) = second {
            let tokens = known && machine.clock.is_right();
            second.examine(world, &machine.socket(), GUARD, tokens, &said("after", machine)).await;
        }
    }
}
