//! Every limit of the agent, with its reason. What a user can run into is also in docs/agent.md.

use std::time::Duration;

/// Most connections, unless set otherwise: as a server has it.
pub const CONNECTIONS_DEFAULT: usize = 10_000;

/// Files that are not connections of clients: sockets that listen, connections to nodes, what the runtime needs, the scrapes of metrics,
/// connections that have no place and are still read from.
pub const OTHER_FILES: usize = 256;

/// Longest request in bytes: far more than an owner, a note and the name of any lock. The largest part of it is read while a command waits.
pub const REQUEST_BYTES_MAX: usize = 256 * 1_024;

/// The same as long as a connection has no password: HELLO and AUTH fit, and little else.
pub const REQUEST_BYTES_UNKNOWN_MAX: usize = 4 * 1_024;

/// Most arguments of a request. No command here has more than twenty; those that are another server's are told so, not cut off.
pub const ARGUMENTS_MAX: usize = 1_024;

/// Longest line that announces a length: a sign and the digits of 64 bits fit.
pub const LENGTH_LINE_MAX: usize = 32;

/// What is read from a connection at a time, in bytes.
pub const READ_BYTES: usize = 16 * 1_024;

/// Most bytes that are read ahead while a command waits: what comes then waits in the client's socket.
pub const AHEAD_BYTES_MAX: usize = REQUEST_BYTES_MAX;

/// So often it is looked whether a client has hung up which has sent more than that.
pub const LOOK_FOR_HANG_UP: Duration = Duration::from_millis(100);

/// Answers of pipelined requests are written together, up to so many bytes.
pub const BATCH_BYTES: usize = 64 * 1_024;

/// A client that reads nothing for so long is closed: its answers take memory.
pub const WRITE_TIME: Duration = Duration::from_secs(10);

/// Time from the first byte of a request to its last: half of one takes memory.
pub const REQUEST_TIME: Duration = Duration::from_secs(60);

/// A connection that needs a password has given it after so long: until then anybody can hold its place.
pub const PASSWORD_TIME: Duration = Duration::from_secs(10);

/// Most connections without a place that are still read from: what comes beyond is closed at once, and may meet a reset.
pub const LINGERING_MAX: usize = 64;

/// A connection without a place is read from for so long, so that its client reads why.
pub const LINGER_TIME: Duration = Duration::from_secs(2);

/// Longest name that a client gives itself or its library, in bytes: it is shown to people.
pub const NAME_BYTES_MAX: usize = 256;

/// Longest password in bytes: it comes from a file, and a wrong file is large.
pub const PASSWORD_BYTES_MAX: usize = 4 * 1_024;

/// What the nodes were found to be is told again for so long, by INFO and metrics: they ask for themselves, not for each who looks.
pub const NODES_FRESH: Duration = Duration::from_secs(1);

/// What asks the nodes for metrics or a status is given up after so long.
pub const NODES_TIME: Duration = Duration::from_secs(2);

/// So often systemd is told how many nodes answer.
pub const STATUS_EVERY: Duration = Duration::from_secs(10);

/// Pause between two looks at which nodes are away, for the lines that tell so; nobody is asked for that.
pub const STANDING_EVERY: Duration = Duration::from_secs(1);

/// Most lines about nodes that are told at once: a node that comes and goes fills no disk.
pub const LINES_AT_ONCE: u32 = 20;

/// One line more may be told after each of these times.
pub const LINE_EVERY: Duration = Duration::from_secs(10);

/// At its end the agent waits so long for what is under way: longer than nodes are given to answer.
pub const END_TIME: Duration = Duration::from_secs(5);

/// After a connection could not be accepted, for want of files for example, it is tried again after so long.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Most requests for metrics that are answered at a time.
pub const SCRAPES_MAX: usize = 16;

/// Most connections at the address of metrics: beyond, the oldest that has asked for nothing gives way.
pub const SCRAPES_OPEN_MAX: usize = 64;

/// A scrape is over after so long.
pub const SCRAPE_TIME: Duration = Duration::from_secs(10);
