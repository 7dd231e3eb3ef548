//! LOCK.CHECK: a resource's question before it lets a holder write.

use crate::lock::Lock;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::values::time::Now;
use crate::values::token::Token;

/// Returns the milliseconds left of the grant that has exactly this token; `None` if no grant has it. If several have
/// it, the one that lasts longest counts.
pub fn check(held: Option<&Lock>, token: Token, node: &Node, now: Now) -> Result<Option<u64>, Refusal> {
    let Some(lock) = held else { return Ok(None) };
    let last = lock.last_with_token(token).map(|id| lock.grant(id)).filter(|grant| !grant.is_expired(now.boot));
    let Some(last) = last else { return Ok(None) };
    node.ensure_trusted(last, now.boot)?;
    Ok(Some(last.left_ms(now.boot)))
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
