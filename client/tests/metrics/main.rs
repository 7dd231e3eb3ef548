//! What a recorder is told of a client on real servers, and that docs/telemetry.md says the same.

#![allow(clippy::disallowed_methods)]

#[allow(dead_code, unused_imports)]
#[path = "../../../tests/harness/mod.rs"]
mod harness;

#[allow(dead_code)]
#[path = "../quorum/fixture.rs"]
mod fixture;

#[allow(dead_code)]
#[path = "../quorum/proxy.rs"]
mod proxy;

#[path = "../../examples/telemetry/setup.rs"]
mod setup;

mod ends;
mod losses;
mod page;
mod recorder;
mod spans;

/// The fixture listens to events where it is used for tests of them.
mod told {
    pub fn listen() {
        crate::recorder::install();
    }
}
