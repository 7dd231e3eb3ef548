//! Server replies that are maps.

use std::collections::HashMap;

use redis::{FromRedisValue, Value};

/// The fields of a server's reply that is a map.
#[derive(Debug, Default)]
pub struct Fields(HashMap<String, Value>);

impl Fields {
    /// Reads the fields of `reply`; `None` if it is not a map.
    pub fn of(reply: Value) -> Option<Self> {
        match reply {
            Value::Nil => None,
            reply => HashMap::from_redis_value(reply).ok().map(Self),
        }
    }

    /// Returns a numeric field, if present.
    pub fn number(&self, name: &str) -> Option<u64> {
        u64::from_redis_value(self.0.get(name)?.clone()).ok()
    }

    /// Returns a field of this type, or its default if it is absent.
    pub fn get<T: FromRedisValue + Default>(&self, name: &str) -> T {
        let value = self.0.get(name).cloned();
        value.and_then(|value| T::from_redis_value(value).ok()).unwrap_or_default()
    }
}
