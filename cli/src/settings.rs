//! The settings of a server.

use std::collections::HashMap;

use palisade_client::direct::ServerLink;
use redis::{FromRedisValue, cmd};

/// Returns the server's settings whose names match one of `names`; `None` if the server does not tell its settings.
pub async fn ask(link: &mut ServerLink, names: &[&str]) -> Option<HashMap<String, String>> {
    let mut all = HashMap::new();
    // Each command names one setting: servers before 7.0 accept only one.
    for name in names {
        let reply = link.ask(cmd("CONFIG").arg("GET").arg(name)).await.ok()?;
        all.extend(HashMap::<String, String>::from_redis_value(reply).ok()?);
    }
    Some(all)
}
