//! Serves one connection: requests in, answers out, in order.
//!
//! While a command waits for the nodes, the connection is still read, so that the agent notices when the client
//! disconnects. Then requests that only this client needs are dropped, and leave every queue; changes to its locks are
//! completed.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use palisade_client::by_owner::Keeper;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::admission::{Open, turn_away};
use crate::commands::{self, Answer, Later, Work};
use crate::limits::{AHEAD_BYTES_MAX, BATCH_BYTES, LOOK_FOR_HANG_UP, PASSWORD_TIME, REQUEST_TIME, WRITE_TIME};
use crate::listening::Stream;
use crate::refused::{CLOSING, Refused};
use crate::reply::write_error;
use crate::requests::{Request, Requests};
use crate::session::Session;
use crate::state::State;

/// Serves a connection until it ends, or until it has to give up its place.
pub async fn serve(open: Open, stream: Stream, peer: String) {
    let state = Arc::clone(&open.state);
    let is_known = state.password.is_none();
    let session = Session::new(open.id, peer, is_known);
    let requests = Requests::new(is_known);
    let (place, out) = (Some(&open), BytesMut::new());
    let mut connection =
        Connection { state: Arc::clone(&state), stream: &stream, session, place, requests, out, is_gone: false };
    let gives_way = tokio::select! {
        biased;
        () = open.wait_for_eviction() => true,
        () = connection.run() => false,
    };
    drop(connection);
    drop(open);
    if gives_way {
        turn_away(&state, stream);
    }
}

struct Connection<'a> {
    state: Arc<State>,
    stream: &'a Stream,
    session: Session,
    /// The connection's place (see [`Open`]) while the connection may have to give it up for another one; `None` once
    /// it is sure to keep it.
    place: Option<&'a Open>,
    requests: Requests,
    /// Answers that have not been written yet.
    out: BytesMut,
    /// True if the client has disconnected, so that no further input can come.
    is_gone: bool,
}

