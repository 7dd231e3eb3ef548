//! The results of a benchmark: tables, plots and budgets, and on which machine, with which versions, by which command.
//!
//! A benchmark returns an [`Outcome`]. A [`Run`] of it is written as JSON for programs, Markdown for people, SVG for
//! the eye.

mod budgets;
mod machine;
mod outcome;
mod plot;
mod run;
mod table;

pub use budgets::summary;
pub use machine::Machine;
pub use outcome::{Budget, Outcome};
pub use plot::{Axis, Bars, Form, Line, Plot};
pub use run::Run;
pub use table::{Cell, Table};
