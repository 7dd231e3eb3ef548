//! LOCK.EXTEND: moves the deadline further away.

use crate::lock::{Lock, live_of};
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::Extend;
use crate::rules::on_grant::OnGrant;
use crate::values::time::Now;
use crate::values::token::Token;

/// Sets the deadline of the owner's grant to max(deadline, now + ttl). It never shortens a lease, and never brings back
/// a lock that is gone.
pub fn extend(held: Option<&mut Lock>, ask: &Extend<'_>, node: &mut Node, now: Now) -> Result<OnGrant<Token>, Refusal> {
    let Some((lock, own)) = live_of(held, ask.owner, ask.token, now.boot) else { return Ok(OnGrant::NotHeld) };
    node.ensure_trusted(lock.grant(own), now.boot)?;
    let token = lock.grant(own).token();
    node.counters.extensions += 1;
    Ok(if lock.prolong(own, now.boot, ask.ttl) { OnGrant::Changed(own, token) } else { OnGrant::Unchanged(token) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::lock::grant::GrantId;
    use OnGrant::*;

    #[test]
    fn each_request_has_its_outcome() {
        let node = &mut node();
        // (owner, ttl, TOKEN, at ms, outcome, deadline after in ms)
        let cases = [
            ("me", 1_000, None, 500, Changed(GrantId::default(), token(7)), 1_500),
            ("me", 1_000, Some(7), 1_000, Changed(GrantId::default(), token(7)), 2_000),
            ("me", 400, None, 500, Unchanged(token(7)), 1_000),
            ("me", 500, None, 500, Unchanged(token(7)), 1_000),
            ("me", 1_000, Some(8), 500, NotHeld, 1_000),
            ("you", 1_000, None, 500, NotHeld, 1_000),
            ("me", 1_000, None, 1_001, NotHeld, 1_000),
        ];
        for (name, ms, tok, now, expected, deadline_ms) in cases {
            let mut lock = mine(2);
            let ask = Extend { owner: owner(name), ttl: ttl(ms), token: tok.map(token) };
            assert_eq!(extend(Some(&mut lock), &ask, node, at(now)), Ok(expected));
            assert_eq!(lock.first().deadline(), at(deadline_ms).boot);
            assert_eq!((lock.first().token(), lock.first().holds()), (token(7), 2));
        }
        assert_eq!(node.counters.extensions, 4);
    }

    #[test]
    fn an_absent_lock_stays_absent_and_a_suspect_one_is_not_prolonged() {
        let node = &mut node();
        let ask = Extend { owner: owner("me"), ttl: ttl(2_000), token: None };
        assert_eq!(extend(None, &ask, node, at(0)), Ok(NotHeld));
        let mut lock = suspect();
        assert_eq!(extend(Some(&mut lock), &ask, node, at(0)), Err(Refusal::Suspect { left_ms: 1_000 }));
        assert_eq!(lock, suspect());
    }
}
