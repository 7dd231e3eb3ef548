//! What not every server has.

use std::io::Write;
use std::thread;

use super::{Setup, free_port};

/// This test finds nothing to test on this server, for the reason `why`. Told past the test runner, which shows what tests
/// print only if they fail; `make test-matrix` counts these.
pub fn not_here(why: &str) {
    let line = format!("not here: {}: {why}\n", thread::current().name().unwrap_or("a test"));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Whether the server was built with TLS: then it misses a certificate.
pub fn has_tls() -> bool {
    Setup::bare().option("tls-port", &free_port().to_string()).refused().contains("tls-cert-file")
}
