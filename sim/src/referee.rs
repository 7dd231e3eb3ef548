//! The laws of every history: the holders of one lock are compatible, and tokens grow between any two incompatible
//! holders. So a register guarded by the lock never goes back to an older number, and never refuses the current holder.
//!
//! The referee receives events in order of time. For each key, it keeps the knowledge of an ideal lock: who relies on
//! the lock and until when, the largest tokens (`Highest`), and the largest tokens that the register has seen. The
//! first event that an ideal lock could not have produced is a [`Violation`].

use std::collections::BTreeMap;

use palisade_core::quorum::floors::Floors;

use crate::highest::Highest;
use crate::history::{Event, HeldAs, Holder, Occurrence, TimeUs};
pub use crate::violation::{Claim, Violation};

/// The laws that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Laws {
    /// Every law.
    All,
    /// Every law except exclusion, for clocks whose rates differ by more than the drift factor. Holders may overlap,
    /// but a token still exceeds those of all acquisitions that ended before its own began, so the register never goes
    /// back.
    WithoutExclusion,
}

/// The ideal lock of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Mutex {
    /// The claims of the holders that rely on the lock.
    claims: Vec<Claim>,
    /// The largest tokens with which the lock was held.
    highest: Highest,
    /// The largest tokens that the register accepted.
    register: Floors,
    /// The last time at which an operator broke the whole lock, and the largest broken token.
    taken_away: Option<(TimeUs, u64)>,
    /// The claims that ended when an operator broke the lock. Their holders still rely on it.
    unaware: Vec<Claim>,
    /// The tokens of single grants that an operator broke while others stayed.
    broken: Vec<u64>,
}

/// A judge that receives a history event by event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Referee {
    laws: Laws,
    keys: BTreeMap<u32, Mutex>,
}

impl Referee {
    /// Returns a referee that has seen nothing.
    pub fn new(laws: Laws) -> Self {
        Self { laws, keys: BTreeMap::new() }
    }

    /// Judges `event`, which must not be earlier than any previous event. Returns true if the event is a write that the
    /// register accepts.
    ///
    /// # Errors
    ///
    /// The event breaks a law.
    pub fn see(&mut self, event: &Event) -> Result<bool, Violation> {
        let Event { at, key, who, what } = *event;
        let mutex = self.keys.entry(key).or_default();
        mutex.claims.retain(|claim| claim.until > at);
        mutex.unaware.retain(|claim| claim.until > at);
        match what {
            Occurrence::Held { since, until, token, mode } => {
                let later = Claim { who, mode, token, from: at, until };
                mutex.begin(key, later, since, self.laws)?;
            }
            Occurrence::Converted { token, mode } => mutex.convert(key, who, at, token, mode, self.laws)?,
            Occurrence::Extended { until, token } => mutex.extend(key, who, at, until, token, self.laws)?,
            Occurrence::Ended => mutex.claims.retain(|claim| claim.who != who),
            Occurrence::Wrote { token, mode } => return mutex.write(key, who, token, mode, self.laws),
        }
        Ok(true)
    }

    /// Records that an operator broke the lock of `key` with this token at `at`. Its holder does not know that, and may
    /// continue to rely on the lock while others hold it. Every later request gets a larger token.
    pub fn is_taken_away(&mut self, key: u32, at: TimeUs, token: u64) {
        let mutex = self.keys.entry(key).or_default();
        mutex.unaware.extend(mutex.claims.extract_if(.., |claim| claim.token <= token));
        mutex.raise(at, HeldAs::Exclusive, token, self.laws);
        mutex.taken_away = Some((at, token.max(mutex.taken_away.map_or(0, |(_, before)| before))));
    }

    /// Records that an operator broke the grants of `key` with this token, while the other grants stayed.
    pub fn is_broken(&mut self, key: u32, token: u64) {
        let mutex = self.keys.entry(key).or_default();
        mutex.unaware.extend(mutex.claims.extract_if(.., |claim| claim.token == token));
        mutex.broken.push(token);
    }

