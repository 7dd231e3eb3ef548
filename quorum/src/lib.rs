//! One lock over N independent nodes, in any mode, as state machines: answers in, questions and outcomes out.
//!
//! Redlock with three repairs: tokens that are monotonic over the quorum, validity that is counted from before the first
//! question, and nodes that lost the lock and get it again. There is no socket, clock or randomness in here: a client, a
//! simulator and a model checker run the same code. A machine names nodes by their place in the client's list and tells
//! servers apart by their [`NodeId`], since two names can lead to one server ([`first_as`]).
//!
//! # Why it is safe
//!
//! Two majorities of one set of nodes meet. While a majority holds a lock for one owner, no other owner can be granted it by
//! a majority, as long as no node forgets (the restart guard) and leases end later on the nodes than the holder believes
//! (the margin of [`margin_us`]). And the node where two majorities meet gave the later holder a larger token than the
//! earlier one's, so a token that is at least the largest of *some* majority's grants is larger than every earlier holder's
//! ([`Acquire`]).
//!
//! # Modes
//!
//! Grants conflict in pairs ([`Mode::is_compatible`]), and so all of this is true of each pair of
//! holders that must not hold a lock together: a writer and anybody, two holders of one permit number, a permit above
//! another's limit. Their majorities share a node, which refuses one of the two; where the first has left, that node orders
//! their tokens. Nothing counts votes of more than one holder, so no limit can be exceeded by k votes a node.
//!
//! The mode therefore belongs to what is asked for, like key and owner, and no machine looks at it. Whoever sends an [`Ask`] names
//! it in every [`Ask::Acquire`], also in those that repeat one or heal a node:
//!
//! - *Shared*: SHARED. Nodes take a reader's proposal as it is if it is above what writers and permits had, so readers need no
//!   second round for one another, and [`Acquire`] finds the same token at a majority. It raises tokens where a writer came
//!   between. A reader that heals a node is refused where a writer has got in; the writer has no majority.
//! - *Permit n of k*: LIMIT k PERMIT n, with the number that the acquisition began with. [`Held`] so heals the same number: an
//!   owner's grants with two numbers would be half of each. A node that has another number for the owner refuses (OWNED).
//! - *A writer that becomes a reader* ([`Held::share`]) asks as a reader from then on.
//!
//! FENCE, EXTEND and RELEASE are about the owner's own grant, whatever its mode.
//!
//! # Several processes of one owner
//!
//! A process can go on with a lock that another one took ([`resume()`]), and the other one may only have been stopped. Both extend the same
//! grants, which harms nobody. Both may raise their tokens, each to the largest that it knows: a node that does not have the token which it
//! acknowledged to one of them is asked by FENCE what it has, before that one takes the lock for gone there ([`Held::is_spoken_for_elsewhere`]).
//!
//! The test module `storm` looks for a counterexample: drifting clocks, late, lost and repeated messages, restarts with and without
//! data, two names for one server. It finds one as soon as any of these is done otherwise.
//!
//! # Elections
//!
//! A leader is whoever holds an exclusive lock, and proclaims it: `election` has the leader's and the observer's side
//! ([`Proclaim`], [`Observer`]).
//!
//! # Sets of nodes that change
//!
//! All of this is about one set. Two versions of it that follow each other differ by one node, so their majorities meet too; those further
//! apart need not. What keeps a client with an older version from granting itself what clients of a later one hold is the nodes' word
//! (`Membership` in `palisade-core`): a node that was told a version takes nothing from clients of older ones, and agrees to the next only
//! when their leases have ended. So when a version is decided, a majority of the one before it takes nothing from clients of older ones any
//! more, no lease that those had still runs, and no token that they had is issued again ([`Change`]). A lock that is held goes over to the
//! new version with what it has ([`Held::moves_to`]).
//!
//! # In order, and how far
//!
//! A node serves its queue in the order of tickets, over all modes, and grants nothing to whoever comes later. Over the quorum this
//! means: once a majority has a request in its queues, no acquisition that begins after that gets what the request waits for,
//! unless the request does not use its turn within `lock.handoff-window`, or ten turns in a row went unused. What is not promised:
//!
//! - Between the first and the last message of a request, another one can get ahead of it, also without a ticket: it was at a
//!   majority first.
//! - Permits: a request may fail to bring the numbers that nodes keep for it together. It then waits again with its old ticket, so
//!   whoever has a later ticket is behind it again at every node. Meanwhile others may have got other numbers.
//! - Nodes with different clocks do not matter: the ticket decides. Clients' clocks do, since tickets come from them: whoever has
//!   a clock that is behind is served earlier. A ticket is taken when its caller comes, not when it is its turn in its process.

#![forbid(unsafe_code)]

mod acquire;
#[cfg(any(test, feature = "worlds"))]
#[doc(hidden)]
pub mod agenda;
mod ask;
#[cfg(test)]
mod burst;
mod change;
mod choice;
mod conduct;
mod distinct;
mod election;
#[cfg(test)]
mod fixture;
#[cfg(any(test, feature = "worlds"))]
#[doc(hidden)]
pub mod floors;
pub mod grammar;
mod held;
mod jitter;
mod keeper;
mod known;
mod members;
mod obstacle;
pub mod refusal;
mod release;
pub mod request;
mod resume;
mod shown;
#[cfg(test)]
mod storm;
mod taker;
mod turn;
pub mod values;
mod waiter;

pub use acquire::{Acquire, Progress};
pub use ask::{Answer, Ask, Call, NodeId, Out, granted_after, majority, margin_us, valid_until};
pub use change::{Change, ChangeProgress, MemberSays, Path, TellMember, step_towards};
pub use choice::{Choice, ChoiceProgress, first, free};
#[doc(hidden)]
pub use conduct::Conduct;
pub use distinct::{first_as, servers};
pub use election::{Leader, Noted, Observed, Observer, Proclaim, Proclamation, Says, Tell, VALUE_BYTES_MAX};
pub use held::Held;
pub use keeper::{Auto, Keeper, News, ROUNDS_A_LEASE, WhyLost, Work};
pub use known::{Known, known};
pub use members::{Accepted, Ballot, Member, Members, is_address, members_from_text, members_to_text};
pub use obstacle::Obstacle;
pub use refusal::{Damaged, Refusal};
pub use release::{Release, Released};
pub use resume::{Has, Resumed, resume};
pub use shown::{is_named_by, token_of};
pub use taker::{GaveUp, LAST_TRY_MS, Refused, Taker, Task};
pub use turn::{Turn, TurnProgress};
pub use values::cause::Cause;
pub use values::escaped::escape;
pub use values::integer::parse_integer;
pub use values::limits;
pub use values::mode::{Mode, Permit, Wanted};
pub use values::prefixes::KeyPrefixes;
pub use values::printable::{Printable, is_obeyed};
pub use values::time::{BootId, BootTime, Now, ahead_us};
pub use values::token::Token;
pub use values::wall_clock::WallClock;
pub use waiter::{WaitTask, Waiter};
