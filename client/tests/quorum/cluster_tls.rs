//! A cluster whose servers listen with TLS only, and require a certificate. The client uses the same certificates for
//! the masters that its map names.

use std::path::PathBuf;
use std::sync::OnceLock;

use palisade_client::{Client, Tls};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::cluster::{Six, key_of, options};
use crate::cluster_fail_over::fail_over;
use crate::fixture::{connected, until};
use crate::harness::{Setup, certificates, free_port, has_tls, not_here, patience, patient};

/// Returns the path of a certificate signed by this test's own authority.
fn certificate(name: &str) -> PathBuf {
    static MADE: OnceLock<TempDir> = OnceLock::new();
    let made = MADE.get_or_init(|| certificates("IP:127.0.0.1").expect("it has TLS"));
    made.path().join(name)
}

/// Adds TLS to a setup and removes the plain port; the bus of the cluster and its replication use TLS too.
fn with_tls(setup: Setup) -> Setup {
    let path = |name: &str| certificate(name).to_str().unwrap().to_owned();
    let setup = patient(setup).option("port", "0").option("tls-port", &free_port().to_string());
    let setup = setup.option("tls-cluster", "yes").option("tls-replication", "yes").option("tls-auth-clients", "yes");
    let setup = setup.option("tls-ca-cert-file", &path("ca.pem"));
    setup.option("tls-cert-file", &path("server.pem")).option("tls-key-file", &path("server.key"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_masters_are_found_and_replaced() {
    if !has_tls() {
        return not_here("this server was built without TLS");
    }
    timeout(patience() * 2, found_and_replaced()).await.expect("it goes on");
}

async fn found_and_replaced() {
    let six = tokio::task::block_in_place(|| Six::start_with(with_tls));
    let port = |n: usize| six.0[n].client().say("CONFIG GET tls-port").field("tls-port").as_text();
    let tls =
        Tls::new().ca_file(certificate("ca.pem")).client_certificate(certificate("app.pem"), certificate("app.key"));
    let seed = format!("rediss://127.0.0.1:{}", port(0));
    let client = || Client::builder().cluster([seed.clone()]).tls(tls.clone()).build().unwrap();
    let (locks, other) = (client(), client());
    connected(&locks).await;
    let keys: Vec<_> = (0..3).map(key_of).collect();
    let mut guards = vec![];
    for key in &keys {
        guards.push(locks.with(&options()).lock(key).await.unwrap());
    }
    assert!((0..3).all(|n| six.0[n].server.info("held") == 1), "each is at its own master");
    let key = keys[1].clone();
    let waiting = tokio::spawn(async move { other.with(&options()).lock(key).await.unwrap() });
    until("it waits", async || six.0[1].server.info("waiters") == 1).await;
    fail_over(&six.0[4]);
    guards[1].lost().await;
    let next = waiting.await.unwrap();
    assert!(next.token() > guards[1].token() && six.0[4].server.info("held") == 1);
    assert!(guards[0].is_valid() && guards[2].is_valid(), "they were extended all the while");
    next.release().await;
}
