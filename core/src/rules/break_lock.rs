//! LOCK.BREAK: an operator takes the lock from whoever holds it.

use crate::lock::{Lock, live};
use crate::node::Node;
use crate::values::time::Now;
use crate::values::token::Token;

/// The largest token that is broken: every grant ends, or those with the token that is named, which no later grant gets. `None`: there
/// was none, nothing changed.
pub fn break_lock(held: Option<&mut Lock>, token: Option<Token>, node: &mut Node, now: Now) -> Option<Token> {
    let lock = live(held, now.boot)?;
    let broken = match token {
        Some(token) => {
            lock.last_with_token(token).filter(|&id| !lock.grant(id).is_expired(now.boot))?;
            lock.retire(token);
            token
        }
        None => lock.largest_token(now.boot)?,
    };
    node.counters.breaks += 1;
    Some(broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;

    #[test]
    fn any_held_lock_and_no_free_one() {
        let node = &mut node();
        assert_eq!(break_lock(Some(&mut mine(3)), None, node, at(1_000)), Some(token(7)));
        assert_eq!(break_lock(Some(&mut suspect()), None, node, at(0)), Some(token(7)));
        assert_eq!(break_lock(Some(&mut mine(3)), None, node, at(1_001)), None);
        assert_eq!(break_lock(None, None, node, at(0)), None);
        assert_eq!(node.counters.breaks, 2);
    }
}
