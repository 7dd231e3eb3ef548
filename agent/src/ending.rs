//! Waits, when the agent ends, for the tasks of its connections.

use tokio::sync::mpsc;

/// A handle that each connection has while it is served. When the agent ends, it waits until all of these are dropped.
#[derive(Clone, Debug)]
pub struct Present {
    _sender: mpsc::Sender<()>,
}

/// Notices when all [`Present`] handles are dropped.
#[derive(Debug)]
pub struct Absence(mpsc::Receiver<()>);

/// Creates the first [`Present`] handle, and the [`Absence`] that notices when all of them are dropped.
pub fn presence() -> (Present, Absence) {
    let (sender, receiver) = mpsc::channel(1);
    (Present { _sender: sender }, Absence(receiver))
}

impl Absence {
    /// Waits until all [`Present`] handles are dropped.
    pub async fn all_gone(&mut self) {
        while self.0.recv().await.is_some() {}
    }
}
