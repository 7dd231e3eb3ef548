//! An operator's commands about the guard and about tokens. Their effect is on the disk before they are answered.

use palisade_core::{Refusal, Token};

use super::{dropped_locks, incarnation, promotion};
use crate::ffi::notice;
use crate::{clock, state};

/// Arms the guard for `ms` milliseconds, or lifts it (`None`). Returns its remaining length in milliseconds. If the
/// disk fails, it refuses with NOTYET: the change is in effect, and the node promises nothing until it is on the disk.
pub fn set_guard(ms: Option<u32>) -> Result<u64, Refusal> {
    let now = clock::now();
    let has_changed = state::with(|node| node.guard_by_operator(ms, now.boot));
    match ms {
        Some(_) if has_changed => incarnation::log_guard(now),
        None if has_changed => notice("an operator lifted the guard: the node serves"),
        _ => {}
    }
    dropped_locks::confirm_flush();
    // Without the write, a crash right after could restore a lifted guard over newer grants, or forget an armed one.
    if has_changed || !is_ready() {
        incarnation::save_at_once(now);
    }
    if is_ready() { Ok(state::with(|node| node.guard().left_ms(now.boot))) } else { Err(Refusal::NotYet) }
}

/// Raises the floor of tokens to `token`, if that is higher. Returns the floor, once it is on the disk.
pub fn raise_floor(token: Option<Token>) -> Result<u64, Refusal> {
    let now = clock::now();
    let (before, floor) = state::with(|node| node.raise_floor(token.map_or(0, Token::get)));
    if floor > before {
        notice(&format!("an operator raised the floor of tokens from {before} to {floor}"));
        incarnation::save_at_once(now);
        promotion::tell_soon();
        if !is_ready() {
            return Err(Refusal::NotYet);
        }
    }
    Ok(floor)
}

/// Returns whether the disk has everything that has to be there before a promise.
fn is_ready() -> bool {
    state::with(|node| node.ledger().is_ready())
}
