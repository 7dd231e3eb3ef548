//! The command line: the commands and their arguments.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use palisade_agent::Address;
use palisade_agent::limits::CONNECTIONS_DEFAULT;

use crate::exit;
use crate::reaching::Reaching;
use crate::roles::Role;

/// Locks for shells, cron and people on call: on a Redis or Valkey server with the Palisade module, or on a quorum of them
#[derive(Debug, Parser)]
#[command(
    name = "palisade",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  export PALISADE_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
  palisade exec --no-wait backup -- pg_dump -f /backup/app.sql app
  palisade ls 'orders:*'
  palisade doctor"
)]
pub struct Arguments {
    #[command(flatten)]
    pub shared: Shared,
    #[command(subcommand)]
    pub command: Command,
}

/// The arguments of every command.
#[derive(Args, Debug)]
pub struct Shared {
    #[command(flatten)]
    pub reaching: Reaching,
    /// Answers in JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command under a lock, and end it before the lock is lost
    #[command(after_help = exit::TABLE)]
    Exec(Exec),
    /// Take a lock, print its token, and hold it until Enter, the end of the input, or a signal
    #[command(after_help = exit::TABLE)]
    Lock(Lock),
    /// Take a lock as `lock` does, but only if it is free now
    #[command(after_help = exit::TABLE)]
    Try(Take),
    /// Take a lock for a named owner, print its token, and end: only `extend` extends it, and `release` gives it back
    #[command(after_help = exit::TABLE)]
    Acquire(Acquire),
    /// Release the lock that `acquire` took for this owner
    #[command(after_help = exit::TABLE)]
    Release(Owner),
    /// Extend the lock that `acquire` took for this owner, and print its token
    #[command(after_help = exit::TABLE)]
    Extend(Extend),
    /// Run a command while this host leads, end the command before the leadership is lost, and campaign again
    #[command(after_help = exit::TABLE)]
    Elect(Elect),
    /// Show the leader: its term and what it proclaims. Exit status 194: nobody leads
    Leader {
        /// The election
        name: OsString,
        /// Also print a line for each change; - means that nobody leads
        #[arg(long)]
        follow: bool,
    },
    /// Print a line now and each time a lock changes hands: the lock, the token, the note; - means free
    Watch {
        /// The locks
        #[arg(required = true)]
        keys: Vec<OsString>,
    },
    /// Show the holders of a lock, and its queue
    Info {
        /// The lock
        key: OsString,
    },
    /// Explain, node by node, why a lock is not granted, and what to do
    Why {
        /// The lock
        key: OsString,
    },
    /// Show who held locks, and who waited without getting one, from the nodes' logs: the newest first
    History {
        /// Shows only this lock, with its present holder
        key: Option<OsString>,
        /// Shows at most N entries
        #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(1..=10_000))]
        limit: u16,
    },
    /// Find holders that wait for each other. Exit status: 0, there are none; 1, there are some; 2, it cannot be known,
    /// because holders or waiters send no holder id, or too many nodes do not answer or are guarded; 196, fewer than a
    /// majority answer
    Deadlocks,
    /// List the locks that are held
    Ls {
        /// Lists only names that match this pattern, as KEYS does: orders:*
        #[arg(default_value = "*")]
        pattern: OsString,
        /// Lists at most N locks, the first by name
        #[arg(long, value_name = "N", default_value_t = 1_000)]
        limit: usize,
    },
    /// Take a lock away from its holder: the next in the queue gets it at once, and the holder goes on until it learns of that
    Break {
        /// The lock
        key: OsString,
        /// Ends only the grant with this token; other holders of the lock keep it
        #[arg(long, value_name = "T")]
        token: Option<u64>,
        /// Does not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Run a command of a Redis client behind a gate: the server refuses it once a newer holder has passed
    #[command(after_help = exit::TABLE)]
    Gate(Gate),
    /// Show the nodes and their state
    Nodes,
    /// Show the set of nodes of a quorum, as each node knows it; `members set` changes it
    #[command(after_help = exit::TABLE)]
    Members(Members),
    /// Show, lift or arm the guard of a node
    Guard(Guard),
    /// Show a live view of the nodes, their rates, and the most contended locks
    Top(Top),
    /// Check whether a set of nodes is fit for locks. Exit status: 0, all is well; 1, something should be changed; 2,
    /// locks are not safe, or cannot be taken
    Doctor {
        /// Also checks that the user may do what this role needs [default: application]
        #[arg(long, value_enum)]
        role: Option<Role>,
        /// Checks, by ACL DRYRUN, this user of the servers in place of the connected one
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Also checks that the user may use this key
        #[arg(long)]
        key: Option<OsString>,
        /// Also looks for locks of another library, by a pattern of their keys
        #[arg(long, value_name = "PATTERN")]
        legacy: Option<String>,
    },
    /// Print the ACL SETUSER line for a user of this role: for the servers at --nodes, or one that every version
    /// accepts
    Acl {
        /// The role of the user
        #[arg(value_enum)]
        role: Role,
        /// The name of the user [default: that of its role]
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// A pattern of keys that the user may use; can be repeated
        #[arg(long = "key", value_name = "PATTERN")]
        keys: Vec<String>,
        /// Adds the permissions that clients of a cluster need; implied if --nodes names a cluster
        #[arg(long)]
        cluster: bool,
    },
    /// Serve the LOCK commands on a local socket, so that every Redis client locks on a quorum
    Agent(Agent),
    /// Print completions for a shell
    Completions { shell: Shell },
    /// Print the man page
    Man {
        /// Writes it into this folder, with a page for each command, in place of printing it
        #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        into: Option<PathBuf>,
    },
}

/// The arguments of `palisade gate`.
#[derive(Args, Debug)]
pub struct Gate {
    /// The gate on the server at --nodes, which has the data; with --held the lock
    pub name: OsString,
    /// The token of the grant; `palisade exec` sets it for its command
    #[arg(long, env = "PALISADE_TOKEN", value_name = "T")]
    pub token: u64,
    /// The lock is held by a reader
    #[arg(long, conflicts_with = "permit")]
    pub shared: bool,
    /// The number of the permit; `palisade exec --limit` sets it for its command
    #[arg(long, env = "PALISADE_PERMIT", value_name = "N")]
    pub permit: Option<u16>,
    /// Checks the token with the lock NAME in place of a gate: this grant must be present on the server with the data
    #[arg(long)]
    pub held: bool,
    /// The command and its arguments; without one only the token passes
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// The arguments of a lock request.
#[derive(Args, Debug)]
pub struct TakeArgs {
    /// The lock
    pub key: OsString,
    /// Holds the lock together with others who use --shared
    #[arg(long, conflicts_with = "limit")]
    pub shared: bool,
    /// Takes one of K permits in place of the whole lock
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    pub limit: Option<u16>,
    /// Length of the lease: how long others wait when this machine dies
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub ttl: Duration,
    /// A text for people who find the lock held [default: host, process and program]
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Time that a node has to answer [default: adapts to its round trips, from 50ms or a tenth of the ttl]
    #[arg(long, env = "PALISADE_NODE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    pub node_timeout: Option<Duration>,
    /// Exit status when somebody else holds the lock, in place of 194 and 195; with 0 nothing is printed either
    #[arg(long, value_name = "N")]
    pub conflict_exit_code: Option<u8>,
}

/// The arguments of a lock that this process takes and keeps.
#[derive(Args, Debug)]
pub struct Take {
    #[command(flatten)]
    pub asked: TakeArgs,
    /// Extends the lease for at most this time
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = duration)]
    pub max_hold: Duration,
}

