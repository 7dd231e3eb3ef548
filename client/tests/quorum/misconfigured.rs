//! Errors of wrong addresses and servers, which say what to do.

use palisade_client::{Client, ErrorKind};

use crate::fixture::{Nodes, connected};
use crate::harness::{Setup, follow};
#[cfg(feature = "tls")]
use crate::harness::{certificates, with_mutual_tls};

async fn why(addresses: Vec<String>) -> String {
    let locks = Client::new(addresses).unwrap();
    let slow = palisade_client::Options::new().node_timeout(std::time::Duration::from_secs(10));
    let error = locks.with(&slow).try_lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum);
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_that_are_none() {
    for (addresses, expected) in [
        (vec![], "give the address of one node at least"),
        (vec!["::1:6379"], "not an address"),
        (vec!["redis://a", "redis://a:6379"], "a:6379 is given twice"),
    ] {
        let error = Client::new(addresses).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains(expected), "{error}");
    }
    #[cfg(not(feature = "tls"))]
    assert_eq!(Client::new(["rediss://localhost"]).unwrap_err().kind(), ErrorKind::Configuration);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_cannot_be_nodes() {
    let without = Setup::new().module_later().start();
    assert!(why(vec![without.address()]).await.contains("the server has no lock module: start it with --loadmodule"));
    let locked = Setup::new().start();
    locked.client().say("CONFIG SET requirepass secret");
    assert!(why(vec![locked.address()]).await.contains("NOAUTH"));
    let with_password = |password: &str| format!("{}?pass={password}", locked.address());
    assert!(why(vec![with_password("wrong")]).await.to_lowercase().contains("password"));
    let locks = Client::new([with_password("secret")]).unwrap();
    connected(&locks).await;
    assert!(why(vec!["redis://no-such-host.invalid".to_owned()]).await.contains("it cannot be reached"));
    assert!(why(vec!["redis://127.0.0.1:1".to_owned()]).await.contains("it cannot be reached"));
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let replica = Setup::new().replication().start();
    follow(&replica, &master);
    assert!(why(vec![replica.address()]).await.contains("it is a replica: give the address of a master"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_first_tells_what_is_wrong_with_each_address() {
    let nodes = Nodes::start(3);
    Client::new(nodes.addresses()).unwrap().connect().await.unwrap();
    let mut addresses = nodes.addresses();
    addresses[0] = "redis://127.0.0.1:1".to_owned();
    Client::new(addresses.clone()).unwrap().connect().await.unwrap();
    addresses[1] = "redis://127.0.0.1:2".to_owned();
    let error = Client::new(addresses).unwrap().connect().await.unwrap_err();
    assert!(error.to_string().contains("1 of 3 nodes can be asked, and 2 are needed"), "{error}");
    assert_eq!(error.nodes().len(), 2);
}

/// One server's answers under two names are no majority, and the error says so, whatever else the server answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_with_two_names_is_told_and_counts_once() {
    let nodes = Nodes::start(2);
    let twice = [nodes.0[0].address(), nodes.alias(0)];
    let said = format!("it is the same server as {}: it counts once", nodes.0[0].socket().display());
    let error = Client::new(twice.clone()).unwrap().connect().await.unwrap_err();
    assert!(error.to_string().contains(&said) && error.is_lasting(), "{error}");
    assert_eq!(error.nodes().len(), 1, "{error}");
    let error = Client::new(twice.clone()).unwrap().try_lock("k").await.unwrap_err();
    assert!(error.to_string().starts_with("k: ") && error.to_string().contains("it is the same server as "), "{error}");
    assert!(!error.to_string().contains("OWNED"), "{error}");

    let [one, other] = twice;
    let locks = Client::new([one, other, nodes.0[1].address()]).unwrap();
    connected(&locks).await;
    nodes.0[1].client().insist("LOCK.ACQUIRE k me 60000 NOTE web-1");
    let mut changes = locks.watch("k").unwrap();
    let told = tokio::spawn(async move { changes.changed().await });
    crate::fixture::until("each name is watched", async || nodes.0[0].info("watchers") == 2).await;
    nodes.0[0].client().insist("LOCK.ACQUIRE k me 60000 NOTE web-1");
    let holder = told.await.unwrap().unwrap();
    assert_eq!(holder.expect("it was never free").note, "web-1");
    let set = locks.by_owner().node_set().await.unwrap();
    assert_eq!((set.nodes, set.serving, set.unreachable.len()), (3, 2, 1), "{set:?}");
}

/// A program finds the TLS fault in the type of the error, without parsing its text.
#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_agree_on_tls() {
    use palisade_client::{Tls, TlsFault, Why};

    let (Some(dir), Some(foreign)) = (certificates("IP:127.0.0.1,DNS:localhost"), certificates("IP:127.0.0.1")) else {
        return;
    };
    let start = || with_mutual_tls(Setup::new(), dir.path());
    let (_server, encrypted) = tokio::task::block_in_place(start);
    let plain = tokio::task::block_in_place(|| Setup::new().replication().start());
    let path = |name: &str| dir.path().join(name);
    let own = Tls::new().ca_file(path("ca.pem")).client_certificate(path("app.pem"), path("app.key"));
    let of_another = own.clone().client_certificate(foreign.path().join("app.pem"), foreign.path().join("app.key"));
    let other_name =
        TlsFault::OtherName { wanted: "other".to_owned(), has: vec!["127.0.0.1".to_owned(), "localhost".to_owned()] };
    for (scheme, port, tls, fault) in [
        ("rediss", encrypted, own.clone().ca_file(path("app.pem")), TlsFault::Untrusted),
        ("rediss", encrypted, own.clone().server_name("other"), other_name),
        ("rediss", encrypted, Tls::new().ca_file(path("ca.pem")), TlsFault::NoCertificate),
        ("rediss", encrypted, of_another, TlsFault::Refused),
        ("rediss", plain.port(), own.clone(), TlsFault::Plain),
        ("redis", encrypted, own.clone(), TlsFault::Encrypted),
    ] {
        let client = Client::builder().node(format!("{scheme}://127.0.0.1:{port}")).tls(tls).build().unwrap();
        crate::fixture::until("it is said", async || {
            let error = client.try_lock("k").await.unwrap_err();
            error.is_lasting() && error.nodes().iter().any(|node| node.why == Why::Tls(fault.clone()))
        })
        .await;
    }
}
