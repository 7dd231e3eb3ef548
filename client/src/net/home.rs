//! The client's own thread, as what runs elsewhere sees it: which thread this is, how to go there, and what is left to it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::timeout;

/// What callers begin on their own tasks and have not ended after this, or twice as long, is the thread's.
const LEFT_AFTER: Duration = Duration::from_millis(20);

/// As many of those before are looked at with each that is left.
const SPARED: usize = 2;

/// How many runtimes without I/O are remembered.
const WITHOUT_IO_MAX: usize = 64;

/// What a thread is to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    /// A thread of an application.
    Guest,
    /// The same, while it waits for a future without a runtime.
    Blocked,
    /// A thread of a client.
    Home,
}

thread_local! {
    static HERE: Cell<Here> = const { Cell::new(Here::Guest) };
    static LEAVES: Cell<bool> = const { Cell::new(false) };
}

/// Runtimes in which no socket can be waited for.
static WITHOUT_IO: Mutex<VecDeque<Id>> = Mutex::new(VecDeque::new());

/// Whether there are any.
static IS_ANY_WITHOUT_IO: AtomicBool = AtomicBool::new(false);

/// Notes that this thread is a client's.
pub fn is_here() {
    HERE.set(Here::Home);
}

/// Runs `poll` as a thread that waits for a future without a runtime.
pub fn blocking<T>(poll: impl FnOnce() -> T) -> T {
    let before = HERE.replace(Here::Blocked);
    let polled = poll();
    HERE.set(before);
    polled
}

/// Whether this thread is a client's.
pub fn is_home() -> bool {
    HERE.get() == Here::Home
}

/// Returns the runtime of this task, if that is the application's and can wait for sockets.
pub fn guest() -> Option<Handle> {
    let runtime = match HERE.get() {
        Here::Guest => Handle::try_current().ok()?,
        Here::Blocked | Here::Home => return None,
    };
    let lacks_io = IS_ANY_WITHOUT_IO.load(Ordering::Acquire) && without_io().contains(&runtime.id());
    (!lacks_io).then_some(runtime)
}

/// Notes that no socket can be waited for in this runtime.
pub fn has_no_io(runtime: Id) {
    let mut known = without_io();
    if !known.contains(&runtime) {
        known.truncate(WITHOUT_IO_MAX - 1);
        known.push_front(runtime);
        IS_ANY_WITHOUT_IO.store(true, Ordering::Release);
    }
}

fn without_io() -> MutexGuard<'static, VecDeque<Id>> {
    WITHOUT_IO.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns on the client's thread: elsewhere it has the future move that polls it.
pub async fn home() {
    poll_fn(|_| match is_home() {
        true => Poll::Ready(()),
        false => {
            leave();
            Poll::Pending
        }
    })
    .await;
}

/// Returns when the future that is polled has come to the client's thread by itself.
pub async fn once_home() {
    poll_fn(|_| if is_home() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Has the future that is polled move to the client's thread.
pub fn leave() {
    LEAVES.set(true);
}

/// Whether the future that was polled is to move.
pub fn has_to_leave() -> bool {
    LEAVES.take()
}

/// Something that a caller began on its own task.
pub trait Begun: Send + Sync {
    /// It has not ended in its time.
    fn is_overdue(&self);
}

/// What is left to the thread.
enum Left {
    Begun(Weak<dyn Begun>),
    Rest(BoxFuture<'static, ()>),
}

/// The client's thread.
#[derive(Default)]
pub struct Home {
    runtime: OnceLock<Handle>,
    left: Mutex<Queue>,
    comes: Notify,
    hurried: Notify,
}

#[derive(Default)]
struct Queue {
    /// What was left since the last time.
    new: VecDeque<Left>,
    /// Nobody is there any more.
    is_over: bool,
    /// Nothing is waited for.
    is_hurried: bool,
}

impl std::fmt::Debug for Home {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Home").finish_non_exhaustive()
    }
}

impl Home {
    /// Runs `future` there; nowhere, if the thread has not begun.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.runtime.get() {
            runtime.spawn(future);
        }
    }

    /// Takes over `begun` unless it ends soon.
    pub fn takes_over(&self, begun: Weak<dyn Begun>) {
        self.leave(Left::Begun(begun));
    }

    /// Hears `rest` to its end, soon.
    pub fn ends(&self, rest: BoxFuture<'static, ()>) {
        self.leave(Left::Rest(rest));
    }

    fn leave(&self, left: Left) {
        let mut queue = self.queue();
        if queue.is_over {
            // What it holds may leave something itself.
            drop(queue);
            return;
        }
        let is_first = queue.new.is_empty();
        queue.new.push_back(left);
        drop(queue);
        if is_first {
            self.comes.notify_one();
        } else {
            self.spare_thread();
        }
    }

    /// Drops what has ended of what was left first. So most is freed by the thread that made it, which is what allocators are fast at.
    fn spare_thread(&self) {
        for _ in 0..SPARED {
            let Some(mut left) = self.queue().new.pop_front() else { return };
            let has_ended = match &mut left {
                Left::Begun(begun) => begun.strong_count() == 0,
                Left::Rest(rest) => {
                    let leaves = has_to_leave();
                    let ended = rest.now_or_never().is_some();
                    LEAVES.set(leaves);
                    ended
                }
            };
            if !has_ended {
                return self.queue().new.push_front(left);
            }
        }
    }

    /// Begins in this runtime.
    pub fn begin(&self, runtime: Handle) {
        // A client has one thread, ever.
        let _ = self.runtime.set(runtime);
    }

    /// Does what was left to it, a moment later, for ever.
    pub async fn stay(&self) {
        let mut old = VecDeque::new();
        loop {
            while old.is_empty() && self.queue().new.is_empty() {
                self.comes.notified().await;
            }
            if !self.queue().is_hurried {
                let _ = timeout(LEFT_AFTER, self.hurried.notified()).await;
            }
            // What came last is not old yet.
            let new = std::mem::take(&mut self.queue().new);
            let due = std::mem::replace(&mut old, new);
            due.into_iter().for_each(|left| self.does(left));
        }
    }

    fn does(&self, left: Left) {
        match left {
            Left::Begun(begun) => {
                if let Some(begun) = begun.upgrade() {
                    begun.is_overdue();
                }
            }
            Left::Rest(mut rest) => {
                // Most have heard everything by then.
                if (&mut rest).now_or_never().is_none() {
                    self.spawn(rest);
                }
            }
        }
    }

    /// From now on what is left is not waited for.
    pub fn hurry(&self) {
        self.queue().is_hurried = true;
        self.hurried.notify_one();
    }

    /// Ends: what is left, and comes later, is dropped.
    pub fn ends_here(&self) {
        let left = {
            let mut queue = self.queue();
            queue.is_over = true;
            std::mem::take(&mut queue.new)
        };
        drop(left);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
