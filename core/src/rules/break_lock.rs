//! LOCK.BREAK: an operator takes the lock from whoever holds it.

use crate::lock::{Lock, live};
use crate::node::Node;
use crate::values::time::Now;
use crate::values::token::Token;

/// The token of the grant that is broken: delete the lock. `None`: it was free, nothing changed.
pub fn break_lock(held: Option<&mut Lock>, node: &mut Node, now: Now) -> Option<Token> {
    let lock = live(held, now.boot)?;
    node.counters.breaks += 1;
    Some(lock.token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;

    #[test]
    fn any_held_lock_and_no_free_one() {
        let node = &mut node();
        assert_eq!(break_lock(Some(&mut mine(3)), node, at(1_000)), Some(token(7)));
        assert_eq!(break_lock(Some(&mut suspect()), node, at(0)), Some(token(7)));
        assert_eq!(break_lock(Some(&mut mine(3)), node, at(1_001)), None);
        assert_eq!(break_lock(None, node, at(0)), None);
        assert_eq!(node.counters.breaks, 2);
    }
}
