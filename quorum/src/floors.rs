//! Lower bounds for the token of a new grant, from the tokens of all earlier grants of its lock. A resource that checks
//! tokens, such as a gate, applies the same rule.
//!
//! A writer's token is above all earlier ones. A reader's is above those of writers and permits. A permit's is above
//! those of its number, of writers and of readers. A resource remembers the tokens that it has seen, and refuses a
//! token below its bound: a later grant that excludes that token's grant has already been there. It never refuses the
//! token of a present grant.

use std::collections::BTreeMap;

use crate::values::mode::Mode;

/// The largest tokens of the grants of one lock, by mode. 0 if there was no grant in that mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Floors {
    exclusive: u64,
    shared: u64,
    /// The tokens of permits. On the heap, because most locks have none.
    permits: Option<Box<Permits>>,
}

/// The largest token of all permits, and of each permit number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Permits {
    largest: u64,
    by_number: BTreeMap<u16, u64>,
}

/// A kind of grants: all grants of one kind have the same lower bound for their tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Exclusive grants, whose holders are writers.
    Exclusive,
    /// Shared grants, whose holders are readers.
    Shared,
    /// Permits with this number.
    Permit(u16),
}

impl From<Mode> for Kind {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Exclusive,
            Mode::Shared => Self::Shared,
            Mode::Permit(permit) => Self::Permit(permit.number()),
        }
    }
}

impl Floors {
    /// Returns the token that a new grant of this kind must exceed. A grant that is seen again must reach it.
    pub fn floor_of(&self, kind: impl Into<Kind>) -> u64 {
        let permits = self.permits.as_deref();
        let largest = permits.map_or(0, |permits| permits.largest);
        match kind.into() {
            Kind::Exclusive => self.exclusive.max(self.shared).max(largest),
            Kind::Shared => self.exclusive.max(largest),
            Kind::Permit(number) => {
                let own = permits.and_then(|permits| permits.by_number.get(&number));
                self.exclusive.max(self.shared).max(own.copied().unwrap_or(0))
            }
        }
    }

    /// Returns the largest token of this kind; 0 if there is none.
    pub fn largest(&self, kind: impl Into<Kind>) -> u64 {
        match kind.into() {
            Kind::Exclusive => self.exclusive,
            Kind::Shared => self.shared,
            Kind::Permit(number) => {
                let own = self.permits.as_deref().and_then(|permits| permits.by_number.get(&number));
                own.copied().unwrap_or(0)
            }
        }
    }

    /// Adds a grant with `token`. Returns whether that is the largest of its kind now.
    pub fn add(&mut self, kind: impl Into<Kind>, token: u64) -> bool {
        let largest = match kind.into() {
            Kind::Exclusive => &mut self.exclusive,
            Kind::Shared => &mut self.shared,
            Kind::Permit(number) => {
                let permits = self.permits.get_or_insert_default();
                permits.largest = token.max(permits.largest);
                permits.by_number.entry(number).or_default()
            }
        };
        let is_larger = token > *largest;
        *largest = token.max(*largest);
        is_larger
    }

    /// Lets an access with `token` pass and remembers the token, unless a later grant that excludes its grant has
    /// passed before. Returns whether a larger token is remembered now.
    ///
    /// # Errors
    ///
    /// The lower bound, if the token is below it.
    pub fn pass(&mut self, kind: impl Into<Kind>, token: u64) -> Result<bool, u64> {
        let kind = kind.into();
        match self.floor_of(kind) {
            floor if token < floor => Err(floor),
            _ => Ok(self.add(kind, token)),
        }
    }

