//! LOCK.REENTER: adds a hold for the owner that has the lock.

use crate::lock::{Lock, live_of};
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::Reenter;
use crate::rules::on_grant::OnGrant;
use crate::values::limits::HOLDS_MAX;
use crate::values::time::Now;

/// Raises the holds of the owner's grant by one, or with a level to at least `level`. With a level the command may be
/// repeated without harm. The token stays: an inner block must not fence out the outer one. The deadline stays too,
/// unless a ttl asks for a later one. The mark of an adopted grant stays until the grant ends.
pub fn reenter(held: Option<&mut Lock>, ask: &Reenter<'_>, node: &mut Node, now: Now) -> Result<OnGrant<u32>, Refusal> {
    let Some((lock, own)) = live_of(held, ask.owner, None, now.boot) else { return Ok(OnGrant::NotHeld) };
    node.ensure_trusted(lock.grant(own), now.boot)?;
    let before = lock.grant(own).holds();
    let holds = ask.level.map_or(before + 1, |level| level.holds().max(before));
    if holds > HOLDS_MAX {
        return Err(Refusal::HoldsExhausted);
    }
    node.counters.reentries += 1;
    lock.grant_mut(own).set_holds(holds);
    let is_longer = ask.ttl.is_some_and(|ttl| lock.prolong(own, now.boot, ttl));
    let is_new_mark = ask.adopts && !lock.grant(own).is_adopted();
    if is_new_mark {
        lock.grant_mut(own).mark_adopted();
    }
    let has_changed = holds > before || is_longer || is_new_mark;
    Ok(if has_changed { OnGrant::Changed(own, holds) } else { OnGrant::Unchanged(holds) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::lock::grant::GrantId;
    use crate::request::Level;
    use OnGrant::*;

    #[test]
    fn each_request_has_its_outcome() {
        let node = &mut node();
        // (owner, holds, LEVEL, TTL, at ms, outcome, holds after, deadline after in ms)
        let cases = [
            ("me", 1, None, None, 0, Changed(GrantId::default(), 2), 2, 1_000),
            ("me", 2, Some(2), None, 0, Unchanged(2), 2, 1_000),
            ("me", 2, Some(3), None, 0, Changed(GrantId::default(), 3), 3, 1_000),
            ("me", 2, Some(1), None, 0, Unchanged(2), 2, 1_000),
            ("me", 1, None, Some(900), 500, Changed(GrantId::default(), 2), 2, 1_400),
            ("me", 1, None, Some(100), 500, Changed(GrantId::default(), 2), 2, 1_000),
            ("me", 2, Some(2), Some(900), 500, Changed(GrantId::default(), 2), 2, 1_400),
            ("me", 2, Some(2), Some(100), 500, Unchanged(2), 2, 1_000),
            ("you", 1, None, None, 0, NotHeld, 1, 1_000),
            ("me", 1, None, Some(900), 1_001, NotHeld, 1, 1_000),
        ];
        for (name, holds, level, ms, now, expected, after, deadline_ms) in cases {
            let mut lock = mine(holds);
            let ask = Reenter {
                owner: owner(name),
                level: level.map(|level| Level::new(Some(level)).unwrap()),
                ttl: ms.map(ttl),
                adopts: false,
            };
            assert_eq!(reenter(Some(&mut lock), &ask, node, at(now)), Ok(expected));
            assert_eq!(
                (lock.first().holds(), lock.first().deadline(), lock.first().token()),
                (after, at(deadline_ms).boot, token(7))
            );
            assert!(!lock.first().is_adopted());
        }
        assert_eq!(node.counters.reentries, 8);
    }

    #[test]
    fn adoption_is_a_change_once() {
        let node = &mut node();
        let changed = |holds| Changed(GrantId::default(), holds);
        // (owner, LEVEL, TTL, at ms, outcome of the first request, outcome of its repetition)
        let cases = [
            ("me", Some(1), None, 0, changed(2), Unchanged(2)),
            ("me", Some(3), None, 0, changed(3), Unchanged(3)),
            ("me", None, None, 0, changed(3), changed(4)),
            ("me", Some(1), Some(900), 500, changed(2), Unchanged(2)),
            ("you", Some(1), None, 0, NotHeld, NotHeld),
            ("me", Some(1), None, 1_001, NotHeld, NotHeld),
        ];
        for (name, level, ms, now, first, again) in cases {
            let mut lock = mine(2);
            let level = level.map(|level| Level::new(Some(level)).unwrap());
            let ask = Reenter { owner: owner(name), level, ttl: ms.map(ttl), adopts: true };
            for expected in [first, again] {
                assert_eq!(reenter(Some(&mut lock), &ask, node, at(now)), Ok(expected), "{ask:?}");
                assert_eq!(lock.first().is_adopted(), first != NotHeld, "{ask:?}");
            }
            let ask = Reenter { adopts: false, ..ask };
            assert!(reenter(Some(&mut lock), &ask, node, at(now)).is_ok());
            assert_eq!(lock.first().is_adopted(), first != NotHeld, "without ADOPT the mark stays");
        }
    }

    #[test]
    fn bounded_and_not_for_suspect_or_absent_locks() {
        let node = &mut node();
        let ask = Reenter { owner: owner("me"), level: None, ttl: Some(ttl(5_000)), adopts: true };
        let mut lock = mine(HOLDS_MAX);
        assert_eq!(reenter(Some(&mut lock), &ask, node, at(0)), Err(Refusal::HoldsExhausted));
        assert_eq!(lock, mine(HOLDS_MAX), "a refusal changes nothing");
        assert_eq!(reenter(Some(&mut suspect()), &ask, node, at(0)), Err(Refusal::Suspect { left_ms: 1_000 }));
        assert_eq!(reenter(None, &ask, node, at(0)), Ok(NotHeld));
    }
}
