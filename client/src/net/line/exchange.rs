//! Requests on one connection in the order in which they are sent, and their answers: bytes and slots in, answers out.
//!
//! The exchange neither reads a clock nor touches a socket. A request costs a slot, and room in a buffer; nothing else.

use std::collections::VecDeque;

use redis::{Cmd, PushInfo, Value};
use tokio::time::Instant;

use super::frame;
use crate::net::pace::{Given, Pace};
use crate::values::failure::Why;

/// Maximum silence of a connection with late requests before it is given up: it may be half open.
const SILENCE: std::time::Duration = std::time::Duration::from_millis(500);

/// Maximum delay of a check. A later one shows that this process was delayed, not the node: the machine was busy, or
/// the process was suspended. The node's answer may be there, unread.
pub const OVERSLEPT: std::time::Duration = std::time::Duration::from_millis(10);

/// Maximum number of times that the node gets its time again because of that.
pub const OVERSLEPT_TIMES: u32 = 5;

/// Buffers larger than this are freed when they are empty.
const BUFFER_KEPT: usize = 64 * 1024;

/// Slot tables larger than this are freed when they are empty.
const SLOTS_KEPT: usize = 1024;

/// A caller that waits for an answer.
pub trait Waits {
    /// Returns whether somebody still wants the answer.
    fn is_wanted(&self) -> bool;
}

/// A command that precedes another one.
#[derive(Clone, Copy, Debug)]
pub enum Before {
    /// The slot of the command's key is migrating to this server.
    Asking,
    /// The connection receives the next change of the key that the command reads.
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

/// A caller that waits, and its time limit.
#[derive(Debug)]
pub struct Waiting<T> {
    /// The caller.
    pub waits: T,
    /// The node's time to answer.
    pub given: Given,
    /// Start of that time; `None` for the moment when the request is sent.
    pub from: Option<Instant>,
    /// The command that precedes the request, if any. Its answer is ignored.
    pub before: Option<Before>,
}

/// A request that is not packed yet, and the end of its bytes.
#[derive(Debug)]
struct Asked<T> {
    end: usize,
    waiting: Waiting<T>,
}

/// A request that was sent.
#[derive(Debug)]
struct Slot<T> {
    /// The caller; `None` once it has been reported as late.
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
        /// The answer.
        reply: Value,
    },
    /// A message that answers no request.
    Push(PushInfo),
}

/// The outcome of a check of the time.
#[derive(Debug)]
pub struct Checked<T> {
    /// The callers whose answers are late.
    pub late: Vec<T>,
    /// The time at which the first of their requests was sent.
    pub sent: Option<Instant>,
    /// True if the connection is dead.
    pub is_dead: bool,
}

/// The requests and answers of one connection.
#[derive(Debug)]
pub struct Exchange<T> {
    /// Requests as bytes; `asking` has their callers.
    asked: Vec<u8>,
    asking: Vec<Asked<T>>,
    /// Bytes to write, from `written` on.
    output: Vec<u8>,
    written: usize,
    slots: VecDeque<Slot<T>>,
    /// Number of slots whose callers were reported as late.
    told: usize,
    /// Bytes read; those from `taken` to `filled` are not parsed yet.
    input: Vec<u8>,
    taken: usize,
    filled: usize,
    /// The time of the last answer.
    heard: Option<Instant>,
    /// The time before which no request is late.
    check_at: Option<Instant>,
    overslept: u32,
}

impl<T: Waits> Exchange<T> {
    /// Creates an empty exchange.
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

    /// Adds a request, to be sent with others. Returns whether it is the first of them.
    pub fn ask(&mut self, command: &Cmd, waiting: Waiting<T>) -> bool {
        if let Some(before) = waiting.before {
            before.command().write_packed_command(&mut self.asked);
        }
        command.write_packed_command(&mut self.asked);
        self.asking.push(Asked { end: self.asked.len(), waiting });
        self.asking.len() == 1
    }

    /// Returns the number of unanswered requests.
    pub fn under_way(&self) -> usize {
        self.slots.len()
    }

    /// Returns the bytes to write now. Requests that come before others are written wait here, where they can be taken
    /// back.
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

    /// Returns room for bytes to be read.
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

