//! All limits in one place. If users can reach one, the documentation of its command names it too.

/// The longest owner in bytes. An owner names one acquisition: 20 random bytes are plenty, and 256 leave room for names
/// made of host, process and purpose.
pub const OWNER_BYTES_MAX: usize = 256;

/// The longest note in bytes: a line or two for a person who looks for the cause of contention.
pub const NOTE_BYTES_MAX: usize = 1024;

/// The largest sequence number of a note, exact in Lua, JavaScript and JSON, as tokens are.
pub const NOTE_SEQUENCE_MAX: u64 = TOKEN_LIMIT - 1;

/// The default of `lock.max-ttl`, in milliseconds.
pub const MAX_TTL_DEFAULT_MS: u32 = 60_000;

/// The upper bound of `lock.max-ttl` and thus of every ttl, in milliseconds: one day. A node that cannot prove what it
/// granted must refuse for as long as the longest lease could still run.
pub const MAX_TTL_LIMIT_MS: u32 = 86_400_000;

/// The default of `lock.max-clock-skew`, in milliseconds.
pub const MAX_CLOCK_SKEW_DEFAULT_MS: u32 = 2_000;

/// The upper bound of `lock.max-clock-skew`, in milliseconds: clocks that are further apart are broken.
pub const MAX_CLOCK_SKEW_LIMIT_MS: u32 = 60_000;

/// The most holds of one lock: deeper nesting is a leak in the caller.
pub const HOLDS_MAX: u32 = 1_000_000;

/// The exclusive upper bound of tokens: integers up to 2^53 are exact in Lua, JavaScript and JSON.
pub const TOKEN_LIMIT: u64 = 1 << 53;

/// The largest wall-clock value used as a hint for tokens (the year 2112 in microseconds), so that no clock, however
/// wrong, uses up the token space.
pub const TOKEN_HINT_MAX: u64 = 1 << 52;

/// The number of stripes, which keep the highest tokens of forgotten keys: 512 KiB in all. With more stripes, fewer
/// unrelated keys push each other's tokens ahead of the clock.
pub const TOKEN_STRIPES: usize = 1 << 16;

/// The highest floor that an operator can set with LOCK.FLOOR. It is above any token to which a wall clock can have
/// driven a node, and leaves room for 71 years of grants at one a microsecond.
pub const FLOOR_MAX: u64 = TOKEN_LIMIT - (1 << 51);

/// The furthest that LOCK.FENCE raises a token ahead of the node's clock, in microseconds: a year. No clocks of one
/// quorum are so far apart, and a key whose token a hostile client drove there is still raised on the other nodes.
pub const FENCE_SPAN_US: u64 = 365 * 86_400_000_000;

/// The most stripes (groups of keys) to which clients can give a ceiling of their own, a highest token that may be issued,
/// above the node's. If more stripes need one, the clocks of nodes differ, and the node's own ceiling is raised too.
/// Those of the nodes from which slots come, and of a replica's master, come on top.
pub const STRIPE_CEILINGS_MAX: usize = 256;

/// The furthest that the node's own ceiling is raised ahead of its clock if too many stripes need one of their own, in
/// microseconds: two days. Clocks with mistaken time zones differ by up to 26 hours, and with a wrong date by a day.
pub const CLOCKS_APART_US: u64 = 2 * 86_400_000_000;

/// The largest jump of the wall clock that is accepted at once, in microseconds: two days, as [`CLOCKS_APART_US`].
pub const CLOCK_JUMP_US: u64 = CLOCKS_APART_US;

/// If the wall clock jumps further than [`CLOCK_JUMP_US`], the time for which it must stay there before it is accepted,
/// in milliseconds: ten minutes. A wrong date that was set by hand, or by NTP at a start, is corrected by then.
pub const CLOCK_SETTLES_MS: u64 = 600_000;

