//! Features that some servers lack.

use std::io::Write;
use std::thread;

use super::{Setup, free_port};

/// Reports that there is nothing to test on this server, for the reason `why`. The report bypasses the test runner,
/// which shows only the output of failed tests; `make test-matrix` counts these lines.
pub fn not_here(why: &str) {
    let line = format!("not here: {}: {why}\n", thread::current().name().unwrap_or("a test"));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Returns true if the server was built with TLS: then it reports that a certificate is missing.
pub fn has_tls() -> bool {
    Setup::bare().option("tls-port", &free_port().to_string()).refused().contains("tls-cert-file")
}
