//! A connection for lock commands that the client serves itself: one socket, one buffer each way, and one slot per
//! request.
//!
//! Any task may ask, write and read: the one that finds the socket ready does the work for all. No request has a task,
//! a timer or a channel.

mod exchange;
mod frame;
mod opening;
mod readiness;
mod stream;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::exchange::Exchange;
pub use self::exchange::{Arrived, Before, Caller, Checked, OVERSLEPT, OVERSLEPT_TIMES, Waiting};
pub use self::opening::{Lent, Target, TlsConfig, open};
pub use self::readiness::Readiness;
use self::stream::{Flow, Stream};
use crate::net::bounds::BROKE;
use crate::net::home;
use crate::net::pace::Pace;
use crate::values::clock;
use crate::values::failure::Why;

/// Maximum time that an answer stays unread before the client's thread reads it, and the period of the thread's checks.
pub const STAND_BY: Duration = Duration::from_millis(2);

/// The number of unanswered requests, or of answers that arrived together, from which on new requests wait to be
/// written together.
const CROWD: usize = 3;

/// Number of checks after which the client's thread serves a connection whose follower (its task in a caller's runtime)
/// did not run meanwhile.
const SILENT: u32 = 2;

/// Number of checks that find unread answers while the follower (the connection's task in a caller's runtime) does not
/// run. After that many the follower ends, so that another one can serve the connection.
const MISSED_MAX: u32 = 8;

/// Number of consecutive checks without requests, after which the follower (the task that serves the connection in a
/// caller's runtime) has to end.
const IDLE_MAX: u32 = 50;

/// A connection. A `T` is a caller that waits for the answer to its request.
///
/// It is served by a task in the callers' runtime, its *follower*, or by the client's own thread. With a follower the
/// thread only checks now and then.
#[derive(Debug)]
pub struct Line<T> {
    state: Mutex<State<T>>,
    /// Notified when the client's thread has something to do.
    asked: Notify,
    /// Notified when the follower, the task that serves the connection, has something to do.
    called: Notify,
}

/// A task in a caller's runtime that serves a connection.
#[derive(Debug)]
struct Follower {
    runtime: Id,
    /// The number of this follower among all that the connection has had.
    number: u64,
    /// Number of checks by the client's thread since the follower last ran.
    silent: u32,
    /// Number of checks since the follower last ran in which the client's thread found unread answers.
    missed: u32,
    /// Number of consecutive checks without requests, new or unanswered.
    idle: u32,
    /// True if a request was added since the last check.
    is_used: bool,
}

/// The right to serve a connection, which ends when this is dropped.
#[derive(Debug)]
pub struct Claim<T: Caller> {
    line: Arc<Line<T>>,
    runtime: Id,
    number: u64,
}

/// The events that the task which serves a connection has to wait for.
#[derive(Clone, Copy, Debug)]
pub struct AwaitedEvents {
    /// The time of the next check for late requests.
    pub check_at: Option<Instant>,
    /// True if the socket has to become writable.
    pub is_blocked: bool,
    /// True if a follower, a task in a caller's runtime, serves the connection.
    pub is_followed: bool,
}

#[derive(Debug)]
struct State<T> {
    exchange: Exchange<T>,
    /// The socket; `None` once the connection has ended.
    stream: Option<Stream>,
    /// True if new requests are refused, because the connection is about to end.
    is_closing: bool,
    /// True if TLS holds bytes that the system did not accept.
    is_blocked: bool,
    follower: Option<Follower>,
    /// Number of followers that the connection has had so far.
    followers: u64,
    /// Number of answers that arrived together at the last read.
    arrived: usize,
    /// The failure that another task than the client's thread found.
    failure: Option<Why>,
}

impl<T: Caller> Line<T> {
    /// Creates a connection over a connected stream.
    pub fn new(stream: Stream) -> Self {
        let exchange = Exchange::new();
        let state = State {
            exchange,
            stream: Some(stream),
            is_closing: false,
            is_blocked: false,
            follower: None,
            followers: 0,
            arrived: 0,
            failure: None,
        };
        Self { state: Mutex::new(state), asked: Notify::new(), called: Notify::new() }
    }

