//! Every limit in one place. What a user can run into is also in the documentation of the commands.

/// Longest owner in bytes. An owner names one acquisition; 20 random bytes are plenty, 256 leave room for names
/// made of host, process and purpose.
pub const OWNER_BYTES_MAX: usize = 256;

/// Longest note in bytes: a line or two for the person who looks for a culprit.
pub const NOTE_BYTES_MAX: usize = 1024;

/// Largest sequence number of a note: exact in Lua, JavaScript and JSON, as tokens are.
pub const NOTE_SEQUENCE_MAX: u64 = TOKEN_LIMIT - 1;

/// Default of `lock.max-ttl`, in milliseconds.
pub const MAX_TTL_DEFAULT_MS: u32 = 60_000;

/// Upper bound of `lock.max-ttl` and so of every ttl, in milliseconds: one day. A node that cannot prove what it
/// granted must refuse for as long as the longest lease could still run.
pub const MAX_TTL_LIMIT_MS: u32 = 86_400_000;

/// Default of `lock.max-clock-skew`, in milliseconds.
pub const MAX_CLOCK_SKEW_DEFAULT_MS: u32 = 2_000;

/// Upper bound of `lock.max-clock-skew`, in milliseconds: clocks that are further apart are broken.
pub const MAX_CLOCK_SKEW_LIMIT_MS: u32 = 60_000;

/// Most holds of one lock: deeper nesting is a leak in the caller.
pub const HOLDS_MAX: u32 = 1_000_000;

/// Tokens are below this: integers up to 2^53 are exact in Lua, JavaScript and JSON.
pub const TOKEN_LIMIT: u64 = 1 << 53;

/// The wall clock is taken as a hint for tokens only up to here (the year 2112 in microseconds), so that no clock,
/// however wrong, uses up the token space.
pub const TOKEN_HINT_MAX: u64 = 1 << 52;

/// Number of stripes over which the highest tokens of forgotten keys are kept: 512 KiB in all. More stripes mean
/// that fewer unrelated keys push each other's tokens ahead of the clock.
pub const TOKEN_STRIPES: usize = 1 << 16;

/// Highest floor that an operator can set with LOCK.FLOOR: above wherever a wall clock can have driven a node, and with room for
/// 71 years of grants, one a microsecond, above it.
pub const FLOOR_MAX: u64 = TOKEN_LIMIT - (1 << 51);

/// How far ahead of the node's clock LOCK.FENCE raises a token at the most, in microseconds: a year. No clocks of one quorum
/// are so far apart, and a key whose token was driven there by a hostile client is still raised on the other nodes.
pub const FENCE_SPAN_US: u64 = 365 * 86_400_000_000;

/// Most stripes whose tokens may be above the node's ceiling. Where more need that, it is the clocks that are apart, and the
/// node's ceiling follows.
pub const STRIPE_CEILINGS_MAX: usize = 256;

/// How far ahead of the node's clock its ceiling follows then, in microseconds: two days. Time zones taken for each other are 26
/// hours apart, a wrong date a day.
pub const CLOCKS_APART_US: u64 = 2 * 86_400_000_000;

/// A wall clock that jumps ahead by more than this, in microseconds, is not followed at once: two days, as [`CLOCKS_APART_US`].
pub const CLOCK_JUMP_US: u64 = CLOCKS_APART_US;

/// A wall clock that jumped is followed once it has stood by that for so long, in milliseconds: ten minutes. Whoever sets a wrong
/// date by hand, or NTP at a start, has corrected it by then.
pub const CLOCK_SETTLES_MS: u64 = 600_000;

/// A start takes a wall clock for one that jumped if it is further ahead of the last incarnation's tokens than a node is ever down, in
/// microseconds: a year, less what other nodes' clocks may be apart, so that they still follow ([`FENCE_SPAN_US`]).
pub const NODE_DOWN_US: u64 = FENCE_SPAN_US - CLOCKS_APART_US;

/// For how long a stripe keeps a ceiling of its own that no token needed, in milliseconds: who was refused with NOTYET comes
/// again within some milliseconds.
pub const STRIPE_CEILING_UNUSED_MS: u64 = 10_000;

/// How far the ceiling of tokens is kept ahead, in tokens (microseconds of the clock): 5 s of grants without a write to
/// the disk.
pub const CEILING_LEAD: u64 = 5_000_000;

/// How far the ceiling is kept ahead of the highest token issued, where tokens are ahead of the clock and so count grants: two
/// tenths of a second at a million grants a second on one stripe. Little, so that a node that restarts all day does not drive
/// its tokens ahead.
pub const ISSUED_LEAD: u64 = 200_000;

/// How far the ceiling is kept ahead of where a start begins before anything is granted, in tokens: enough for the
/// first grants, little enough that a node that restarts all day does not drive its tokens ahead.
pub const START_LEAD: u64 = 10_000;

