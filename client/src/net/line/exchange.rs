//! The requests on one connection in the order in which they are sent, and their answers.
//!
//! The exchange neither reads a clock nor uses a socket: it turns requests into bytes to write, and bytes that were
//! read into answers. A request needs a slot, and room in a buffer.

use std::collections::VecDeque;

use redis::{Cmd, PushInfo, Value};
use tokio::time::Instant;

use super::frame;
use crate::net::pace::{Given, Pace};
use crate::values::failure::Why;

/// Maximum silence of a connection with late requests before it is given up: it may be half open.
const SILENCE: std::time::Duration = std::time::Duration::from_millis(500);

/// Maximum delay of a check. A longer delay shows that this process did not run in time, because the machine was busy
/// or the process was suspended. Then the node's answer may be there, unread.
pub const OVERSLEPT: std::time::Duration = std::time::Duration::from_millis(10);

/// Maximum number of times that a request gets more time because this process did not run in time ([`OVERSLEPT`]).
pub const OVERSLEPT_TIMES: u32 = 5;

/// Buffers larger than this are freed when they are empty.
const BUFFER_KEPT: usize = 64 * 1024;

/// Slot tables larger than this are freed when they are empty.
const SLOTS_KEPT: usize = 1024;

/// A caller that waits for an answer.
pub trait Caller {
    /// Returns whether somebody still wants the answer.
    fn is_wanted(&self) -> bool;
}

/// A command that is sent right before a request, to prepare the connection for it.
#[derive(Clone, Copy, Debug)]
pub enum Before {
    /// ASKING: the slot of the request's key is migrating to this server.
    Asking,
    /// CLIENT CACHING: the server reports the next change of the key that the request reads.
    Caching,
}

impl Before {
    /// Returns the command to send.
    pub fn command(self) -> Cmd {
        match self {
            Self::Asking => redis::cmd("ASKING"),
            Self::Caching => redis::cmd("CLIENT").arg("CACHING").arg("YES").take(),
        }
    }
}

/// A caller that waits for an answer, and its time limit.
#[derive(Debug)]
pub struct Waiting<T> {
    /// The caller that waits for the answer.
    pub waits: T,
    /// The time that the node has to answer.
    pub given: Given,
    /// The moment from which the time to answer is counted; `None`: from when the request is sent.
    pub from: Option<Instant>,
    /// The command that precedes the request, if any. Its answer is ignored.
    pub before: Option<Before>,
}

/// A request that has not been handed to the socket yet, and the end of its bytes in the buffer.
#[derive(Debug)]
struct Asked<T> {
    end: usize,
    waiting: Waiting<T>,
}

/// A request that was sent.
#[derive(Debug)]
struct Slot<T> {
    /// The caller; `None` once the answer was reported to it as late.
    waits: Option<T>,
    given: Given,
    from: Instant,
    sent: Instant,
    has_before: bool,
}

/// An answer, or a push message.
#[derive(Debug)]
pub enum Arrived<T> {
    /// An answer to a request.
    Answer {
        /// The caller, unless the answer is late.
        waits: Option<T>,
        /// The time at which the request was sent.
        sent: Instant,
        /// The server's answer.
        reply: Value,
    },
    /// A message that answers no request.
    Push(PushInfo),
}

/// The result of checking which requests are late.
#[derive(Debug)]
pub struct Checked<T> {
    /// The callers whose answers are late.
    pub late: Vec<T>,
    /// The time at which the first of the late requests was sent.
    pub sent: Option<Instant>,
    /// True if the connection is dead, since nothing was heard on it for too long.
    pub is_dead: bool,
}

/// The requests and answers of one connection.
#[derive(Debug)]
pub struct Exchange<T> {
    /// Requests as bytes, in the order of sending; `asking` has their callers.
    asked: Vec<u8>,
    asking: Vec<Asked<T>>,
    /// The bytes to write, from `written` on.
    output: Vec<u8>,
    written: usize,
    slots: VecDeque<Slot<T>>,
    /// Number of slots whose callers were reported as late.
    told: usize,
    /// The bytes read; those from `taken` to `filled` are not parsed yet.
    input: Vec<u8>,
    taken: usize,
    filled: usize,
    /// The time at which the last answer was read.
    heard: Option<Instant>,
    /// The time before which no request is late.
    check_at: Option<Instant>,
    overslept: u32,
}

