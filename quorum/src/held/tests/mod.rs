mod raising;
mod rounds;
mod servers;
mod taken_away;

use super::*;
use crate::fixture::{at, id, token};

const TTL_MS: u32 = 1_000;

/// Returns a lock that nodes 0, 1 and 2 of five hold with token 100, from 0 ms on.
fn held() -> Held {
    let members = (0..5).map(|n| (id(n), (n < 3).then(|| token(100)), false)).collect();
    Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS))
}

fn extend(held: &mut Held, ms: u64) -> Vec<Call> {
    held.extend(TTL_MS, at(ms).boot)
}

fn yes(held: &mut Held, round: u64, node: usize, ms: u64) -> Vec<Call> {
    let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
    held.on_answer(round, node, id(node as u128), ask, Answer::Token(token(100)), at(ms).boot)
}

fn no(held: &mut Held, round: u64, node: usize, ms: u64) -> Vec<Call> {
    let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
    held.on_answer(round, node, id(node as u128), ask, Answer::No, at(ms).boot)
}

fn healed(held: &mut Held, node: usize, value: u64, ms: u64) -> Vec<Call> {
    let ask = held.heal();
    held.on_answer(held.round(), node, id(node as u128), ask, Answer::Token(token(value)), at(ms).boot)
}

fn fenced(held: &mut Held, node: usize, value: u64, ms: u64) -> Vec<Call> {
    let ask = Ask::Fence { token: token(value) };
    held.on_answer(held.round(), node, id(node as u128), ask, Answer::Token(token(value)), at(ms).boot)
}
