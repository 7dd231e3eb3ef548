//! LOCK.ACQUIRE: who gets a free lock.

use crate::lock::{live, vouched};
use crate::request::Acquire;
use crate::{Lock, Node, Now, Refusal, Token};

/// What came of an ACQUIRE.
#[derive(Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lock was free and is now this one: store it.
    Granted(Lock),
    /// The owner has it already and repeated itself: nothing changed.
    Unchanged(Token),
    /// Somebody else holds it.
    Contended,
}

/// Takes the lock `name` for the owner that asks, if it is free at `now`; `held` is what the key holds.
///
/// Refuses with [`Refusal::Owned`] an owner that holds it already (a second acquisition must not pass for a
/// re-entry), unless it says that it may be repeating itself: then the existing grant is the answer.
pub fn acquire(
    name: &[u8],
    held: Option<&mut Lock>,
    ask: &Acquire<'_>,
    node: &mut Node,
    now: Now,
) -> Result<Acquired, Refusal> {
    let in_memory = held.is_some();
    if let Some(lock) = live(held, now.boot) {
        return if !lock.is_of(ask.owner) {
            node.counters.contended += 1;
            Ok(Acquired::Contended)
        } else if ask.retry {
            vouched(lock, now.boot)?;
            Ok(Acquired::Unchanged(lock.token))
        } else {
            Err(Refusal::Owned)
        };
    }
    let token = node.tokens.issue(name, now.wall_us).ok_or(Refusal::TokensExhausted)?;
    node.counters.grants += 1;
    // An expired lock that the background had not deleted yet ends here.
    node.counters.expiries += u64::from(in_memory);
    Ok(Acquired::Granted(Lock::new(ask.owner, ask.note, token, now.boot, ask.ttl)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::fixture::*;
    use crate::request::Note;

    fn ask(name: &str, retry: bool) -> Acquire<'_> {
        Acquire { owner: owner(name), ttl: ttl(500), retry, note: Note::default() }
    }

    #[test]
    fn table() {
        let node = &mut Node::new(10);
        // (what the key holds, owner, RETRY, at ms, outcome: Ok(true) granted, Ok(false) contended)
        let cases: [(Option<Lock>, &str, bool, u64, Result<Acquired, Refusal>); 9] = [
            (Some(mine(1)), "you", false, 0, Ok(Acquired::Contended)),
            (Some(mine(1)), "you", true, 1_000, Ok(Acquired::Contended)),
            (Some(mine(3)), "me", false, 1_000, Err(Refusal::Owned)),
            (Some(mine(3)), "me", true, 1_000, Ok(Acquired::Unchanged(token(7)))),
            (Some(suspect()), "you", false, 0, Ok(Acquired::Contended)),
            (Some(suspect()), "me", false, 0, Err(Refusal::Owned)),
            (Some(suspect()), "me", true, 999, Err(Refusal::Suspect { left_ms: 1 })),
            (Some(mine(1)), "m", false, 0, Ok(Acquired::Contended)),
            (Some(mine(1)), "me2", false, 0, Ok(Acquired::Contended)),
        ];
        for (held, name, retry, ms, expected) in cases {
            let mut held = held;
            let before = held.clone();
            assert_eq!(acquire(b"k", held.as_mut(), &ask(name, retry), node, at(ms)), expected);
            assert_eq!(held, before, "a refusal changes nothing");
        }
        assert_eq!((node.counters.grants, node.counters.contended), (0, 5));
    }

    #[test]
    fn free_whether_absent_or_expired_and_for_the_full_ttl_from_the_grant() {
        let node = &mut Node::new(10);
        for (held, name) in [(None, "you"), (Some(mine(4)), "you"), (Some(mine(4)), "me"), (Some(suspect()), "me")] {
            let mut held = held;
            let now = at(1_001);
            let Ok(Acquired::Granted(lock)) = acquire(b"k", held.as_mut(), &ask(name, true), node, now) else {
                panic!("{held:?} is free for {name}")
            };
            assert_eq!((lock.owner(), lock.holds(), lock.is_suspect()), (name.as_bytes(), 1, false));
            assert_eq!((lock.deadline(), lock.granted), (now.boot.plus_ms(500), now.boot));
        }
        assert_eq!((node.counters.grants, node.counters.expiries), (4, 3));
    }

    #[test]
    fn every_grant_has_a_larger_token() {
        let node = &mut Node::new(10);
        let mut last = 0;
        for ms in [5_000, 5_000, 4_000, 0, 6_000] {
            let Ok(Acquired::Granted(lock)) = acquire(b"k", None, &ask("me", false), node, at(ms)) else { panic!() };
            assert!(lock.token().get() > last);
            last = lock.token().get();
        }
    }

    #[test]
    fn without_tokens_nothing_is_granted() {
        let node = &mut Node::new(u64::MAX);
        assert_eq!(acquire(b"k", None, &ask("me", false), node, at(0)), Err(Refusal::TokensExhausted));
        assert_eq!(node.counters.grants, 0);
    }
}
