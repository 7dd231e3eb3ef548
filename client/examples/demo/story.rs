//! The steps of the story. Each asks the servers or clients, checks the result, and reports it.

// The story shows the elapsed time to its reader.
#![allow(clippy::disallowed_methods)]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use palisade_client::{Client, Options, Released};
use redis::Value;
use tokio::time::sleep;

use crate::Failure;
use crate::holder::Holder;
use crate::nodes::{Node, Nodes};
use crate::register::Register;
use crate::show::{Teller, Who};

const KEY: &str = "orders:42";

/// Length of the lease: others wait this long after a holder is gone.
const TTL: Duration = Duration::from_secs(3);

/// A pause for the reader.
const BREATH: Duration = Duration::from_millis(1_500);

pub async fn tell(server: &str, module: &str) -> Result<(), Failure> {
    let teller = Teller::begin();
    teller.title("One lock on five nodes, of which three decide. The lease is 3 s.");
    println!();

    let mut nodes = Nodes::start(5, server, module).await?;
    for node in &nodes.list {
        node.say::<i64>("LOCK.GUARD LIFT").await?;
    }
    let ports: Vec<String> = nodes.list.iter().map(|node| node.port().to_string()).collect();
    teller.tell(Who::Nodes, &format!("five independent servers, on the ports {}", ports.join(", ")));
    teller.more("They are new, nobody can hold anything there: LOCK.GUARD LIFT on each.");
    sleep(BREATH).await;

    // The first client acquires the lock.
    let (mut first, look) = Holder::start(KEY, TTL, &nodes.addresses()).await?;
    let taken = Instant::now();
    teller.tell(Who::First, &format!("takes the lock {KEY}: token {}, valid for {} ms", look.token, look.valid_ms));
    let mut register = Register::default();
    accepted(&mut register, look.token)?;
    teller.tell(Who::Register, &format!("takes its write with token {}", look.token));
    sleep(BREATH).await;

    // The second waits in the queue.
    let patient = Options::new().ttl(TTL).node_timeout(Duration::from_millis(500)).note("the second client");
    let locks = Client::builder().nodes(nodes.addresses()).defaults(patient).build()?;
    let waits = Instant::now();
    let second = tokio::spawn(async move { locks.lock(KEY).await });
    for node in &nodes.list {
        until("the second client waits on every node", async || waiters(node).await == Some(1)).await?;
    }
    teller.tell(Who::Second, "wants it too, and waits in the queue: LOCK.INFO says 1 waiter on every node");
    sleep(BREATH).await;

    // Two of five nodes are killed. After more than a lease, the first client still has the lock.
    nodes.list[3].kill();
    nodes.list[4].kill();
    let dead = format!("{} and {}", nodes.list[3].port(), nodes.list[4].port());
    teller.tell(Who::Nodes, &format!("kill -9 of two of five: {dead}"));
    sleep(TTL + BREATH).await;
    let look = first.look().await?;
    ensure(look.valid_ms > 0, "the first client still has the lock")?;
    if second.is_finished() {
        let why = second.await?.err().ok_or("the second client got a lock that the first holds")?;
        return Err(format!("the second client does not wait any more: {why}").into());
    }
    let held = taken.elapsed().as_secs_f64();
    teller.tell(Who::First, &format!("goes on, for {held:.1} s now: the lease was extended on the other three"));
    teller.more(&format!("Token {}, valid for {} ms.", look.token, look.valid_ms));
    accepted(&mut register, look.token)?;

    // One of the killed nodes comes back without its memory.
    let back = &mut nodes.list[3];
    back.start().await?;
    let restarted = Instant::now();
    let back = &nodes.list[3];
    let refused = back.say::<Value>("LOCK.ACQUIRE other:1 somebody 1000").await;
    let refused = refused.err().ok_or("the node that restarted granted a lock")?;
    ensure(refused.code() == Some("GUARDED"), "the node that restarted is guarded")?;
    let ms = refused.detail().and_then(|text| text.split(' ').next()).unwrap_or_default().to_owned();
    teller.tell(Who::Nodes, &format!("{} is started again, and has forgotten what it granted", back.port()));
    teller.more(&format!("Asked for another lock it says {}:", teller.refusal(&format!("GUARDED {ms}"))));
    teller.more(&format!("it grants nothing for {ms} ms, until all it may have granted has ended."));

    // The node gets the lock again, which is still held by the majority.
    until("the node that restarted has the lock again", async || info(back).await.is_some()).await?;
    let healed = restarted.elapsed().as_secs_f64();
    let there = info(back).await.ok_or("the node that restarted has lost the lock again")?;
    let before = look.token;
    let look = first.look().await?;
    ensure(look.valid_ms > 0, "the first client had the lock all the time")?;
    ensure(look.token >= before, "a token never falls")?;
    ensure(text(&there, "note") == "the first client", "the lock there is that of the first client")?;
    teller
        .tell(Who::Nodes, &format!("{} is healed after {healed:.1} s: the first client renewed it there", back.port()));
    teller.more(&format!(
        "LOCK.INFO {KEY}: token {}, ttl {}, note {:?}",
        number(&there, "token"),
        number(&there, "ttl"),
        text(&there, "note")
    ));
    if look.token > before {
        teller.more(&format!("It was granted anew there, so the first client's token rose to {}.", look.token));
    }
    sleep(BREATH).await;

    // The first client is paused right after its check, for longer than its lease.
    let checked = first.check().await?;
    ensure(checked.valid_ms > 0, "the first client still has the lock")?;
    first.pause()?;
    let paused = Instant::now();
    teller.tell(Who::First, &format!("sees that its lock is valid for {} ms, and is about to write", checked.valid_ms));
    teller.more(&format!("Right then its process is paused: kill -STOP {}", first.pid()?));

    // The second client gets the lock when the lease has ended.
    let second = second.await??;
    ensure(second.token() > checked.token, "the token of the second client is larger")?;
    let (waited, after) = (waits.elapsed().as_secs_f64(), paused.elapsed().as_secs_f64());
    teller.tell(Who::Second, &format!("has the lock {after:.1} s after that, having waited for {waited:.1} s in all"));
    teller.more(&format!("Token {}, larger by {}.", second.token(), second.token() - checked.token));
    accepted(&mut register, second.token())?;
    teller.tell(Who::Register, &format!("takes its write with token {}", second.token()));
    sleep(BREATH).await;

    // The first client resumes where it was, and its write comes too late.
    first.go_on()?;
    teller.tell(Who::First, &format!("goes on where it was: kill -CONT {}", first.pid()?));
    let token = first.write().await?;
    ensure(token == checked.token, "the first client writes with the token of its check")?;
    let largest = register.write(token).err().ok_or("the register took an old token")?;
    let refused = teller.refusal("REFUSES");
    teller.tell(Who::Register, &format!("{refused} its write with token {token}: {largest} has been here"));
    until("the first client knows", async || first.look().await.is_ok_and(|look| look.valid_ms == 0)).await?;
    teller.tell(Who::First, "knows by now that its lock is lost; only the register could stop that write");
    sleep(BREATH).await;

    // The second client is done and releases the lock.
    ensure(second.is_valid(), "the second client has the lock")?;
    ensure(second.release().await == Released::Released, "a majority has released the lock")?;
    for node in &nodes.list[..4] {
        until("the lock is free", async || info(node).await.is_none()).await?;
    }
    teller.tell(Who::Second, "gives the lock back: four nodes say that it is free, one is still dead");
    drop((first, nodes));
    teller
        .title(&format!("\nAll of it was as told, in {} s. The servers and their folder are gone.", teller.seconds()));
    Ok(())
}