    /// Returns the claims of the holders that rely on `key` at `at`.
    pub fn holders(&self, key: u32, at: TimeUs) -> impl Iterator<Item = &Claim> {
        self.keys.get(&key).into_iter().flat_map(|mutex| &mutex.claims).filter(move |claim| claim.until > at)
    }
}

impl Mutex {
    /// Returns true if an operator may have broken the grant with this token before its holder learned of the grant.
    fn was_taken_away(&self, token: u64) -> bool {
        self.taken_away.is_some_and(|(_, before)| token <= before) || self.broken.contains(&token)
    }

    fn begin(&mut self, key: u32, later: Claim, since: TimeUs, laws: Laws) -> Result<(), Violation> {
        if let Some((at, before)) = self.taken_away
            && later.token <= before
        {
            return if since > at { Err(Violation::TokenOrder { key, before, later }) } else { Ok(()) };
        }
        if self.broken.contains(&later.token) {
            return Ok(());
        }
        self.is_beside(key, later, laws)?;
        // With exclusion, the tokens of all earlier holders count. Without it, only the tokens of those holders count
        // that had the lock before this one began to ask.
        let known = if laws == Laws::All { TimeUs::MAX } else { since };
        self.is_above(key, later, known)?;
        self.raise(later.from, later.mode, later.token, laws);
        self.claims.push(later);
        Ok(())
    }

    /// Checks that no holder relies on the lock in a mode that conflicts with that of `later`.
    fn is_beside(&self, key: u32, later: Claim, laws: Laws) -> Result<(), Violation> {
        if laws != Laws::All || later.until <= later.from {
            return Ok(());
        }
        let mut others = self.claims.iter().filter(|claim| claim.who != later.who);
        if let Some(&first) = others.clone().find(|claim| !claim.mode.goes_with(later.mode)) {
            return Err(Violation::Overlap { key, first, second: later });
        }
        let limit = |mode| if let HeldAs::Permit { limit, .. } = mode { usize::from(limit) } else { usize::MAX };
        let smallest = others.clone().map(|claim| limit(claim.mode)).chain([limit(later.mode)]).min();
        let count = others.by_ref().count() + 1;
        if smallest < Some(count) { Err(Violation::TooMany { key, last: later, count }) } else { Ok(()) }
    }

    /// Checks that the token of `later` exceeds all tokens known before `known` that it has to exceed.
    fn is_above(&self, key: u32, later: Claim, known: TimeUs) -> Result<(), Violation> {
        match self.highest.floor_of(later.mode, known) {
            before if later.token <= before => Err(Violation::TokenOrder { key, before, later }),
            _ => Ok(()),
        }
    }

    fn raise(&mut self, at: TimeUs, mode: HeldAs, token: u64, laws: Laws) {
        self.highest.raise(at, mode, token, laws == Laws::WithoutExclusion);
    }

    fn extend(
        &mut self,
        key: u32,
        who: Holder,
        at: TimeUs,
        until: TimeUs,
        token: u64,
        laws: Laws,
    ) -> Result<(), Violation> {
        let Some(claim) = self.claims.iter_mut().find(|claim| claim.who == who) else {
            return self.go_on(key, who, at, token, |claim| claim.until = until, laws);
        };
        if token < claim.token {
            return Err(Violation::TokenFell { key, claim: *claim, to: token });
        }
        (claim.until, claim.token) = (until, token);
        let mode = claim.mode;
        self.raise(at, mode, token, laws);
        Ok(())
    }

