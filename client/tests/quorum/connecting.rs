//! Certificates and credentials: which ones are presented and trusted, and that new ones are used without a restart.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(feature = "tls")]
use std::time::Duration;

#[cfg(feature = "tls")]
use palisade_client::Tls;
use palisade_client::{Client, Credentials, ErrorKind};

use crate::fixture::{connected, until};
use crate::harness::Setup;
#[cfg(feature = "tls")]
use crate::harness::{certificates, make_certificates, with_mutual_tls};

#[cfg(feature = "tls")]
fn over(port: u16, tls: Tls) -> Client {
    Client::builder().node(format!("rediss://127.0.0.1:{port}")).tls(tls).build().unwrap()
}

/// Returns why a lock cannot be acquired.
async fn refusal(locks: &Client) -> String {
    let slow = palisade_client::Options::new().node_timeout(std::time::Duration::from_secs(10));
    locks.with(&slow).try_lock("k").await.unwrap_err().to_string()
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_asks_for_a_certificate_is_shown_one() {
    let Some(dir) = certificates("IP:127.0.0.1") else { return };
    let path = |name: &str| dir.path().join(name);
    let (_server, port) = with_mutual_tls(Setup::new(), dir.path());
    let trusting = || Tls::new().ca_file(path("ca.pem"));
    connected(&over(port, trusting().client_certificate(path("app.pem"), path("app.key")))).await;
    let why = refusal(&over(port, trusting())).await;
    // A server that closes the connection at once may do so before the client reads its alert.
    assert!(why.contains("it asks for a certificate") || why.contains("it cannot be reached"), "{why}");
    let why = refusal(&over(port, Tls::new().client_certificate(path("app.pem"), path("app.key")))).await;
    assert!(why.to_lowercase().contains("certificate"), "{why}");
}

/// The nodes' certificates contain a name in place of their address. The client accepts them only with `server_name`.
#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_must_have_the_name_that_is_asked_for() {
    let Some(dir) = certificates("DNS:locks.example") else { return };
    let path = |name: &str| dir.path().join(name);
    let (_server, port) = with_mutual_tls(Setup::new(), dir.path());
    let tls = || Tls::new().ca_file(path("ca.pem")).client_certificate(path("app.pem"), path("app.key"));
    connected(&over(port, tls().server_name("locks.example"))).await;
    for tls in [tls(), tls().server_name("other.example")] {
        let why = refusal(&over(port, tls)).await;
        assert!(why.contains("certificate"), "{why}");
    }
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_certificates_are_used_without_a_restart() {
    let Some(dir) = certificates("IP:127.0.0.1") else { return };
    let path = |name: &str| dir.path().join(name);
    let (server, port) = with_mutual_tls(Setup::new(), dir.path());
    let tls = Tls::new().ca_file(path("ca.pem")).client_certificate(path("app.pem"), path("app.key"));
    let locks = over(port, tls);
    connected(&locks).await;
    let guard = locks.lock("k").await.unwrap();

    // All certificates are new: the authority, and those that it has signed. The server reads its files when their
    // names are set.
    make_certificates(dir.path(), "IP:127.0.0.1");
    let file = |name: &str| path(name).to_str().unwrap().to_owned();
    let set = format!(
        "CONFIG SET tls-cert-file {} tls-key-file {} tls-ca-cert-file {}",
        file("server.pem"),
        file("server.key"),
        file("ca.pem")
    );
    server.client().say(&set);
    server.client().say("CLIENT KILL TYPE normal SKIPME yes");
    until("it is connected anew, and the lock is extended", async || guard.extend().await.is_ok()).await;
    assert!(guard.valid_for() > Duration::ZERO);
    guard.release().await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_no_certificates_are_named_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    make_certificates(dir.path(), "IP:127.0.0.1");
    let authority = fs::read_to_string(path("ca.pem")).unwrap();
    fs::write(path("blank"), "\n").unwrap();
    fs::write(path("der"), b"\x30\x82\x01\0").unwrap();
    fs::write(path("cut"), &authority[..authority.len() / 2]).unwrap();
    fs::write(path("typo"), authority.replace("MII", "M!!")).unwrap();
    fs::write(path("other"), "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n").unwrap();
    fs::write(path("secret"), "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n")
        .unwrap();
    let ca = |name: &str| Tls::new().ca_file(path(name));
    let own = |certificate: &str, key: &str| Tls::new().client_certificate(path(certificate), path(key));
    for (tls, file, fault) in [
        (ca("none"), "the CA certificates in none", "cannot be read: No such file"),
        (ca("blank"), "the CA certificates in blank", "the file is empty"),
        (ca("der"), "the CA certificates in der", "it contains no certificate in PEM (-----BEGIN CERTIFICATE-----)"),
        (ca("app.key"), "the CA certificates in app.key", "it contains a private key, and no certificate"),
        (ca("cut"), "the CA certificates in cut", "it is cut short: a line -----END"),
        (
            ca("typo"),
            "the CA certificates in typo",
            "it is damaged: what is between its lines BEGIN and END is not base64",
        ),
        (ca("other"), "the CA certificates in other", "certificate 1 is invalid"),
        (own("none", "app.key"), "the client's certificate in none", "cannot be read"),
        (own("app.pem", "none"), "the client's key in none", "cannot be read"),
        (own("blank", "app.key"), "the client's certificate in blank", "the file is empty"),
        (
            own("app.key", "app.pem"),
            "the client's certificate in app.key",
            "it contains a private key, and no certificate",
        ),
        (own("app.pem", "app.pem"), "the client's key in app.pem", "it contains a certificate, and no private key"),
        (own("app.pem", "secret"), "the client's key in secret", "its key is encrypted with a password"),
        (own("app.pem", "server.key"), "the client's key in server.key", "it is not the key of the certificate in"),
        (own("other", "app.key"), "the client's certificate in other", "certificate 1 is invalid"),
    ] {
        let error = Client::builder().node("rediss://127.0.0.1:1").tls(tls).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        let said = error.to_string().replace(&format!("{}/", dir.path().display()), "");
        assert!(said.starts_with(file) && said.contains(fault), "{file}: {said}");
    }
    Client::builder()
        .node("rediss://127.0.0.1:1")
        .tls(own("app.pem", "app.key").ca_file(path("ca.pem")))
        .build()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_was_changed_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    let server = Setup::new().start();
    let user = |password: &str| format!("ACL SETUSER app reset on >{password} ~* +@all");
    server.client().say(&user("first"));
    let write = |path: &Path, text: &str| fs::write(path, text).unwrap();
    write(&file, "app:first\n");
    // The given credentials take precedence over those in the address.
    let address = format!("{}?user=app&pass=wrong", server.address());
    let locks = Client::builder().node(&address).credentials(Credentials::file(&file)).build().unwrap();
    connected(&locks).await;
    let guard = locks.lock("k").await.unwrap();

    server.client().say(&user("second"));
    server.client().say("CLIENT KILL USER app");
    until("the old password is refused", async || !server.client().say("ACL LOG").as_list().is_empty()).await;
    write(&file, "app:second\n");
    until("the new one is read, and the lock extended", async || guard.extend().await.is_ok()).await;
    guard.release().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_asked_for_again_where_there_were_none() {
    let server = Setup::new().start();
    server.client().say("ACL SETUSER app on >secret ~* +@all");
    server.client().say("ACL SETUSER default off");
    let asked = Arc::new(AtomicU32::new(0));
    let (count, first) = (Arc::clone(&asked), 3);
    let credentials = Credentials::from_fn(move || {
        if count.fetch_add(1, Ordering::Relaxed) < first {
            return Err("the vault is sealed".into());
        }
        Ok(("app".to_owned(), "secret".to_owned()))
    });
    let locks = Client::builder().node(server.address()).credentials(credentials).build().unwrap();
    let why = refusal(&locks).await;
    assert!(why.contains("there are no credentials: the vault is sealed"), "{why}");
    until("they are there", async || locks.try_lock("k").await.is_ok()).await;
    assert!(asked.load(Ordering::Relaxed) > first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_without_a_password_is_named_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    let error = || Client::builder().node("h").credentials(Credentials::file(&file)).build().unwrap_err();
    assert!(error().to_string().contains("the credentials in"), "{}", error());
    fs::write(&file, "app:\n").unwrap();
    assert!(error().to_string().contains("there is no password in"), "{}", error());
    assert_eq!(error().kind(), ErrorKind::Configuration);
}
