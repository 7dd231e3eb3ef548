//! LOCK.GATE with HELD: lets the tokens of present grants pass, and remembers nothing.
//!
//! If two grants exclude each other, the later one has a larger token, and the earlier one has ended before. So a gate
//! that lets only present grants pass refuses every late writer that a gate with a memory would refuse.

use palisade_quorum::floors::Kind;

use crate::lock::Lock;
use crate::lock::grant::GrantId;
use crate::node::Node;
use crate::refusal::{GateRefusal, Refusal};
use crate::values::mode::Mode;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// Refuses unless a present grant of this kind has exactly this token. A writer that became a reader no longer passes
/// as a writer.
pub fn ensure_held(held: Option<&Lock>, token: Token, kind: Kind, node: &Node, now: BootTime) -> Result<(), Refusal> {
    let present = held.and_then(|lock| {
        let last = lock.last_with_token(token)?;
        let is_present = |id: &GrantId| Kind::from(lock.mode(*id)) == kind && !lock.grant(*id).is_expired(now);
        // Permits with one token have different numbers. Otherwise the grant that lasts longest stands for all.
        let id = match (lock.mode(last), kind) {
            (Mode::Permit(_), Kind::Permit(_)) => lock.with_token(token).find(is_present),
            _ => Some(last).filter(is_present),
        };
        id.map(|id| lock.grant(id))
    });
    node.ensure_trusted(present.ok_or(Refusal::Gate(GateRefusal::NotHeld))?, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::lock::grant::Grant;
    use crate::lock::holders::LOOKS;
    use crate::lock::phase::Past;
    use crate::request::Note;
    use crate::values::mode::Permit;

    #[test]
    fn only_a_present_grant_in_its_own_mode() {
        let node = &node();
        let not_held = Err(Refusal::Gate(GateRefusal::NotHeld));
        let held = |lock: &Lock, number, kind, at_ms| ensure_held(Some(lock), token(number), kind, node, ms(at_ms));
        assert_eq!(held(&mine(2), 7, Kind::Exclusive, 1_000), Ok(()));
        assert_eq!(held(&mine(2), 7, Kind::Exclusive, 1_001), not_held);
        assert_eq!(held(&mine(2), 6, Kind::Exclusive, 0), not_held);
        assert_eq!(held(&mine(2), 8, Kind::Exclusive, 0), not_held);
        assert_eq!(held(&mine(2), 7, Kind::Shared, 0), not_held);
        assert_eq!(ensure_held(None, token(7), Kind::Exclusive, node, ms(0)), not_held);
        assert_eq!(held(&suspect(), 7, Kind::Exclusive, 0), Err(Refusal::Suspect { left_ms: 1_000 }));
        assert_eq!(held(&suspect(), 8, Kind::Exclusive, 0), not_held);
    }

    #[test]
    fn several_grants_with_one_token_are_told_apart() {
        let permit = |number| Mode::Permit(Permit::new(number, 3).unwrap());
        let grant = |name, ttl_ms| Grant::new(owner(name), Note::default(), token(7), ms(0), ttl(ttl_ms));
        let mut lock = Lock::of(permit(1), grant("me", 500), Past::default());
        let Lock::Joint(holders) = &mut lock else { panic!("a permit is held with others") };
        holders.join(permit(2), grant("you", 1_000));
        let held = |number, at_ms| ensure_held(Some(&lock), token(7), Kind::Permit(number), &node(), ms(at_ms)).is_ok();
        assert_eq!([held(1, 500), held(1, 501), held(2, 501), held(3, 0)], [true, false, true, false]);
    }
    /// Regression: with 200 000 readers of one token, a gate for writers took 5 ms, because it looked at each reader.
    #[test]
    fn readers_with_one_token_are_not_looked_at_one_by_one() {
        let grant = |name: &str| Grant::new(owner(name), Note::default(), token(7), ms(0), ttl(1_000));
        let mut lock = Lock::of(Mode::Shared, grant("r"), Past::default());
        let Lock::Joint(holders) = &mut lock else { panic!("readers hold it together") };
        for n in 0..99 {
            holders.join(Mode::Shared, grant(&n.to_string()));
        }
        for kind in [Kind::Shared, Kind::Exclusive, Kind::Permit(1)] {
            LOOKS.set(0);
            let held = ensure_held(Some(&lock), token(7), kind, &node(), ms(500));
            assert_eq!((held.is_ok(), LOOKS.get()), (kind == Kind::Shared, 1), "{kind:?}");
        }
    }
}
