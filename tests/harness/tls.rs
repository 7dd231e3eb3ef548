//! Servers that listen with TLS alone.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{Server, Setup, free_port};

/// Makes a certificate that its own key has signed, for this host.
pub fn make_certificate(dir: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args([
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
    ]);
    let status = openssl.current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.expect("openssl is installed: make setup").success());
}

/// A server that listens with TLS alone, but for the socket that tests reach it by, and its port.
pub fn with_tls(setup: Setup, certificates: &Path) -> (Server, u16) {
    let port = free_port();
    let path = |name: &str| certificates.join(name).to_str().unwrap().to_owned();
    let setup = setup.option("tls-port", &port.to_string());
    let setup = setup.option("tls-cert-file", &path("cert.pem")).option("tls-key-file", &path("key.pem"));
    let setup = setup.option("tls-ca-cert-file", &path("cert.pem")).option("tls-auth-clients", "no");
    (setup.start(), port)
}
