//! How the agent ends: when the tasks of its connections have.

use tokio::sync::mpsc;

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