/// Longest guard that an operator can arm, in milliseconds: one day and what belongs to it.
pub const GUARD_LIMIT_MS: u32 = 2 * MAX_TTL_LIMIT_MS;

/// Most evicted locks that are remembered one by one, so that they take no memory without bound from a server that has none to spare; beyond
/// it the whole node is guarded.
pub const EVICTED_MAX: usize = 65_536;

/// Longest wait in the queue, in milliseconds: one day, as the longest lease.
pub const WAIT_MAX_MS: u32 = MAX_TTL_LIMIT_MS;

/// Longest KEEPALIVE, in milliseconds: 30 days. A holder that hangs with its connection open holds its lock until then.
pub const KEEPALIVE_MAX_MS: u32 = 2_592_000_000;

/// Shortest lease that a node keeps alive, in milliseconds. Each renewal is a write to replicas and the AOF, and a node that shares its
/// processor stands still for some tenths of a second now and then.
pub const KEEPALIVE_TTL_MIN_MS: u32 = 1_000;

/// Most renewals a second that a node takes on with KEEPALIVE: with an AOF they take a quarter of a core (Redis 7.0) and write
/// 13 MB a second. 33 333 leases of one second make as many, or a million of 30 seconds.
pub const RENEWALS_A_SECOND_MAX: u64 = 100_000;

/// So often in its length a lease is prolonged that is kept alive: a node that stands still for less than two thirds of it loses
/// none.
pub const RENEWALS_A_TTL: u64 = 3;

/// How soon a lease is looked at again that could not be prolonged, in milliseconds: before the shortest one ends.
pub const RENEW_AGAIN_MS: u32 = 20;

/// How long the name of a listener is, in bytes: too long to guess, and no longer than it takes.
pub const LISTENER_NAME_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

/// Most bytes of leases with KEEPALIVE whose locks left their keys, each counted with [`KEEPALIVE_BYTES`]: a lock may be back before its lease
/// is next to be prolonged, which can take 8 hours. Of more the node looks at once whether they are.
pub const KEEPALIVES_LEFT_BYTES_MAX: usize = 1 << 20;

/// What a lease with KEEPALIVE takes beside its key and owner, in bytes.
pub const KEEPALIVE_BYTES: usize = 256;

/// Most news in one answer: each costs the server less than 1 µs to write, so it gets back to its other clients within 1 ms.
pub const NEWS_AT_A_TIME_MAX: usize = 500;

/// Most bytes of keys and owners in one answer of news, but for the first of them: 64 MB of keys kept the server from its other clients
/// for 25 ms, a MiB does for less than 1 ms.
pub const NEWS_BYTES_AT_A_TIME_MAX: usize = 1 << 20;

/// Largest ticket: integers up to here are exact in Lua, JavaScript and JSON.
pub const TICKET_MAX: u64 = TOKEN_LIMIT - 1;

/// Most callers that one request can say wait behind it in its client: more than any process has.
pub const BEHIND_MAX: u32 = 1_000_000;

/// Default of `lock.max-waiters`: the most requests that wait on a node at a time.
pub const MAX_WAITERS_DEFAULT: u32 = 65_536;

/// Upper bound of `lock.max-waiters`: far more clients than a server takes.
pub const MAX_WAITERS_LIMIT: u32 = 1_000_000;

/// Bytes that an entry for a request that waits takes beside its texts: a bit more than was measured with a crowd on one key. A request
/// that a listener hears has two entries.
pub const ENTRY_BYTES: u64 = 512;

/// Default of `lock.max-waiting-bytes`: 4 KiB for each of the requests that may wait by default, so that they find room with a key, an
/// owner and a note as long as any that are in use, and no key of a megabyte makes the node keep gigabytes.
pub const MAX_WAITING_BYTES_DEFAULT: u64 = 256 << 20;

/// Upper bound of `lock.max-waiting-bytes`: a terabyte, more than a server has.
pub const MAX_WAITING_BYTES_LIMIT: u64 = 1 << 40;

/// Share of one listener, in multiples of the places and bytes that are free: half of all where it is alone.
pub const SHARE_OF_A_LISTENER: u64 = 1;

/// Share of one user, in multiples of what is free: three quarters of all where it is alone.
pub const SHARE_OF_A_USER: u64 = 3;

/// Share of one user over connections that have nothing waiting yet, in multiples of what is free: seven eighths where it is alone.
pub const FIRST_SHARE_OF_A_USER: u64 = 7;

/// Part of the places and bytes that turns told to clients which did not wait can take: an eighth.
pub const TURNS_PART: u64 = 8;

/// Default of `lock.handoff-window`, in milliseconds: for so long a free lock is kept for a LOCK.WAIT that was told. A
/// round trip within a data centre and a pause of the client's garbage collection fit in.
pub const HANDOFF_WINDOW_DEFAULT_MS: u32 = 20;

