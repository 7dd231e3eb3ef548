//! Callers that take a lock, wait for it, keep it and leave at any moment. Their nodes hang, forget, are replaced, and
//! lose locks to an operator's BREAK. The fuzzer drives the shipped [`Taker`](palisade_core::quorum::Taker),
//! [`Waiter`](palisade_core::quorum::Waiter) and [`Keeper`](palisade_core::quorum::Keeper) in memory. Answers arrive
//! late, twice or never, and a process may stop at any moment.

use palisade_core::quorum::agenda::Agenda;

use crate::chance::Chance;
use crate::crowd::{LASTS_US, World};

/// The simulated time at which every world begins, in microseconds.
const BEGINS_US: u64 = 1_000_000_000;

/// Runs a world in which the bytes of `input` determine every random choice.
pub fn run(input: &[u8]) {
    let mut world = World::new(Agenda::drawn_from(Chance::of(input), BEGINS_US));
    let end = world.agenda.now + LASTS_US;
    while let Some(event) = world.agenda.next(end) {
        crate::tell(&(world.agenda.now, &event));
        world.handle(event);
        world.nobody_relies_beside_another();
    }
}
