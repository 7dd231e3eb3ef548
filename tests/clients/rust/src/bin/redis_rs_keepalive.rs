//! Work under a lock that lasts as long as this process: the server renews its lease by itself.

use std::time::Duration;

use redis::{Client, RedisResult, cmd};

fn main() -> RedisResult<()> {
    let port = std::env::var("PORT").unwrap_or("6379".to_owned());
    // A connection of its own, which never becomes another one.
    let mut holder = Client::open(format!("redis://127.0.0.1:{port}"))?.get_connection()?;
    let owner: [u8; 16] = rand::random(); // New for each acquisition.
    let acquire =
        cmd("LOCK.ACQUIRE").arg("orders:import").arg(&owner).arg(2000).arg("KEEPALIVE").arg(3_600_000).to_owned();
    let token: u64 = acquire.query::<Option<u64>>(&mut holder)?.expect("somebody else has the lock");
    println!("token: {token}");
    std::thread::sleep(Duration::from_secs(600)); // The work.
    cmd("LOCK.RELEASE").arg("orders:import").arg(&owner).arg("LEVEL").arg(1).exec(&mut holder)
}