    /// Registers the connection's socket with the runtime of this task, to wait until it is ready.
    ///
    /// # Errors
    /// The connection has ended, or the system is out of resources.
    pub fn readiness(&self) -> Result<Readiness, Why> {
        let handle = match &self.state().stream {
            Some(stream) => stream.handle(),
            None => return Err(Why::Broken(BROKE.to_owned())),
        };
        handle.and_then(Readiness::of).map_err(broken)
    }

    /// Adds a request of a task in the runtime `guest`; `None` for a task on the client's thread. If that runtime has
    /// to serve the connection from now on, returns the right to do so.
    ///
    /// # Errors
    /// The connection is no longer usable; returns `waiting`.
    pub fn ask(
        self: &Arc<Self>,
        packed: &[u8],
        waiting: Waiting<T>,
        guest: Option<&Handle>,
    ) -> Result<Option<Claim<T>>, Waiting<T>> {
        let mut state = self.state();
        if state.is_closing {
            return Err(waiting);
        }
        let is_alone = state.exchange.under_way() < CROWD && state.arrived < CROWD;
        let is_first = state.exchange.ask(packed, waiting);
        let Some(runtime) = guest.map(Handle::id) else {
            drop(state);
            if is_first {
                self.asked.notify_one();
            }
            return Ok(None);
        };
        let claim = state.follower.is_none().then(|| {
            state.followers += 1;
            let number = state.followers;
            state.follower = Some(Follower { runtime, number, silent: 0, missed: 0, idle: 0, is_used: true });
            Claim { line: Arc::clone(self), runtime, number }
        });
        let is_own = state.follower.as_mut().is_some_and(|follower| {
            follower.is_used |= follower.runtime == runtime;
            follower.runtime == runtime
        });
        if is_first && is_own && is_alone {
            // Few other requests are under way, so this one does not wait to be written with them.
            let flushed = state.flush(clock::now());
            let is_blocked = state.is_blocked || state.exchange.is_blocked();
            drop(state);
            match flushed {
                Ok(()) if is_blocked => self.called.notify_one(),
                Ok(()) => {}
                Err(why) => self.fail(why),
            }
        } else if is_first {
            drop(state);
            if is_own { self.called.notify_one() } else { self.asked.notify_one() }
        }
        if claim.is_some() {
            self.asked.notify_one();
        }
        Ok(claim)
    }

    /// Waits until the client's thread has something to do.
    pub async fn wait_for_work(&self) {
        self.asked.notified().await;
    }

    /// Writes the requests, as far as the system accepts them.
    ///
    /// # Errors
    /// The connection broke.
    pub fn flush(&self, now: Instant) -> Result<(), Why> {
        self.state().flush(now)
    }

    /// Checks a connection that a follower (a task in a caller's runtime) serves: writes and reads if the follower
    /// does not. Ends a follower that is not needed or does not read.
    ///
    /// # Errors
    /// The connection broke.
    pub fn stand_by(&self, now: Instant, arrived: &mut Vec<Arrived<T>>) -> Result<(), Why> {
        let mut state = self.state();
        let is_silent = state.follower.as_mut().is_none_or(|follower| {
            follower.silent += 1;
            follower.silent > SILENT
        });
        let before = arrived.len();
        let mut read = Ok(());
        if is_silent {
            state.flush(now)?;
            read = state.read(now, arrived);
        }
        let (has_missed, is_awaited) = (arrived.len() > before, state.exchange.under_way() > 0);
        let is_needless = state.follower.as_mut().is_some_and(|follower| {
            follower.missed = if has_missed { follower.missed + 1 } else { follower.missed };
            let is_used = std::mem::take(&mut follower.is_used) || is_awaited;
            follower.idle = if is_used { 0 } else { follower.idle + 1 };
            follower.missed >= MISSED_MAX || follower.idle >= IDLE_MAX
        });
        if is_needless {
            state.follower = None;
            drop(state);
            self.called.notify_one();
        }
        read
    }