impl Connection<'_> {
    async fn run(&mut self) {
        let state = Arc::clone(&self.state);
        let mut ended = std::pin::pin!(state.ended());
        loop {
            if !self.answer_all(ended.as_mut()).await || self.is_gone || self.state.is_ending() {
                return;
            }
            let limit = match self.session.is_known {
                false => Some(self.session.since + PASSWORD_TIME),
                true => self.requests.since(Instant::now()).map(|since| since + REQUEST_TIME),
            };
            let reading = read(self.stream, &mut self.requests.bytes);
            let read = async {
                match limit {
                    None => Some(reading.await),
                    Some(limit) => timeout_at(limit, reading).await.ok(),
                }
            };
            tokio::select! {
                biased;
                read = read => match read {
                    Some(read) => self.is_gone = read.is_err(),
                    None => {
                        self.state.counts.too_slow.up();
                        return;
                    }
                },
                () = ended.as_mut() => {}
            }
        }
    }

    /// Answers all complete requests. Returns false if the connection has to end after that.
    async fn answer_all(&mut self, mut ended: Pin<&mut impl Future<Output = ()>>) -> bool {
        loop {
            match self.requests.next() {
                Ok(Some(request)) => self.answer(request, ended.as_mut()).await,
                Ok(None) => {
                    self.flush().await;
                    return true;
                }
                Err(garbage) => {
                    self.state.counts.garbage.up();
                    write_error(&garbage.to_string(), &mut self.out);
                    self.flush().await;
                    return false;
                }
            }
            if self.session.ends {
                self.flush().await;
                return false;
            }
            if self.out.len() >= BATCH_BYTES {
                self.flush().await;
            }
        }
    }

    /// Makes sure that the connection keeps its place, if it has shown that a client uses it. Returns false if the
    /// place was already given to another connection.
    fn stay(&mut self) -> bool {
        let place = self.place.take_if(|_| self.session.is_known);
        let stays = place.is_none_or(Open::stay);
        self.session.ends |= !stays;
        stays
    }

    /// Answers one request, and counts it.
    async fn answer(&mut self, request: Request, ended: Pin<&mut impl Future<Output = ()>>) {
        if self.state.is_ending() {
            write_error(CLOSING, &mut self.out);
            return;
        }
        if !self.stay() {
            return;
        }
        let was_known = self.session.is_known;
        let begun = commands::begin(&self.state, &mut self.session, request);
        if self.session.is_known && !was_known {
            self.requests.known();
            if !self.stay() {
                return;
            }
        }
        let answer = match begun.work {
            Err(refused) => Some(Err(refused)),
            Ok(Work::Done(reply)) => Some(Ok(reply)),
            Ok(Work::Does(mut later)) => match self.wait(&mut later).await {
                Some(answer) => Some(answer),
                None => Some(later.await),
            },
            Ok(Work::Asks(mut later)) => self.wait(&mut later).await,
            Ok(Work::Waits(mut later)) => {
                self.state.counts.blocked.up();
                let state = Arc::clone(&self.state);
                let _blocked = OnDrop(|| state.counts.blocked.down());
                tokio::select! {
                    biased;
                    answer = self.wait(&mut later) => answer,
                    () = ended => Some(Err(Refused::text(CLOSING))),
                }
            }
        };
        match answer {
            Some(Ok(reply)) => reply.write(self.session.protocol, &mut self.out),
            Some(Err(refused)) => {
                if let Some(place) = begun.place {
                    self.state.counts.commands[place].errors.up();
                }
                write_error(&refused.to_string(), &mut self.out);
            }
            None => {}
        }
    }

    /// Waits for the nodes' answer as long as the client is connected. Returns `None` if it disconnects.
    async fn wait(&mut self, later: &mut Later) -> Option<Answer> {
        if self.is_gone {
            return None;
        }
        let (stream, requests, out) = (self.stream, &mut self.requests, &mut self.out);
        let hung_up = async {
            // Answers to earlier requests are sent while this one waits.
            if flush(stream, out).await.is_err() {
                return;
            }
            while requests.bytes.len() < AHEAD_BYTES_MAX {
                if read(stream, &mut requests.bytes).await.is_err() {
                    return;
                }
            }
            while !stream.has_hung_up().await {
                sleep(LOOK_FOR_HANG_UP).await;
            }
        };
        tokio::select! {
            biased;
            answer = later => Some(answer),
            () = hung_up => {
                self.is_gone = true;
                None
            }
        }
    }

    /// Writes the answers that are not written yet. A client that does not read them in time counts as disconnected.
    async fn flush(&mut self) {
        if let Err(why) = flush(self.stream, &mut self.out).await {
            if why.kind() == ErrorKind::TimedOut {
                self.state.counts.too_slow.up();
            }
            self.is_gone = true;
            self.out.clear();
        }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        if self.session.keeps {
            self.state.locks.keeper_ended(Keeper(self.session.id));
        }
    }
}

/// Runs a function when it is dropped, even by a panic.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Writes all bytes of `out`. Fails if the client takes none of them for [`WRITE_TIME`].
async fn flush(stream: &Stream, out: &mut BytesMut) -> io::Result<()> {
    while !out.is_empty() {
        match stream.try_write(out) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => out.advance(written),
            Err(why) if why.kind() == ErrorKind::WouldBlock => {
                timeout(WRITE_TIME, stream.writable()).await.map_err(|_| ErrorKind::TimedOut)??;
            }
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Waits for input, and reads what has arrived.
async fn read(stream: &Stream, bytes: &mut BytesMut) -> io::Result<()> {
    // A connection that is silent takes no memory.
    if bytes.is_empty() {
        *bytes = BytesMut::new();
    }
    loop {
        stream.readable().await?;
        match stream.try_read(bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(why) if why.kind() == ErrorKind::WouldBlock => {}
            read => return read.map(drop),
        }
    }
}