    /// Records that this many bytes were read into that room.
    pub fn read(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// Returns the next message; `None` if there is none yet.
    ///
    /// # Errors
    /// The connection is unusable: a message answers no request.
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
                // The next request may have a shorter limit.
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

    /// Returns the time of the next check; `None` if nobody waits.
    pub fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Checks which requests are late, for a node of this pace.
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

    /// Returns when the first request is late, or the connection is given up.
    fn due(&self, pace: &Pace) -> Option<Instant> {
        let open = self.slots.iter().filter(|slot| slot.waits.is_some());
        let overdue = open.map(|slot| self.overdue(slot, pace)).min();
        [overdue, self.silence()].into_iter().flatten().min()
    }

    /// Returns when a request is late. While the node answers earlier requests, it is at work.
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

    /// Returns when the connection is given up, once a request was reported as late.
    fn silence(&self) -> Option<Instant> {
        let oldest = self.slots.front().filter(|_| self.told > 0)?;
        Some(self.heard.map_or(oldest.sent, |heard| heard.max(oldest.sent)) + SILENCE)
    }

    /// Ends the exchange. Returns all callers.
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
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;

    const ALLOWED: Duration = Duration::from_millis(50);
    const GIVEN: Given = Given::Within { least: ALLOWED, most: Duration::from_secs(1) };

    /// A caller with a number, which may go away.
    #[derive(Clone, Debug)]
    struct Asker(usize, Rc<Cell<bool>>);

    impl Waits for Asker {
        fn is_wanted(&self) -> bool {
            self.1.get()
        }
    }

    fn ask(exchange: &mut Exchange<Asker>, number: usize) -> Rc<Cell<bool>> {
        let wanted = Rc::new(Cell::new(true));
        let waits = Asker(number, Rc::clone(&wanted));
        exchange.ask(&redis::cmd("ECHO").arg(number).take(), Waiting { waits, given: GIVEN, from: None, before: None });
        wanted
    }

    /// Writes up to this many bytes to `server`.
    fn write(exchange: &mut Exchange<Asker>, now: Instant, bytes: usize, server: &mut Vec<u8>) {
        let output = exchange.output(now);
        let output = output[..bytes.min(output.len())].to_vec();
        exchange.wrote(output.len());
        server.extend(output);
    }

    /// Answers each complete ECHO with its number.
    fn answer(asked: &mut Vec<u8>) -> Vec<u8> {
        let mut answers = vec![];
        while let Ok(Some((Value::Array(command), length))) = frame::first(asked) {
            asked.drain(..length);
            let Some(Value::BulkString(number)) = command.last() else { continue };
            answers.extend(format!(":{}\r\n", String::from_utf8_lossy(number)).into_bytes());
        }
        answers
    }

    fn put(exchange: &mut Exchange<Asker>, bytes: &[u8]) {
        exchange.room()[..bytes.len()].copy_from_slice(bytes);
        exchange.read(bytes.len());
    }

    /// Returns the answers with their callers.
    fn heard(exchange: &mut Exchange<Asker>, now: Instant) -> Vec<(Option<usize>, Value)> {
        let mut heard = vec![];
        while let Some(arrived) = exchange.next(now).unwrap() {
            match arrived {
                Arrived::Answer { waits, reply, .. } => heard.push((waits.map(|waits| waits.0), reply)),
                Arrived::Push(push) => heard.push((None, Value::Array(push.data))),
            }
        }
        heard
    }

    #[test]
    fn each_hears_its_own_answer_however_the_bytes_are_cut() {
        let (now, answers) = (Instant::now(), b"+OK\r\n:1\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n$3\r\ntwo\r\n");
        for cut in 0..answers.len() {
            let mut exchange = Exchange::new();
            let (waits, before) = (Asker(1, Rc::new(Cell::new(true))), Some(Before::Caching));
            exchange.ask(&redis::cmd("PING"), Waiting { waits, given: GIVEN, from: None, before });
            let _two = ask(&mut exchange, 2);
            let written = exchange.output(now).len();
            exchange.wrote(written);
            let mut all = vec![];
            for part in [&answers[..cut], &answers[cut..]] {
                put(&mut exchange, part);
                all.extend(heard(&mut exchange, now));
            }
            let key = Value::Array(vec![Value::Array(vec![Value::BulkString(b"k".to_vec())])]);
            let two = Value::BulkString(b"two".to_vec());
            assert_eq!(all, [(Some(1), Value::Int(1)), (None, key), (Some(2), two)], "cut at {cut}");
            assert_eq!((exchange.under_way(), exchange.check_at()), (0, None));
        }
    }

    #[test]
    fn an_answer_to_nothing_breaks_the_connection() {
        let mut exchange = Exchange::<Asker>::new();
        put(&mut exchange, b":1\r\n");
        assert!(matches!(exchange.next(Instant::now()), Err(Why::Broken(_))));
    }

    #[test]
    fn what_nobody_wants_is_not_sent_and_what_was_sent_keeps_its_place() {
        let (now, mut exchange, mut server) = (Instant::now(), Exchange::new(), vec![]);
        let askers: Vec<_> = (0..3).map(|number| ask(&mut exchange, number)).collect();
        askers[1].set(false);
        write(&mut exchange, now, usize::MAX, &mut server);
        let later: Vec<_> = (3..5).map(|number| ask(&mut exchange, number)).collect();
        askers[2].set(false);
        write(&mut exchange, now, usize::MAX, &mut server);
        drop(later);
        put(&mut exchange, &answer(&mut server));
        let numbers: Vec<_> = heard(&mut exchange, now).into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [0, 2, 3, 4].map(Some));
    }