/// At a start the wall clock may be ahead of the last incarnation's tokens by this, in microseconds; if it is further
/// ahead, it counts as having jumped. It is a year less two days. No node is down for longer, and other nodes can still
/// raise their tokens to this node's ([`FENCE_SPAN_US`]), even if their clocks differ by two days.
pub const NODE_DOWN_US: u64 = FENCE_SPAN_US - CLOCKS_APART_US;

/// The time for which a stripe keeps a ceiling of its own that no token needed, in milliseconds. A client refused with
/// NOTYET repeats its request within some milliseconds.
pub const STRIPE_CEILING_UNUSED_MS: u64 = 10_000;

/// The lead of the ceiling over the clock, in tokens (microseconds of the clock). It covers 5 s of grants without a
/// write to the disk.
pub const CEILING_LEAD: u64 = 5_000_000;

/// The lead of the ceiling over the highest token issued, if tokens are ahead of the clock, so that each grant adds
/// one. It covers 0.2 s at a million grants a second in one stripe. It is small, so that a node that restarts all day
/// does not drive its tokens ahead.
pub const ISSUED_LEAD: u64 = 200_000;

/// The lead of the ceiling over the highest token at a start, in tokens: enough for the first grants. It is small,
/// so that a node that restarts all day does not drive its tokens ahead.
pub const START_LEAD: u64 = 10_000;

/// The longest guard that an operator can arm, in milliseconds: two days, twice the longest lease.
pub const GUARD_LIMIT_MS: u32 = 2 * MAX_TTL_LIMIT_MS;

/// The most evicted locks that a node remembers by key; a server that evicts has no memory to spare. If there are more,
/// the whole node is guarded.
pub const EVICTED_MAX: usize = 65_536;

/// Maximum number of bytes of the names of these locks: 256 for each.
pub const EVICTED_NAME_BYTES_MAX: usize = 256 * EVICTED_MAX;

/// The longest wait in the queue, in milliseconds: one day, as the longest lease.
pub const WAIT_MAX_MS: u32 = MAX_TTL_LIMIT_MS;

/// The longest KEEPALIVE, in milliseconds: 30 days. A holder that hangs with its connection open holds its lock until
/// then.
pub const KEEPALIVE_MAX_MS: u32 = 2_592_000_000;

/// The shortest lease that a node keeps alive, in milliseconds. Each renewal is a write to replicas and the AOF, and a
/// node that shares its processor may not run for some tenths of a second now and then.
pub const KEEPALIVE_TTL_MIN_MS: u32 = 1_000;

/// The most renewals a second that a node accepts with KEEPALIVE. With an AOF they take half of a core (Redis 7.0)
/// and write 13 MB a second. That many come from 33 333 leases of one second, or a million of 30 seconds.
pub const RENEWALS_A_SECOND_MAX: u64 = 100_000;

/// The number of bytes of key and owner that counts as one more renewal, because a renewal writes them to the AOF.
/// Without that, a hundred idle leases of one second with keys of a megabyte took two thirds of a core.
pub const RENEWAL_BYTES: usize = 256;

/// The number of renewals in the length of a lease that is kept alive. A node that is stopped for less than two thirds
/// of that length loses no lease.
pub const RENEWALS_A_TTL: u64 = 3;

/// The pause before a failed renewal is repeated, in milliseconds. It is so short that even the shortest lease does not
/// end before.
pub const RENEW_AGAIN_MS: u32 = 20;

/// The longest KEEP of a gate, in milliseconds: a leap year. A late writer that comes after the gate's end is let in.
pub const GATE_KEEP_MAX_MS: u64 = 366 * 86_400_000;

/// The length of a listener's name, in bytes: too long to guess, and no longer than needed.
pub const LISTENER_NAME_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

/// The most bytes for leases with KEEPALIVE whose locks left their keys, each counted with [`KEEPALIVE_BYTES`]. Such
/// leases are kept until their next renewal, which can be 8 hours away, because the lock may return before it. If there
/// are more, the node checks whether the locks have returned as soon as no renewal is due.
pub const KEEPALIVES_LEFT_BYTES_MAX: usize = 1 << 20;

