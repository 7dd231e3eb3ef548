//! A lock with redis-rs: take it, be refused, wait, write under it, give it back, share it.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, RedisResult, Script, cmd};

const KEY: &str = "orders:42";
const DATA: &str = "{orders:42}:state"; // One hash slot, for the script on a cluster.

/// Writes only if the token is that of the lock's current grant.
const GUARDED_SET: &str = "
if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', KEYS[2], ARGV[2]) end
return redis.error_reply('FENCED by a newer grant')";

type Owner = [u8; 16];

/// Returns a new owner for each acquisition.
fn new_owner() -> Owner {
    rand::random()
}

fn acquire(owner: &Owner) -> Cmd {
    cmd("LOCK.ACQUIRE").arg(KEY).arg(owner).arg(10_000).to_owned()
}

/// LEVEL 1 releases all holds, and can be repeated. It also ends a wait that was given up.
fn release(owner: &Owner) -> Cmd {
    cmd("LOCK.RELEASE").arg(KEY).arg(owner).arg("LEVEL").arg(1).to_owned()
}

/// Opens a connection for commands that wait, because they delay all others on the same connection. It waits for an
/// answer without a limit; other connections give up after 500 ms.
async fn connection_that_waits(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Calls `work` with the fencing token of the lock; `None` if the lock was not free in time. Rust has no asynchronous
/// Drop, so everything that needs the lock must be inside `work`.
async fn with_lock<T>(client: &Client, wait: Duration, work: impl AsyncFnOnce(u64) -> T) -> RedisResult<Option<T>> {
    let owner = new_owner();
    let mut waiting = connection_that_waits(client).await?;
    let wait_ms = wait.as_millis() as u64;
    let grant =
        acquire(&owner).arg("WAIT").arg(wait_ms).arg("RETRY").query_async::<Option<(u64, u64)>>(&mut waiting).await;
    let done = match grant {
        Ok(Some((token, _waited_ms))) => Ok(Some(work(token).await)),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    release(&owner).exec_async(&mut client.get_multiplexed_async_connection().await?).await?;
    done
}

/// Returns the first word of a refusal, which is stable, and the rest.
fn refusal<T>(answer: RedisResult<T>) -> (String, String) {
    let error: RedisError = answer.err().expect("a refusal");
    (error.code().unwrap_or_default().to_owned(), error.detail().unwrap_or_default().to_owned())
}

#[tokio::main]
async fn main() -> RedisResult<()> {
    let port = std::env::var("PORT").unwrap_or("6379".to_owned());
    let client = Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut redis = client.get_multiplexed_async_connection().await?;
    let (me, you) = (new_owner(), new_owner());

    let token: Option<u64> = acquire(&me).query_async(&mut redis).await?;
    println!("acquire: {token:?}");
    let other: Option<u64> = acquire(&you).query_async(&mut redis).await?;
    println!("another owner: {other:?}");
    println!("again: {}", refusal(acquire(&me).exec_async(&mut redis).await).0);
    let retried: Option<u64> = acquire(&me).arg("RETRY").query_async(&mut redis).await?;
    println!("again with RETRY: {retried:?}");
    let holds: Option<u64> = cmd("LOCK.REENTER").arg(KEY).arg(&me).query_async(&mut redis).await?;
    println!("reenter: {holds:?}");
    let extended: Option<u64> = cmd("LOCK.EXTEND").arg(KEY).arg(&me).arg(20_000).query_async(&mut redis).await?;
    println!("extend: {extended:?}");

    // The server passes the lock on when it is released: no polling.
    let mut waiting = connection_that_waits(&client).await?;
    let mut acquire_waiting = acquire(&you);
    acquire_waiting.arg("WAIT").arg(30_000);
    let waits = tokio::spawn(async move { acquire_waiting.query_async(&mut waiting).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let left: Option<u64> = release(&me).query_async(&mut redis).await?;
    println!("release: {left:?}");
    let grant: Option<(u64, u64)> = waits.await.expect("it does not panic")?;
    println!("wait: {grant:?}");

    let guarded_set = Script::new(GUARDED_SET);
    let mut with_current = guarded_set.key(KEY);
    with_current.key(DATA).arg(grant.map(|(token, _)| token)).arg("paid");
    let written: String = with_current.invoke_async(&mut redis).await?;
    println!("write with the current token: {written}");
    let mut with_old = guarded_set.key(KEY);
    with_old.key(DATA).arg(token).arg("open");
    println!("write with the old token: {}", refusal(with_old.invoke_async::<String>(&mut redis).await).0);
    release(&you).exec_async(&mut redis).await?;

    // Readers hold it together and keep writers out. LIMIT bounds the permits held at a time; each has a number.
    let read: Option<u64> = acquire(&me).arg("SHARED").query_async(&mut redis).await?;
    println!("read: {read:?}");
    let read: Option<u64> = acquire(&you).arg("SHARED").query_async(&mut redis).await?;
    println!("read as well: {read:?}");
    let write: Option<u64> = acquire(&new_owner()).query_async(&mut redis).await?;
    println!("write meanwhile: {write:?}");
    for reader in [&me, &you] {
        release(reader).exec_async(&mut redis).await?;
    }
    let permit: Option<(u64, u64, u16)> = acquire(&me).arg("LIMIT").arg(2).query_async(&mut redis).await?;
    println!("permit: {permit:?}");
    release(&me).exec_async(&mut redis).await?;

    // A node that may have forgotten grants refuses, and says for how long. An operator's command shows it here.
    cmd("LOCK.GUARD").arg("ARM").arg(1500).exec_async(&mut redis).await?;
    let (code, text) = refusal(acquire(&me).exec_async(&mut redis).await);
    let left_ms = text.split(' ').next().and_then(|word| word.parse().ok()).expect("milliseconds");
    println!("guarded: {code}, try again in {left_ms} ms");
    tokio::time::sleep(Duration::from_millis(left_ms)).await;

    let last = with_lock(&client, Duration::from_secs(30), async |token| {
        println!("lock: {token}");
        token
    });
    let left: Option<u64> = cmd("LOCK.CHECK").arg(KEY).arg(last.await?).query_async(&mut redis).await?;
    println!("after it: {left:?}");
    Ok(())
}
