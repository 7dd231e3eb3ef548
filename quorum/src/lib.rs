//! A lock over N independent nodes, in any mode, as state machines: answers in, questions and outcomes out.
//!
//! The protocol is Redlock with three repairs: tokens are monotonic over the quorum, validity is counted from before
//! the first question, and nodes that lost the lock are asked to grant it again. The crate has no socket, clock or
//! randomness: a client, a simulator and a model checker run the same code. A machine names nodes by their index in the
//! client's list. It distinguishes servers by their [`NodeId`], since two names can lead to one server ([`first_as`]).
//!
//! # Why it is safe
//!
//! Two majorities of one set of nodes intersect. While a majority holds a lock for one owner, no majority can grant it
//! to another. This needs two things: no node forgets (the restart guard), and leases end later on the nodes than the
//! holder believes (the margin of [`margin_us`]). A node in both majorities gave the later holder a larger token than
//! the earlier holder. So a token that is at least the largest of *some* majority's grants exceeds every earlier
//! holder's ([`Acquire`]).
//!
//! # Modes
//!
//! Grants conflict in pairs ([`Mode::is_compatible`]), so the argument above holds for each pair of holders that
//! exclude each other: a writer and anyone else, two holders of one permit number, a permit whose number is above
//! another's limit. Their majorities share a node. That node refuses one of the two. If the first has left, it gives
//! the second a larger token. No rule counts holders, so the number of permits needs no further argument.
//!
//! The mode therefore belongs to the request, like key and owner, and no machine reads it. The sender of an [`Ask`]
//! names the mode in every [`Ask::Acquire`], also in one that repeats another or heals a node:
//!
//! - *Shared*: SHARED. Nodes take a reader's proposal as it is if it is above the tokens of writers and permits. So
//!   readers need no second round for one another, and [`Acquire`] finds the same token at a majority. It raises tokens
//!   where a writer intervened. A reader that heals a node is refused where a writer has got in; the writer has no
//!   majority.
//! - *Permit n of k*: LIMIT k PERMIT n, with the number that the acquisition began with. So [`Held`] heals a
//!   node with the same number: if an owner had grants with two numbers, neither might have a majority. A node that has
//!   another number for the owner refuses (OWNED).
//! - *A writer that becomes a reader* ([`Held::share`]) asks as a reader from then on.
//!
//! FENCE, EXTEND and RELEASE are about the owner's own grant, whatever its mode.
//!
//! # Several processes of one owner
//!
//! A process can continue with a lock that another one took ([`resume()`]), while the other one may only have been
//! stopped. Both extend the same grants, which is harmless. Both may raise their tokens, each to the largest that it
//! knows. So a node may lack the token that it acknowledged to one of them. That process then asks the node by FENCE
//! what it has, before it considers the lock lost there ([`Held::is_spoken_for_elsewhere`]).
//!
//! The test module `storm` searches for a counterexample with drifting clocks, late, lost and repeated messages,
//! restarts with and without data, and two names for one server. It finds one as soon as any of these rules is changed.
//!
//! # Elections
//!
//! A leader is the holder of an exclusive lock, and proclaims it: `election` has the leader's and the observer's side
//! ([`Proclaim`], [`Observer`]).
//!
//! # Sets of nodes that change
//!
//! All of the above is about one set. Neighbouring versions of a set differ by one node, so their majorities intersect
//! too; those of other versions need not. A client with an older version must not get a lock that clients of a later
//! one hold. The nodes prevent that (`Membership` in `palisade-core`): a node that knows a version accepts nothing from
//! clients of older ones, and agrees to the next only when their leases have ended. So once a version is decided, a
//! majority of the one before it accepts nothing from clients of older ones. No lease of theirs still runs, and no
//! token of theirs is issued again ([`Change`]). A held lock moves to the new version with what it has
//! ([`Held::move_to`]).
//!
//! # Order of service, and its limits
//!
//! A node serves its queue in the order of tickets, over all modes, and grants nothing to later requests. Over the
//! quorum this means: once a majority has a request in its queues, no acquisition that begins later gets what the
//! request waits for. The exceptions are a request that does not use its turn within `lock.handoff-window`, and ten
//! unused turns in a row. Not promised:
//!
//! - Between the first and the last message of a request, another one can get ahead of it, also without a ticket, by
//!   reaching a majority first.
//! - Permits: a request may fail to get one number from the nodes that reserve numbers for it. It then waits again with
//!   its old ticket, ahead of all later tickets at every node. Meanwhile others may have got other numbers.
//! - Clocks of nodes do not matter: the ticket decides. Clocks of clients do, since tickets come from them: a client
//!   whose clock is behind is served earlier. A ticket is taken when its caller arrives, not at its turn in its
//!   process.

#![forbid(unsafe_code)]

mod acquire;
#[cfg(any(test, feature = "worlds"))]
#[doc(hidden)]
pub mod agenda;
mod ask;
mod breaking;
#[cfg(test)]
mod burst;
mod change;
mod choice;
mod conduct;
mod distinct;
mod election;
#[cfg(test)]
mod fixture;
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
pub use breaking::{Breaking, ShownTokens};
pub use change::{Change, ChangeProgress, MemberRequest, MemberSays, Path, step_towards};
pub use choice::{Choice, ChoiceProgress, first, free};
#[doc(hidden)]
pub use conduct::Conduct;
pub use distinct::{first_as, servers};
pub use election::{
    Leader, LockReport, NoteAnswer, NoteCall, Observed, Observer, Proclaim, Proclamation, VALUE_BYTES_MAX,
};
pub use held::Held;
pub use keeper::{Auto, Keeper, News, ROUNDS_A_LEASE, WhyLost, Work};
pub use known::{HoldStatus, known};
pub use members::{Accepted, Ballot, Member, Members, is_address, members_from_text, members_to_text};
pub use obstacle::Obstacle;
pub use refusal::{Damaged, GateRefusal, Refusal};
pub use release::{Release, Released};
pub use resume::{OwnGrant, Resumed, resume};
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
