//! Work under a lock that lasts as long as this process: the server renews its lease by itself.

use std::time::Duration;

use fred::prelude::*;
use fred::types::{ClusterHash, CustomCommand};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let port = std::env::var("PORT").unwrap_or("6379".to_owned());
    // A connection of its own. Without a ReconnectPolicy it never becomes another one.
    let holder = Builder::from_config(Config::from_url(&format!("redis://127.0.0.1:{port}"))?).build()?;
    holder.init().await?;
    let owner = format!("{:032x}", rand::random::<u128>()); // New for each acquisition.
    let command = |name| CustomCommand::new_static(name, ClusterHash::FirstKey, false);
    let words = vec!["orders:import", &owner, "2000", "KEEPALIVE", "3600000"];
    let token: Option<u64> = holder.custom(command("LOCK.ACQUIRE"), words).await?;
    println!("token: {}", token.expect("somebody else has the lock"));
    tokio::time::sleep(Duration::from_secs(600)).await; // The work. It may keep every thread busy all the time.
    holder.custom(command("LOCK.RELEASE"), vec!["orders:import", &owner, "LEVEL", "1"]).await
}
