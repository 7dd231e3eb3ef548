//! The mode in which a grant holds a lock, and which grants are compatible.
//!
//! Grants conflict in *pairs*. Majorities of independent nodes can enforce that, because two majorities share a node,
//! which refuses one of the two requests. They cannot enforce a count: if each node admits k holders, all nodes
//! together admit more than k.

/// A permit: number `number` of `limit`, with 1 ≤ number ≤ limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Permit {
    number: u16,
    limit: u16,
}

impl Permit {
    /// Creates the permit `number` of `limit`; `None` if there is no such number.
    pub const fn new(number: u16, limit: u16) -> Option<Self> {
        if number >= 1 && number <= limit { Some(Self { number, limit }) } else { None }
    }

    /// Returns the number of this permit, from 1 on.
    pub const fn number(self) -> u16 {
        self.number
    }

    /// Returns the limit that its holder asked for.
    pub const fn limit(self) -> u16 {
        self.limit
    }
}

/// The mode of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// No other owner holds the lock.
    Exclusive,
    /// Others may hold the lock in this mode too.
    Shared,
    /// Others may hold permits with other numbers, each up to the smallest limit that a holder has asked for.
    Permit(Permit),
}

/// The mode that a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wanted {
    /// The whole lock, for this owner alone.
    #[default]
    Exclusive,
    /// The lock together with other readers.
    Shared,
    /// One of `limit` permits; the limit is 2 or more.
    Permit {
        /// The number of permits that there are.
        limit: u16,
        /// The number of the wanted permit; `None` for any free one.
        number: Option<u16>,
    },
}

impl Wanted {
    /// Returns the mode's name as INFO and errors show it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permit { .. } => "permit",
        }
    }

    /// Returns every mode that a grant for this request can have. For permits these begin with the lowest number.
    pub fn modes(self) -> impl Iterator<Item = Mode> {
        let (mode, limit, number) = match self {
            Self::Exclusive => (Some(Mode::Exclusive), 0, None),
            Self::Shared => (Some(Mode::Shared), 0, None),
            Self::Permit { limit, number } => (None, limit, number),
        };
        let numbers = (1..=limit).filter(move |n| number.is_none_or(|number| number == *n));
        mode.into_iter().chain(numbers.filter_map(move |n| Permit::new(n, limit)).map(Mode::Permit))
    }

    /// Returns whether `other` asks for the same kind of grant. Permits are of one kind, whatever their limits and
    /// numbers.
    pub fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Returns whether a grant of `mode` is what the request asks for.
    pub fn is(self, mode: Mode) -> bool {
        match (self, mode) {
            (Self::Exclusive, Mode::Exclusive) | (Self::Shared, Mode::Shared) => true,
            (Self::Permit { limit, number }, Mode::Permit(permit)) => {
                limit == permit.limit && number.is_none_or(|number| number == permit.number)
            }
            _ => false,
        }
    }
}

impl Mode {
    /// Returns the mode's name as INFO and errors show it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permit(_) => "permit",
        }
    }

    /// Returns the number of a permit. It is 1 for an exclusive grant, which is permit 1 of 1, and for readers, who
    /// need no number.
    pub const fn number(self) -> u16 {
        match self {
            Mode::Permit(permit) => permit.number,
            Mode::Exclusive | Mode::Shared => 1,
        }
    }

    /// Returns whether two owners may hold one lock in these modes at a time.
    pub const fn is_compatible(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::Shared, Mode::Shared) => true,
            (Mode::Permit(one), Mode::Permit(other)) => {
                one.number != other.number && one.number <= other.limit && other.number <= one.limit
            }
            _ => false,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns every mode with a limit of up to `limit_max`.
    pub fn all(limit_max: u16) -> Vec<Mode> {
        let permits = (1..=limit_max).flat_map(|limit| (1..=limit).filter_map(move |n| Permit::new(n, limit)));
        [Mode::Exclusive, Mode::Shared].into_iter().chain(permits.map(Mode::Permit)).collect()
    }

    fn permit(number: u16, limit: u16) -> Mode {
        Mode::Permit(Permit::new(number, limit).unwrap())
    }

    #[test]
    fn which_modes_go_together() {
        let pairs = [
            (Mode::Exclusive, Mode::Exclusive, false),
            (Mode::Exclusive, Mode::Shared, false),
            (Mode::Exclusive, permit(2, 3), false),
            (Mode::Shared, Mode::Shared, true),
            (Mode::Shared, permit(1, 9), false),
            (permit(1, 3), permit(2, 3), true),
            (permit(2, 3), permit(2, 3), false),
            // Of two limits the smaller counts, whichever grant has it.
            (permit(3, 3), permit(1, 2), false),
            (permit(2, 3), permit(1, 2), true),
            // With a limit of one, a permit is an exclusive lock.
            (permit(1, 1), permit(2, 2), false),
        ];
        for (one, other, together) in pairs {
            assert_eq!(one.is_compatible(other), together, "{one:?} {other:?}");
            assert_eq!(other.is_compatible(one), together, "{other:?} {one:?}");
        }
    }

    #[test]
    fn there_are_permits_from_one_to_their_limit() {
        for (number, limit, is_one) in [(0, 0, false), (0, 5, false), (1, 1, true), (5, 5, true), (6, 5, false)] {
            assert_eq!(Permit::new(number, limit).is_some(), is_one, "{number} of {limit}");
        }
    }

    #[test]
    fn which_grant_is_what_was_wanted() {
        let wanted = |number| Wanted::Permit { limit: 5, number };
        let grant = permit(2, 5);
        assert!(wanted(None).is(grant) && wanted(Some(2)).is(grant) && !wanted(Some(3)).is(grant));
        assert!(!wanted(None).is(permit(2, 4)), "another limit is another request");
        assert!(Wanted::Exclusive.is(Mode::Exclusive) && !Wanted::Exclusive.is(Mode::Shared));
        assert!(Wanted::Shared.is(Mode::Shared) && !Wanted::Shared.is(Mode::Exclusive) && !Wanted::Shared.is(grant));
    }

    /// Among permits that are compatible with each other, there are never more than the smallest of their limits.
    #[test]
    fn no_more_permits_than_the_smallest_limit_go_together() {
        let permits: Vec<_> = all(4).into_iter().filter(|mode| matches!(mode, Mode::Permit(_))).collect();
        for set in 0_u32..1 << permits.len() {
            let set: Vec<_> = (0..permits.len()).filter(|n| set >> n & 1 != 0).map(|n| permits[n]).collect();
            let pairs = || set.iter().enumerate().flat_map(|(n, one)| set[..n].iter().map(move |other| (*one, *other)));
            if pairs().all(|(one, other)| one.is_compatible(other)) {
                let limits =
                    set.iter().filter_map(|mode| if let Mode::Permit(p) = mode { Some(p.limit) } else { None });
                assert!(limits.min().is_none_or(|least| set.len() <= least.into()), "{set:?}");
            }
        }
    }
}
