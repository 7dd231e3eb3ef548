//! The client's own thread, as other threads see it. Says whether the present thread is it, moves futures there, and
//! leaves work to it.

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

/// Time after which unfinished work of callers moves to the client's thread; it may take up to twice as long.
const LEFT_AFTER: Duration = Duration::from_millis(20);

/// Number of older pieces of work that are checked whenever a thread leaves another one to the client's thread. Those
/// that have ended are freed.
const SPARED: usize = 2;

/// Maximum number of remembered runtimes without I/O.
const WITHOUT_IO_MAX: usize = 64;

/// The role of a thread: a client's own, or an application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    /// A thread of an application.
    Guest,
    /// A thread of an application that waits for a future without a runtime.
    Blocked,
    /// A thread of a client.
    Home,
}

thread_local! {
    static HERE: Cell<Here> = const { Cell::new(Here::Guest) };
    static LEAVES: Cell<bool> = const { Cell::new(false) };
}

/// The runtimes that cannot wait for sockets, because their I/O is not enabled.
static WITHOUT_IO: Mutex<VecDeque<Id>> = Mutex::new(VecDeque::new());

/// True if [`WITHOUT_IO`] is not empty.
static IS_ANY_WITHOUT_IO: AtomicBool = AtomicBool::new(false);

/// Marks this thread as a client's.
pub fn is_here() {
    HERE.set(Here::Home);
}

/// Runs `poll` while this thread is marked as waiting for a future without a runtime.
pub fn blocking<T>(poll: impl FnOnce() -> T) -> T {
    let before = HERE.replace(Here::Blocked);
    let polled = poll();
    HERE.set(before);
    polled
}

/// Returns whether this thread is a client's.
pub fn is_home() -> bool {
    HERE.get() == Here::Home
}

/// Returns the runtime of this task, if it is the application's and can wait for sockets.
pub fn guest() -> Option<Handle> {
    let runtime = match HERE.get() {
        Here::Guest => Handle::try_current().ok()?,
        Here::Blocked | Here::Home => return None,
    };
    let lacks_io = IS_ANY_WITHOUT_IO.load(Ordering::Acquire) && without_io().contains(&runtime.id());
    (!lacks_io).then_some(runtime)
}

/// Records that this runtime cannot wait for sockets.
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

/// Waits until this future is polled on the client's thread. On any other thread, the future that awaits this one moves
/// to that thread.
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

/// Waits until this future is polled on the client's thread. On any other thread, the future that awaits this one stays
/// where it is.
pub async fn once_home() {
    poll_fn(|_| if is_home() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Makes the future that is being polled move to the client's thread.
pub fn leave() {
    LEAVES.set(true);
}

/// Returns whether the future that was just polled has to move, and clears the mark.
pub fn has_to_leave() -> bool {
    LEAVES.take()
}

/// Work that a caller began on its own task, and that the client's thread may have to finish.
pub trait Unfinished: Send + Sync {
    /// Called when the work has not ended in time.
    fn on_overdue(&self);
}

/// A piece of work that is left to the client's thread.
enum Left {
    Unfinished(Weak<dyn Unfinished>),
    Rest(BoxFuture<'static, ()>),
}

/// A handle by which other threads leave work to the client's thread.
#[derive(Default)]
pub struct Home {
    runtime: OnceLock<Handle>,
    left: Mutex<Queue>,
    comes: Notify,
    hurried: Notify,
}

#[derive(Default)]
struct Queue {
    /// The work that other threads have left, and that the client's thread has not taken yet.
    new: VecDeque<Left>,
    /// True once the client's thread has ended.
    is_over: bool,
    /// True if the thread handles its work at once, without the usual delay, because the client is closing.
    is_hurried: bool,
}

impl std::fmt::Debug for Home {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Home").finish_non_exhaustive()
    }
}

impl Home {
    /// Runs `future` on the client's thread; drops it if the thread has not started.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.runtime.get() {
            runtime.spawn(future);
        }
    }

    /// Leaves `unfinished` to the client's thread, which calls [`Unfinished::on_overdue`] if the work does not end
    /// soon.
    pub fn take_over(&self, unfinished: Weak<dyn Unfinished>) {
        self.leave(Left::Unfinished(unfinished));
    }

    /// Polls the future `rest` to its end on the client's thread, which takes it over a moment later.
    pub fn finish(&self, rest: BoxFuture<'static, ()>) {
        self.leave(Left::Rest(rest));
    }

    fn leave(&self, left: Left) {
        let mut queue = self.queue();
        if queue.is_over {
            // Dropping `left` may call this function again, which locks the queue.
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

    /// Drops pieces of work at the front of the queue that have ended. Their memory is then freed by the thread that
    /// allocated it, which is faster.
    fn spare_thread(&self) {
        for _ in 0..SPARED {
            let Some(mut left) = self.queue().new.pop_front() else { return };
            let has_ended = match &mut left {
                Left::Unfinished(unfinished) => unfinished.strong_count() == 0,
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

    /// Records the runtime of the client's thread.
    pub fn begin(&self, runtime: Handle) {
        // A client has only one thread, so this is set once.
        let _ = self.runtime.set(runtime);
    }

    /// Handles the work that other threads have left to this one, each piece a moment after it came. Never returns.
    pub async fn stay(&self) {
        let mut old = VecDeque::new();
        loop {
            while old.is_empty() && self.queue().new.is_empty() {
                self.comes.notified().await;
            }
            if !self.queue().is_hurried {
                let _ = timeout(LEFT_AFTER, self.hurried.notified()).await;
            }
            // The latest work is handled in the next round.
            let new = std::mem::take(&mut self.queue().new);
            let due = std::mem::replace(&mut old, new);
            due.into_iter().for_each(|left| self.handle(left));
        }
    }

    fn handle(&self, left: Left) {
        match left {
            Left::Unfinished(unfinished) => {
                if let Some(unfinished) = unfinished.upgrade() {
                    unfinished.on_overdue();
                }
            }
            Left::Rest(mut rest) => {
                // Most of these futures have all their answers by then.
                if (&mut rest).now_or_never().is_none() {
                    self.spawn(rest);
                }
            }
        }
    }

    /// Makes the thread handle its work at once from now on, without the usual delay.
    pub fn hurry(&self) {
        self.queue().is_hurried = true;
        self.hurried.notify_one();
    }

    /// Ends the thread's work: drops the work that was left to it, and from now on all work that callers leave.
    pub fn end(&self) {
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
