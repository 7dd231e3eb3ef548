//! Checks the roll-out from another lock in docs/migrate.md. Programs work, are replaced by their next version, and go
//! back, in every possible order. Both locks are ideal, so only the order can be at fault: no two programs may work at
//! once, and they must not all wait for each other.

use std::collections::{HashSet, VecDeque};

const PROGRAMS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Version {
    Old,
    Both,
    New,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Take(usize),
    Work,
    Release(usize),
}

/// The rules of the roll-out, each of which can be left out.
#[derive(Clone, Copy)]
struct RollOut {
    /// A program that moves from the old lock to the new one holds both in between.
    has_both: bool,
    /// A program goes from both locks to one of them only while no other program takes just the other one.
    waits: bool,
    /// All programs take the locks in one order.
    has_one_order: bool,
}

const DOCUMENTED: RollOut = RollOut { has_both: true, waits: true, has_one_order: true };

/// The version and the next step of each program, and the holders of the old lock and the new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    programs: [(Version, usize); PROGRAMS],
    holders: [Option<usize>; 2],
}

impl RollOut {
    /// Returns the steps of one round of a program, which it repeats.
    fn round(self, program: usize, version: Version) -> &'static [Step] {
        use Step::{Release, Take, Work};
        match version {
            Version::Old => &[Take(0), Work, Release(0)],
            Version::New => &[Take(1), Work, Release(1)],
            Version::Both if self.has_one_order || program > 0 => &[Take(0), Take(1), Work, Release(1), Release(0)],
            Version::Both => &[Take(1), Take(0), Work, Release(0), Release(1)],
        }
    }

    fn step(self, state: &State, program: usize) -> Step {
        let (version, at) = state.programs[program];
        self.round(program, version)[at]
    }

    /// Returns the state after a program's next step; `None` if it waits for a lock.
    fn after_step(self, state: &State, program: usize) -> Option<State> {
        let mut next = *state;
        match self.step(state, program) {
            Step::Take(lock) if state.holders[lock].is_some() => return None,
            Step::Take(lock) => next.holders[lock] = Some(program),
            Step::Release(lock) => next.holders[lock] = None,
            Step::Work => {}
        }
        let (version, at) = &mut next.programs[program];
        *at = (*at + 1) % self.round(program, *version).len();
        Some(next)
    }

    /// Returns the states after a program has ended between two rounds, and another version of it has started.
    fn after_replacing(self, state: &State, program: usize) -> Vec<State> {
        let is_run = |version| state.programs.iter().any(|program| program.0 == version);
        let (version, at) = state.programs[program];
        let others: &[_] = match version {
            _ if at > 0 => &[],
            Version::Old if !self.has_both => &[Version::New],
            Version::Old | Version::New => &[Version::Both],
            Version::Both if !self.waits => &[Version::Old, Version::New],
            Version::Both if is_run(Version::Old) => &[Version::Old],
            Version::Both if is_run(Version::New) => &[Version::New],
            Version::Both => &[Version::Old, Version::New],
        };
        let replaced = |&other| {
            let mut next = *state;
            next.programs[program] = (other, 0);
            next
        };
        others.iter().map(replaced).collect()
    }

    /// Examines all states. Returns the fault of the first bad state, and whether all programs can reach `new`.
    fn explore(self) -> (Option<&'static str>, bool) {
        let start = State { programs: [(Version::Old, 0); PROGRAMS], holders: [None; 2] };
        let (mut seen, mut open) = (HashSet::from([start]), VecDeque::from([start]));
        let mut arrives = false;
        while let Some(state) = open.pop_front() {
            let working = (0..PROGRAMS).filter(|&program| self.step(&state, program) == Step::Work).count();
            if working > 1 {
                return (Some("two work at once"), arrives);
            }
            let mut next: Vec<_> = (0..PROGRAMS).filter_map(|program| self.after_step(&state, program)).collect();
            if next.is_empty() {
                return (Some("all wait for each other"), arrives);
            }
            arrives |= state.programs.iter().all(|program| program.0 == Version::New);
            next.extend((0..PROGRAMS).flat_map(|program| self.after_replacing(&state, program)));
            open.extend(next.into_iter().filter(|next| seen.insert(*next)));
        }
        (None, arrives)
    }
}

#[test]
fn the_documented_roll_out_keeps_exclusion_and_arrives() {
    assert_eq!(DOCUMENTED.explore(), (None, true));
}

#[test]
fn each_of_its_rules_is_needed() {
    let no_both = RollOut { has_both: false, ..DOCUMENTED };
    assert_eq!(no_both.explore().0, Some("two work at once"));
    let no_wait = RollOut { waits: false, ..DOCUMENTED };
    assert_eq!(no_wait.explore().0, Some("two work at once"));
    let two_orders = RollOut { has_one_order: false, ..DOCUMENTED };
    assert_eq!(two_orders.explore().0, Some("all wait for each other"));
}
