//! The results of a benchmark: tables, plots and budgets, with the machine, the versions and the command.
//!
//! A benchmark returns an [`Outcome`]. A [`Run`] of it is written as JSON for programs, as Markdown for people, and as
//! SVG for plots.

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
