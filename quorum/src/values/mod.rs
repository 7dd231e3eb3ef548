//! Values that all other modules use: keys, modes, tokens, times, limits.

pub mod cause;
pub mod escaped;
pub mod integer;
pub mod key;
pub mod limits;
pub mod mode;
pub mod prefixes;
pub mod printable;
pub mod time;
pub mod token;
pub mod wall_clock;
