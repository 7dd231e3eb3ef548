//! Bounds how many clients are answered in one pass of the event loop. The server takes longer to send an answer than
//! the rules take to decide it. It writes all answers of a pass in one go, and other clients wait meanwhile.

use std::cell::Cell;

use palisade_core::Refusal;
use palisade_core::limits::ANSWERS_A_PASS_MAX;

use crate::ffi::{Blocked, Reply};

thread_local! {
    /// The number of clients that may still be answered in this pass of the event loop.
    static MAY_ANSWER: Cell<usize> = const { Cell::new(ANSWERS_A_PASS_MAX) };
    /// The largest number of clients that were answered in one pass so far.
    static MOST_ANSWERED: Cell<usize> = const { Cell::new(0) };
}

/// Begins a new pass of the event loop.
pub fn begin() {
    MAY_ANSWER.set(ANSWERS_A_PASS_MAX);
}

/// Returns whether clients may still be answered in this pass.
pub fn may_answer() -> bool {
    MAY_ANSWER.get() > 0
}

/// Returns the number of clients that may still be answered in this pass.
pub fn answers_left() -> usize {
    MAY_ANSWER.get()
}

/// Returns the most clients that were answered in one pass of the event loop, since load.
pub fn most_answered() -> usize {
    MOST_ANSWERED.get()
}

/// Sends its answer to a client that waited, watched or listened, and counts it.
pub fn answer(blocked: Blocked, told: Result<Reply, Refusal>) {
    blocked.answer(told);
    MAY_ANSWER.set(MAY_ANSWER.get().saturating_sub(1));
    MOST_ANSWERED.set(MOST_ANSWERED.get().max(ANSWERS_A_PASS_MAX - MAY_ANSWER.get()));
}
