//! Servers that listen only with TLS.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{Server, Setup, free_port};

/// Creates a self-signed certificate for this host.
pub fn make_certificate(dir: &Path) {
    let for_this_host = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
    let own = ["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"];
    openssl(dir, &[&for_this_host[..], &own].concat());
}

/// Starts a server that listens only with TLS, except for the socket of the tests. Returns it with its port.
pub fn with_tls(setup: Setup, certificates: &Path) -> (Server, u16) {
    let port = free_port();
    let path = |name: &str| certificates.join(name).to_str().unwrap().to_owned();
    let setup = setup.option("tls-port", &port.to_string());
    let setup = setup.option("tls-cert-file", &path("cert.pem")).option("tls-key-file", &path("key.pem"));
    let setup = setup.option("tls-ca-cert-file", &path("cert.pem")).option("tls-auth-clients", "no");
    (setup.start(), port)
}

/// Creates a test's own certificate authority: `ca.pem`, `ca.key` in this folder.
pub fn make_authority(dir: &Path) {
    openssl(dir, &["-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"]);
}

/// Makes that authority sign `<name>.pem`, whose key is in `<name>.key`, for this subject alternative name.
pub fn issue(dir: &Path, name: &str, alternative: &str) {
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

/// Starts a server that shows `server.pem` in that folder, and accepts only clients with a certificate of the authority
/// there, except on the socket of the tests. Returns it with its port.
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