    /// Records that the connection failed: the client's thread ends it.
    pub fn fail(&self, why: Why) {
        self.state().failure.get_or_insert(why);
        self.asked.notify_one();
    }

    /// Returns the failure that another task found.
    pub fn failure(&self) -> Option<Why> {
        self.state().failure.clone()
    }

    /// Reads all available bytes.
    ///
    /// # Errors
    /// The connection broke, or the other end closed it; earlier messages are in `arrived`.
    pub fn read(&self, now: Instant, arrived: &mut Vec<Arrived<T>>) -> Result<(), Why> {
        self.state().read(now, arrived)
    }

    /// Checks which requests are late, with the adaptive timeout `pace` of the node.
    pub fn check(&self, now: Instant, pace: &Pace) -> Checked<T> {
        self.state().exchange.check(now, pace)
    }

    /// Returns the events that the task which serves the connection has to wait for.
    pub fn awaited_events(&self) -> AwaitedEvents {
        let state = self.state();
        AwaitedEvents {
            check_at: state.exchange.check_at(),
            is_blocked: state.is_blocked || state.exchange.is_blocked(),
            is_followed: state.follower.is_some(),
        }
    }

    /// Returns the number of unanswered requests.
    pub fn under_way(&self) -> usize {
        self.state().exchange.under_way()
    }

    /// Refuses new requests; those that were sent may still be answered. Returns the callers whose requests were not
    /// sent.
    pub fn close(&self) -> Vec<T> {
        let mut state = self.state();
        state.is_closing = true;
        state.exchange.take_back()
    }