fn accepted(register: &mut Register, token: u64) -> Result<(), Failure> {
    register.write(token).map_err(|largest| format!("the register refused {token} after {largest}").into())
}

fn ensure(fact: bool, what: &str) -> Result<(), Failure> {
    if fact { Ok(()) } else { Err(format!("it is not so that {what}").into()) }
}

/// Waits until `fact` holds.
async fn until(what: &str, mut fact: impl AsyncFnMut() -> bool) -> Result<(), Failure> {
    let start = Instant::now();
    while !fact().await {
        if start.elapsed() > Duration::from_secs(30) {
            return Err(format!("waited in vain until {what}").into());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Returns the node's LOCK.INFO; `None` if the lock is free.
async fn info(node: &Node) -> Option<HashMap<String, Value>> {
    node.say::<Option<HashMap<String, Value>>>(&format!("LOCK.INFO {KEY}")).await.ok().flatten()
}

async fn waiters(node: &Node) -> Option<i64> {
    Some(number(&info(node).await?, "waiters"))
}

fn number(info: &HashMap<String, Value>, name: &str) -> i64 {
    info.get(name).and_then(|value| redis::from_redis_value_ref(value).ok()).unwrap_or_default()
}

fn text(info: &HashMap<String, Value>, name: &str) -> String {
    info.get(name).and_then(|value| redis::from_redis_value_ref(value).ok()).unwrap_or_default()
}
