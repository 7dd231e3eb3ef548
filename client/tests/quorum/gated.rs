//! Writes through a gate on the data's server, which has no lock of its own.

use std::time::Duration;

use palisade_client::{Client, GateError, Guard, Options, blocking};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::fixture::Nodes;
use crate::harness::{Server, Setup};

/// Connects to a server, as a program does that has its data there.
async fn data_on(server: &Server) -> MultiplexedConnection {
    redis::Client::open(server.address()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// Writes `value` through the gate with this guard.
async fn write(guard: &Guard, data: &mut MultiplexedConnection, value: &str) -> Result<(), GateError> {
    Ok(guard.gate("invoices").cmd("SET").arg("invoice:42").arg(value).exec_async(data).await?)
}

/// Takes the lock; no other client takes it away.
async fn taken(nodes: &Nodes) -> (Client, Guard) {
    let locks = nodes.client().await;
    let options = Options::new().ttl(Duration::from_secs(60)).auto_extend(false).told_at_once(false);
    let guard = locks.with(&options).lock("invoices").await.unwrap();
    (locks, guard)
}

/// The lock of the first holder is broken, which it does not notice, like a process that is paused. The gate refuses
/// its late write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_write_changes_nothing() {
    let (nodes, server) = (Nodes::start(3), Setup::new().start());
    let mut data = data_on(&server).await;
    let (_first, early) = taken(&nodes).await;
    write(&early, &mut data, "early").await.unwrap();
    nodes.say("LOCK.BREAK invoices");
    let (_second, late) = taken(&nodes).await;
    late.gate("invoices").pass().exec_async(&mut data).await.unwrap();
    let refused = write(&early, &mut data, "too late").await.unwrap_err();
    assert!(matches!(refused, GateError::Fenced { largest } if largest == late.token()), "{refused}");
    assert_eq!(data.get::<_, String>("invoice:42").await.unwrap(), "early");
    write(&late, &mut data, "late").await.unwrap();
    assert_eq!(data.get::<_, String>("invoice:42").await.unwrap(), "late");
}

/// Each guard passes the gate in its own mode: grants that are compatible do not exclude each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_permits_pass_beside_each_other() {
    let (nodes, server) = (Nodes::start(3), Setup::new().start());
    let mut data = data_on(&server).await;
    let (locks, writer) = taken(&nodes).await;
    writer.release().await;
    let prices = locks.rw_lock("prices");
    let (reader, other) = (prices.read().await.unwrap(), prices.read().await.unwrap());
    for guard in [&other, &reader, &other] {
        guard.gate("prices").pass().exec_async(&mut data).await.unwrap();
    }
    nodes.say("LOCK.BREAK prices");
    let newer = nodes.client().await.rw_lock("prices").write().await.unwrap();
    newer.gate("prices").pass().exec_async(&mut data).await.unwrap();
    let refused = GateError::from(reader.gate("prices").pass().exec_async(&mut data).await.unwrap_err());
    assert!(matches!(refused, GateError::Fenced { .. }), "{refused}");
    let reading = newer.downgrade().await.unwrap();
    reading.gate("prices").pass().exec_async(&mut data).await.unwrap();

    let shards = locks.semaphore("shards", 2);
    let (one, two) = (shards.acquire().await.unwrap(), shards.acquire().await.unwrap());
    for permit in [&two, &one, &two] {
        permit.gate("shards").pass().exec_async(&mut data).await.unwrap();
    }
    let alone = locks.semaphore("alone", 1).acquire().await.unwrap();
    alone.gate("alone").pass().exec_async(&mut data).await.unwrap();
    let info: Vec<redis::Value> = redis::cmd("LOCK.INFO").arg("alone").query_async(&mut data).await.unwrap();
    assert_eq!(info[3], redis::Value::Int(alone.token() as i64), "as an exclusive lock: {info:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_beside_the_data_is_asked_itself() {
    let nodes = Nodes::start(1);
    let mut data = data_on(&nodes.0[0]).await;
    let (_locks, guard) = taken(&nodes).await;
    let write = async |data: &mut MultiplexedConnection| {
        guard.gate("invoices").held().cmd("INCR").arg("count").query_async::<u64>(data).await.map_err(GateError::from)
    };
    assert_eq!(write(&mut data).await.unwrap(), 1);
    nodes.say("LOCK.BREAK invoices");
    assert!(matches!(write(&mut data).await, Err(GateError::NotHeld)));
    assert_eq!(data.get::<_, u64>("count").await.unwrap(), 1);
}

/// Any other failure keeps the error of the connection, with its code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_failures_keep_their_code() {
    let (nodes, server, without) = (Nodes::start(1), Setup::new().start(), Setup::new().module_later().start());
    let (_locks, guard) = taken(&nodes).await;
    let gate = guard.gate("invoices");
    let code = |error: redis::RedisError| match GateError::from(error) {
        GateError::Redis(error) => error.code().unwrap().to_owned(),
        other => panic!("{other}"),
    };
    let mut data = data_on(&server).await;
    data.set::<_, _, ()>("text", "no number").await.unwrap();
    for (command, expected) in [
        (gate.cmd("INCR").arg("text").take(), "ERR"),
        (gate.cmd("LPUSH").arg("text").arg("1").take(), "WRONGTYPE"),
        (gate.cmd("BLPOP").arg("list").arg("1").take(), "NOPERM"),
        (gate.cmd("PING"), "ERR"),
    ] {
        assert_eq!(code(command.exec_async(&mut data).await.unwrap_err()), expected);
    }
    let mut data = data_on(&without).await;
    assert_eq!(code(gate.pass().exec_async(&mut data).await.unwrap_err()), "ERR");
}

/// Programs that block use the same gate.
#[test]
fn a_blocking_guard_has_gates_too() {
    let nodes = Nodes::start(1);
    let locks = blocking::Client::new(nodes.addresses()).unwrap();
    let guard = locks.lock("invoices").unwrap();
    let mut data = redis::Client::open(nodes.0[0].address()).unwrap().get_connection().unwrap();
    let paid: String = guard.gate("gate").cmd("SET").arg("invoice:42").arg("paid").query(&mut data).unwrap();
    assert_eq!(paid, "OK");
}
