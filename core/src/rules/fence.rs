//! LOCK.FENCE: raises a grant's token, in the second round in which a quorum client acquires a lock.

use crate::lock::{Lock, live_of};
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::Owner;
use crate::rules::on_grant::OnGrant;
use crate::values::time::Now;
use crate::values::token::Token;

/// Raises the token of the grant that `owner` holds to `token`, and never lowers it. All nodes of a quorum have to
/// issue one token though their clocks differ, so `token` may be far ahead of this node's tokens.
/// [`Tokens::raise`](crate::Tokens::raise) has the bound.
pub fn fence(
    name: &[u8],
    held: Option<&mut Lock>,
    owner: Owner<'_>,
    token: Token,
    node: &mut Node,
    now: Now,
) -> Result<OnGrant<Token>, Refusal> {
    let Some((lock, own)) = live_of(held, owner, None, now.boot) else { return Ok(OnGrant::NotHeld) };
    node.ensure_trusted(lock.grant(own), now.boot)?;
    let present = lock.grant(own).token();
    if token <= present {
        return Ok(OnGrant::Unchanged(present));
    }
    node.tokens.raise(name, lock.mode(own), token, now, node.skew_ms)?;
    lock.set_token(own, token);
    Ok(OnGrant::Changed(own, token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::lock::grant::GrantId;
    use crate::values::cause::Cause;
    use crate::values::limits::FENCE_SPAN_US;
    use OnGrant::*;

    #[test]
    fn raises_and_never_lowers() {
        let node = &mut node();
        let an_hour_ahead = at(0).wall_us + 3_600_000_000;
        let furthest = at(0).wall_us + FENCE_SPAN_US;
        // (owner, token, at ms, outcome, token after)
        let cases = [
            ("me", 7, 0, Ok(Unchanged(token(7))), 7),
            ("me", 6, 0, Ok(Unchanged(token(7))), 7),
            ("me", 8, 0, Ok(Changed(GrantId::default(), token(8))), 8),
            ("me", an_hour_ahead, 0, Ok(Changed(GrantId::default(), token(an_hour_ahead))), an_hour_ahead),
            ("me", furthest, 0, Ok(Changed(GrantId::default(), token(furthest))), furthest),
            ("me", furthest + 1, 0, Err(Refusal::FenceTooFar { max: furthest }), 7),
            ("you", 8, 0, Ok(NotHeld), 7),
            ("me", 8, 1_001, Ok(NotHeld), 7),
        ];
        for (name, value, ms, expected, after) in cases {
            let mut lock = mine(1);
            assert_eq!(fence(b"k", Some(&mut lock), owner(name), token(value), node, at(ms)), expected);
            assert_eq!(lock.first().token().get(), after);
        }
        assert_eq!(node.tokens.last(b"k"), furthest, "the next grant is above");
        assert_eq!(fence(b"k", None, owner("me"), token(8), node, at(0)), Ok(NotHeld));
    }

    #[test]
    fn above_the_ceiling_it_is_to_be_repeated_and_nothing_changed() {
        let node = &mut node();
        node.tokens.set_ceiling(100);
        let mut lock = mine(1);
        assert_eq!(fence(b"k", Some(&mut lock), owner("me"), token(101), node, at(0)), Err(Refusal::NotYet));
        assert_eq!(lock.first().token(), token(7));
        assert!(node.tokens.wanted_ceiling(0, 0) >= 101, "the ceiling will be raised");
        node.tokens.set_ceiling(101);
        assert_eq!(
            fence(b"k", Some(&mut lock), owner("me"), token(101), node, at(0)),
            Ok(Changed(GrantId::default(), token(101)))
        );
    }

    #[test]
    fn not_for_locks_that_the_node_cannot_vouch_for() {
        let mut node = node();
        assert!(fence(b"k", Some(&mut suspect()), owner("me"), token(9), &mut node, at(0)).is_err());
        node.guard.arm(Cause::Operator, at(10).boot, at(500).boot);
        assert!(fence(b"k", Some(&mut mine(1)), owner("me"), token(9), &mut node, at(20)).is_err());
    }
}
