//! Reads all resources again and again, to notice a late write as soon as it is there.

use std::sync::Arc;
use std::time::Duration;

use redis::{Value, pipe};
use tokio::time::{sleep, timeout};

use super::store::{connect, connect_to};
use crate::campaign::journal::now_us;
use crate::campaign::resource::{Entry, Place, Resource};
use crate::campaign::world::World;

/// The pause between two readings.
const EVERY: Duration = Duration::from_millis(500);

/// The longest time for one reading.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reads a resource. Returns false if no server has it now.
pub async fn read(world: &World, resource: &Resource) -> bool {
    let at = now_us();
    let Ok(Some(entries)) = timeout(PATIENCE, entries(resource)).await else { return false };
    if let Some(wrong) = world.data.landed.see(resource.number, at, &entries) {
        world.log.found(wrong.what);
    }
    true
}

/// Reads all resources, forever.
pub async fn watch(world: Arc<World>) {
    loop {
        for resource in &world.data.resources {
            read(&world, resource).await;
        }
        sleep(EVERY).await;
    }
}

/// Returns the entries of a resource; `None` if no server has it now.
async fn entries(resource: &Resource) -> Option<Vec<Entry>> {
    let texts = match &resource.place {
        Place::Servers(urls) => {
            let mut found = None;
            for url in urls {
                found = list(url, &resource.list()).await;
                if found.is_some() {
                    break;
                }
            }
            found?
        }
        Place::PostgreSql(address) => {
            let client = connect(address).await?;
            let rows = client.query("SELECT entry FROM landed ORDER BY place", &[]).await.ok()?;
            rows.iter().map(|row| row.get(0)).collect()
        }
    };
    Some(texts.iter().map(|text| serde_json::from_str(text).expect("a writer wrote it")).collect())
}

/// Returns the list `name` of the server at this URL; `None` unless the server is a master now.
async fn list(url: &str, name: &str) -> Option<Vec<String>> {
    let mut connection = connect_to(url).await.ok()?;
    // Role and list are read in one transaction. A server that became a replica in between might have an old list.
    let mut both = pipe();
    both.atomic().cmd("ROLE").cmd("LRANGE").arg(name).arg(0).arg(-1);
    let (role, list): (Vec<Value>, Vec<String>) = both.query_async(&mut connection).await.ok()?;
    let is_master = matches!(role.first(), Some(Value::BulkString(role)) if role == b"master");
    is_master.then_some(list)
}
