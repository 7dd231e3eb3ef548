//! A master, its replica and Sentinels that accept only TLS, and require a certificate. The client uses the same
//! certificates for all.

use palisade_client::{Client, ErrorKind, Tls};
use tokio::time::timeout;

use crate::cluster::{MAX_TTL_MS, options};
use crate::fixture::{connected, until};
use crate::harness::{certificates, patience, watched_over_tls};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_replaced_and_followed() {
    timeout(patience() * 2, replaced_and_followed()).await.expect("it goes on");
}

async fn replaced_and_followed() {
    let Some(dir) = certificates("IP:127.0.0.1") else { return };
    let start = || watched_over_tls(3, MAX_TTL_MS, dir.path());
    let (mut master, replica, sentinels) = tokio::task::block_in_place(start);
    let hosts: Vec<_> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
    let url = format!("rediss+sentinel://{}/locks", hosts.join(","));
    let ca = || Tls::new().ca_file(dir.path().join("ca.pem"));
    let tls = ca().client_certificate(dir.path().join("app.pem"), dir.path().join("app.key"));
    let client = || Client::builder().node(url.clone()).tls(tls.clone()).build().unwrap();
    let (locks, other) = (client(), client());
    connected(&locks).await;
    let guard = locks.with(&options()).lock("k").await.unwrap();
    assert_eq!(master.info("held"), 1);
    let waiting = tokio::spawn(async move { other.with(&options()).lock("k").await.unwrap() });
    until("it waits", async || master.info("waiters") == 1).await;
    master.kill();
    guard.lost().await;
    let next = waiting.await.unwrap();
    assert!(next.token() > guard.token() && replica.info("held") == 1);
    assert!(sentinels.iter().all(|sentinel| sentinel.master_port() == replica.port()), "its port with TLS is named");
    next.release().await;
    // Without a certificate no server answers.
    let stranger = Client::builder().node(url).tls(ca()).build().unwrap();
    assert_eq!(stranger.with(&options()).try_lock("k").await.unwrap_err().kind(), ErrorKind::NoQuorum);
}