    /// Changes the mode of a claim at `at`. For the other holders, this holder's claim begins at that moment.
    fn convert(
        &mut self,
        key: u32,
        who: Holder,
        at: TimeUs,
        token: u64,
        mode: HeldAs,
        laws: Laws,
    ) -> Result<(), Violation> {
        let Some(place) = self.claims.iter().position(|claim| claim.who == who) else {
            return self.go_on(key, who, at, token, |claim| claim.mode = mode, laws);
        };
        let before = self.claims[place];
        let later = Claim { mode, token, from: at, ..before };
        if token < before.token {
            return Err(Violation::TokenFell { key, claim: before, to: token });
        }
        // If the node does not know of the conversion, a writer that became a reader still counts as the writer there.
        let was_writer = token == before.token && self.highest.is_of_last_writer(token);
        if mode == HeldAs::Exclusive && before.mode != mode && !was_writer {
            self.is_beside(key, later, laws)?;
            self.is_above(key, later, if laws == Laws::All { TimeUs::MAX } else { before.from })?;
        }
        self.raise(at, mode, token, laws);
        self.claims[place] = later;
        Ok(())
    }

    /// Changes the claim of a holder that does not know yet that an operator broke its lock. With a larger token than
    /// the broken ones, a new claim begins: the node granted the lock again, for a late copy of the request.
    fn go_on(
        &mut self,
        key: u32,
        who: Holder,
        at: TimeUs,
        token: u64,
        change: impl FnOnce(&mut Claim),
        laws: Laws,
    ) -> Result<(), Violation> {
        let was_taken_away = self.was_taken_away(token);
        let place = self.unaware.iter().position(|claim| claim.who == who);
        if let Some(place) = place {
            change(&mut self.unaware[place]);
        }
        match place {
            _ if was_taken_away => Ok(()),
            None => Err(Violation::Revived { key, who }),
            Some(place) => {
                let before = self.unaware.swap_remove(place);
                self.begin(key, Claim { token, from: at, ..before }, at, laws)
            }
        }
    }

