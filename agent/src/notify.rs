//! Tells systemd that the agent is ready, what its status is, that it is alive, and that it ends. Without systemd these
//! functions do nothing.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::sleep;

use crate::limits::STATUS_EVERY;
use crate::state::State;

/// Tells systemd that the agent listens.
pub fn ready() {
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status("asks the nodes")]);
}

/// Tells systemd that the agent is ending.
pub fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

/// Returns the interval in which systemd has to hear that the agent is alive: half of the time that it allows. `None`
/// if systemd does not ask for that.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|given| given / 2)
}

/// Tells systemd in this interval that the agent is alive, until the future is dropped.
pub async fn beat(every: Duration) {
    loop {
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        sleep(every).await;
    }
}

/// Tells systemd how many nodes answer, again and again until the future is dropped.
pub async fn report(state: Arc<State>) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    loop {
        let line = match state.nodes_soon().await {
            Some(Ok(nodes)) => {
                format!("{} of {} nodes serve, {} are needed", nodes.serving, nodes.nodes, nodes.majority)
            }
            _ => "the nodes do not answer".to_owned(),
        };
        let _ = sd_notify::notify(&[NotifyState::Status(&line)]);
        sleep(STATUS_EVERY).await;
    }
}
