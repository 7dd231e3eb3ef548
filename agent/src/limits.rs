//! All limits of the agent, with their reasons. Limits that a user can reach are also in docs/agent.md.

use std::time::Duration;

/// The default for the most connections: the same as that of a server.
pub const CONNECTIONS_DEFAULT: usize = 10_000;

/// The number of open files other than connections of clients: listening sockets, connections to nodes, the runtime's
/// files, scrapes of metrics, and connections without a place that are still read.
pub const OTHER_FILES: usize = 256;

/// The longest request in bytes: far more than an owner, a note and the longest usual name of a lock. Up to this much
/// is also read ahead while a command waits.
pub const REQUEST_BYTES_MAX: usize = 256 * 1_024;

/// The longest request before the password, in bytes: enough for HELLO and AUTH, and little else.
pub const REQUEST_BYTES_UNKNOWN_MAX: usize = 4 * 1_024;

/// The most arguments of a request. No command here has more than twenty; the limit is higher so that a command of
/// another server is refused by name.
pub const ARGUMENTS_MAX: usize = 1_024;

/// The longest line that announces a length, in bytes: room for a sign and the digits of 64 bits.
pub const LENGTH_LINE_MAX: usize = 32;

/// The most bytes read from a connection at a time.
pub const READ_BYTES: usize = 16 * 1_024;

/// The most bytes read ahead while a command waits; later ones wait in the client's socket.
pub const AHEAD_BYTES_MAX: usize = REQUEST_BYTES_MAX;

/// The interval of the checks whether a client that has sent more than [`AHEAD_BYTES_MAX`] has disconnected.
pub const LOOK_FOR_HANG_UP: Duration = Duration::from_millis(100);

/// The most bytes of answers to pipelined requests that are written together.
pub const BATCH_BYTES: usize = 64 * 1_024;

/// The time after which a client that reads nothing is disconnected: its answers take memory.
pub const WRITE_TIME: Duration = Duration::from_secs(10);

/// The silence after which the system probes a client over TCP. The machine of a client can vanish without ending the
/// connection, and then the client's waits, and its leases with KEEPALIVE, have to end.
pub const PROBE_AFTER: Duration = Duration::from_secs(5);

/// The interval between such probes.
pub const PROBE_EVERY: Duration = Duration::from_secs(3);

/// The time after which a client over TCP that acknowledges neither probes nor answers counts as disconnected.
pub const GONE_AFTER: Duration = Duration::from_secs(14);

/// The longest time from the first byte of a request to its last, since an incomplete request takes memory.
pub const REQUEST_TIME: Duration = Duration::from_secs(60);

/// The time within which a connection must give the password: until then it takes a place that others may need.
pub const PASSWORD_TIME: Duration = Duration::from_secs(10);

/// The most connections without a place that are still read; any others are closed at once, and may see a reset.
pub const LINGERING_MAX: usize = 64;

/// The time for which a connection without a place is still read, so that its client can read the reason.
pub const LINGER_TIME: Duration = Duration::from_secs(2);

/// The longest name that a client gives itself or its library, in bytes, because people read it.
pub const NAME_BYTES_MAX: usize = 256;

/// The longest password in bytes. It is read from a file, and a wrong file may be large.
pub const PASSWORD_BYTES_MAX: usize = 4 * 1_024;

/// The time for which INFO and metrics reuse the nodes' state, so that the nodes are not asked for each reader.
pub const NODES_FRESH: Duration = Duration::from_secs(1);

/// The time after which a request to the nodes for metrics or a status is given up.
pub const NODES_TIME: Duration = Duration::from_secs(2);

/// The interval at which the number of responding nodes is reported to systemd.
pub const STATUS_EVERY: Duration = Duration::from_secs(10);

/// The interval between checks for missing nodes, for the log lines. A check sends nothing to the nodes.
pub const STANDING_EVERY: Duration = Duration::from_secs(1);

/// The most log lines about nodes at once, so that a node that comes and goes does not fill a disk.
pub const LINES_AT_ONCE: u32 = 20;

/// The time after which one more log line is allowed.
pub const LINE_EVERY: Duration = Duration::from_secs(10);

/// The time for which the agent waits for pending work when it ends: longer than nodes have to answer.
pub const END_TIME: Duration = Duration::from_secs(5);

/// The pause after a connection could not be accepted, for lack of files for example.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The most requests for metrics served at a time.
pub const SCRAPES_MAX: usize = 16;

/// The most connections at the metrics address; if there are more, the oldest one without a request is closed.
pub const SCRAPES_OPEN_MAX: usize = 64;

/// The longest duration of a scrape.
pub const SCRAPE_TIME: Duration = Duration::from_secs(10);