    /// Closes the socket, and returns all callers.
    pub fn end(&self) -> Vec<T> {
        let mut state = self.state();
        state.is_closing = true;
        if let Some(stream) = state.stream.take() {
            // Closing this handle is not enough: the task that serves the connection has another handle of the socket.
            stream.shut();
        }
        state.follower = None;
        let ended = state.exchange.end();
        drop(state);
        self.called.notify_one();
        ended
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Caller> State<T> {
    fn flush(&mut self, now: Instant) -> Result<(), Why> {
        let Self { exchange, stream, is_blocked, .. } = self;
        let Some(stream) = stream else { return Ok(()) };
        loop {
            *is_blocked = stream.flush().map_err(broken)? == Flow::Blocked;
            let bytes = if *is_blocked { &[] } else { exchange.output(now) };
            if bytes.is_empty() {
                return Ok(());
            }
            let length = bytes.len();
            let written = stream.write(bytes).map_err(broken)?;
            exchange.wrote(written);
            if written < length {
                // The rest is written when the socket is writable.
                return Ok(());
            }
        }
    }

    fn read(&mut self, now: Instant, arrived: &mut Vec<Arrived<T>>) -> Result<(), Why> {
        let before = arrived.len();
        let read = self.read_all(now, arrived);
        if arrived.len() > before {
            self.arrived = arrived.len() - before;
        }
        read
    }

    fn read_all(&mut self, now: Instant, arrived: &mut Vec<Arrived<T>>) -> Result<(), Why> {
        let Self { exchange, stream, .. } = self;
        let Some(stream) = stream else { return Ok(()) };
        loop {
            let room = exchange.room();
            let length = room.len();
            match stream.read(room).map_err(broken)? {
                Some(0) => return Err(Why::Broken(BROKE.to_owned())),
                Some(read) => {
                    exchange.read(read);
                    while let Some(next) = exchange.next(now)? {
                        arrived.push(next);
                    }
                    // A read that does not fill the room has read everything.
                    if read < length && !stream.is_buffered() {
                        return Ok(());
                    }
                }
                None => return Ok(()),
            }
        }
    }
}

impl<T: Caller> Claim<T> {
    /// Returns whether the task with this claim still serves the connection.
    pub fn is_current(&self) -> bool {
        self.line.state().follower.as_ref().is_some_and(|follower| follower.number == self.number)
    }

    /// Waits until there is something to write, or until another task may have taken over the connection.
    pub async fn called(&self) {
        self.line.called.notified().await;
    }

    /// Records that the follower, the task that serves the connection, has just run, so that the client's thread does
    /// not do its work.
    pub fn mark_running(&self) {
        if let Some(follower) = &mut self.line.state().follower {
            (follower.silent, follower.missed) = (0, 0);
        }
    }
}

impl<T: Caller> Drop for Claim<T> {
    /// Ends the claim. A claim is dropped in a panic if the runtime cannot wait for sockets, which is then recorded;
    /// otherwise the runtime has ended.
    fn drop(&mut self) {
        if std::thread::panicking() {
            home::has_no_io(self.runtime);
        }
        let mut state = self.line.state();
        if state.follower.as_ref().is_some_and(|follower| follower.number == self.number) {
            state.follower = None;
            drop(state);
            self.line.asked.notify_one();
        }
    }
}

fn broken(why: io::Error) -> Why {
    Why::Broken(format!("{BROKE}: {why}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use redis::Value;

    use super::*;
    use crate::net::pace::Given;

    struct Asker(usize, Arc<AtomicUsize>);

    impl Caller for Asker {
        fn is_wanted(&self) -> bool {
            true
        }
    }

    impl Drop for Asker {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn line() -> (Arc<Line<Asker>>, UnixStream) {
        let (own, other) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        (Arc::new(Line::new(Stream::new(own.into()))), other)
    }

    fn waiting(number: usize, gone: &Arc<AtomicUsize>) -> Waiting<Asker> {
        let second = Duration::from_secs(1);
        let given = Given::Within { least: second, most: second };
        Waiting { waits: Asker(number, Arc::clone(gone)), given, from: None, before: None }
    }

    /// Sends more than the system accepts at once; the server answers only when all requests have arrived. Each caller
    /// gets its own answer.
    #[test]
    fn so_much_is_asked_as_there_is_and_each_hears_its_answer() {
        const COUNT: usize = 20_000;
        let ((line, mut server), gone) = (line(), Arc::default());
        let request = redis::cmd("PING").arg("x".repeat(40)).get_packed_command();
        for number in 0..COUNT {
            assert!(line.ask(&request, waiting(number, &gone), None).is_ok());
        }
        let bytes = COUNT * request.len();
        let serving = std::thread::spawn(move || {
            server.read_exact(&mut vec![0; bytes]).unwrap();
            let answers: String = (0..COUNT).map(|number| format!(":{number}\r\n")).collect();
            server.write_all(answers.as_bytes()).unwrap();
            server
        });
        let mut heard = vec![];
        while heard.len() < COUNT {
            line.flush(Instant::now()).unwrap();
            line.read(Instant::now(), &mut heard).unwrap();
        }
        for (number, arrived) in heard.iter().enumerate() {
            let Arrived::Answer { waits: Some(asker), reply, .. } = arrived else { panic!("no answer: {number}") };
            assert_eq!((asker.0, reply), (number, &Value::Int(number as i64)));
        }
        let server = serving.join().unwrap();
        server.shutdown(Shutdown::Both).unwrap();
        assert!(line.read(Instant::now(), &mut heard).is_err(), "it hung up");
    }

    #[test]
    fn what_was_not_sent_is_taken_back_and_the_rest_is_told_at_the_end() {
        let ((line, _server), gone) = (line(), Arc::default());
        let request = redis::cmd("PING").get_packed_command();
        assert!(line.ask(&request, waiting(0, &gone), None).is_ok());
        line.flush(Instant::now()).unwrap();
        assert!(line.ask(&request, waiting(1, &gone), None).is_ok());
        let not_sent: Vec<_> = line.close().iter().map(|asker| asker.0).collect();
        assert!(line.ask(&request, waiting(2, &gone), None).is_err());
        let sent: Vec<_> = line.end().iter().map(|asker| asker.0).collect();
        assert_eq!((not_sent, sent, gone.load(Ordering::Relaxed)), (vec![1], vec![0], 3));
    }
}