/// The memory that a lease with KEEPALIVE takes beside its key and owner, in bytes: 430 were measured if each has a key of
/// its own.
pub const KEEPALIVE_BYTES: usize = 448;

/// The most answers that a listener (LOCK.HEAR) receives at once. Each takes the server less than 1 µs to write, so it
/// serves its other clients again within 1 ms.
pub const NEWS_AT_A_TIME_MAX: usize = 500;

/// The most bytes of keys and owners in one answer to LOCK.HEAR, beyond its first item. Keys of 64 MB in all kept the
/// server from its other clients for 25 ms; a MiB takes less than 1 ms.
pub const NEWS_BYTES_AT_A_TIME_MAX: usize = 1 << 20;

/// The largest ticket: integers up to here are exact in Lua, JavaScript and JSON.
pub const TICKET_MAX: u64 = TOKEN_LIMIT - 1;

/// The largest number of callers that a request can report behind it in its client: more than any process has.
pub const BEHIND_MAX: u32 = 1_000_000;

/// The default of `lock.max-waiters`: the most requests that wait on a node at a time.
pub const MAX_WAITERS_DEFAULT: u32 = 65_536;

/// The upper bound of `lock.max-waiters`: far more clients than a server takes.
pub const MAX_WAITERS_LIMIT: u32 = 1_000_000;

/// The bytes that a waiting request takes beside its texts: slightly more than measured with many requests for one key.
/// A request with a listener has two entries of this size.
pub const ENTRY_BYTES: u64 = 512;

/// The default of `lock.max-waiting-bytes`: 4 KiB for each request that may wait by default. That is enough for usual
/// keys, owners and notes, and keys of a megabyte cannot make the node keep gigabytes.
pub const MAX_WAITING_BYTES_DEFAULT: u64 = 256 << 20;

/// The upper bound of `lock.max-waiting-bytes`: a terabyte, more than a server has.
pub const MAX_WAITING_BYTES_LIMIT: u64 = 1 << 40;

/// The share of the waiting room (places and bytes) that one listener may take, as a multiple of what is free. With 1
/// it can take half of all room if nobody else waits.
pub const SHARE_OF_A_LISTENER: u64 = 1;

/// The share of the waiting room that one user may take, as a multiple of what is free. With 3 it can take three
/// quarters of all room if nobody else waits.
pub const SHARE_OF_A_USER: u64 = 3;

/// The share of the waiting room that one user may take by connections that have nothing waiting yet, as a multiple of
/// what is free. With 7 it can take seven eighths of all room if nobody else waits.
pub const FIRST_SHARE_OF_A_USER: u64 = 7;

/// The part of all places and bytes that is open to reservations whose owners did not have to wait: an eighth.
pub const TURNS_PART: u64 = 8;

/// The default of `lock.handoff-window`, in milliseconds: how long a free lock is reserved for the owner of a turn. It
/// covers a round trip within a data centre, and a pause of the client's garbage collection.
pub const HANDOFF_WINDOW_DEFAULT_MS: u32 = 20;

/// The upper bound of `lock.handoff-window`, in milliseconds. A client that is gone when its turn comes keeps a free
/// lock from all others for this time at most.
pub const HANDOFF_WINDOW_LIMIT_MS: u32 = 10_000;

/// The most waiters that LOCK.INFO lists: a reply is written in one go, while all other clients wait.
pub const LISTED_WAITERS_MAX: usize = 1_000;

/// The most holders that LOCK.INFO lists, for the same reason as with waiters: a reply is written in one go.
pub const LISTED_HOLDERS_MAX: usize = 1_000;

/// The most holders of one lock: ten times the largest number in the benchmarks, and far fewer than 32 bits can number.
pub const HOLDERS_MAX: usize = 1_000_000;

/// The pause before the node repeats a hand-over that it could not make yet, in milliseconds: about one write to the
/// disk.
pub const RETRY_HAND_OVER_MS: u32 = 10;

