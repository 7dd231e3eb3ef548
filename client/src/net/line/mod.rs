//! A connection of the client's own for lock commands: one socket, one buffer each way, and a slot a request.
//!
//! Everybody may ask, write and read: who finds the socket ready does the work for all. No request has a task, a timer or a channel.

mod exchange;
mod frame;
mod opening;
mod readiness;
mod stream;

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::Cmd;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::exchange::Exchange;
pub use self::exchange::{Arrived, Before, Checked, OVERSLEPT, OVERSLEPT_TIMES, Waiting, Waits};
pub use self::opening::{Lent, Target, TlsConfig, open};
pub use self::readiness::Readiness;
use self::stream::{Flow, Stream};
use crate::net::bounds::BROKE;
use crate::net::pace::Pace;
use crate::values::failure::Why;

/// A connection, for those who wait as `T`.
#[derive(Debug)]
pub struct Line<T> {
    state: Mutex<State<T>>,
    /// Something is to be sent.
    asked: Notify,
}

#[derive(Debug)]
struct State<T> {
    exchange: Exchange<T>,
    /// `None`: it ended.
    stream: Option<Stream>,
    /// Nothing is asked over it any more.
    is_closing: bool,
    /// TLS holds what the system did not take.
    is_blocked: bool,
}

impl<T: Waits> Line<T> {
    /// Begins to use a connection.
    pub fn new(stream: Stream) -> Self {
        let exchange = Exchange::new();
        let state = State { exchange, stream: Some(stream), is_closing: false, is_blocked: false };
        Self { state: Mutex::new(state), asked: Notify::new() }
    }

    /// Registers its socket with the runtime of this task, to wait until it is ready.
    ///
    /// # Errors
    /// The connection ended, or the system has no more of what this needs.
    pub fn readiness(&self) -> Result<Readiness, Why> {
        let handle = match &self.state().stream {
            Some(stream) => stream.handle(),
            None => return Err(Why::Broken(BROKE.to_owned())),
        };
        handle.and_then(Readiness::of).map_err(broken)
    }

    /// Adds a request, to be sent with the next [flush](Self::flush).
    ///
    /// # Errors
    /// The connection is of no use any more; `waiting` is back.
    pub fn ask(&self, command: &Cmd, waiting: Waiting<T>) -> Result<(), Waiting<T>> {
        let mut state = self.state();
        if state.is_closing {
            return Err(waiting);
        }
        let is_first = state.exchange.ask(command, waiting);
        drop(state);
        if is_first {
            self.asked.notify_one();
        }
        Ok(())
    }

    /// Returns when something is to be sent.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Writes what was asked for, as far as the system takes it.
    ///
    /// # Errors
    /// The connection broke.
    pub fn flush(&self, now: Instant) -> Result<(), Why> {
        let State { exchange, stream, is_blocked, .. } = &mut *self.state();
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
                // The rest waits for the writable event.
                return Ok(());
            }
        }
    }

    /// Reads all there is.
    ///
    /// # Errors
    /// The connection broke, or the other end hung up; what had arrived before is in `arrived`.
    pub fn read(&self, now: Instant, arrived: &mut Vec<Arrived<T>>) -> Result<(), Why> {
        let State { exchange, stream, .. } = &mut *self.state();
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
                    // Less than there was room for: that was all.
                    if read < length && !stream.is_buffered() {
                        return Ok(());
                    }
                }
                None => return Ok(()),
            }
        }
    }

    /// Checks which requests are late, for a node of this pace.
    pub fn check(&self, now: Instant, pace: &Pace) -> Checked<T> {
        self.state().exchange.check(now, pace)
    }

    /// Returns when the time is to be checked, and whether the socket is to be waited for to write.
    pub fn wants(&self) -> (Option<Instant>, bool) {
        let state = self.state();
        (state.exchange.check_at(), state.is_blocked || state.exchange.is_blocked())
    }

    /// Returns the number of requests that are to be answered.
    pub fn under_way(&self) -> usize {
        self.state().exchange.under_way()
    }

    /// Takes no more requests; those that were sent may still be answered. Returns those whose requests were not sent.
    pub fn close(&self) -> Vec<T> {
        let mut state = self.state();
        state.is_closing = true;
        state.exchange.take_back()
    }

    /// Closes the socket, and returns all who wait.
    pub fn end(&self) -> Vec<T> {
        let mut state = self.state();
        (state.is_closing, state.stream) = (true, None);
        state.exchange.end()
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    impl Waits for Asker {
        fn is_wanted(&self) -> bool {
            true
        }
    }

    impl Drop for Asker {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn line() -> (Line<Asker>, UnixStream) {
        let (own, other) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        (Line::new(Stream::new(own.into())), other)
    }

    fn waiting(number: usize, gone: &Arc<AtomicUsize>) -> Waiting<Asker> {
        let second = Duration::from_secs(1);
        let given = Given::Within { least: second, most: second };
        Waiting { waits: Asker(number, Arc::clone(gone)), given, from: None, before: None }
    }

    /// More than the system takes at once, and not one of them answered before all have arrived.
    #[test]
    fn so_much_is_asked_as_there_is_and_each_hears_its_answer() {
        const COUNT: usize = 20_000;
        let ((line, mut server), gone) = (line(), Arc::default());
        let request = redis::cmd("PING").arg("x".repeat(40)).take();
        for number in 0..COUNT {
            assert!(line.ask(&request, waiting(number, &gone)).is_ok());
        }
        let bytes = COUNT * request.get_packed_command().len();
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
        let request = redis::cmd("PING");
        assert!(line.ask(&request, waiting(0, &gone)).is_ok());
        line.flush(Instant::now()).unwrap();
        assert!(line.ask(&request, waiting(1, &gone)).is_ok());
        let not_sent: Vec<_> = line.close().iter().map(|asker| asker.0).collect();
        assert!(line.ask(&request, waiting(2, &gone)).is_err());
        let sent: Vec<_> = line.end().iter().map(|asker| asker.0).collect();
        assert_eq!((not_sent, sent, gone.load(Ordering::Relaxed)), (vec![1], vec![0], 3));
    }
}
