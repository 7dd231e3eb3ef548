//! The declaration of commands. Each is declared once, for the parser, its errors, COMMAND DOCS and HELP, on a node and
//! in an agent.
//!
//! The words of a call go in, as an iterator over bytes; a request comes out, or the refusal for its client. Nothing is
//! copied, and the caller writes the reply. The commands themselves are in [`request`](crate::request).

pub(crate) mod declaration;
mod spec;
pub(crate) mod words;

pub use spec::{Argument, KeyAccess, Shape, Spec};
pub use words::Bounds;
