//! The rules of Palisade locks, without Redis.
//!
//! A *lock* is what one key holds: an owner, a fencing token, a number of holds, and a *lease* that ends at a
//! deadline on the boot clock. Everything here is a function of its inputs: the time is handed in as [`Now`], what
//! the key holds is handed in as `Option<&mut Lock>`, and what has to be done about it is handed out by the [`engine`], step by
//! step. The Redis module performs the steps on its server; simulation, models and fuzzer perform them in memory.
//!
//! # States of a key
//!
//! | state | what the key holds | who sees it so |
//! |---|---|---|
//! | free | nothing, or a lock whose deadline has passed | every command, at once |
//! | held | a lock whose deadline has not passed | its owner may extend, re-enter, release; others are refused |
//! | kept free | nothing, or a lock whose deadline has passed | the owner that was told it is free may take it for a moment; others find it contended |
//! | held, suspect | the same, but it came from outside (`RESTORE`) or from a life that the node cannot prove to remember | others are refused; its owner may release it, nothing else |
//!
//! # Invariants
//!
//! 1. Between a grant and its deadline no other owner is granted the key ([`acquire()`]). A node that may have
//!    forgotten grants is guarded until they have all ended ([`Guard`]).
//! 2. A grant's token is larger than every token the key ever had ([`Tokens`]): also after the key was released,
//!    deleted or flushed, because `last` lives outside the keys, and in another life, because none is issued above
//!    a ceiling that is on the disk.
//! 3. A deadline never moves towards now ([`extend()`], [`reenter()`]).
//! 4. A refusal changes nothing.
//! 5. A lock that gets free passes to the first in its queue, before anybody who asks later ([`hand_over()`]); no
//!    request that waits is forgotten ([`Waiting`]).
//! 6. Every lock in memory has exactly one entry in [`Deadlines`], at its deadline, and nothing else has one.
//!
//! # Map
//!
//! What happens when a command arrives, a lease ends or the server changes a key: [`engine`]. What must be on the disk before what is
//! promised: [`Ledger`]. One lock over several nodes: [`quorum`]. Requests, already validated: [`request`]. Rules: [`acquire()`], [`release()`], [`extend()`], [`reenter()`],
//! [`check()`], [`fence()`],
//! [`break_lock()`], [`wait()`], [`hand_over()`]. What a key holds: [`Lock`]; how it is written down: [`record`]. The node's own
//! memory: [`Node`] with [`Tokens`], [`Deadlines`], [`Guard`], [`Evicted`], [`Slots`], [`Waiting`], [`Counters`]; what it keeps over its lives:
//! [`NodeState`], and what a start can prove of them: [`Start`]. Why something was refused: [`Refusal`]. Every
//! limit: [`limits`].

#![forbid(unsafe_code)]

mod acquire;
mod break_lock;
mod check;
mod counters;
mod deadlines;
mod digest;
pub mod engine;
mod evicted;
mod extend;
mod fence;
mod guard;
mod hand_over;
mod ledger;
pub mod limits;
mod lock;
mod node;
mod node_state;
mod owed;
mod queue;
pub mod quorum;
pub mod record;
mod reenter;
mod refusal;
mod release;
pub mod request;
mod slots;
mod start;
mod stripe_ceilings;
mod time;
mod tokens;
mod wait;
mod waiting;
mod waits;
mod wall_clock;

pub use acquire::{Acquired, acquire, acquire_later};
pub use break_lock::break_lock;
pub use check::check;
pub use counters::Counters;
pub use deadlines::{Deadlines, Detached, Due, Slot};
pub use digest::LocksDigest;
pub use evicted::Evicted;
pub use extend::{Extended, extend};
pub use fence::{Fenced, fence};
pub use guard::{Armed, Cause, Guard, guard_ms};
pub use hand_over::{HandedOver, hand_over};
pub use ledger::{Beginning, Ledger};
pub use lock::Lock;
pub use node::Node;
pub use node_state::{AofFile, CleanEnd, FileId, NodeState, SavedGuard, Unreadable};
pub use owed::{Master, Owed};
pub use queue::{Waiter, WaiterId, Want};
pub use reenter::{Reentered, reenter};
pub use refusal::Refusal;
pub use release::{Released, release};
pub use slots::{CLUSTER_SLOTS, Gained, SlotSet, Slots, slot_of};
pub use start::{Found, GuardPolicy, LifeId, Start, promote, token_floor};
pub use time::{BootTime, Now, ahead_us};
pub use tokens::{StripeCeiling, Token, Tokens, stripes_from_text, stripes_to_text};
pub use wait::{Waited, wait};
pub use waiting::{Answer, Waiting};
pub use waits::Waits;
pub use wall_clock::WallClock;
