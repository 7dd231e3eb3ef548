//! Metrics of a client, for the program's recorder (feature `metrics`, crate `metrics`); without the feature, nothing.
//!
//! docs/telemetry.md lists the names, labels and units. They are stable: a change must change that page too, which a
//! test compares with a real recorder.

#[cfg(feature = "metrics")]
mod recording;
#[cfg(not(feature = "metrics"))]
mod silent;

#[cfg(feature = "metrics")]
pub use self::recording::{Acquiring, Class, Holding, NodeMeter, describe, extended};
#[cfg(not(feature = "metrics"))]
pub use self::silent::{Acquiring, Class, Holding, NodeMeter, describe, extended};