    /// Returns true if the register accepts a write with this token. The register refuses a token that is smaller than
    /// a conflicting one that it has seen. The order of tokens implies that it always refuses an older holder. This
    /// function checks that it never refuses the current holder.
    fn write(&mut self, key: u32, who: Holder, token: u64, mode: HeldAs, laws: Laws) -> Result<bool, Violation> {
        let Err(seen) = self.register.pass(mode.mode(), token) else { return Ok(true) };
        // A refusal breaks no law if the holder sent the write before its token rose, or before the holder became a
        // reader.
        let is_present = |claim: &&Claim| claim.who == who && (claim.token, claim.mode) == (token, mode);
        match self.claims.iter().find(is_present) {
            Some(&claim) if laws == Laws::All => Err(Violation::FencedOut { key, claim, seen }),
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder { client: 0, acquisition: 1 };
    const B: Holder = Holder { client: 1, acquisition: 1 };

    fn held(since: TimeUs, until: TimeUs, token: u64) -> Occurrence {
        Occurrence::Held { since, until, token, mode: HeldAs::Exclusive }
    }

    fn held_as(mode: HeldAs, since: TimeUs, until: TimeUs, token: u64) -> Occurrence {
        Occurrence::Held { since, until, token, mode }
    }

    fn wrote(token: u64) -> Occurrence {
        Occurrence::Wrote { token, mode: HeldAs::Exclusive }
    }

    fn permit(number: u16, limit: u16) -> HeldAs {
        HeldAs::Permit { number, limit }
    }

    /// Lists which modes are compatible, which tokens need no order, and what happens to a writer that becomes a
    /// reader.
    #[test]
    fn each_mode_has_its_conflicts() {
        use HeldAs::{Exclusive, Shared};
        use Occurrence::Converted;
        let both = |one: HeldAs, other: HeldAs, token| {
            vec![(1, A, held_as(one, 0, 9, 5)), (2, B, held_as(other, 1, 9, token))]
        };
        let after = |one: HeldAs, other: HeldAs, token| {
            vec![(1, A, held_as(one, 0, 9, 5)), (9, B, held_as(other, 8, 20, token))]
        };
        let exclusion = Some("exclusion");
        let order = Some("token order");
        let cases = [
            (both(Shared, Shared, 5), None),
            (both(Shared, Shared, 4), None),
            (both(Shared, Exclusive, 6), exclusion),
            (both(Exclusive, Shared, 6), exclusion),
            (both(permit(1, 2), permit(2, 2), 4), None),
            (both(permit(1, 2), permit(1, 2), 6), exclusion),
            (both(permit(1, 1), permit(2, 2), 6), exclusion),
            (both(permit(2, 2), permit(1, 1), 6), exclusion),
            (both(permit(1, 2), Shared, 6), exclusion),
            (after(Shared, Exclusive, 5), order),
            (after(permit(1, 2), Exclusive, 5), order),
            (after(Exclusive, Shared, 5), order),
            (after(permit(1, 2), Shared, 5), order),
            (after(Shared, Shared, 4), None),
            (after(permit(1, 2), permit(1, 2), 5), order),
            (after(permit(1, 2), permit(2, 2), 4), None),
            (after(Shared, permit(2, 2), 5), order),
            (
                vec![
                    (1, A, held(0, 9, 5)),
                    (2, A, Converted { token: 5, mode: Shared }),
                    (3, B, held_as(Shared, 1, 9, 6)),
                    (4, A, Converted { token: 7, mode: Exclusive }),
                ],
                exclusion,
            ),
            (
                vec![
                    (1, A, held(0, 9, 5)),
                    (2, A, Converted { token: 5, mode: Shared }),
                    (3, B, held_as(Shared, 1, 9, 5)),
                ],
                order,
            ),
            (vec![(1, A, held_as(Shared, 0, 9, 5)), (4, A, Converted { token: 5, mode: Exclusive })], order),
            (
                vec![
                    (1, A, held(0, 9, 5)),
                    (2, A, Converted { token: 5, mode: Shared }),
                    (3, A, Converted { token: 5, mode: Exclusive }),
                ],
                None,
            ),
            (
                vec![
                    (1, A, held(0, 9, 5)),
                    (2, A, Converted { token: 5, mode: Shared }),
                    (3, B, held_as(Shared, 1, 5, 6)),
                    (6, A, Converted { token: 5, mode: Exclusive }),
                ],
                order,
            ),
            (vec![(1, A, held_as(Shared, 0, 9, 5)), (4, A, Converted { token: 6, mode: Exclusive })], None),
        ];
        for (events, all) in cases {
            assert_eq!(judge(Laws::All, &events), all, "{events:?}");
        }
    }

    /// Returns the law that the last of these events breaks.
    fn judge(laws: Laws, events: &[(TimeUs, Holder, Occurrence)]) -> Option<&'static str> {
        let mut referee = Referee::new(laws);
        for (n, &(at, who, what)) in events.iter().enumerate() {
            if let Err(violation) = referee.see(&Event { at, key: 0, who, what }) {
                assert_eq!(n + 1, events.len(), "{violation}");
                return Some(violation.law());
            }
        }
        None
    }

    #[test]
    fn each_history_has_its_verdict() {
        use Occurrence::{Ended, Extended};
        let cases: &[(&[(TimeUs, Holder, Occurrence)], Option<&str>, Option<&str>)] = &[
            (&[(1, A, held(0, 9, 5)), (9, B, held(1, 20, 6))], None, None),
            (&[(1, A, held(0, 9, 5)), (8, B, held(1, 20, 6))], Some("exclusion"), None),
            (&[(1, A, held(0, 9, 5)), (3, A, Ended), (4, B, held(1, 20, 6))], None, None),
            // The lock is extended in time, and then too late.
            (
                &[(1, A, held(0, 9, 5)), (8, A, Extended { until: 15, token: 5 }), (14, B, held(10, 20, 6))],
                Some("exclusion"),
                None,
            ),
            (&[(1, A, held(0, 9, 5)), (9, A, Extended { until: 15, token: 5 })], Some("exclusion"), Some("exclusion")),
            // Tokens grow, even if a token was raised.
            (&[(1, A, held(0, 9, 5)), (9, B, held(2, 20, 5))], Some("token order"), Some("token order")),
            (&[(1, A, held(0, 9, 5)), (9, B, held(0, 20, 5))], Some("token order"), None),
            (
                &[(1, A, held(0, 9, 5)), (5, A, Extended { until: 9, token: 8 }), (9, B, held(6, 20, 8))],
                Some("token order"),
                Some("token order"),
            ),
            (
                &[(1, A, held(0, 9, 5)), (5, A, Extended { until: 9, token: 4 })],
                Some("token order"),
                Some("token order"),
            ),
            // The register refuses a late write of an old holder, and accepts those of the current one.
            (&[(1, A, held(0, 9, 5)), (9, B, held(2, 20, 6)), (10, B, wrote(6)), (11, A, wrote(5))], None, None),
            (&[(1, A, held(0, 9, 5)), (2, A, wrote(7)), (3, A, wrote(5))], Some("guarded register"), None),
        ];
        for (events, all, without) in cases {
            assert_eq!(judge(Laws::All, events), *all, "{events:?}");
            assert_eq!(judge(Laws::WithoutExclusion, events), *without, "{events:?}");
        }
    }

    /// An operator takes a lock away, and its holder does not know that. The holder may learn of its grant only after
    /// the break. Requests that are sent after the break get a larger token.
    #[test]
    fn what_an_operator_took_away_is_held_by_the_next_with_a_larger_token() {
        let see = |events: &[(TimeUs, Holder, Occurrence)]| {
            let mut referee = Referee::new(Laws::All);
            assert_eq!(referee.see(&Event { at: 1, key: 0, who: A, what: held(0, 90, 5) }), Ok(true));
            referee.is_taken_away(0, 10, 5);
            let mut seen = events.iter().map(|&(at, who, what)| referee.see(&Event { at, key: 0, who, what }));
            seen.find_map(Result::err).map(|violation| violation.law())
        };
        assert_eq!(see(&[(11, B, held(10, 90, 6)), (12, A, Occurrence::Extended { until: 99, token: 5 })]), None);
        assert_eq!(see(&[(11, B, held(2, 90, 6)), (12, B, Occurrence::Extended { until: 99, token: 6 })]), None);
        assert_eq!(see(&[(11, B, held(2, 90, 5)), (12, A, Occurrence::Ended)]), None, "it had that before");
        assert_eq!(see(&[(12, B, held(11, 90, 5))]), Some("token order"));
        assert_eq!(see(&[(12, B, held(11, 90, 6)), (13, A, held(12, 90, 7))]), Some("exclusion"));
        // A late copy of A's request was granted after the break, and A converts or extends that grant.
        let converted = Occurrence::Converted { token: 7, mode: HeldAs::Exclusive };
        assert_eq!(see(&[(12, A, converted), (13, A, Occurrence::Extended { until: 99, token: 7 })]), None);
        assert_eq!(see(&[(11, B, held(10, 90, 6)), (12, A, converted)]), Some("exclusion"));
        assert_eq!(see(&[(90, A, converted)]), Some("exclusion"), "its lease has ended");
        let shared = Occurrence::Converted { token: 5, mode: HeldAs::Shared };
        let extended = (13, A, Occurrence::Extended { until: 99, token: 7 });
        assert_eq!(see(&[(12, A, shared), extended, (14, B, held_as(HeldAs::Shared, 13, 90, 7))]), None);
        assert_eq!(see(&[(12, A, shared), extended, (14, B, held(13, 90, 8))]), Some("exclusion"));
    }

    #[test]
    fn keys_are_apart() {
        let mut referee = Referee::new(Laws::All);
        for key in 0..2 {
            assert_eq!(referee.see(&Event { at: 1, key, who: A, what: held(0, 9, 5) }), Ok(true));
        }
        assert_eq!(referee.holders(0, 8).count(), 1);
        assert_eq!(referee.holders(0, 9).count(), 0);
    }
}
