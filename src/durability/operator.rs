//! An operator's commands about the guard and about tokens. What they change is on the disk before they are answered.

use palisade_core::{Refusal, Token};

use super::{dropped_locks, incarnation, promotion};
use crate::ffi::notice;
use crate::{clock, state};

/// Arms the guard for `ms` milliseconds, or lifts it (`None`). Returns the milliseconds until the guard ends. If the
/// disk fails, this refuses with NOTYET. The change is in effect nevertheless, and the node promises nothing until it
/// is on the disk.
pub fn set_guard(ms: Option<u32>) -> Result<u64, Refusal> {
    let now = clock::now();
    let has_changed = state::with(|node| node.guard_by_operator(ms, now.boot));
    match ms {
        Some(_) if has_changed => incarnation::log_guard(now),
        None if has_changed => notice("an operator lifted the guard: the node serves"),
        _ => {}
    }
    dropped_locks::confirm_flush();
    // Without this write, after a crash a lifted guard could return over newer grants, or an armed one be forgotten.
    if has_changed || !is_ready() {
        incarnation::save_at_once(now);
    }
    if is_ready() { Ok(state::with(|node| node.guard().left_ms(now.boot))) } else { Err(Refusal::NotYet) }
}

/// Raises the floor of tokens to `token`, if it is lower. Returns the floor, which is on the disk then.
pub fn raise_floor(token: Option<Token>) -> Result<u64, Refusal> {
    let now = clock::now();
    let (before, floor) = state::with(|node| node.raise_floor(token.map_or(0, Token::get)));
    if floor > before {
        notice(&format!("an operator raised the floor of tokens from {before} to {floor}"));
        incarnation::save_at_once(now);
        promotion::send_soon();
        if !is_ready() {
            return Err(Refusal::NotYet);
        }
    }
    Ok(floor)
}

/// Returns whether the disk has everything that must be there before the node promises anything.
fn is_ready() -> bool {
    state::with(|node| node.ledger().is_ready())
}