impl<T: Caller> Exchange<T> {
    /// Creates an exchange without requests.
    pub fn new() -> Self {
        Self {
            asked: vec![],
            asking: vec![],
            output: vec![],
            written: 0,
            slots: VecDeque::new(),
            told: 0,
            input: vec![],
            taken: 0,
            filled: 0,
            heard: None,
            check_at: None,
            overslept: 0,
        }
    }

    /// Adds a request, which is sent together with others. Returns whether it is the first of those not sent yet.
    pub fn ask(&mut self, packed: &[u8], waiting: Waiting<T>) -> bool {
        if let Some(before) = waiting.before {
            before.command().write_packed_command(&mut self.asked);
        }
        self.asked.extend_from_slice(packed);
        self.asking.push(Asked { end: self.asked.len(), waiting });
        self.asking.len() == 1
    }

    /// Returns the number of requests that were sent and are not answered.
    pub fn under_way(&self) -> usize {
        self.slots.len()
    }

    /// Returns the bytes to write now. Requests that are added before these have been written are kept back, so that
    /// they can still be withdrawn.
    pub fn output(&mut self, now: Instant) -> &[u8] {
        if self.written == self.output.len() {
            self.pack(now);
        }
        &self.output[self.written..]
    }

    /// Records that this many bytes were written.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.output.len() {
            self.written = 0;
            clear(&mut self.output);
        }
    }

    /// Returns whether bytes are left that the system did not accept.
    pub fn is_blocked(&self) -> bool {
        self.written < self.output.len()
    }

    fn pack(&mut self, now: Instant) {
        self.written = 0;
        self.output.clear();
        let all_wanted = self.asking.iter().all(|asked| asked.waiting.waits.is_wanted());
        if all_wanted {
            std::mem::swap(&mut self.output, &mut self.asked);
        }
        let mut begin = 0;
        for Asked { end, waiting } in self.asking.drain(..) {
            let bytes = begin..end;
            begin = end;
            if !all_wanted {
                if !waiting.waits.is_wanted() {
                    continue;
                }
                self.output.extend_from_slice(&self.asked[bytes]);
            }
            let Waiting { waits, given, from, before } = waiting;
            let from = from.unwrap_or(now);
            let due = from + given.least();
            self.check_at = Some(self.check_at.map_or(due, |at| at.min(due)));
            let has_before = before.is_some();
            self.slots.push_back(Slot { waits: Some(waits), given, from, sent: now, has_before });
        }
        clear(&mut self.asked);
        if self.asking.capacity() > SLOTS_KEPT {
            self.asking = vec![];
        }
    }

    /// Returns the free end of the input buffer, into which the caller reads bytes from the connection.
    pub fn room(&mut self) -> &mut [u8] {
        const ROOM: usize = 16 * 1024;
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
            if self.input.len() > BUFFER_KEPT {
                self.input = vec![];
            }
        }
        if self.input.len() - self.filled < ROOM {
            self.input.copy_within(self.taken..self.filled, 0);
            (self.filled, self.taken) = (self.filled - self.taken, 0);
            if self.input.len() - self.filled < ROOM {
                self.input.resize((self.filled + ROOM).next_power_of_two(), 0);
            }
        }
        &mut self.input[self.filled..]
    }

    /// Records that this many bytes were read into what [`Self::room`] returned.
    pub fn read(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// Returns the next message; `None` if there is none yet.
    ///
    /// # Errors
    /// The connection is unusable: the bytes are no reply, or the reply answers no request.
    pub fn next(&mut self, now: Instant) -> Result<Option<Arrived<T>>, Why> {
        loop {
            let first = frame::first(&self.input[self.taken..self.filled]);
            let Some((reply, length)) = first.map_err(|_| Why::Broken("its answer is not understood".to_owned()))?
            else {
                return Ok(None);
            };
            self.taken += length;
            if let Value::Push { kind, data } = reply {
                return Ok(Some(Arrived::Push(PushInfo { kind, data })));
            }
            let front = self.slots.front_mut();
            let front = front.ok_or_else(|| Why::Broken("it answered what it was not asked".to_owned()))?;
            (self.heard, self.overslept) = (Some(now), 0);
            if std::mem::take(&mut front.has_before) {
                continue;
            }
            let Some(Slot { waits, sent, .. }) = self.slots.pop_front() else { return Ok(None) };
            if waits.is_none() {
                self.told -= 1;
            }
            match self.slots.front() {
                // The next request in line may have a shorter time limit.
                Some(next) => {
                    let due = now + next.given.least();
                    self.check_at = Some(self.check_at.map_or(due, |at| at.min(due)));
                }
                None => {
                    self.check_at = None;
                    if self.slots.capacity() > SLOTS_KEPT {
                        self.slots = VecDeque::new();
                    }
                }
            }
            return Ok(Some(Arrived::Answer { waits, sent, reply }));
        }
    }

    /// Returns the time of the next check; `None` if no caller waits.
    pub fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Checks which requests are late, with the adaptive timeout `pace` of the node.
    pub fn check(&mut self, now: Instant, pace: &Pace) -> Checked<T> {
        let mut checked = Checked { late: vec![], sent: None, is_dead: false };
        let Some(due) = self.due(pace) else {
            self.check_at = None;
            return checked;
        };
        if now < due {
            self.check_at = Some(due);
            return checked;
        }
        if now > due + OVERSLEPT && self.overslept < OVERSLEPT_TIMES {
            self.overslept += 1;
            self.slots.iter_mut().filter(|slot| slot.waits.is_some()).for_each(|slot| slot.from = now);
            self.check_at = Some(self.due(pace).unwrap_or(now).max(now + OVERSLEPT));
            return checked;
        }
        checked.is_dead = self.silence().is_some_and(|silence| silence <= now);
        for n in 0..self.slots.len() {
            if self.slots[n].waits.is_some() && self.overdue(&self.slots[n], pace) <= now {
                let slot = &mut self.slots[n];
                checked.late.extend(slot.waits.take());
                checked.sent = checked.sent.or(Some(slot.sent));
                (self.told, self.overslept) = (self.told + 1, 0);
            }
        }
        self.check_at = self.due(pace);
        checked
    }

    /// Returns the moment when the first request is late, or the connection has to be given up.
    fn due(&self, pace: &Pace) -> Option<Instant> {
        let open = self.slots.iter().filter(|slot| slot.waits.is_some());
        let overdue = open.map(|slot| self.overdue(slot, pace)).min();
        [overdue, self.silence()].into_iter().flatten().min()
    }

    /// Returns the moment when a request is late. Its time starts again whenever the node answers an earlier request,
    /// since the node is then at work.
    fn overdue(&self, slot: &Slot<T>, pace: &Pace) -> Instant {
        let allowance = pace.allowance(slot.given);
        match slot.given {
            Given::Exactly(_) => slot.from + allowance,
            Given::Within { .. } => {
                let heard = self.heard.map_or(slot.from, |heard| heard.max(slot.from));
                (heard + allowance).min(slot.from + slot.given.most())
            }
        }
    }

    /// Returns the moment when the connection is given up, once a request was reported as late.
    fn silence(&self) -> Option<Instant> {
        let oldest = self.slots.front().filter(|_| self.told > 0)?;
        Some(self.heard.map_or(oldest.sent, |heard| heard.max(oldest.sent)) + SILENCE)
    }

    /// Ends the exchange. Returns all callers, which get no answer.
    pub fn end(&mut self) -> Vec<T> {
        let asking = self.asking.drain(..).map(|asked| asked.waiting.waits);
        let ended = self.slots.drain(..).filter_map(|slot| slot.waits).chain(asking).collect();
        *self = Self::new();
        ended
    }

    /// Takes back the requests that were not sent. Returns their callers.
    pub fn take_back(&mut self) -> Vec<T> {
        clear(&mut self.asked);
        self.asking.drain(..).map(|asked| asked.waiting.waits).collect()
    }
}

fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > BUFFER_KEPT {
        *buffer = vec![];
    }
}

#[cfg(test)]
mod tests;
