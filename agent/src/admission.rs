//! Places for connections: which ones get one, which ones give theirs up, and how those are told that get none.

use std::pin::pin;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::ending::Present;
use crate::limits::{LINGER_TIME, READ_BYTES, REQUEST_BYTES_MAX};
use crate::listening::Stream;
use crate::refused::too_many_connections;
use crate::reply::write_error;
use crate::state::State;

/// An open connection: counted until it is dropped, also by a panic.
#[derive(Debug)]
pub struct Open {
    /// Its number, which no other one has.
    pub id: u64,
    /// What it shares with all others.
    pub state: Arc<State>,
    goes: Arc<Notify>,
    _present: Present,
}

impl Open {
    /// One more. Where there are as many as may be, the oldest stranger leaves its place; `None`: there is none.
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
            // It waits for nothing but its client, so it leaves at once.
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

    /// Keeps its place from now on; false: another one has it already.
    pub fn stay(&self) -> bool {
        self.state.strangers.remove(self.id)
    }

    /// Returns when it has to leave its place.
    pub async fn goes(&self) {
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

/// Tells a connection that there is no place for it, and closes it. What it sends is read until it has hung up too, for a short time: the
/// system answers what nobody reads with a reset, and the client would see that in place of the text.
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

/// Reads what comes and forgets it, until nothing comes any more or it is too much.
async fn drain(stream: &Stream) {
    let mut left = REQUEST_BYTES_MAX;
    let mut bytes = BytesMut::with_capacity(READ_BYTES);
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
