//! LOCK.CHECK: what a resource asks before it lets a holder write.

use crate::lock::Lock;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::values::time::Now;
use crate::values::token::Token;

/// Milliseconds left of the grant with exactly this token, if it is the current one.
pub fn check(held: Option<&Lock>, token: Token, node: &Node, now: Now) -> Result<Option<u64>, Refusal> {
    match held {
        Some(lock) if lock.token == token && !lock.is_expired(now.boot) => {
            node.ensure_trusted(lock, now.boot)?;
            Ok(Some(lock.left_ms(now.boot)))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;

    #[test]
    fn only_exactly_the_current_grant() {
        let node = &node();
        assert_eq!(check(Some(&mine(2)), token(7), node, at(400)), Ok(Some(600)));
        assert_eq!(check(Some(&mine(2)), token(7), node, at(1_000)), Ok(Some(0)));
        assert_eq!(check(Some(&mine(2)), token(7), node, at(1_001)), Ok(None));
        assert_eq!(check(Some(&mine(2)), token(6), node, at(0)), Ok(None));
        assert_eq!(check(Some(&mine(2)), token(8), node, at(0)), Ok(None));
        assert_eq!(check(None, token(7), node, at(0)), Ok(None));
        assert_eq!(check(Some(&suspect()), token(7), node, at(0)), Err(Refusal::Suspect { left_ms: 1_000 }));
        assert_eq!(check(Some(&suspect()), token(8), node, at(0)), Ok(None));
    }
}