#[derive(Args, Debug)]
pub struct Acquire {
    #[command(flatten)]
    pub asked: TakeArgs,
    /// The owner: a name of your own, new for each acquisition, at most 239 bytes
    #[arg(long, value_name = "NAME")]
    pub owner: OsString,
    /// Takes the permit with this number, with --limit
    #[arg(long, value_name = "N", requires = "limit", value_parser = clap::value_parser!(u16).range(1..))]
    pub permit: Option<u16>,
    /// Waits for the lock at most this long [default: does not wait]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub wait: Option<Duration>,
    /// Succeeds if this owner holds the lock already, as after a lost answer, and extends the lease
    #[arg(long)]
    pub retry: bool,
}

/// A lock that a named owner holds.
#[derive(Args, Debug)]
pub struct Owner {
    /// The lock
    pub key: OsString,
    /// The owner that was given to `acquire`
    #[arg(long, value_name = "NAME")]
    pub owner: OsString,
    /// Time that a node has to answer
    #[arg(long, env = "PALISADE_NODE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    pub node_timeout: Option<Duration>,
}

#[derive(Args, Debug)]
pub struct Extend {
    #[command(flatten)]
    pub owner: Owner,
    /// The lease lasts at least this long from now; it is never shortened
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub ttl: Duration,
}

#[derive(Args, Debug)]
pub struct Lock {
    #[command(flatten)]
    pub take: Take,
    /// Waits for the lock at most this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub wait: Option<Duration>,
}

#[derive(Args, Debug)]
pub struct Exec {
    #[command(flatten)]
    pub take: Take,
    /// Waits for the lock at most this long
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "no_wait")]
    pub wait: Option<Duration>,
    /// Does not wait: runs nothing if somebody else holds the lock
    #[arg(long)]
    pub no_wait: bool,
    /// Time between SIGTERM and SIGKILL, when the lock is being lost [default: as much as fits into the ttl, at most 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub grace: Option<Duration>,
    /// Keeps the lock for at least this long, even if the command ends earlier
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub min_hold: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct Elect {
    /// The election's name, which is the key of its lock
    pub name: OsString,
    /// The value that observers see, such as an address [default: host, process and program]
    #[arg(long, value_name = "TEXT")]
    pub value: Option<OsString>,
    /// Length of the lease: how long nobody leads when this machine dies
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub ttl: Duration,
    /// Leads at most this long at a time [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_hold: Option<Duration>,
    /// Time that a node has to answer [default: adapts to its round trips, from 50ms or a tenth of the ttl]
    #[arg(long, env = "PALISADE_NODE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    pub node_timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL, when this process no longer leads [default: as much as fits into the ttl, at
    /// most 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub grace: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct Top {
    /// Prints once, as plain text or with --json; with --interval also the rates of the nodes
    #[arg(long)]
    pub once: bool,
    /// Time between two updates [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub interval: Option<Duration>,
    /// Shows only locks whose names match this pattern, as KEYS does: orders:*
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    pub filter: OsString,
    /// The order of the locks; the key s changes to the next one
    #[arg(long, value_name = "BY", default_value = "waiters")]
    pub sort: Sort,
}

