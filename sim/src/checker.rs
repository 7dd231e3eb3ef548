//! How every model is checked: a search for the shortest way to break it, or a look at all its states.

use std::fmt::Debug;
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

/// Looks for the shortest way to break `model`, in at most this many states.
pub(crate) fn find<M: Explained>(model: M, states_max: usize) -> Outcome {
    let checker = model.checker().finish_when(HasDiscoveries::Any).target_state_count(states_max);
    outcome(&checker.spawn_bfs().join(), states_max)
}

/// Looks at all states of `model`, in at most this many.
pub(crate) fn exhaust<M: Explained>(model: M, states_max: usize, threads: usize) -> Outcome {
    let checker = model.checker().threads(threads).finish_when(HasDiscoveries::Any);
    outcome(&checker.target_state_count(states_max).spawn_dfs().join(), states_max)
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
