//! LOCK.BREAK: an operator ends the grants of a lock.

use crate::lock::grant::{Grant, GrantId};
use crate::lock::{Lock, live};
use crate::node::Node;
use crate::values::key::Key;
use crate::values::limits::ENDED_A_STEP_MAX;
use crate::values::time::Now;
use crate::values::token::Token;

/// Decides a BREAK of every grant, or of those with the named token, which no later grant gets. The engine removes the
/// grants. Returns the largest token of the broken grants. `None` if there is no such grant; then nothing changed.
pub fn break_lock(
    key: Key<'_>,
    held: Option<&mut Lock>,
    token: Option<Token>,
    node: &mut Node,
    now: Now,
) -> Option<Token> {
    let lock = live(held, now.boot)?;
    let broken = match token {
        Some(token) => {
            last_live_grant(lock, token, now)?;
            lock.retire(token);
            token
        }
        None => lock.largest_token(now.boot)?,
    };
    // If this was the last grant, a later reader could propose the same token.
    node.tokens.observe(key.name, broken);
    node.counters.breaks += 1;
    let ends = |grant: &Grant| token.is_none_or(|token| token == grant.token());
    node.evicted.given_up(key, |holder| lock.grants().any(|(_, grant)| ends(grant) && grant.owner() == holder));
    Some(broken)
}

/// Returns whether a BREAK of this token ends more grants than one step may, so that it takes several slices.
pub fn is_sliced(held: Option<&Lock>, token: Token, now: Now) -> bool {
    held.is_some_and(|lock| {
        last_live_grant(lock, token, now).is_some() && lock.has_more_with_token(token, ENDED_A_STEP_MAX)
    })
}

/// Returns the id of the grant with this token that lasts longest, if its lease is not over.
fn last_live_grant(lock: &Lock, token: Token, now: Now) -> Option<GrantId> {
    lock.last_with_token(token).filter(|&id| !lock.grant(id).is_expired(now.boot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;

    #[test]
    fn any_held_lock_and_no_free_one() {
        let node = &mut node();
        assert_eq!(break_lock(KEY, Some(&mut mine(3)), None, node, at(1_000)), Some(token(7)));
        assert_eq!(break_lock(KEY, Some(&mut suspect()), None, node, at(0)), Some(token(7)));
        assert_eq!(break_lock(KEY, Some(&mut mine(3)), None, node, at(1_001)), None);
        assert_eq!(break_lock(KEY, None, None, node, at(0)), None);
        assert_eq!(node.counters.breaks, 2);
    }
}