    /// Tries all orders of asking, going away, writing a few bytes, answering and reading: each remaining caller gets
    /// its own answer.
    #[test]
    fn nobody_is_forgotten_in_any_order() {
        const STEPS: u32 = 7;
        let now = Instant::now();
        for order in 0..4_u32.pow(STEPS) {
            let (mut exchange, mut server, mut way_back) = (Exchange::new(), vec![], vec![]);
            let (mut askers, mut all) = (vec![], vec![]);
            for step in 0..STEPS {
                match order / 4_u32.pow(step) % 4 {
                    0 => askers.push(ask(&mut exchange, askers.len())),
                    1 => write(&mut exchange, now, 7, &mut server),
                    2 => {
                        way_back.extend(answer(&mut server));
                        let some = way_back.len().div_ceil(2);
                        put(&mut exchange, &way_back.drain(..some).collect::<Vec<_>>());
                        all.extend(heard(&mut exchange, now));
                    }
                    _ => askers.last().into_iter().for_each(|asker| asker.set(false)),
                }
            }
            while exchange.is_blocked() || !exchange.asking.is_empty() {
                write(&mut exchange, now, usize::MAX, &mut server);
            }
            way_back.extend(answer(&mut server));
            put(&mut exchange, &way_back);
            all.extend(heard(&mut exchange, now));
            assert!(all.iter().all(|(number, reply)| *reply == Value::Int(number.unwrap() as i64)), "{order}: {all:?}");
            for (number, asker) in askers.iter().enumerate().filter(|(_, asker)| asker.get()) {
                let times = all.iter().filter(|(heard, _)| *heard == Some(number)).count();
                assert_eq!((times, asker.get()), (1, true), "{order}: {number}");
            }
            assert_eq!(exchange.under_way(), 0);
        }
    }

    #[test]
    fn who_waits_too_long_is_told_and_a_connection_without_a_word_is_given_up() {
        let (start, pace) = (Instant::now(), Pace::default());
        let (mut exchange, mut server) = (Exchange::new(), vec![]);
        let _askers: Vec<_> = (0..2).map(|number| ask(&mut exchange, number)).collect();
        write(&mut exchange, start, usize::MAX, &mut server);
        assert_eq!(exchange.check_at(), Some(start + ALLOWED));
        let check = |exchange: &mut Exchange<Asker>, after: Duration| {
            let Checked { late, is_dead, .. } = exchange.check(start + after, &pace);
            (late.into_iter().map(|asker| asker.0).collect::<Vec<_>>(), is_dead)
        };
        assert_eq!(check(&mut exchange, ALLOWED - Duration::from_millis(1)), (vec![], false));
        // The node answers one request: it is at work, and the other one's time starts again.
        put(&mut exchange, b":0\r\n");
        assert_eq!(heard(&mut exchange, start + Duration::from_millis(40)).len(), 1);
        assert_eq!(check(&mut exchange, ALLOWED), (vec![], false));
        assert_eq!(check(&mut exchange, Duration::from_millis(90)), (vec![1], false));
        assert_eq!(exchange.check_at(), Some(start + Duration::from_millis(40) + SILENCE));
        assert_eq!(check(&mut exchange, Duration::from_millis(40) + SILENCE), (vec![], true));
    }

    #[test]
    fn a_process_that_overslept_gives_the_node_its_time_again() {
        let (start, pace) = (Instant::now(), Pace::default());
        let (mut exchange, mut server) = (Exchange::new(), vec![]);
        let _asker = ask(&mut exchange, 0);
        write(&mut exchange, start, usize::MAX, &mut server);
        let mut now = start;
        for times in 0..=OVERSLEPT_TIMES {
            now += ALLOWED + OVERSLEPT * 2;
            let late = exchange.check(now, &pace).late.len();
            assert_eq!(late, usize::from(times == OVERSLEPT_TIMES), "{times}");
        }
    }

    #[test]
    fn what_a_burst_took_is_given_back() {
        let (now, mut exchange, mut server) = (Instant::now(), Exchange::new(), vec![]);
        let askers: Vec<_> = (0..20_000).map(|number| ask(&mut exchange, number)).collect();
        write(&mut exchange, now, usize::MAX, &mut server);
        let answers = answer(&mut server);
        for part in answers.chunks(16 * 1024) {
            put(&mut exchange, part);
            heard(&mut exchange, now);
        }
        exchange.room();
        let Exchange { asked, asking, output, input, slots, .. } = &exchange;
        assert!([asked.capacity(), output.capacity(), input.capacity()].iter().all(|bytes| *bytes <= BUFFER_KEPT));
        assert!(
            slots.capacity() <= SLOTS_KEPT && asking.capacity() <= SLOTS_KEPT,
            "{} slots, after {}",
            slots.capacity(),
            askers.len()
        );
    }
}