    /// Iterates over every kind that has a token, with its largest one; permits in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, u64)> {
        let of_modes = [(Kind::Exclusive, self.exclusive), (Kind::Shared, self.shared)];
        let permits = self.permits.iter().flat_map(|permits| &permits.by_number);
        let permits = permits.map(|(number, token)| (Kind::Permit(*number), *token));
        of_modes.into_iter().filter(|(_, token)| *token > 0).chain(permits)
    }

    /// Returns how many permit numbers have a token.
    pub fn permits(&self) -> usize {
        self.permits.as_deref().map_or(0, |permits| permits.by_number.len())
    }

    /// Returns about how many bytes these tokens take on the heap. The nodes of a tree are between half full and full.
    pub fn heap_bytes(&self) -> usize {
        const ENTRY_BYTES: usize = 16;
        self.permits.as_deref().map_or(0, |permits| size_of::<Permits>() + permits.by_number.len() * ENTRY_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::mode::Permit;

    /// A history of one lock and the resource that it protects. `grants` has the mode of each grant, in the order of
    /// tokens. `accesses` has, for each access in turn, the index of the grant with which it came.
    struct History<'a> {
        grants: &'a [Mode],
        accesses: &'a [usize],
    }

    /// A rule for resources: decides from what the resource remembers whether an access of this kind and with this
    /// token passes.
    type Rule = fn(&mut Floors, Kind, u64) -> bool;

    impl History<'_> {
        /// Returns whether a resource with this rule refuses every late access of the history, and no other. An access
        /// is late if a later grant that excludes its own has passed before.
        fn is_kept_by(&self, rule: Rule) -> bool {
            let mut seen = Floors::default();
            let mut passed = vec![];
            self.accesses.iter().all(|&grant| {
                let mode = self.grants[grant];
                let is_excluded_by = |later: usize| later > grant && !mode.is_compatible(self.grants[later]);
                let passes = rule(&mut seen, mode.into(), grant as u64 + 1);
                let is_late = passed.iter().any(|&later| is_excluded_by(later));
                // A grant is present until a later grant excludes it.
                let is_present = !(0..self.grants.len()).any(is_excluded_by);
                if passes {
                    passed.push(grant);
                }
                if passes { !is_late } else { !is_present }
            })
        }
    }

    /// Calls `body` with every sequence of `len` elements that are in `of`.
    fn sequences<T: Copy>(of: &[T], len: usize, body: &mut impl FnMut(&[T])) {
        let mut places = vec![0; len];
        loop {
            body(&places.iter().map(|&place| of[place]).collect::<Vec<_>>());
            let Some(next) = places.iter().rposition(|&place| place + 1 < of.len()) else { return };
            places[next] += 1;
            places[next + 1..].fill(0);
        }
    }

    /// Returns whether the rule is right for every history of up to three grants and four accesses.
    fn is_kept(rule: Rule) -> bool {
        let permit = |number| Mode::Permit(Permit::new(number, 2).unwrap());
        let modes = [Mode::Exclusive, Mode::Shared, permit(1), permit(2)];
        let mut is_kept = true;
        sequences(&modes, 3, &mut |grants| {
            sequences(&[0, 1, 2], 4, &mut |accesses| is_kept &= History { grants, accesses }.is_kept_by(rule));
        });
        is_kept
    }

    #[test]
    fn the_rule_refuses_every_late_access_and_no_present_one() {
        assert!(is_kept(|seen, kind, token| seen.pass(kind, token).is_ok()));
    }

    /// Tries rules that one might implement by mistake in place of the right one. Each of them lets some late access
    /// pass, or refuses a present grant.
    #[test]
    fn no_other_simple_rule_does() {
        fn accept(seen: &mut Floors, kind: Kind, token: u64, floor: u64) -> bool {
            if token >= floor {
                seen.add(kind, token);
            }
            token >= floor
        }
        let weaker: [(&str, Rule); 6] = [
            ("a permit is compared with its number and with writers alone", |seen, kind, token| {
                let floor = match kind {
                    Kind::Permit(_) => seen.largest(kind).max(seen.largest(Kind::Exclusive)),
                    kind => seen.floor_of(kind),
                };
                accept(seen, kind, token, floor)
            }),
            ("a reader is compared with writers alone", |seen, kind, token| {
                let floor = match kind {
                    Kind::Shared => seen.largest(Kind::Exclusive),
                    kind => seen.floor_of(kind),
                };
                accept(seen, kind, token, floor)
            }),
            ("a writer is compared with writers alone", |seen, kind, token| {
                let floor = match kind {
                    Kind::Exclusive => seen.largest(kind),
                    kind => seen.floor_of(kind),
                };
                accept(seen, kind, token, floor)
            }),
            ("everybody is compared with the largest", |seen, kind, token| {
                let floor = seen.floor_of(Kind::Exclusive);
                accept(seen, kind, token, floor)
            }),
            ("an equal token is refused", |seen, kind, token| {
                let floor = seen.floor_of(kind) + 1;
                accept(seen, kind, token, floor)
            }),
            ("readers are not remembered", |seen, kind, token| match kind {
                Kind::Shared => token >= seen.floor_of(kind),
                kind => seen.pass(kind, token).is_ok(),
            }),
        ];
        for (what, rule) in weaker {
            assert!(!is_kept(rule), "{what}");
        }
    }

    #[test]
    fn what_was_added_is_found_again() {
        let mut floors = Floors::default();
        let added = [(Kind::Exclusive, 5), (Kind::Shared, 7), (Kind::Permit(2), 6), (Kind::Permit(65_535), 9)];
        for (kind, token) in added {
            assert!(floors.add(kind, token) && !floors.add(kind, token) && !floors.add(kind, token - 1));
        }
        assert_eq!(floors.iter().collect::<Vec<_>>(), added);
        assert_eq!(
            (floors.permits(), floors.pass(Kind::Exclusive, 8), floors.pass(Kind::Exclusive, 9)),
            (2, Err(9), Ok(true))
        );
        assert_eq!(size_of::<Floors>(), 24, "a gate is small");
    }
}
