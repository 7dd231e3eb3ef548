//! Judges the answers of agents to RELEASE: an owner that had lost the lock must not receive the answer that it held
//! the lock until now.
//!
//! The answer 0 says that the owner held the lock at some moment between its request and the answer. This is wrong if
//! another holder relied on the lock in a conflicting mode during all of that time, since that holder then had a
//! majority of the nodes throughout.

use super::faults::Wrong;
use super::journal::Line;
use super::judge::{Claim, JudgedEvent, claims};

/// The outcome of all releases through agents.
#[derive(Clone, Debug, Default)]
pub struct GivenBack {
    /// The number of answers that say that the owner held the lock until now.
    pub held: usize,
    /// The number of those answers that went to an owner whose validity was over when it asked.
    pub late: usize,
    /// The findings: answers that are wrong.
    pub wrong: Vec<Wrong>,
}

/// Judges all releases.
pub fn judge(seen: &[JudgedEvent], lines: &[Line]) -> GivenBack {
    let claims = claims(seen);
    let mut all = GivenBack::default();
    for line in lines {
        let Line::ToldHeld { sent, at, key, who } = *line else { continue };
        all.held += 1;
        let Some(own) = claims.iter().find(|claim| claim.who == who) else { continue };
        all.late += usize::from(own.valid_until < sent);
        let relied_on = |claim: &Claim| claim.key == key && claim.from <= sent && claim.until >= at;
        if let Some(Claim { who: other, .. }) =
            claims.iter().find(|claim| claim.who != who && relied_on(claim) && !claim.mode.goes_with(own.mode))
        {
            let what =
                format!("release: {who} was told that it held key {key} until now, and {other} held it all the time");
            all.wrong.push(Wrong { at, key: Some(key), what });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Event, HeldAs, Holder, Occurrence, TimeUs};

    const ANN: Holder = Holder { client: 1, acquisition: 1 };
    const BOB: Holder = Holder { client: 2, acquisition: 1 };

    fn held(at: TimeUs, until: TimeUs, who: Holder, mode: HeldAs) -> JudgedEvent {
        JudgedEvent {
            event: Event { at, key: 0, who, what: Occurrence::Held { since: at, until, token: 1, mode } },
            arrival: None,
        }
    }

    fn ended(at: TimeUs, who: Holder) -> JudgedEvent {
        JudgedEvent { event: Event { at, key: 0, who, what: Occurrence::Ended }, arrival: None }
    }

    #[test]
    fn who_was_replaced_did_not_hold_it() {
        use HeldAs::{Exclusive, Shared};
        let told = [Line::ToldHeld { sent: 30, at: 35, key: 0, who: ANN }];
        let ann = |mode| held(1, 10, ANN, mode);
        let cases: [(&str, Vec<JudgedEvent>, usize); 6] = [
            ("nobody else came", vec![ann(Exclusive)], 0),
            ("bob has it", vec![ann(Exclusive), held(20, 40, BOB, Exclusive)], 1),
            ("bob came while it was asked", vec![ann(Exclusive), held(31, 40, BOB, Exclusive)], 0),
            ("bob went before the answer", vec![ann(Exclusive), held(20, 40, BOB, Exclusive), ended(34, BOB)], 0),
            ("both read", vec![ann(Shared), held(20, 40, BOB, Shared)], 0),
            ("bob writes", vec![ann(Shared), held(20, 40, BOB, Exclusive)], 1),
        ];
        for (what, seen, wrong) in cases {
            let judged = judge(&seen, &told);
            assert_eq!((judged.held, judged.late, judged.wrong.len()), (1, 1, wrong), "{what}");
        }
    }
}
