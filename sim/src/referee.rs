//! What must hold of every history: a lock is a mutex whose holders' tokens grow, so that a register guarded by it never
//! goes back, and never refuses who holds the lock.
//!
//! Events are shown to the referee in the order of their times. It keeps for each key what a sequential fenced mutex would
//! know: who relies on it until when, the largest token, and the token of the last write. The first event that no such
//! mutex could have produced is a [`Violation`].

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{Event, Holder, TimeUs, What};

/// Which laws apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Laws {
    /// All of them.
    All,
    /// Clocks run at rates further apart than the drift factor: holders may overlap, but tokens still grow from one
    /// acquisition to every one that begins later, and so the register still never goes back.
    WithoutExclusion,
}

/// Who relies on a lock, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Who.
    pub who: Holder,
    /// Its token.
    pub token: u64,
    /// Since when.
    pub from: TimeUs,
    /// Until when.
    pub until: TimeUs,
}

/// A law that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Two rely on one lock at one moment.
    Overlap {
        /// Which lock.
        key: u32,
        /// Who relied on it.
        first: Claim,
        /// Who came on top.
        second: Claim,
    },
    /// A later holder's token is not larger than an earlier one's.
    TokenOrder {
        /// Which lock.
        key: u32,
        /// The largest token before.
        before: u64,
        /// The later holder.
        later: Claim,
    },
    /// A holder's token fell while it held the lock.
    TokenFell {
        /// Which lock.
        key: u32,
        /// Who.
        claim: Claim,
        /// What its token became.
        to: u64,
    },
    /// It relied on a lock again that it had lost.
    Revived {
        /// Which lock.
        key: u32,
        /// Who.
        who: Holder,
    },
    /// A write of the one who holds the lock was refused.
    FencedOut {
        /// Which lock.
        key: u32,
        /// Who wrote.
        claim: Claim,
        /// The register had seen this token.
        seen: u64,
    },
}

impl Violation {
    /// The law's name.
    pub fn law(&self) -> &'static str {
        match self {
            Self::Overlap { .. } | Self::Revived { .. } => "exclusion",
            Self::TokenOrder { .. } | Self::TokenFell { .. } => "token order",
            Self::FencedOut { .. } => "guarded register",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { key, first, second } => write!(
                f,
                "exclusion: key {key} is held by {} until {} us, and by {} from {} us on",
                first.who, first.until, second.who, second.from
            ),
            Self::TokenOrder { key, before, later } => write!(
                f,
                "token order: {} holds key {key} with token {}, and an earlier holder had {before}",
                later.who, later.token
            ),
            Self::TokenFell { key, claim, to } => {
                write!(f, "token order: {} held key {key} with token {}, then with {to}", claim.who, claim.token)
            }
            Self::Revived { key, who } => write!(f, "exclusion: {who} relies again on key {key}, which it had lost"),
            Self::FencedOut { key, claim, seen } => write!(
                f,
                "guarded register: {} holds key {key} with token {}, and its write is refused: {seen} was seen",
                claim.who, claim.token
            ),
        }
    }
}

/// The sequential mutex of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Mutex {
    /// Who relies on it; more than one only where exclusion is no law.
    claims: Vec<Claim>,
    /// The largest token that anybody held it with, by the moment at which it was known: each larger than the one before.
    highest: Vec<(TimeUs, u64)>,
    /// The token of the last write that the register took: it takes none with a smaller one.
    register: u64,
    /// The last lock that an operator took away: when, and its token.
    taken_away: Option<(TimeUs, u64)>,
}

/// Judges a history as it goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Referee {
    laws: Laws,
    keys: BTreeMap<u32, Mutex>,
}

impl Referee {
    /// Nothing has happened yet.
    pub fn new(laws: Laws) -> Self {
        Self { laws, keys: BTreeMap::new() }
    }

    /// `event` happened, after everything seen before. Answers for a write whether the register takes it.
    ///
    /// # Errors
    /// It breaks a law.
    pub fn see(&mut self, event: &Event) -> Result<bool, Violation> {
        let Event { at, key, who, what } = *event;
        let mutex = self.keys.entry(key).or_default();
        mutex.claims.retain(|claim| claim.until > at);
        match what {
            What::Held { since, until, token } => {
                let later = Claim { who, token, from: at, until };
                mutex.begin(key, later, since, self.laws)?;
            }
            What::Extended { until, token } => mutex.extend(key, who, at, until, token, self.laws)?,
            What::Ended => mutex.claims.retain(|claim| claim.who != who),
            What::Wrote { token } => return mutex.write(key, who, token, self.laws),
        }
        Ok(true)
    }

    /// At `at` an operator took the lock of `key` away that had this token: its holder, who does not know, may go on relying on it,
    /// and others may have it. Whoever asks from then on has a larger token.
    pub fn is_taken_away(&mut self, key: u32, at: TimeUs, token: u64) {
        let mutex = self.keys.entry(key).or_default();
        mutex.claims.retain(|claim| claim.token > token);
        mutex.raise(at, token, self.laws);
        mutex.taken_away = Some((at, token.max(mutex.taken_away.map_or(0, |(_, before)| before))));
    }

    /// Who relies on `key` at `at`.
    pub fn holders(&self, key: u32, at: TimeUs) -> impl Iterator<Item = &Claim> {
        self.keys.get(&key).into_iter().flat_map(|mutex| &mutex.claims).filter(move |claim| claim.until > at)
    }
}

