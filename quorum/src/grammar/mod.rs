//! The declaration of commands. Each command is declared once. Its parser, its errors, COMMAND DOCS and HELP come from
//! that, on a node and in an agent.
//!
//! A parser takes the words of a call, as an iterator over bytes, and returns a request or the refusal for its client.
//! Nothing is copied, and the caller writes the reply. The commands themselves are in [`request`](crate::request).

pub(crate) mod declaration;
mod spec;
pub(crate) mod words;

pub use spec::{Argument, KeyAccess, Shape, Spec};
pub use words::Bounds;
