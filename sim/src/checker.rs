//! Checks a model: searches for the shortest sequence of actions that breaks a rule, or explores all states.

use std::fmt::{self, Debug};
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

/// A model whose states and actions can be described in words.
pub(crate) trait Explained:
    Model<State: Clone + Debug + PartialEq + Hash + Send + Sync, Action: Clone + Debug + PartialEq + Send + Sync>
    + Send
    + Sync
    + 'static
{
    /// Returns the rule that a state breaks, if any.
    fn why(state: &Self::State) -> Option<String>;

    /// Describes an action.
    fn describe(action: &Self::Action) -> String {
        format!("{action:?}")
    }
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The number of distinct states explored.
    pub states: usize,
    /// The length of the longest path.
    pub depth: usize,
    /// True if every state within the bounds was explored.
    pub complete: bool,
    /// The broken rule, and the steps that lead to it, one per line.
    pub found: Option<(String, Vec<String>)>,
}

/// The kind of check, with the largest number of states to explore.
enum Look {
    Find(usize),
    Exhaust(usize, usize),
}

/// A model within bounds, with every rule, or with one rule switched off to show that the model needs it.
pub struct Bounded<R> {
    /// The description of the model: the bounds if every rule is on, otherwise the rule that is switched off.
    pub about: R,
    check: Box<dyn Fn(&Look) -> Outcome>,
}

impl<R> Bounded<R> {
    pub(crate) fn new<M: Explained>(about: R, model: impl Fn() -> M + 'static) -> Self {
        Self { about, check: Box::new(move |look| check(model(), look)) }
    }

    /// Searches for the shortest way to break the model, in at most `states_max` states.
    pub fn find(&self, states_max: usize) -> Outcome {
        (self.check)(&Look::Find(states_max))
    }

    /// Explores all states of the model, up to `states_max`.
    pub fn exhaust(&self, states_max: usize, threads: usize) -> Outcome {
        (self.check)(&Look::Exhaust(states_max, threads))
    }
}

impl<R: Debug> Debug for Bounded<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.about.fmt(f)
    }
}

fn check<M: Explained>(model: M, look: &Look) -> Outcome {
    let checker = model.checker().finish_when(HasDiscoveries::Any);
    match *look {
        Look::Find(states_max) => outcome(&checker.target_state_count(states_max).spawn_bfs().join(), states_max),
        Look::Exhaust(states_max, threads) => {
            outcome(&checker.threads(threads).target_state_count(states_max).spawn_dfs().join(), states_max)
        }
    }
}

fn outcome<M: Explained>(checker: &impl Checker<M>, states_max: usize) -> Outcome {
    let found = checker.discoveries().into_iter().next().map(|(property, path)| {
        let broken = M::why(path.last_state()).unwrap_or_else(|| format!("{property}: a lock is not to be had"));
        (broken, path.into_actions().iter().map(M::describe).collect())
    });
    Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        complete: checker.state_count() < states_max,
        found,
    }
}
