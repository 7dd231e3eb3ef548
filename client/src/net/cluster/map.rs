//! The masters of all slots, as servers of a cluster report them.

use redis::Value;

use crate::values::failure::Why;

/// Number of slots in a cluster.
pub const SLOTS: u16 = 16_384;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub host: String,
    pub port: u16,
}

/// A range of slots, first to last, and the servers of their shard, master first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    pub first: u16,
    pub last: u16,
    pub servers: Vec<Place>,
}

/// The cluster's shards, as one server sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// True if the server reports the cluster's state as `ok`; and the epoch of the cluster's configuration. Of two
    /// views, the one with the larger pair is used.
    pub standing: (bool, u64),
    pub shards: Vec<Shard>,
}

impl View {
    /// Parses the replies to CLUSTER INFO and CLUSTER SLOTS of the server at `host`; `None` if they are invalid.
    pub fn read(info: &Value, slots: &Value, host: &str) -> Option<Self> {
        let info = match info {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::VerbatimString { text, .. } => text.clone(),
            _ => return None,
        };
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim).map(str::to_owned))
        };
        let is_ok = field("cluster_state")? == "ok";
        let epoch = field("cluster_current_epoch")?.parse().ok()?;
        let Value::Array(ranges) = slots else { return None };
        let shards = ranges.iter().map(|range| Shard::read(range, host)).collect::<Option<_>>()?;
        Some(Self { standing: (is_ok, epoch), shards })
    }
}

impl Shard {
    fn read(range: &Value, host: &str) -> Option<Self> {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), servers @ ..] = &parts[..] else { return None };
        let slot = |slot: i64| u16::try_from(slot).ok().filter(|slot| *slot < SLOTS);
        let servers = servers.iter().filter_map(|server| Place::read(server, host)).collect();
        Some(Self { first: slot(*first)?, last: slot(*last)?, servers })
    }
}

impl Place {
    /// Parses one server of a list. If its host is missing, it is the host that `answered`. `None` if its host is
    /// unknown to the server that answered.
    fn read(server: &Value, answered: &str) -> Option<Self> {
        let Value::Array(parts) = server else { return None };
        let [host, Value::Int(port), ..] = &parts[..] else { return None };
        let host = match host {
            Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
            Value::Nil => String::new(),
            _ => return None,
        };
        Self::of(&host, u16::try_from(*port).ok()?, answered)
    }

    fn of(host: &str, port: u16, answered: &str) -> Option<Self> {
        match host {
            "?" => None,
            "" => Some(Self { host: answered.to_owned(), port }),
            host => Some(Self { host: host.to_owned(), port }),
        }
    }
}

/// Maximum number of redirections per request: two for a slot that migrates meanwhile, the others for outdated maps.
pub const REDIRECTIONS_MAX: u32 = 5;

/// A master's answer that another master serves the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirection {
    /// Another master serves the slot from now on.
    Moved(Place),
    /// The slot is migrating to another master, which this request asks once.
    Ask(Place),
    /// The slot is migrating, and the request has to be repeated a little later.
    TryAgain,
}

impl Redirection {
    /// Returns the redirection in the error that the server at `host` answered.
    pub fn of(failure: &Why, host: &str) -> Option<Self> {
        let Why::Refused { code, text } = failure else { return None };
        if code == "TRYAGAIN" {
            return Some(Self::TryAgain);
        }
        let place = || {
            let (at, port) = text.split(' ').nth(1)?.rsplit_once(':')?;
            Place::of(at, port.parse().ok()?, host)
        };
        match &**code {
            "MOVED" => place().map(Self::Moved),
            "ASK" => place().map(Self::Ask),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn server(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), text("id")])
    }

    fn place(host: &str, port: u16) -> Place {
        Place { host: host.to_owned(), port }
    }

    #[test]
    fn a_map_is_read() {
        let info = text("cluster_state:ok\r\ncluster_current_epoch:6\r\ncluster_my_epoch:2\r\n");
        let range = |first, last, servers: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], servers].concat())
        };
        let slots = Value::Array(vec![
            range(0, 5460, vec![server(text("a"), 1), server(text("b"), 2)]),
            range(5461, 16383, vec![server(Value::Nil, 3), server(text("?"), 4)]),
        ]);
        let view = View::read(&info, &slots, "h").unwrap();
        assert_eq!(view.standing, (true, 6));
        let shard = |first, last, servers| Shard { first, last, servers };
        assert_eq!(
            view.shards,
            [shard(0, 5460, vec![place("a", 1), place("b", 2)]), shard(5461, 16383, vec![place("h", 3)])]
        );
        let wrong = Value::Array(vec![range(0, 16_384, vec![])]);
        assert!(View::read(&info, &wrong, "h").is_none() && View::read(&Value::Nil, &slots, "h").is_none());
    }

    #[test]
    fn redirections_are_read() {
        let of = |code: &str, text: &str| {
            Redirection::of(&Why::Refused { code: code.to_owned(), text: text.to_owned() }, "h")
        };
        assert_eq!(of("MOVED", "7629 127.0.0.1:7001"), Some(Redirection::Moved(place("127.0.0.1", 7001))));
        assert_eq!(of("MOVED", "7629 :7001"), Some(Redirection::Moved(place("h", 7001))));
        assert_eq!(of("ASK", "7629 ::1:7001"), Some(Redirection::Ask(place("::1", 7001))));
        assert_eq!(of("TRYAGAIN", "wait"), Some(Redirection::TryAgain));
        for (code, text) in [("MOVED", "7629"), ("MOVED", "7629 ?:1"), ("ERR", "7629 h:1"), ("CLUSTERDOWN", "x")] {
            assert_eq!(of(code, text), None);
        }
    }
}