impl Mutex {
    fn begin(&mut self, key: u32, later: Claim, since: TimeUs, laws: Laws) -> Result<(), Violation> {
        // What it holds was taken away before it heard of it.
        if let Some((at, before)) = self.taken_away
            && later.token <= before
        {
            return if since > at { Err(Violation::TokenOrder { key, before, later }) } else { Ok(()) };
        }
        if laws == Laws::All
            && later.until > later.from
            && let Some(&first) = self.claims.first()
        {
            return Err(Violation::Overlap { key, first, second: later });
        }
        // Where holders are apart, all earlier ones count; else those who held it before this one began to ask.
        let known = match laws {
            Laws::All => self.highest.len(),
            Laws::WithoutExclusion => self.highest.partition_point(|&(at, _)| at < since),
        };
        if let Some(&(_, before)) = known.checked_sub(1).map(|last| &self.highest[last])
            && later.token <= before
        {
            return Err(Violation::TokenOrder { key, before, later });
        }
        self.raise(later.from, later.token, laws);
        self.claims.push(later);
        Ok(())
    }

    fn raise(&mut self, at: TimeUs, token: u64, laws: Laws) {
        if self.highest.last().is_none_or(|&(_, highest)| token > highest) {
            if laws == Laws::All {
                self.highest.clear();
            }
            self.highest.push((at, token));
        }
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
            // It does not know yet that it was taken away.
            let is_taken_away = self.taken_away.is_some_and(|(_, before)| token <= before);
            return if is_taken_away { Ok(()) } else { Err(Violation::Revived { key, who }) };
        };
        if token < claim.token {
            return Err(Violation::TokenFell { key, claim: *claim, to: token });
        }
        (claim.until, claim.token) = (until, token);
        self.raise(at, token, laws);
        Ok(())
    }

    /// Whether the register takes a write: a smaller token than it has seen is refused. That this never lets an older
    /// holder pass follows from the order of tokens; that it never refuses the present one is judged here.
    fn write(&mut self, key: u32, who: Holder, token: u64, laws: Laws) -> Result<bool, Violation> {
        if token >= self.register {
            self.register = token;
            return Ok(true);
        }
        // (A write that it sent before its token rose may come too late.)
        match self.claims.iter().find(|claim| claim.who == who && claim.token == token) {
            Some(&claim) if laws == Laws::All => Err(Violation::FencedOut { key, claim, seen: self.register }),
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder { client: 0, acquisition: 1 };
    const B: Holder = Holder { client: 1, acquisition: 1 };

    fn held(since: TimeUs, until: TimeUs, token: u64) -> What {
        What::Held { since, until, token }
    }

    /// The law that the last of these events breaks.
    fn judge(laws: Laws, events: &[(TimeUs, Holder, What)]) -> Option<&'static str> {
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
    fn table() {
        use What::{Ended, Extended, Wrote};
        let cases: &[(&[(TimeUs, Holder, What)], Option<&str>, Option<&str>)] = &[
            (&[(1, A, held(0, 9, 5)), (9, B, held(1, 20, 6))], None, None),
            (&[(1, A, held(0, 9, 5)), (8, B, held(1, 20, 6))], Some("exclusion"), None),
            (&[(1, A, held(0, 9, 5)), (3, A, Ended), (4, B, held(1, 20, 6))], None, None),
            // Extended in time, and too late.
            (
                &[(1, A, held(0, 9, 5)), (8, A, Extended { until: 15, token: 5 }), (14, B, held(10, 20, 6))],
                Some("exclusion"),
                None,
            ),
            (&[(1, A, held(0, 9, 5)), (9, A, Extended { until: 15, token: 5 })], Some("exclusion"), Some("exclusion")),
            // Tokens grow; also over a raise.
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
            // The register: a late write of an old holder is refused, one of the holder is not.
            (
                &[
                    (1, A, held(0, 9, 5)),
                    (9, B, held(2, 20, 6)),
                    (10, B, Wrote { token: 6 }),
                    (11, A, Wrote { token: 5 }),
                ],
                None,
                None,
            ),
            (
                &[(1, A, held(0, 9, 5)), (2, A, Wrote { token: 7 }), (3, A, Wrote { token: 5 })],
                Some("guarded register"),
                None,
            ),
        ];
        for (events, all, without) in cases {
            assert_eq!(judge(Laws::All, events), *all, "{events:?}");
            assert_eq!(judge(Laws::WithoutExclusion, events), *without, "{events:?}");
        }
    }

    /// Its holder does not know, and may hear of its grant only then; who asks after that has a larger token.
    #[test]
    fn what_an_operator_took_away_is_held_by_the_next_with_a_larger_token() {
        let see = |events: &[(TimeUs, Holder, What)]| {
            let mut referee = Referee::new(Laws::All);
            assert_eq!(referee.see(&Event { at: 1, key: 0, who: A, what: held(0, 90, 5) }), Ok(true));
            referee.is_taken_away(0, 10, 5);
            let mut seen = events.iter().map(|&(at, who, what)| referee.see(&Event { at, key: 0, who, what }));
            seen.find_map(Result::err).map(|violation| violation.law())
        };
        assert_eq!(see(&[(11, B, held(10, 90, 6)), (12, A, What::Extended { until: 99, token: 5 })]), None);
        assert_eq!(see(&[(11, B, held(2, 90, 6)), (12, B, What::Extended { until: 99, token: 6 })]), None);
        assert_eq!(see(&[(11, B, held(2, 90, 5)), (12, A, What::Ended)]), None, "it had that before");
        assert_eq!(see(&[(12, B, held(11, 90, 5))]), Some("token order"));
        assert_eq!(see(&[(12, B, held(11, 90, 6)), (13, A, held(12, 90, 7))]), Some("exclusion"));
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
