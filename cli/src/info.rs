//! The INFO of a server.

use palisade_client::Why;
use palisade_client::direct::ServerLink;
use redis::{FromRedisValue, cmd};

use crate::node_failure::strange;

/// The text of a server's INFO, from which fields are read.
#[derive(Clone, Debug, Default)]
pub struct Info(String);

impl Info {
    /// Returns INFO with this text.
    pub fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Asks a server for all of its INFO.
    ///
    /// # Errors
    /// It cannot be asked, or does not allow it.
    pub async fn ask(link: &mut ServerLink) -> Result<Self, Why> {
        let told = link.ask(cmd("INFO").arg("everything")).await?;
        String::from_redis_value(told).map(Self).map_err(|why| strange("INFO", why))
    }

    /// Returns a field, or an empty text.
    pub fn word(&self, name: &str) -> &str {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default()
    }

    /// Returns a numeric field, or 0.
    pub fn number(&self, name: &str) -> u64 {
        self.word(name).parse().unwrap_or(0)
    }

    /// Returns the addresses of a master's attached replicas.
    pub fn replicas(&self) -> Vec<(&str, u16)> {
        let told = |n| match self.word(&format!("slave{n}")) {
            "" => None,
            told => Some(told),
        };
        (0..).map_while(told).filter_map(place_of).collect()
    }
}

/// Returns the address of the replica in a line of INFO: `ip=10.0.0.1,port=6379,state=online,…`.
fn place_of(told: &str) -> Option<(&str, u16)> {
    let field = |name: &str| told.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    Some((field("ip")?, field("port")?.parse().ok()?))
}
