//! Notifications for systemd: the agent is ready, its status, it is alive, it ends. Without systemd they do nothing.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::sleep;

use crate::limits::STATUS_EVERY;
use crate::state::State;

/// Reports that the sockets are listening.
pub fn ready() {
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status("asks the nodes")]);
}

/// Reports that the agent ends.
pub fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

/// Returns the interval of the watchdog reports, if systemd wants them: half of the time that it allows.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|given| given / 2)
}

/// Sends watchdog reports until the future is dropped.
pub async fn beat(every: Duration) {
    loop {
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        sleep(every).await;
    }
}

/// Reports the number of responding nodes until the future is dropped.
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
