//! A second model of a lock, independent of the one in Go. Some pairs of grants conflict: nobody holds both at the same
//! time, and the later one has the larger token.

use std::collections::BTreeMap;

use porcupine::Model;
use serde::Deserialize;

/// The class of a grant, which determines with which other grants it conflicts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Writer,
    Reader,
    Permit(u32),
}

impl Class {
    /// Returns whether grants of these classes conflict, so that the later one has the larger token.
    fn conflicts(self, other: Self) -> bool {
        match (self, other) {
            (Class::Reader, Class::Reader) => false,
            (Class::Permit(a), Class::Permit(b)) => a == b,
            _ => true,
        }
    }
}

/// The largest token of a class.
#[derive(Clone, Deserialize)]
pub struct Last {
    class: Class,
    token: u64,
}

/// An operation, as `judge export` writes it.
#[derive(Clone, Deserialize)]
pub struct Op {
    kind: String,
    pub owner: u64,
    class: Class,
    #[serde(default)]
    limit: u32,
    #[serde(default)]
    token: u64,
    #[serde(default)]
    holds: u32,
    /// True if the number of holds before this operation is unknown, so only the answer says how many are left.
    #[serde(default)]
    holds_unknown: bool,
    #[serde(default)]
    token_may_rise: bool,
    /// The value that was written, or read, in a register.
    #[serde(default)]
    value: String,
    pub call: u64,
    pub answered: u64,
}

#[derive(Clone, PartialEq)]
struct Grant {
    class: Class,
    limit: u32,
    token: u64,
    holds: u32,
}

/// Grants by owner, the largest token of each class, and the value of a register behind a gate.
#[derive(Clone, PartialEq, Default)]
pub struct State {
    grants: BTreeMap<u64, Grant>,
    last: BTreeMap<Class, u64>,
    value: String,
}

impl State {
    /// Returns whether the grant of `op` can be held together with the grants of all other owners.
    fn fits(&self, op: &Op) -> bool {
        self.grants.iter().filter(|(owner, _)| **owner != op.owner).all(|(_, grant)| match (grant.class, op.class) {
            (Class::Permit(held), Class::Permit(asked)) => held != asked && held <= op.limit && asked <= grant.limit,
            (held, asked) => !held.conflicts(asked),
        })
    }

    /// Returns whether a token is above those of all earlier grants that conflict. A token of 0 means that the lock has
    /// no tokens, and is always in order.
    fn in_order(&self, class: Class, token: u64) -> bool {
        token == 0 || self.last.iter().all(|(earlier, last)| !earlier.conflicts(class) || token > *last)
    }

    fn remember(&mut self, class: Class, token: u64) {
        let last = self.last.entry(class).or_default();
        *last = token.max(*last);
    }

    /// Performs an access to a register. The gate lets the token pass unless it has seen a larger one that conflicts.
    fn at_gate(mut self, op: &Op) -> Option<Self> {
        let passes = self.last.iter().all(|(earlier, last)| !earlier.conflicts(op.class) || op.token >= *last);
        if !passes {
            return matches!(op.kind.as_str(), "fenced" | "unseen").then_some(self);
        }
        self.remember(op.class, op.token);
        match op.kind.as_str() {
            "read" => (self.value == op.value).then_some(self),
            "write" => Some(Self { value: op.value.clone(), ..self }),
            "unseen" if op.value.is_empty() => Some(self),
            "unseen" => Some(Self { value: op.value.clone(), ..self }),
            _ => None,
        }
    }

    /// Performs an operation of an owner that has no grant.
    fn without_grant(mut self, op: &Op) -> Option<Self> {
        match op.kind.as_str() {
            "acquire" if self.fits(op) && self.in_order(op.class, op.token) => {
                self.grants.insert(op.owner, Grant { class: op.class, limit: op.limit, token: op.token, holds: 1 });
                self.remember(op.class, op.token);
                Some(self)
            }
            "release unseen" | "free" => self.fits(op).then_some(self),
            "gone" => Some(self),
            "read" | "write" | "fenced" | "unseen" => self.at_gate(op),
            _ => None,
        }
    }

    /// Performs an operation of an owner that has `grant`.
    fn with_grant(mut self, op: &Op, mut grant: Grant) -> Option<Self> {
        match op.kind.as_str() {
            "acquire" | "extend" | "to shared" => {
                if op.token != grant.token && !(op.token_may_rise && op.token > grant.token) {
                    return None;
                }
                if op.token > grant.token {
                    self.remember(grant.class, op.token);
                    grant.token = op.token;
                }
                if op.kind == "to shared" {
                    if let Class::Permit(_) = grant.class {
                        return None;
                    }
                    grant.class = Class::Reader;
                }
            }
            "to exclusive" => {
                let may = self.grants.len() == 1 && !matches!(grant.class, Class::Permit(_));
                if !may || !self.in_order(Class::Writer, op.token) {
                    return None;
                }
                self.remember(Class::Writer, op.token);
                grant = Grant { class: Class::Writer, token: op.token, ..grant };
            }
            "reenter" if op.holds_unknown || op.holds == grant.holds + 1 => grant.holds = op.holds,
            "release" if op.holds_unknown || op.holds + 1 == grant.holds => grant.holds = op.holds,
            "expire" => grant.holds = 0,
            _ => return None,
        }
        if grant.holds == 0 {
            self.grants.remove(&op.owner);
        } else {
            self.grants.insert(op.owner, grant);
        }
        Some(self)
    }
}

/// The model of one lock. For each [`Class`] of grants, `before` has the largest token that was granted before the
/// history begins.
pub struct Lock {
    pub before: Vec<Last>,
}

impl Model for Lock {
    type State = State;
    type Input = Op;
    type Output = ();

    fn init(&self) -> State {
        let last = self.before.iter().map(|last| (last.class, last.token)).collect();
        State { last, ..State::default() }
    }

    fn step(&self, state: &State, op: &Op, (): &()) -> Option<State> {
        match state.grants.get(&op.owner).cloned() {
            None => state.clone().without_grant(op),
            Some(grant) => state.clone().with_grant(op, grant),
        }
    }
}
