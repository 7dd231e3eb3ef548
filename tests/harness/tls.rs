//! Servers that listen only with TLS.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::{Server, Setup, free_port, has_tls, not_here};

/// Creates a folder for certificates. Returns `None`, and reports that the test does not run, if the tested server was
/// built without TLS.
fn folder() -> Option<TempDir> {
    if !has_tls() {
        not_here("this server was built without TLS");
        return None;
    }
    Some(tempfile::tempdir().unwrap())
}

/// Creates a folder with a self-signed certificate for this host, `cert.pem`, and its `key.pem`, if the tested server
/// has TLS.
pub fn own_certificate() -> Option<TempDir> {
    let dir = folder()?;
    let for_this_host = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
    let own = ["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"];
    openssl(dir.path(), &[&for_this_host[..], &own].concat());
    Some(dir)
}

/// Creates a folder with the files of [`make_certificates`], if the tested server has TLS.
pub fn certificates(alternative: &str) -> Option<TempDir> {
    let dir = folder()?;
    make_certificates(dir.path(), alternative);
    Some(dir)
}

/// Starts a server that listens only with TLS, except on the socket for the tests. Returns it with its port.
pub fn with_tls(setup: Setup, certificates: &Path) -> (Server, u16) {
    let port = free_port();
    let path = |name: &str| certificates.join(name).to_str().unwrap().to_owned();
    let setup = setup.option("tls-port", &port.to_string());
    let setup = setup.option("tls-cert-file", &path("cert.pem")).option("tls-key-file", &path("key.pem"));
    let setup = setup.option("tls-ca-cert-file", &path("cert.pem")).option("tls-auth-clients", "no");
    (setup.start(), port)
}

/// Creates an authority, `ca.pem`, and two certificates that it has signed: `server.pem` with this subject alternative
/// name, and `app.pem`.
pub fn make_certificates(dir: &Path, alternative: &str) {
    openssl(dir, &["-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"]);
    issue(dir, "server", alternative);
    issue(dir, "app", "DNS:app");
}

/// Makes the authority in this folder sign `<name>.pem`, with the key in `<name>.key`, for this subject alternative
/// name.
fn issue(dir: &Path, name: &str, alternative: &str) {
    let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
    let alternative = format!("subjectAltName={alternative}");
    let extensions = ["-addext", &alternative, "-addext", "basicConstraints=critical,CA:FALSE"];
    let signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-subj", "/CN=node", "-keyout", &key, "-out", &certificate];
    openssl(dir, &[&extensions[..], &signed].concat());
}

fn openssl(dir: &Path, arguments: &[&str]) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    openssl.args(arguments);
    let status = openssl.current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.expect("openssl is installed: make setup").success());
}

/// Starts a server that uses `server.pem` in that folder, and accepts only clients with a certificate of the authority
/// there, except on the socket for the tests. Returns it with its port.
pub fn with_mutual_tls(setup: Setup, dir: &Path) -> (Server, u16) {
    let port = free_port();
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let setup = setup.option("tls-port", &port.to_string()).option("tls-auth-clients", "yes");
    let setup = setup.option("tls-cert-file", &path("server.pem")).option("tls-key-file", &path("server.key"));
    (setup.option("tls-ca-cert-file", &path("ca.pem")).start(), port)
}

/// Returns the settings of a server or a Sentinel that uses mutual TLS.
pub(super) fn both_ways(dir: &Path) -> Vec<(String, String)> {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let settings = [
        ("tls-replication", "yes".to_owned()),
        ("tls-auth-clients", "yes".to_owned()),
        ("tls-ca-cert-file", path("ca.pem")),
        ("tls-cert-file", path("server.pem")),
        ("tls-key-file", path("server.key")),
    ];
    settings.map(|(name, value)| (name.to_owned(), value)).into()
}
