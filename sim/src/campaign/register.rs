//! The resource that the locks protect: a register for each key, in the campaign's own process, which clients reach
//! over a socket. The gate's rule ([`Floors`]) says which token passes. There, each permit has a protected number and a
//! largest token of its own.
//!
//! A writer's reads carry its token too. If only writes had tokens, updates would be lost. An old holder's write may
//! arrive after the new holder's read and before its write, when the register has not seen the larger token.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use palisade_core::quorum::floors::Floors;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};

use super::journal::now_us;
use crate::history::{Event, HeldAs, Holder, Occurrence};

/// A client's request to the register: to read a key's number, or to write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The key of the lock under which the client reads or writes.
    pub key: u32,
    /// The holder that sends the request.
    pub who: Holder,
    /// The token with which the register accepts or refuses the request.
    pub token: u64,
    /// The mode in which the holder relies on the lock.
    pub mode: HeldAs,
    /// The number to write; `None` to read.
    pub write: Option<u64>,
}

/// An access that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The event for the referee.
    pub event: Event,
    /// True if the register accepted the access.
    pub taken: bool,
    /// True for a write, false for a read.
    pub writes: bool,
    /// True if the number written is not one more than the last: an update was lost.
    pub lost_update: bool,
}

/// All registers, and all accesses to them.
#[derive(Clone, Debug, Default)]
pub struct Register(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    cells: BTreeMap<u32, Cell>,
    arrivals: Vec<Arrival>,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    /// The protected numbers, by the number of the permit under which they are written; 0 stands for the lock without
    /// permits. A write raises one of them by 1.
    numbers: BTreeMap<u16, u64>,
    /// The largest tokens of the accesses so far.
    seen: Floors,
}

impl Register {
    /// Serves clients at `path` until the runtime ends.
    ///
    /// # Errors
    ///
    /// The socket cannot be created.
    pub fn serve(&self, path: &Path) -> io::Result<()> {
        let listener = UnixListener::bind(path)?;
        let register = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(register.clone().answer(stream));
            }
        });
        Ok(())
    }

    async fn answer(self, stream: UnixStream) {
        let (from, mut to) = stream.into_split();
        let mut lines = BufReader::new(from).lines();
        // A killed client may leave half a line.
        while let Ok(Some(line)) = lines.next_line().await {
            let Ok(access) = serde_json::from_str::<Access>(&line) else { return };
            let mut answer = serde_json::to_vec(&self.access(access)).expect("plain data");
            answer.push(b'\n');
            if to.write_all(&answer).await.is_err() {
                return;
            }
        }
    }

    /// Performs an access. Returns the current number, or `None` if the access is refused.
    pub fn access(&self, access: Access) -> Option<u64> {
        let mut inner = self.inner();
        // The clock is read under the mutex, so that the order of times is the order of accesses.
        let at = now_us();
        let Access { key, who, token, mode, write } = access;
        let cell = inner.cells.entry(key).or_default();
        let taken = cell.seen.pass(mode.mode(), token).is_ok();
        let number = cell.numbers.entry(if let HeldAs::Permit { number, .. } = mode { number } else { 0 }).or_default();
        let mut lost_update = false;
        if let Some(new) = write.filter(|_| taken) {
            lost_update = new != *number + 1;
            *number = new;
        }
        let answer = taken.then_some(*number);
        let event = Event { at, key, who, what: Occurrence::Wrote { token, mode } };
        inner.arrivals.push(Arrival { event, taken, writes: write.is_some(), lost_update });
        answer
    }

    /// Returns all accesses from number `first` on.
    pub fn arrivals_from(&self, first: usize) -> Vec<Arrival> {
        self.inner().arrivals[first..].to_vec()
    }

    /// Returns each key with the sum of the numbers that its lock protects.
    pub fn numbers(&self) -> Vec<(u32, u64)> {
        self.inner().cells.iter().map(|(&key, cell)| (key, cell.numbers.values().sum())).collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's connection to the register. Each task has its own, so accesses arrive in the order of its requests.
#[derive(Debug)]
pub struct Connection {
    lines: tokio::io::Lines<BufReader<tokio::net::unix::OwnedReadHalf>>,
    to: OwnedWriteHalf,
}

impl Connection {
    /// Connects to the register at `path`.
    ///
    /// # Errors
    /// Nobody listens there.
    pub async fn open(path: &Path) -> io::Result<Self> {
        let (from, to) = UnixStream::connect(path).await?.into_split();
        Ok(Self { lines: BufReader::new(from).lines(), to })
    }

    /// Sends an access, and waits for the answer: the current number, or `None` if the token is too small.
    ///
    /// # Errors
    ///
    /// The campaign has ended.
    pub async fn access(&mut self, access: Access) -> io::Result<Option<u64>> {
        let mut line = serde_json::to_vec(&access).expect("plain data");
        line.push(b'\n');
        self.to.write_all(&line).await?;
        let answer = self.lines.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(serde_json::from_str(&answer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder { client: 1, acquisition: 1 };
    const B: Holder = Holder { client: 2, acquisition: 1 };

    #[test]
    fn an_old_holder_is_refused_as_soon_as_the_new_one_has_read() {
        let register = Register::default();
        let access = |who, token, write| register.access(Access { key: 0, who, token, mode: HeldAs::Exclusive, write });
        assert_eq!(access(A, 5, None), Some(0));
        assert_eq!(access(B, 6, None), Some(0));
        assert_eq!(access(A, 5, Some(1)), None);
        assert_eq!(access(B, 6, Some(1)), Some(1));
        // B writes the 1 again. Its write counts as a lost update, because it is not one more than the last.
        assert_eq!(access(B, 6, Some(1)), Some(1));
        let arrivals = register.arrivals_from(0);
        assert_eq!(arrivals.iter().map(|arrival| arrival.taken).collect::<Vec<_>>(), [true, true, false, true, true]);
        assert_eq!(arrivals.iter().filter(|arrival| arrival.lost_update).count(), 1);
    }

    /// Each case lists accesses by mode and token, and whether the register accepts another access after them.
    #[test]
    fn readers_and_permits_are_refused_what_is_older_than_a_writer_and_no_more() {
        let permit = |number| HeldAs::Permit { number, limit: 3 };
        let cases: [(&[(HeldAs, u64)], HeldAs, u64, bool); 11] = [
            (&[(HeldAs::Exclusive, 5)], HeldAs::Shared, 4, false),
            (&[(HeldAs::Exclusive, 5)], HeldAs::Shared, 5, true),
            (&[(HeldAs::Shared, 7)], HeldAs::Shared, 6, true),
            (&[(HeldAs::Shared, 7)], HeldAs::Exclusive, 6, false),
            (&[(HeldAs::Shared, 7)], permit(1), 6, false),
            (&[(permit(1), 7)], permit(2), 6, true),
            (&[(permit(1), 7)], permit(1), 6, false),
            (&[(permit(1), 7)], HeldAs::Shared, 6, false),
            (&[(permit(1), 7)], HeldAs::Exclusive, 6, false),
            (&[(permit(1), 7), (HeldAs::Exclusive, 8)], permit(2), 7, false),
            (&[(HeldAs::Shared, 7), (HeldAs::Shared, 6)], HeldAs::Exclusive, 6, false),
        ];
        for (before, mode, token, taken) in cases {
            let mut cell = Cell::default();
            assert!(before.iter().all(|&(mode, token)| cell.seen.pass(mode.mode(), token).is_ok()));
            assert_eq!(cell.seen.pass(mode.mode(), token).is_ok(), taken, "{mode:?} {token} after {before:?}");
        }
    }
}
