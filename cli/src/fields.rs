//! Replies of servers that are maps.

use std::collections::HashMap;

use redis::{FromRedisValue, Value};

/// The fields of a reply that is a map.
#[derive(Debug, Default)]
pub struct Fields(HashMap<String, Value>);

impl Fields {
    /// Reads the fields of `reply`; `None`: it is no map.
    pub fn of(reply: Value) -> Option<Self> {
        match reply {
            Value::Nil => None,
            reply => HashMap::from_redis_value(reply).ok().map(Self),
        }
    }

    /// A field that is a number, if it is there.
    pub fn number(&self, name: &str) -> Option<u64> {
        u64::from_redis_value(self.0.get(name)?.clone()).ok()
    }

    /// A field of this type, or what stands for one that is not there.
    pub fn get<T: FromRedisValue + Default>(&self, name: &str) -> T {
        let value = self.0.get(name).cloned();
        value.and_then(|value| T::from_redis_value(value).ok()).unwrap_or_default()
    }
}
