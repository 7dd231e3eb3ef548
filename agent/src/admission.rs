//! Places for connections, up to the limit: which connection gets one, which gives its place up, and how the others are
//! refused.

use std::pin::pin;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::ending::Present;
use crate::limits::{LINGER_TIME, REQUEST_BYTES_MAX};
use crate::listening::Stream;
use crate::refused::too_many_connections;
use crate::reply::write_error;
use crate::state::State;

/// An open connection that was admitted. It counts towards the limit on connections until this value is dropped, even by
/// a panic.
#[derive(Debug)]
pub struct Open {
    /// The number of the connection, which no other has had.
    pub id: u64,
    /// The state shared by all connections.
    pub state: Arc<State>,
    goes: Arc<Notify>,
    _present: Present,
}

impl Open {
    /// Admits a connection. If the limit is reached, the oldest stranger gives up its place: a connection that has not
    /// shown yet that a client uses it ([`crate::strangers`]). Returns `None` if there is no stranger.
    pub async fn admit(state: &Arc<State>, present: &Present) -> Option<Self> {
        loop {
            let mut left = pin!(state.strangers.left.notified());
            left.as_mut().enable();
            if state.counts.connections.get() < state.connections_max as u64 {
                return Some(Self::new(state, present));
            }
            if !state.strangers.dismiss_oldest() {
                state.counts.turned_away.up();
                return None;
            }
            state.counts.too_slow.up();
            // The dismissed connection was only waiting for its client, so it leaves at once.
            left.await;
        }
    }

    fn new(state: &Arc<State>, present: &Present) -> Self {
        state.counts.accepted.up();
        state.counts.connections.up();
        let (id, goes) = (state.connection(), Arc::new(Notify::new()));
        state.strangers.add(id, &goes);
        Self { id, state: Arc::clone(state), goes, _present: present.clone() }
    }

    /// Ensures that from now on the connection does not have to give up its place to a new one. Returns false if it
    /// has given up its place already.
    pub fn stay(&self) -> bool {
        self.state.strangers.remove(self.id)
    }

    /// Returns when the connection has to give up its place to a new one. Never returns otherwise.
    pub async fn wait_for_eviction(&self) {
        self.goes.notified().await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.stay();
        self.state.counts.connections.down();
        self.state.strangers.left.notify_waiters();
        if std::thread::panicking() {
            self.state.counts.panics.up();
        }
    }
}

/// Answers a connection that there is no place for it, and closes it.
///
/// Before that, the input of the connection is read until the client closes it too, for up to [`LINGER_TIME`].
/// Otherwise the system would answer unread input with a reset, and the client could not read the answer.
pub fn turn_away(state: &State, stream: Stream) {
    let mut text = BytesMut::new();
    write_error(&too_many_connections(state.connections_max), &mut text);
    let _ = stream.try_write(&text);
    stream.end_writing();
    if let Ok(lingers) = Arc::clone(&state.strangers.lingering).try_acquire_owned() {
        tokio::spawn(async move {
            let _ = timeout(LINGER_TIME, drain(&stream)).await;
            drop(lingers);
        });
    }
}

/// Reads and drops input until it ends or exceeds the limit.
async fn drain(stream: &Stream) {
    let mut left = REQUEST_BYTES_MAX;
    let mut bytes = BytesMut::new();
    while left > 0 && stream.readable().await.is_ok() {
        bytes.clear();
        match stream.try_read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => left = left.saturating_sub(count),
            Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
