//! Ends the agent: waits for the tasks of its connections.

use tokio::sync::mpsc;

/// A token that every connection holds. When the agent ends, it waits until all tokens are dropped.
#[derive(Clone, Debug)]
pub struct Present {
    _sender: mpsc::Sender<()>,
}

/// The other end of [`Present`], which notices when all tokens are dropped.
#[derive(Debug)]
pub struct Absence(mpsc::Receiver<()>);

/// Returns the first token, and the end that notices when all tokens are dropped.
pub fn presence() -> (Present, Absence) {
    let (sender, receiver) = mpsc::channel(1);
    (Present { _sender: sender }, Absence(receiver))
}

impl Absence {
    /// Returns when all tokens are dropped.
    pub async fn all_gone(&mut self) {
        while self.0.recv().await.is_some() {}
    }
}
