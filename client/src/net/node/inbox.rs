//! Carries answers of nodes to the callers that wait for one request, or for several that were sent together.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use palisade_quorum::NodeId;
use redis::Value;

use crate::net::access::Way;
use crate::net::bounds::BROKE;
use crate::net::home::{self, Unfinished};
use crate::net::line::Caller;
use crate::values::failure::Why;

/// The answer to one request of an inbox.
#[derive(Debug)]
pub struct Answer {
    /// The tag of the request in its inbox.
    pub tag: usize,
    /// The server that was asked; `None` if none was.
    pub by: Option<By>,
    pub reply: Result<Value, Why>,
}

/// A server that was asked, and the connection.
#[derive(Clone, Debug)]
pub struct By {
    pub way: Arc<Way>,
    /// The id of the server.
    pub id: NodeId,
    /// The number of the connection over which the server was asked.
    pub over: u64,
}

/// The first answer to a request. It may be a redirection, and thus not final.
pub type First = (Option<By>, Result<Value, Why>);

/// Receives the answers to requests of one task. When it is dropped, its unsent requests are not sent.
#[derive(Debug)]
pub struct Inbox(Mutex<Arrived>);

#[derive(Debug)]
struct Arrived {
    answers: VecDeque<Answer>,
    waits: Option<Waker>,
    /// The number of answers that wake the task; an error wakes it in any case.
    least: usize,
    /// True once the task has waited long: its wait then continues on the client's thread.
    is_overdue: bool,
}

/// The destination of one answer. If it is dropped without an answer, it reports that the connection broke.
#[derive(Debug)]
pub(super) struct Sink {
    inbox: Weak<Inbox>,
    tag: usize,
}

impl Inbox {
    /// Creates an inbox with room for this many answers; there may be more.
    pub fn new(answers: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Arrived {
            answers: VecDeque::with_capacity(answers),
            waits: None,
            least: 1,
            is_overdue: false,
        })))
    }

    /// Waits for the next answer; never returns if no request was sent.
    pub async fn next(&self) -> Answer {
        poll_fn(|context| self.poll_next(context, 1)).await
    }

    /// Polls for the next answer. If there is none, the task is woken once `least` answers have arrived.
    pub fn poll_next(&self, context: &mut Context<'_>, least: usize) -> Poll<Answer> {
        let mut arrived = self.arrived();
        if let Some(answer) = arrived.answers.pop_front() {
            return Poll::Ready(answer);
        }
        arrived.least = least;
        match &mut arrived.waits {
            Some(waits) => waits.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        if arrived.is_overdue && !home::is_home() {
            home::leave();
        }
        Poll::Pending
    }

    /// Returns the destination of the answer to the request with this tag.
    pub(super) fn sink(self: &Arc<Self>, tag: usize) -> Sink {
        Sink { inbox: Arc::downgrade(self), tag }
    }

    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unfinished for Inbox {
    fn on_overdue(&self) {
        let mut arrived = self.arrived();
        arrived.is_overdue = true;
        let waits = arrived.waits.take();
        drop(arrived);
        if let Some(waits) = waits {
            waits.wake();
        }
    }
}

impl Caller for Sink {
    fn is_wanted(&self) -> bool {
        self.inbox.strong_count() > 0
    }
}

impl Sink {
    /// Discards the destination of an answer, because its request is not sent.
    pub fn forget(mut self) {
        self.inbox = Weak::new();
    }

    /// Delivers the answer.
    pub fn put(mut self, by: Option<By>, reply: Result<Value, Why>) {
        self.put_once(by, reply);
    }

    fn put_once(&mut self, by: Option<By>, reply: Result<Value, Why>) {
        let Some(inbox) = std::mem::take(&mut self.inbox).upgrade() else { return };
        let mut arrived = inbox.arrived();
        // The task expects grants. A failure, or Null, can decide with fewer answers.
        let is_unexpected = matches!(reply, Err(_) | Ok(Value::Nil));
        arrived.answers.push_back(Answer { tag: self.tag, by, reply });
        let waits = match is_unexpected || arrived.answers.len() >= arrived.least {
            true => arrived.waits.take(),
            false => None,
        };
        drop(arrived);
        if let Some(waits) = waits {
            waits.wake();
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if self.is_wanted() {
            self.put_once(None, Err(Why::Broken(BROKE.to_owned())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::Wake;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn answers_come_in_the_order_in_which_they_arrive() {
        let inbox = Inbox::new(2);
        let (first, second) = (inbox.sink(1), inbox.sink(2));
        assert!(inbox.next().now_or_never().is_none());
        second.put(None, Ok(Value::Okay));
        first.put(None, Ok(Value::Nil));
        let tags = [(); 2].map(|()| inbox.next().now_or_never().map(|answer| answer.tag));
        assert_eq!(tags, [Some(2), Some(1)]);
        assert!(inbox.next().now_or_never().is_none(), "each answer is heard once");
    }

    #[test]
    fn a_request_that_goes_away_is_told_to_whoever_waits() {
        let inbox = Inbox::new(1);
        drop(inbox.sink(3));
        let answer = inbox.next().now_or_never();
        assert!(matches!(answer, Some(Answer { tag: 3, by: None, reply: Err(Why::Broken(_)) })), "{answer:?}");
        assert!(inbox.next().now_or_never().is_none(), "that is told once");
    }

    #[test]
    fn a_failure_or_null_wakes_at_once_and_a_grant_with_the_last_that_is_needed() {
        let wakes = |reply| {
            let (inbox, woken) = (Inbox::new(2), Arc::new(Woken::default()));
            let waker = Arc::clone(&woken).into();
            assert!(inbox.poll_next(&mut Context::from_waker(&waker), 2).is_pending());
            inbox.sink(0).put(None, reply);
            woken.0.load(Relaxed)
        };
        assert!(wakes(Err(Why::Silent)) && wakes(Ok(Value::Nil)));
        assert!(!wakes(Ok(Value::Int(7))));
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    #[test]
    fn nobody_wants_the_answer_of_an_inbox_that_is_gone() {
        let inbox = Inbox::new(1);
        let sink = inbox.sink(0);
        assert!(sink.is_wanted());
        drop(inbox);
        assert!(!sink.is_wanted());
        sink.put(None, Ok(Value::Okay));
    }
}
