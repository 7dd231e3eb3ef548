//! Compares a lock with what a client last knew of it, for LOCK.WATCH.

use crate::lock::Lock;
use crate::request::Known;
use crate::values::time::BootTime;

/// Returns until when `held` stays in the state `known` if no command changes it; `None` if it is in another state at
/// `now`.
pub fn is_true_until(known: Known, held: Option<&Lock>, now: BootTime) -> Option<BootTime> {
    let held = held.filter(|lock| !lock.is_expired(now));
    match known {
        Known::Free => held.is_none().then_some(BootTime::MAX),
        Known::Grant(token, sequence) => {
            let lock = held?;
            let grant = lock.grant(lock.last_with_token(token)?);
            let has_newer = sequence.is_some_and(|sequence| grant.note_sequence() > sequence);
            (!has_newer && !grant.is_expired(now)).then_some(grant.deadline())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::lock::grant::GrantId;
    use crate::request::NoteSequence;

    #[test]
    fn each_known_state_has_its_answer() {
        let sequence = |number| NoteSequence::new(Some(number)).unwrap();
        let mut lock = mine(1);
        lock.grant_mut(GrantId::default()).set_note(Default::default(), sequence(5));
        let end = Some(at(1_000).boot);
        // (the known state, the time in ms, until when a lock with token 7 and note 5 and a lease until 1 000 ms stays
        // in it)
        let cases = [
            (Known::Free, 0, None),
            (Known::Free, 1_001, Some(BootTime::MAX)),
            (Known::Grant(token(7), None), 0, end),
            (Known::Grant(token(7), None), 1_000, end),
            (Known::Grant(token(7), None), 1_001, None),
            (Known::Grant(token(6), None), 0, None),
            (Known::Grant(token(8), None), 0, None),
            (Known::Grant(token(7), Some(sequence(4))), 0, None),
            (Known::Grant(token(7), Some(sequence(5))), 0, end),
            (Known::Grant(token(7), Some(sequence(6))), 0, end),
        ];
        for (known, now, expected) in cases {
            assert_eq!(is_true_until(known, Some(&lock), at(now).boot), expected, "{known:?} at {now}");
        }
        assert_eq!(is_true_until(Known::Free, None, at(0).boot), Some(BootTime::MAX));
        assert_eq!(is_true_until(Known::Grant(token(7), None), None, at(0).boot), None);
    }
}
