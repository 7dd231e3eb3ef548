//! A lock with fred: take it, be refused, wait, write under it, give it back, share it.

use std::time::Duration;

use fred::prelude::*;
use fred::types::{ClusterHash, CustomCommand};

const KEY: &str = "orders:42";
const DATA: &str = "{orders:42}:state"; // One hash slot, for the script on a cluster.

/// Writes only if the token is that of the lock's current grant.
const GUARDED_SET: &str = "
if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', KEYS[2], ARGV[2]) end
return redis.error_reply('FENCED by a newer grant')";

/// Returns a new owner for each acquisition.
fn new_owner() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Runs a command of the module. The first of `words` is the key. With `Option` as the result, Null becomes `None`.
async fn run<T: FromValue>(client: &Client, name: &'static str, words: &[&str]) -> Result<T, Error> {
    client.custom(CustomCommand::new_static(name, ClusterHash::FirstKey, false), words.to_vec()).await
}

/// LEVEL 1 releases all holds, and can be repeated. It also ends a wait that was given up.
async fn release(client: &Client, key: &str, owner: &str) -> Result<Option<u64>, Error> {
    run(client, "LOCK.RELEASE", &[key, owner, "LEVEL", "1"]).await
}

/// Calls `work` with the fencing token of the lock; `None` if the lock was not free in time. Rust has no asynchronous
/// Drop, so everything that needs the lock must be inside `work`.
async fn with_lock<T>(
    client: &Client,
    waiting: &Client,
    key: &str,
    work: impl AsyncFnOnce(u64) -> T,
) -> Result<Option<T>, Error> {
    let owner = new_owner();
    // RETRY: the client may send this twice, when a connection breaks and it has a ReconnectPolicy.
    let words = [key, &owner, "10000", "WAIT", "30000", "RETRY"];
    let done = match run::<Option<(u64, u64)>>(waiting, "LOCK.ACQUIRE", &words).await {
        Ok(Some((token, _waited_ms))) => Ok(Some(work(token).await)),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    release(client, key, &owner).await?;
    done
}

/// Returns the words of a refusal, of which the first is stable.
fn refusal<T>(answer: Result<T, Error>) -> Vec<String> {
    let error = answer.err().expect("a refusal");
    error.details().split(' ').map(str::to_owned).collect()
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let port = std::env::var("PORT").unwrap_or("6379".to_owned());
    let config = Config::from_url(&format!("redis://127.0.0.1:{port}"))?;
    let client = Builder::from_config(config).build()?;
    // A command that waits holds up all others on its connection: waits get a connection of their own.
    let waiting = client.clone_new();
    client.init().await?;
    waiting.init().await?;
    let (me, you) = (new_owner(), new_owner());
    let (mine, yours) = ([KEY, &me, "10000"], [KEY, &you, "10000"]);

    let token: Option<u64> = run(&client, "LOCK.ACQUIRE", &mine).await?;
    println!("acquire: {token:?}");
    println!("another owner: {:?}", run::<Option<u64>>(&client, "LOCK.ACQUIRE", &yours).await?);
    println!("again: {}", refusal(run::<Value>(&client, "LOCK.ACQUIRE", &mine).await)[0]);
    let retried: Option<u64> = run(&client, "LOCK.ACQUIRE", &[KEY, &me, "10000", "RETRY"]).await?;
    println!("again with RETRY: {retried:?}");
    println!("reenter: {:?}", run::<Option<u64>>(&client, "LOCK.REENTER", &[KEY, &me]).await?);
    println!("extend: {:?}", run::<Option<u64>>(&client, "LOCK.EXTEND", &[KEY, &me, "20000"]).await?);

    // The server passes the lock on when it is released: no polling.
    let waits = tokio::spawn({
        let (waiting, you) = (waiting.clone(), you.clone());
        async move { run(&waiting, "LOCK.ACQUIRE", &[KEY, &you, "10000", "WAIT", "30000"]).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    println!("release: {:?}", release(&client, KEY, &me).await?);
    let grant: Option<(u64, u64)> = waits.await.expect("it does not panic")?;
    println!("wait: {grant:?}");

    let write = async |token: Option<u64>, value: &str| {
        let words = vec![token.unwrap_or(1).to_string(), value.to_owned()];
        client.eval::<String, _, _, _>(GUARDED_SET, vec![KEY, DATA], words).await
    };
    println!("write with the current token: {}", write(grant.map(|(token, _)| token), "paid").await?);
    println!("write with the old token: {}", refusal(write(token, "open").await)[0]);
    release(&client, KEY, &you).await?;

    // Readers hold it together and keep writers out. LIMIT bounds the permits held at a time; each has a number.
    let read: Option<u64> = run(&client, "LOCK.ACQUIRE", &[KEY, &me, "10000", "SHARED"]).await?;
    println!("read: {read:?}");
    let read: Option<u64> = run(&client, "LOCK.ACQUIRE", &[KEY, &you, "10000", "SHARED"]).await?;
    println!("read as well: {read:?}");
    let write: Option<u64> = run(&client, "LOCK.ACQUIRE", &[KEY, &new_owner(), "10000"]).await?;
    println!("write meanwhile: {write:?}");
    for reader in [&me, &you] {
        release(&client, KEY, reader).await?;
    }
    let limited = [KEY, &me, "10000", "LIMIT", "2"];
    println!("permit: {:?}", run::<Option<(u64, u64, u16)>>(&client, "LOCK.ACQUIRE", &limited).await?);
    release(&client, KEY, &me).await?;

    // A node that may have forgotten grants refuses, and says for how long. An operator's command shows it here.
    let _: u64 = client.custom(CustomCommand::new_static("LOCK.GUARD", None, false), vec!["ARM", "1500"]).await?;
    let refused = refusal(run::<Value>(&client, "LOCK.ACQUIRE", &mine).await);
    println!("guarded: {}, try again in {} ms", refused[0], refused[1]);
    tokio::time::sleep(Duration::from_millis(refused[1].parse().expect("milliseconds"))).await;

    let last = with_lock(&client, &waiting, KEY, async |token| {
        println!("lock: {token}");
        token
    });
    let last = last.await?.expect("free in time").to_string();
    println!("after it: {:?}", run::<Option<u64>>(&client, "LOCK.CHECK", &[KEY, &last]).await?);

    waiting.quit().await?;
    client.quit().await
}
