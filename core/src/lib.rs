//! The rules of Palisade locks, without Redis.
//!
//! A *lock* is what one key holds: one grant or several, each with an owner, a fencing token, a number of holds, and a
//! *lease* that ends at a deadline on the boot clock. Everything here is a function of its inputs. The time is handed
//! in as [`Now`], and the key's content as `Option<&mut Lock>`. The [`engine`] returns the necessary actions step by
//! step. The Redis module performs the steps on its server; simulation, models and fuzzer perform them in memory.
//!
//! # States of a key
//!
//! | state | what the key holds | who sees it so |
//! |---|---|---|
//! | free | nothing, or a lock whose deadline has passed | every command, at once |
//! | held | a lock whose deadline has not passed | its owner may extend, re-enter, release; others are refused |
//! | reserved | nothing, or a lock whose deadline has passed | its owner may acquire it for a moment; others are refused |
//! | held, suspect | a lock from outside (`RESTORE`), or of an unproved incarnation | its owner may only release it |
//!
//! # Invariants
//!
//! 1. Between a grant and its deadline no other owner is granted the key ([`acquire()`]). A node that may have
//!    forgotten grants is guarded until they have all ended ([`Guard`]).
//! 2. A grant's token is larger than every token the key ever had ([`Tokens`]), except among readers and among permits.
//!    This holds after the key was released, deleted or flushed, because the node remembers the highest tokens outside
//!    the keys. It holds in another incarnation, because no token is issued above a ceiling that is on the disk.
//! 3. A deadline never moves towards now ([`extend()`], [`reenter()`]).
//! 4. A refusal changes nothing.
//! 5. A lock that becomes free passes to the first in its queue, before any later request ([`hand_over()`]); no waiting
//!    request is forgotten ([`Waiting`]).
//! 6. Every lock in memory has exactly one entry in [`Deadlines`], at its first deadline, and nothing else has one.
//!
//! # Map
//!
//! Each folder imports only folders above it, and no file is in a circle of imports.
//!
//! | folder | subject |
//! |---|---|
//! | `lock` | the content of a key ([`Lock`]), and when its leases end ([`Deadlines`]) |
//! | `gate` | what a resource remembers of the tokens that it let pass ([`Gate`]) |
//! | `format` | bytes on the wire and the disk ([`record`]), digests |
//! | `history` | past grants and waits, for people ([`History`], [`Log`]): no rule reads it |
//! | `members` | a node's knowledge of the set of nodes that it belongs to ([`Membership`]) |
//! | `tokens`, `guard` | the highest tokens ([`Tokens`]); reasons to refuse ([`Guard`], [`Evicted`], [`Slots`]) |
//! | `queue`, `keepalive` | requests that wait ([`Waiting`]); leases that the node renews ([`KeepAlives`]) |
//! | `durability` | a node's memory across incarnations ([`NodeState`], [`Ledger`]), and the proof at a start ([`Start`]) |
//! | `node` | the [`Node`] with all these |
//! | `rules` | a function for each command, from [`acquire()`] to [`renew()`] |
//! | [`engine`] | what happens when a command arrives, a lease ends or the server changes a key |
//!
//! Times, tokens, modes and limits, the requests of clients ([`request`]) and every error text ([`Refusal`]) are those
//! of `palisade-quorum`, which has the rules of one lock over several nodes.

#![forbid(unsafe_code)]

mod durability;
pub mod engine;
#[cfg(test)]
mod fixture;
mod format;
mod gate;
mod guard;
mod history;
mod keepalive;
mod lock;
mod members;
mod node;
mod queue;
mod rules;
mod tokens;

pub use durability::ledger::{Beginning, Ledger};
pub use durability::node_state::{CleanEnd, NodeState, Unreadable};
pub use durability::start::{GuardPolicy, Start, Verdict, token_floor};
pub use durability::ties::{AofFile, FileId, Found, IncarnationId};
pub use format::digest::LocksDigest;
pub use format::gate as gate_record;
pub use format::record;
pub use gate::Gate;
pub use gate::forgetting::{Forgetting, MayBeOver};
pub use guard::evicted::{Evicted, Evictee};
pub use guard::flush::Flush;
pub use guard::outstanding::{Master, OutstandingTtl};
pub use guard::slot_set::{CLUSTER_SLOTS, SlotSet, slot_of};
pub use guard::slots::{Gained, Moves, Slots};
pub use guard::sources::{ASK_AGAIN_MS, MigrationId, ServerId, SourceAnswer, SourceQuestion};
pub use guard::{Armed, Guard, SavedGuard, guard_ms};
pub use history::ending::Ending;
pub use history::grant_events::{GrantEvent, Happened};
pub use history::json::missed_to_json;
pub use history::log::{About, Entry, Log};
pub use history::prefixes::{Figures, Prefixes};
pub use history::times::Times;
pub use history::top::{Counted, Top};
pub use history::{Contention, History};
pub use keepalive::{ClientId, KeepAlive, KeepAlives, KeptLock, Renewal};
pub use lock::Lock;
pub use lock::deadlines::{Deadlines, Detached, Due};
pub use lock::entry::DeadlineEntry;
pub use lock::grant::{Grant, GrantId};
pub use lock::holders::Holders;
pub use lock::modes::Modes;
pub use lock::phase::Phase;
pub use members::{Membership, SavedMembership};
pub use node::counters::Counters;
#[cfg(feature = "tamper")]
pub use node::tamper::Tamper;
pub use node::{Node, Settings};
pub use palisade_quorum as quorum;
pub use palisade_quorum::{
    Accepted, Ballot, BootId, BootTime, Cause, Damaged, GateRefusal, KeyPrefixes, Member, Members, Mode, Now, Permit,
    Printable, Refusal, Token, WallClock, Wanted, ahead_us, escape, is_address, is_obeyed, limits, members_from_text,
    members_to_text, parse_integer,
};
pub use palisade_quorum::{grammar, request};
pub(crate) use palisade_quorum::{refusal, values};
pub use queue::listening::{Listeners, News, NewsBody};
pub use queue::of_key::{Waiter, WaiterId, Want};
pub use queue::shares::{Asker, Load, UserId};
pub use queue::waiting::{Answer, Waiting};
pub use queue::watching::Watching;
pub use rules::acquire::{Acquired, acquire, acquire_later};
pub use rules::break_lock::break_lock;
pub use rules::check::check;
pub use rules::convert::convert;
pub use rules::extend::extend;
pub use rules::fence::fence;
pub use rules::gate::ensure_held;
pub use rules::hand_over::{HandedOver, hand_over};
pub use rules::note::annotate;
pub use rules::on_grant::OnGrant;
pub use rules::reenter::reenter;
pub use rules::release::{Released, release};
pub use rules::renew::renew;
pub use rules::wait::{Waited, wait};
pub use rules::watch::Watched;
pub use tokens::Tokens;
pub use tokens::stripe_ceilings::{StripeCeiling, stripes_from_text, stripes_to_text};
pub use tokens::told::TokenBounds;
