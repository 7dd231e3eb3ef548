//! A node that was down is asked as soon as it is back, and one that stays down does not get many connections.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use palisade_client::{Client, Options};
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::UnixStream;

use crate::fixture::{Nodes, ms};

/// A node that is back after an outage of seconds is asked by the next request. The next connection attempt used to be
/// up to a second away, and every request until then got the error of the last attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_back_is_asked_at_once() {
    let (mut nodes, locks) = Nodes::with_client(1).await;
    // The timeout is long enough for a busy machine; the old error would be returned at once.
    let patient = Options::new().node_timeout(ms(10_000));
    for outage in 1..=3 {
        nodes.0[0].kill();
        let error = locks.with(&patient).try_lock("k").await.unwrap_err();
        assert!(!error.is_lasting(), "{error}");
        // Pauses between attempts grow to a second meanwhile.
        tokio::time::sleep(ms(2_000)).await;
        nodes.0[0].start_again();
        nodes.0[0].lift();
        // An attempt may have failed right before the node was back.
        tokio::time::sleep(ms(100)).await;
        let began = Instant::now();
        let guard = locks.with(&patient).try_lock("k").await.unwrap_or_else(|why| panic!("outage {outage}: {why}"));
        println!("a lock after the outage: {:?}", began.elapsed());
        guard.release().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_a_node_that_is_down_are_no_storm() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&connections);
    std::thread::spawn(move || {
        for _ in listener.incoming() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let locks = Client::new([address]).unwrap();
    let (began, mut requests) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(1) {
        locks.try_lock("k").await.unwrap_err();
        requests += 1;
    }
    // An attempt makes up to three connections. If nothing arrives on the first, the second asks which kind of server
    // is there, and the third whether it uses TLS.
    let attempts = connections.load(Ordering::Relaxed).div_ceil(3);
    let most = began.elapsed().as_millis() / 50 + 2;
    println!("{attempts} attempts for {requests} requests in a second");
    assert!(u128::from(attempts) <= most, "{attempts} attempts, {most} are allowed");
}

/// Regression: the first connection to each node ended before its first answer. The client asked what kind of server is
/// there. A healthy node answers that question with an error, which counted as a refusal for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_first_connection_ends_is_waited_for() {
    let nodes = Nodes::start(3);
    let mut addresses = vec![];
    for server in &nodes.0 {
        let (listener, socket) = (tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(), server.socket());
        addresses.push(format!("redis://{}", listener.local_addr().unwrap()));
        tokio::spawn(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            let _ = first.read(&mut [0; 64]).await;
            drop(first);
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = UnixStream::connect(&socket).await.unwrap();
                tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
            }
        });
    }
    let locks = Client::new(addresses).unwrap();
    let guard = locks.with(&Options::new().wait(ms(10_000))).lock("k").await.unwrap();
    guard.release().await;
}