/// The order of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// The longest queue first
    Waiters,
    /// The longest held first
    Held,
    /// The most holders first
    Holders,
    /// The earliest end of a lease first
    Lease,
    /// By name
    Key,
}

impl Sort {
    /// Returns the order after this one.
    pub fn next(self) -> Self {
        let all = Self::value_variants();
        let place = all.iter().position(|sort| *sort == self).unwrap_or(0);
        all[(place + 1) % all.len()]
    }

    /// Returns the word of the command line.
    pub fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(Args, Debug)]
pub struct Agent {
    /// The address to listen on: unix:///run/palisade/agent.sock, 127.0.0.1:6390; can be repeated, and adds to the sockets that systemd passes
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<Address>,
    /// The mode of sockets in the file system
    #[arg(long, value_name = "MODE", default_value = "0660", value_parser = mode)]
    pub socket_mode: u32,
    /// The file with the password that connections must give; or set PALISADE_AGENT_PASSWORD
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub password_file: Option<PathBuf>,
    /// The address where Prometheus finds metrics: 127.0.0.1:9637
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// The address of Terraform's state locks, its lock_address and unlock_address: 127.0.0.1:8088
    #[arg(long, value_name = "ADDRESS", requires = "http_locks")]
    pub http: Option<SocketAddr>,
    /// The file with the state locks that are held, which the next agent reads to continue them
    #[arg(long, value_name = "FILE", requires = "http", value_hint = ValueHint::FilePath)]
    pub http_locks: Option<PathBuf>,
    /// The file with the credentials that Terraform must give, as name:password (TF_HTTP_USERNAME, TF_HTTP_PASSWORD)
    #[arg(long, value_name = "FILE", requires = "http", value_hint = ValueHint::FilePath)]
    pub http_credentials: Option<PathBuf>,
    /// Time that a node has to answer [default: adapts to its round trips, from 50ms or a tenth of the ttl]
    #[arg(long, env = "PALISADE_NODE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    pub node_timeout: Option<Duration>,
    /// Determines what happens to the locks when the agent ends
    #[arg(long, value_name = "WHAT", default_value = "leave")]
    pub on_end: AtTheEnd,
    /// The largest number of connections at a time
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_DEFAULT)]
    pub max_connections: usize,
    /// Asks the agent that listens there whether locks are granted, prints a line, and exits with 0 or 1
    #[arg(long)]
    pub health: bool,
}

/// The fate of the locks when an agent ends.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum AtTheEnd {
    /// Keeps the locks until their leases end, so that another agent can continue them
    Leave,
    /// Releases the locks that no other agent has taken over, except those in the file of --http-locks
    Release,
}

#[derive(Args, Debug)]
pub struct Members {
    #[command(subcommand)]
    pub word: Option<MembersWord>,
}

#[derive(Debug, Subcommand)]
pub enum MembersWord {
    /// Make these nodes the set, step by step, while locks are held and taken; all clients follow by themselves
    Set(WantedSet),
}

/// The wanted set.
#[derive(Args, Debug)]
pub struct WantedSet {
    /// All nodes of the new set, with those that stay. Without a scheme (host:6379) a node is reached as the first of --nodes is
    #[arg(required = true, value_name = "ADDRESS")]
    pub addresses: Vec<String>,
    /// Prints the steps, and changes nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Does not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Args, Debug)]
pub struct Guard {
    /// The node: its number in the list, its host:port, or an address
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub node: String,
    #[command(subcommand)]
    pub word: Option<Word>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Word {
    /// Declare that nobody holds a lock there: the node serves at once
    Lift {
        /// Does not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Make the node grant nothing for this time
    Arm {
        /// A time with its unit: 90s
        #[arg(value_parser = duration)]
        time: Duration,
    },
}

/// Reads the mode of a file, as chmod writes it.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text} is no mode; say 0660, or 0600 for this user alone"))
}

/// Reads a time with its unit; all options write times in this way.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|why| {
        let why = match text.parse::<u64>() {
            Ok(_) => format!("{text} of what? Say {text}ms or {text}s"),
            Err(_) => why.to_string(),
        };
        format!("{why}; times have a unit, like 500ms, 10s, 5m, 1h 30m")
    })
}
