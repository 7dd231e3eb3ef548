//! Metrics of a client on real servers, compared with docs/telemetry.md.

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

/// A stub for the fixture, which expects this module: no test here listens to trace events.
mod told {
    pub fn listen() {
        crate::recorder::install();
    }
}
