//! How every model is checked: a search for the shortest way to break it, or a look at all its states.

use std::fmt::{self, Debug};
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

/// A model whose states and actions can be told of.
pub(crate) trait Explained:
    Model<State: Clone + Debug + PartialEq + Hash + Send + Sync, Action: Clone + Debug + PartialEq + Send + Sync>
    + Send
    + Sync
    + 'static
{
    /// What is broken in a state.
    fn why(state: &Self::State) -> Option<String>;

    /// What happened.
    fn describe(action: &Self::Action) -> String {
        format!("{action:?}")
    }
}

/// What a check came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Different states.
    pub states: usize,
    /// The longest path.
    pub depth: usize,
    /// All states within the bounds were seen.
    pub complete: bool,
    /// What was broken, and how that comes about, a step a line.
    pub found: Option<(String, Vec<String>)>,
}

/// How a model is checked, and in at most how many states.
enum Look {
    Find(usize),
    Exhaust(usize, usize),
}

/// A model within bounds, with all rules or without one.
pub struct Bounded<R> {
    /// What it is about: for one with all rules, its bounds; else the rule that is left out.
    pub about: R,
    check: Box<dyn Fn(&Look) -> Outcome>,
}

impl<R> Bounded<R> {
    pub(crate) fn new<M: Explained>(about: R, model: impl Fn() -> M + 'static) -> Self {
        Self { about, check: Box::new(move |look| check(model(), look)) }
    }

    /// Looks for the shortest way to break it, in at most this many states.
    pub fn find(&self, states_max: usize) -> Outcome {
        (self.check)(&Look::Find(states_max))
    }

    /// Looks at all its states, in at most this many.
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
