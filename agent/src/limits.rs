//! All limits of the agent, with their reasons. Limits that a user can reach are also in docs/agent.md.

use std::time::Duration;

use palisade_quorum::limits::{MAX_TTL_DEFAULT_MS, NOTE_BYTES_MAX};

/// The default of the most connections: the same as that of Redis.
pub const CONNECTIONS_DEFAULT: usize = 10_000;

/// The number of files that may be open beside the connections of clients: listening sockets, connections to nodes, the
/// runtime's files, connections for HTTP, and refused connections whose input is still read.
pub const OTHER_FILES: usize = 320;

/// The longest request in bytes: far more than an owner, a note and the longest usual name of a lock. While a command
/// waits, up to this much is read ahead.
pub const REQUEST_BYTES_MAX: usize = 256 * 1_024;

/// The longest request before the password was given, in bytes: enough for HELLO and AUTH, and little else.
pub const REQUEST_BYTES_UNKNOWN_MAX: usize = 4 * 1_024;

/// The most arguments of a request. No command here has more than twenty. The limit is higher, so that a long command
/// that the agent does not have can be refused by its name.
pub const ARGUMENTS_MAX: usize = 1_024;

/// The longest line that announces a length, in bytes: room for a sign and the digits of 64 bits.
pub const LENGTH_LINE_MAX: usize = 32;

/// The most bytes read from a connection at a time.
pub const READ_BYTES: usize = 16 * 1_024;

/// The most bytes that are read ahead while a command waits. Later ones wait in the client's socket.
pub const AHEAD_BYTES_MAX: usize = REQUEST_BYTES_MAX;

/// The interval of checks whether a client has disconnected, while nothing more is read from it: it has sent
/// [`AHEAD_BYTES_MAX`] ahead.
pub const LOOK_FOR_HANG_UP: Duration = Duration::from_millis(100);

/// The most bytes of answers that are collected before they are written, when a client sends several requests at once.
pub const BATCH_BYTES: usize = 64 * 1_024;

/// The time after which a client that reads nothing is disconnected: its answers take memory.
pub const WRITE_TIME: Duration = Duration::from_secs(10);

/// The silence after which the system probes a client over TCP. A client's machine can vanish without ending the
/// connection. Then the client's waits, and its leases with KEEPALIVE, have to end.
pub const PROBE_AFTER: Duration = Duration::from_secs(5);

/// The interval between two probes of a silent client over TCP.
pub const PROBE_EVERY: Duration = Duration::from_secs(3);

/// The time after which a client over TCP that acknowledges neither probes nor answers counts as disconnected.
pub const GONE_AFTER: Duration = Duration::from_secs(14);

/// The longest time from the first byte of a request to its last. An incomplete request takes memory.
pub const REQUEST_TIME: Duration = Duration::from_secs(60);

/// The time within which a connection must give the password, if one is needed. Until then it takes a place that others
/// may need.
pub const PASSWORD_TIME: Duration = Duration::from_secs(10);

/// The most connections without a place whose input is still read. Any further ones are closed at once, and their
/// clients may see a reset instead of the reason.
pub const LINGERING_MAX: usize = 64;

/// The time for which the input of a connection without a place is still read, so that its client can read the reason.
pub const LINGER_TIME: Duration = Duration::from_secs(2);

/// The longest name that a client may give itself or its library, in bytes. People read these names.
pub const NAME_BYTES_MAX: usize = 256;

/// The longest password, in bytes. It is read from a file, and somebody may name a large wrong one.
pub const PASSWORD_BYTES_MAX: usize = 4 * 1_024;

/// The time for which INFO and metrics use one answer of the nodes, so that many readers do not mean many requests.
pub const NODES_FRESH: Duration = Duration::from_secs(1);

/// The time after which a request to the nodes for metrics or a status is given up.
pub const NODES_TIME: Duration = Duration::from_secs(2);

/// The interval at which the number of responding nodes is reported to systemd.
pub const STATUS_EVERY: Duration = Duration::from_secs(10);

/// The interval between two checks whether nodes are missing, for the log lines. A check sends nothing to the nodes.
pub const STANDING_EVERY: Duration = Duration::from_secs(1);

/// The most log lines about nodes in a row. So a node that comes and goes does not fill a disk.
pub const LINES_AT_ONCE: u32 = 20;

/// The interval in which one more log line about nodes is allowed.
pub const LINE_EVERY: Duration = Duration::from_secs(10);

/// The longest time for which the agent, when it ends, waits for changes that are under way: longer than nodes have to
/// answer.
pub const END_TIME: Duration = Duration::from_secs(5);

/// The pause after a connection could not be accepted, as when too many files are open.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The most requests over HTTP that each address serves at a time.
pub const HTTP_AT_A_TIME: usize = 16;

/// The most connections to an address for HTTP. If there are more, the oldest one without a whole request is closed.
pub const HTTP_OPEN_MAX: usize = 64;

/// The time that a connection for HTTP has to send its whole request before it has to give way to another one.
pub const HTTP_SILENT_TIME: Duration = Duration::from_millis(500);

/// The longest time from the beginning of a connection for HTTP to the end of its answer.
pub const HTTP_TIME: Duration = Duration::from_secs(10);

/// The longest body over HTTP, in bytes: a lock info of Terraform, which becomes the note of the lock.
pub const BODY_BYTES_MAX: usize = NOTE_BYTES_MAX;

/// The number of bytes that are read of a body which is too long. A client reads no answer before it has sent its
/// request.
pub const BODY_BYTES_SKIPPED: usize = 1 << 20;

/// The longest path that names a lock of Terraform, in bytes.
pub const PATH_BYTES_MAX: usize = 512;

/// The most locks that are kept for Terraform at a time. They are extended until they are unlocked, so nothing else
/// bounds them.
pub const TERRAFORM_LOCKS_MAX: usize = 1_000;

/// The longest lease of a lock of Terraform, if the nodes allow it. The agent may be down for this long before the lock
/// is lost.
pub const TERRAFORM_LEASE_MAX: Duration = Duration::from_secs(3_600);

/// The lease of a lock of Terraform while no node has reported the longest lease that it accepts: the default of
/// `lock.max-ttl`.
pub const TERRAFORM_LEASE_UNTOLD: Duration = Duration::from_millis(MAX_TTL_DEFAULT_MS as u64);

/// The longest interval between two extensions of a lock of Terraform. A loss is noticed within this time.
pub const TERRAFORM_EXTEND_EVERY: Duration = Duration::from_secs(20);

/// The pause before a failed extension of a lock of Terraform is repeated.
pub const TERRAFORM_EXTEND_AGAIN: Duration = Duration::from_secs(1);

/// The time for which a LOCK of Terraform tries again if it neither gets the lock nor finds a holder, because requests
/// of the same moment collided.
pub const TERRAFORM_COLLISION_TIME: Duration = Duration::from_secs(1);