/// The most requests that one owner may have in one lock's queue. An owner names one acquisition, so further requests
/// are repetitions. They must be few, because a grant answers all of them in one step.
pub const OWNER_REQUESTS_MAX: usize = 32;

/// After this number of unused turns in a row, the request that has waited longest is next, whatever the tickets say.
/// Clients that collide when they ask several nodes leave a turn or two unused; that changes no order. With the default
/// of `lock.handoff-window` ten turns take 0.2 s, so clients that never acquire can keep a lock from others no longer
/// than that.
pub const UNUSED_TURNS_MAX: u32 = 10;

/// The most waiting clients answered in one pass of the event loop, and the most requests that one pass over a queue
/// removes. Each answer costs the server 10 to 20 µs, mostly for writing to the socket, so it returns to its other
/// clients within 1 ms. A command that frees a lock can answer this many, and the timer after it, in the same pass, as
/// many again.
pub const ANSWERS_A_PASS_MAX: usize = 50;

/// The longest time for which an ACQUIRE without WAIT waits for the disk, in milliseconds. It bridges a slow write; if
/// the disk hangs, the client gets an error.
pub const DISK_WAIT_MS: u32 = 1_000;

/// The most grants that one step removes from a lock which others hold, because their leases are over or an operator
/// breaks their token. Each takes some microseconds.
pub const ENDED_A_STEP_MAX: usize = 64;

/// The largest difference between the rates of any two clocks, in percent. By this part of its length a lease may end
/// later on its holder's clock than on the node's. So the holder's validity is shorter by this part, and a guard is
/// longer.
pub const DRIFT_PERCENT: u64 = 1;

/// The default of `lock.log-max-len`: a few hundred KiB, and days of a healthy node's entries.
pub const LOG_LEN_DEFAULT: u32 = 1_024;

/// The upper bound of `lock.log-max-len`, and the most entries that LOCK.LOG lists: 10 MB if each has the maximal
/// length.
pub const LOG_LEN_LIMIT: u32 = 10_000;

/// The number of entries that LOCK.LOG lists by default, as SLOWLOG does.
pub const LOG_LISTED_DEFAULT: usize = 10;

/// The default of `lock.log-slower-than`, in milliseconds.
pub const LOG_SLOWER_THAN_DEFAULT_MS: u32 = 1_000;

/// The upper bound of `lock.log-slower-than`, in milliseconds: the longest wait.
pub const LOG_SLOWER_THAN_LIMIT_MS: u32 = WAIT_MAX_MS;

/// The most bytes of a key that an entry of the log keeps.
pub const LOG_KEY_BYTES_MAX: usize = 256;

/// The most bytes of a note that an entry of the log keeps.
pub const LOG_NOTE_BYTES_MAX: usize = 128;

/// The number of counters for contended keys, for each kind of contention. With these a count is too large by less than
/// 0.4 % of all events.
pub const TOP_KEYS: usize = 256;

/// The most unpublished events of grants (`lock.events`) that the node keeps. They are published in the same pass of
/// the event loop or the next, but one command can delete any number of locks.
pub const EVENTS_MAX: usize = 1_024;

/// The most key prefixes that have metrics of their own: each takes at most 75 KB, all 2.5 MB, and people can still
/// read that many.
pub const PREFIXES_MAX: usize = 32;

/// The longest key prefix that has metrics of its own, in bytes.
pub const PREFIX_BYTES_MAX: usize = 128;

/// The most grants that are logged if a whole lock ends in one step, because all other clients wait meanwhile.
pub const LOGGED_TOGETHER_MAX: usize = 64;

/// The largest version of a set of nodes, exact in Lua, JavaScript and JSON, as tokens are.
pub const MEMBERS_VERSION_MAX: u64 = TOKEN_LIMIT - 1;

/// The most nodes in a set. It is small, because a lock asks all of them.
pub const MEMBERS_MAX: usize = 31;

/// The longest address of a node in a set, in bytes.
pub const MEMBER_ADDRESS_BYTES_MAX: usize = 255;
