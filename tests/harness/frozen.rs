use rustix::process::Signal;

use super::Server;

/// A frozen server, which continues when this is dropped, even if the test fails.
pub struct Frozen<'a>(&'a Server);

impl<'a> Frozen<'a> {
    pub fn new(server: &'a Server) -> Self {
        server.signal(Signal::STOP);
        Self(server)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}
