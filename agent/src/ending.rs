//! How the agent ends, and what is counted while it runs: the tasks of its connections.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::state::State;

/// Held by every connection; the agent waits at its end until nobody has one.
#[derive(Clone, Debug)]
pub struct Present {
    _sender: mpsc::Sender<()>,
}

/// Tells when nobody is there any more.
#[derive(Debug)]
pub struct Absence(mpsc::Receiver<()>);

/// The first who is present, and what tells when all are gone.
pub fn presence() -> (Present, Absence) {
    let (sender, receiver) = mpsc::channel(1);
    (Present { _sender: sender }, Absence(receiver))
}

impl Absence {
    /// Returns when nobody is there.
    pub async fn all_gone(&mut self) {
        while self.0.recv().await.is_some() {}
    }
}

/// An open connection: counted until it is dropped, also by a panic.
#[derive(Debug)]
pub struct Open {
    state: Arc<State>,
    _present: Present,
}

impl Open {
    /// One more, if there may be one.
    pub fn new(state: &Arc<State>, present: &Present) -> Option<Self> {
        if state.counts.connections.get() >= state.connections_max as u64 {
            state.counts.turned_away.up();
            return None;
        }
        state.counts.accepted.up();
        state.counts.connections.up();
        Some(Self { state: Arc::clone(state), _present: present.clone() })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.state.counts.connections.down();
        if std::thread::panicking() {
            self.state.counts.panics.up();
        }
    }
}