/// Upper bound of `lock.handoff-window`, in milliseconds: for so long a client that was told and is gone can keep a free
/// lock from everybody.
pub const HANDOFF_WINDOW_LIMIT_MS: u32 = 10_000;

/// Most waiters that LOCK.INFO lists: a reply is made in one go, while all other clients wait.
pub const LISTED_WAITERS_MAX: usize = 1_000;

/// Most holders that LOCK.INFO lists: as with waiters.
pub const LISTED_HOLDERS_MAX: usize = 1_000;

/// Most holders of one lock: ten times as many as the benchmarks go to, and far fewer than 32 bits can number.
pub const HOLDERS_MAX: usize = 1_000_000;

/// How soon a hand-over is tried again that the node cannot make yet, in milliseconds: about a write to the disk.
pub const RETRY_HAND_OVER_MS: u32 = 10;

/// Most requests that one owner has in one lock's queue at a time. An owner names one acquisition, so more than one is a
/// repetition; a grant answers all of them in one step, so they must be few.
pub const OWNER_REQUESTS_MAX: usize = 32;

/// After so many turns in a row that nobody used, the request that has waited longest is next, whatever the tickets. Clients
/// that ask several nodes at once leave a turn or two unused when they collide, and keep their order; ten are 0.2 s with the
/// default of `lock.handoff-window`, for which clients that never acquire can keep a lock from everybody else.
pub const UNUSED_TURNS_MAX: u32 = 10;

/// Most waiting clients that are answered in one pass of the event loop, and most requests that one look at a queue takes out:
/// each answer costs the server 10 to 20 µs, most of it for writing to the socket, so it gets back to its other clients within
/// 1 ms. A command that frees a lock and the timer behind it can do so in one pass, each.
pub const ANSWERS_A_PASS_MAX: usize = 50;

/// How long an ACQUIRE that does not wait for anybody may wait for the disk, in milliseconds: a disk that is slow for a moment is
/// waited out, one that hangs is told of.
pub const DISK_WAIT_MS: u32 = 1_000;

/// Most grants that one step takes out of a lock which others hold, as their leases are over or an operator breaks their token: each costs
/// some microseconds.
pub const ENDED_A_STEP_MAX: usize = 64;

/// How far apart, in percent, the rates of any two clocks may be: a lease may end this much later on its holder's clock than on
/// the node's. The holder's validity ends earlier by it, and a guard is longer.
pub const DRIFT_PERCENT: u64 = 1;

/// Default of `lock.log-max-len`: a few hundred KiB, and days of what a healthy node has to tell.
pub const LOG_LEN_DEFAULT: u32 = 1_024;

/// Upper bound of `lock.log-max-len`, and most entries that LOCK.LOG lists: 10 MB where each is as long as it can be.
pub const LOG_LEN_LIMIT: u32 = 10_000;

/// Entries that LOCK.LOG lists where no number is asked for, as SLOWLOG does.
pub const LOG_LISTED_DEFAULT: usize = 10;

/// Default of `lock.log-slower-than`, in milliseconds.
pub const LOG_SLOWER_THAN_DEFAULT_MS: u32 = 1_000;

/// Upper bound of `lock.log-slower-than`, in milliseconds: the longest wait.
pub const LOG_SLOWER_THAN_LIMIT_MS: u32 = WAIT_MAX_MS;

/// So many bytes of a key the log keeps.
pub const LOG_KEY_BYTES_MAX: usize = 256;

/// So many bytes of a note the log keeps.
pub const LOG_NOTE_BYTES_MAX: usize = 128;

/// Counters of contended keys, for each kind of contention: a count is too large by less than 0.4 % of all events.
pub const TOP_KEYS: usize = 256;

/// Most events of grants (`lock.events`) that are kept until they are published, which is in the same pass of the event loop, or the next: one
/// command can delete any number of locks.
pub const EVENTS_MAX: usize = 1_024;

/// Most prefixes of keys that figures are kept of: each takes 75 KB at most, all 2.5 MB, and an operator can look at so many.
pub const PREFIXES_MAX: usize = 32;

/// Longest prefix of keys that figures are kept of, in bytes.
pub const PREFIX_BYTES_MAX: usize = 128;

/// Most grants that are logged where a whole lock ends in one step: others have to be served.
pub const LOGGED_TOGETHER_MAX: usize = 64;

/// Largest version of a set of nodes: exact in Lua, JavaScript and JSON, as tokens are.
pub const MEMBERS_VERSION_MAX: u64 = TOKEN_LIMIT - 1;

/// How many nodes a set can have: a lock asks all of them.
pub const MEMBERS_MAX: usize = 31;

/// The longest address of a node in a set, in bytes.
pub const MEMBER_ADDRESS_BYTES_MAX: usize = 255;
