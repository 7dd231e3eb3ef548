//! LOCK.RELEASE: gives back holds; without holds the grant ends.

use crate::lock::grant::GrantId;
use crate::lock::{Lock, live_of};
use crate::node::Node;
use crate::request::Release;
use crate::values::key::Key;
use crate::values::time::Now;

/// The outcome of a RELEASE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// No hold is left, and the grant was the only one: the driver has to delete the lock.
    Freed,
    /// No hold of this grant is left, but others hold the lock: the driver has to remove the grant.
    Left(GrantId),
    /// The grant now has this number of holds, which is not 0.
    Lowered(GrantId, u32),
    /// The grant already had at most as many holds as the level leaves: nothing changed.
    Unchanged(u32),
    /// Nothing changed. The owner does not hold the lock, or not with that token, or another process of the owner
    /// continues the grant.
    NotHeld,
}

/// Lowers the holds of the owner's grant of `key` by one, or with a level to `level - 1`. With a level the command may
/// be repeated without harm. It also withdraws the owner's waiting requests, unless it names a grant by its token.
///
/// A RELEASE ends an adopted grant only if it names the token or a level. A release without both comes from the attempt
/// that acquired the lock and never received the answer. That attempt has given up, but another process of the owner
/// continues with the lock, so the grant stays.
#[inline(always)]
pub fn release(key: Key<'_>, held: Option<&mut Lock>, ask: &Release<'_>, node: &mut Node, now: Now) -> Released {
    if ask.token.is_none() {
        node.queues().withdraw(key, ask.owner, now.boot);
    }
    let Some((lock, own)) = live_of(held, ask.owner, ask.token, now.boot) else { return Released::NotHeld };
    let grant = lock.grant(own);
    if grant.is_adopted() && ask.level.is_none() && ask.token.is_none() {
        return Released::NotHeld;
    }
    let holds = grant.holds();
    let left = ask.level.map_or(holds, |level| level.holds()).saturating_sub(1);
    if left >= holds {
        Released::Unchanged(holds)
    } else if left == 0 {
        node.counters.releases += 1;
        node.keepalives.on_grant_ended(key, ask.owner.bytes());
        node.evicted.given_up(key, |holder| holder == ask.owner.bytes());
        if lock.len() == 1 { Released::Freed } else { Released::Left(own) }
    } else {
        lock.grant_mut(own).set_holds(left);
        Released::Lowered(own, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::request::Level;

    #[test]
    fn each_request_has_its_outcome() {
        use Released::*;
        let node = &mut node();
        // (owner, holds, LEVEL, TOKEN, at ms, outcome, holds after)
        let cases = [
            ("me", 1, None, None, 0, Freed, 1),
            ("me", 3, None, None, 0, Lowered(GrantId::default(), 2), 2),
            ("me", 3, Some(1), None, 0, Freed, 3),
            ("me", 3, Some(2), None, 0, Lowered(GrantId::default(), 1), 1),
            ("me", 3, Some(3), None, 0, Lowered(GrantId::default(), 2), 2),
            ("me", 3, Some(4), None, 0, Unchanged(3), 3),
            ("me", 3, Some(1_000_000), None, 0, Unchanged(3), 3),
            ("me", 1, None, Some(7), 1_000, Freed, 1),
            ("me", 1, None, Some(6), 0, NotHeld, 1),
            ("me", 1, None, Some(8), 0, NotHeld, 1),
            ("you", 1, None, None, 0, NotHeld, 1),
            ("me", 1, None, None, 1_001, NotHeld, 1),
        ];
        for (name, holds, level, tok, ms, expected, after) in cases {
            let mut lock = mine(holds);
            let ask = Release {
                owner: owner(name),
                level: level.map(|level| Level::new(Some(level)).unwrap()),
                token: tok.map(token),
            };
            assert_eq!(release(KEY, Some(&mut lock), &ask, node, at(ms)), expected);
            assert_eq!(lock.first().holds(), after);
            assert_eq!(lock.first().deadline(), mine(1).first().deadline());
        }
        assert_eq!(node.counters.releases, 3);
    }

    #[test]
    fn an_adopted_grant_ends_by_a_level_or_its_token_alone() {
        use Released::*;
        let node = &mut node();
        // (holds, LEVEL, TOKEN, outcome, holds after), for an adopted grant
        let cases = [
            (1, None, None, NotHeld, 1),
            (3, None, None, NotHeld, 3),
            (1, Some(1), None, Freed, 1),
            (3, Some(3), None, Lowered(GrantId::default(), 2), 2),
            (3, Some(4), None, Unchanged(3), 3),
            (1, None, Some(7), Freed, 1),
            (3, None, Some(7), Lowered(GrantId::default(), 2), 2),
            (1, None, Some(6), NotHeld, 1),
            (2, Some(1), Some(7), Freed, 2),
        ];
        for (holds, level, tok, expected, after) in cases {
            let mut lock = mine(holds);
            lock.grant_mut(GrantId::default()).mark_adopted();
            let level = level.map(|level| Level::new(Some(level)).unwrap());
            let ask = Release { owner: owner("me"), level, token: tok.map(token) };
            assert_eq!(release(KEY, Some(&mut lock), &ask, node, at(0)), expected, "{ask:?}");
            assert_eq!((lock.first().holds(), lock.first().is_adopted()), (after, true), "{ask:?}");
        }
    }

    #[test]
    fn an_absent_lock_is_not_held_and_a_suspect_one_can_be_released() {
        let node = &mut node();
        let ask = releases("me");
        assert_eq!(release(KEY, None, &ask, node, at(0)), Released::NotHeld);
        assert_eq!(release(KEY, Some(&mut suspect()), &ask, node, at(0)), Released::Freed);
    }
}
