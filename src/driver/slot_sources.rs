//! When slots of the cluster come from another server, asks that server which grants it has forgotten. Answers such
//! questions of other servers.
//!
//! A guarded master may have forgotten a held lock. If its slot moves to another node, that node cannot know of the lock
//! either, so it asks, over the cluster's bus. The answer is a number of milliseconds.

use std::cell::Cell;

use palisade_core::{BootTime, ServerId};

use crate::durability::incarnation;
use crate::ffi::{Context, Message, is_poisoned, send, warn};
use crate::{clock, state};

/// The first bytes of each message, with its version. A message of another module has others.
const MARK: [u8; 8] = *b"palisad1";

thread_local! {
    /// True once the log says that a server has not answered in time.
    static IS_LOGGED: Cell<bool> = const { Cell::new(false) };
}

/// If slots come from other servers, asks those which grants they have forgotten. Asks nothing if no question is due.
pub fn ask(ctx: Context<'_>) {
    if !ctx.is_cluster() {
        return;
    }
    let now = clock::boot_now();
    let (sources, is_late) = state::with(|node| (node.ask_sources(now), node.slots().has_silent_source(now)));
    for source in sources {
        send(&source, Message::Asks, &[MARK, now.as_us().to_le_bytes()].concat());
    }
    if is_late && !IS_LOGGED.get() {
        warn(
            "a server from which slots of the cluster came does not say whether it has forgotten locks: it cannot be \
             reached, or its lock module is older or missing. Nothing is granted in these slots until the longest lease \
             would have ended. LOCK.GUARD LIFT ends that if you know that nobody holds a lock there",
        );
    }
    IS_LOGGED.set(is_late);
}

/// Answers the question of the server `from`. A server that does not know what it has forgotten answers nothing: it has
/// not judged its start, is a replica, or a panic was caught in it.
pub fn answer(ctx: Context<'_>, from: &ServerId, question: &[u8]) {
    let Some([asked]) = numbers(question) else { return };
    let forgotten_ms = state::with(|node| node.ledger().is_judged().then(|| node.forgotten_ms(clock::boot_now())));
    if let Some(forgotten_ms) = forgotten_ms.filter(|_| ctx.is_master() && !is_poisoned()) {
        let numbers = [asked, forgotten_ms.into()].map(u64::to_le_bytes).concat();
        send(from, Message::Answers, &[&MARK[..], &numbers].concat());
    }
}

/// Takes the answer of the server `from`.
pub fn on_answer(from: &ServerId, answer: &[u8]) {
    let Some([asked, forgotten_ms]) = numbers(answer) else { return };
    let forgotten_ms = u32::try_from(forgotten_ms).unwrap_or(u32::MAX);
    let (asked, now) = (BootTime::from_us(asked), clock::now());
    let (guarded, open) = state::with(|node| node.on_source_answer(*from, asked, forgotten_ms, now.boot));
    if guarded > 0 {
        warn(&format!(
            "{guarded} slots of the cluster came from a server that may have forgotten locks in them: nothing is granted \
             there while somebody may hold one. LOCK.GUARD LIFT ends that if you know that nobody does"
        ));
        incarnation::save_at_once(now);
    } else if open > 0 {
        incarnation::save(now);
    }
}

/// Parses a message of `COUNT` numbers; `None` if it is another module's, or of another version.
fn numbers<const COUNT: usize>(message: &[u8]) -> Option<[u64; COUNT]> {
    let (numbers, rest) = message.strip_prefix(&MARK)?.as_chunks::<8>();
    let numbers: &[[u8; 8]; COUNT] = numbers.try_into().ok()?;
    rest.is_empty().then(|| numbers.map(u64::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_another_module_or_length_says_nothing() {
        let message = [MARK, 7_u64.to_le_bytes(), 9_u64.to_le_bytes()].concat();
        assert_eq!(numbers(&message), Some([7, 9]));
        assert_eq!(numbers::<1>(&message), None);
        assert_eq!(numbers::<2>(&message[..20]), None);
        assert_eq!(numbers::<2>(&message[1..]), None);
        assert_eq!(numbers::<0>(b""), None);
    }
}
