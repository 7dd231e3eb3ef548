//! Bounds how many clients are answered in one pass of the event loop. The server takes longer to send an answer than
//! the rules take to decide it. It writes all answers of a pass in one go, and other clients wait meanwhile.

use std::cell::Cell;

use palisade_core::Refusal;
use palisade_core::limits::ANSWERS_A_PASS_MAX;

use crate::ffi::{Blocked, Context, Reply, in_next_pass};

thread_local! {
    /// The number of clients that may still be answered in this pass of the event loop.
    static MAY_ANSWER: Cell<usize> = const { Cell::new(ANSWERS_A_PASS_MAX) };
    /// The largest number of clients that were answered in one pass so far.
    static MOST_ANSWERED: Cell<usize> = const { Cell::new(0) };
    /// The function that does due work, which the timer sets: this file cannot import the timer, which imports it.
    static WORK: Cell<Option<fn(Context<'_>)>> = const { Cell::new(None) };
    /// True if due work will be done in the next pass.
    static IS_WORK_PLANNED: Cell<bool> = const { Cell::new(false) };
}

/// Sets the function that does the work for [`work_is_due`].
pub fn do_work_with(work: fn(Context<'_>)) {
    WORK.set(Some(work));
}

/// Has due work done in the next pass of the event loop. For callbacks that the server calls without a context.
pub fn work_is_due() {
    if !IS_WORK_PLANNED.replace(true) {
        in_next_pass(|ctx| {
            IS_WORK_PLANNED.set(false);
            WORK.get().into_iter().for_each(|work| work(ctx));
        });
    }
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
