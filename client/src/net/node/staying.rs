//! Stays connected to a node.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rand::RngExt;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use super::link::give_up;
use super::talking::Talking;
use super::{Node, State, Whereabouts};
use crate::net::bounds::BROKE;
use crate::values::failure::Why;

/// First and longest pause between two attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

impl Node {
    /// Reconnects whenever the node's Sentinels name another server, and never returns. Returns at once if the node
    /// has no Sentinels.
    pub async fn follow(&self) {
        let Whereabouts::Named(sentinels) = &self.server else { return };
        let mut states = self.state.subscribe();
        loop {
            let link = match states.wait_for(|state| matches!(state, State::Up(_))).await.as_deref() {
                Ok(State::Up(link)) => link.clone(),
                _ => return,
            };
            tokio::select! {
                () = sentinels.name_another(link.way.name()) => {
                    info!(node = self.name(), was = link.way.name(), "the Sentinels name another master");
                    give_up(&self.broken, link.number);
                    let _ = states.changed().await;
                }
                _ = states.changed() => {}
            }
        }
    }

    /// Keeps a connection open. Never returns.
    pub async fn stay_connected(self: &Arc<Self>) {
        let mut pause = BACK_OFF.0;
        let mut broken = self.broken.subscribe();
        for number in self.first.. {
            let began = self.redialing.begin();
            match self.connect(number).await {
                Ok(link) => {
                    info!(node = self.name(), at = link.way.name(), id = format!("{:032x}", link.id.0), "connected");
                    let made = Instant::now();
                    *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.id);
                    self.silent_since.send_replace(None);
                    let talking = Talking::new(self, &link);
                    self.state.send_replace(State::Up(link));
                    self.meter_state();
                    self.common.answers_again.notify_waiters();
                    let is_broken = tokio::select! {
                        _ = broken.wait_for(|&broken| broken >= number) => false,
                        () = talking.run() => true,
                    };
                    warn!(node = self.name(), "the connection is given up");
                    self.state.send_replace(State::Down(Why::Broken(BROKE.to_owned())));
                    self.meter_state();
                    if is_broken {
                        give_up(&self.broken, number);
                        drop(talking);
                    } else {
                        tokio::spawn(talking.finish());
                    }
                    if made.elapsed() > BACK_OFF.1 {
                        pause = BACK_OFF.0;
                        continue;
                    }
                }
                Err(failure) => {
                    debug!(node = self.name(), %failure, "no connection");
                    let is_lasting = failure.is_lasting();
                    self.state.send_replace(State::Down(failure));
                    self.meter_state();
                    if is_lasting {
                        self.common.answers_again.notify_waiters();
                    }
                }
            }
            // A random pause, so that clients do not all connect at the same moment. A request ends the pause early.
            let jittered = pause.mul_f64(rand::rng().random_range(0.5..1.0));
            let _ = timeout(jittered, self.redialing.wait(began)).await;
            pause = (pause * 2).min(BACK_OFF.1);
        }
    }
}
