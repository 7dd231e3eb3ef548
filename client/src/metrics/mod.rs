//! What a client counts and measures, for the recorder of the program (feature `metrics`, crate `metrics`); without the feature, nothing.
//!
//! docs/telemetry.md has the names, labels and units. They are stable: who changes one changes that page, which a test compares with a
//! real recorder.

#[cfg(feature = "metrics")]
mod recording;
#[cfg(not(feature = "metrics"))]
mod silent;

#[cfg(feature = "metrics")]
pub use self::recording::{Acquiring, Class, Holding, NodeMeter, describe, extended};
#[cfg(not(feature = "metrics"))]
pub use self::silent::{Acquiring, Class, Holding, NodeMeter, describe, extended};
