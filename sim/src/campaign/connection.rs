//! A connection to a node or an agent, for commands that a task of the campaign composes itself.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, RedisError, RedisResult, Value, cmd};
use tokio::time::timeout;

/// The longest time for a reachable node to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The answer to a command, as far as the campaign needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Number(u64),
    /// A list of numbers.
    List(Vec<u64>),
    Null,
}

pub struct Connection(MultiplexedConnection);

impl Connection {
    /// Connects to the node or agent at this URL.
    pub async fn open(url: &str) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(None);
        Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await.map(Self)
    }

    /// Sends a command, and waits up to `limit` for the answer. A refusal is an error, too.
    pub async fn ask(&mut self, words: &[&str], limit: Duration) -> RedisResult<Reply> {
        let mut command = cmd(words[0]);
        let asked = timeout(limit, command.arg(&words[1..]).query_async(&mut self.0)).await;
        match asked.map_err(|_| RedisError::from((ErrorKind::Io, "no answer in time")))?? {
            Value::Nil => Ok(Reply::Null),
            list @ Value::Array(_) => Ok(Reply::List(Vec::from_redis_value(list)?)),
            number => Ok(Reply::Number(u64::from_redis_value(number)?)),
        }
    }
}
