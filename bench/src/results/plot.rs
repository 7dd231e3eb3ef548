//! Plots: a description, which is part of the results, and its picture.

mod draw;

use serde::{Deserialize, Serialize};

/// A picture of figures that are also in the tables.
#[derive(Serialize, Deserialize)]
pub struct Plot {
    /// The file's name: unique in its run.
    pub name: String,
    pub title: String,
    pub form: Form,
}

/// The form of a plot.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Horizontal bars from zero; in each category one bar per series.
    Bars { value: Axis, categories: Vec<String>, series: Vec<Bars> },
    /// Points joined by lines.
    Lines { x: Axis, y: Axis, lines: Vec<Line> },
}

/// The scale of an axis.
#[derive(Serialize, Deserialize)]
pub struct Axis {
    /// The label with the unit.
    pub label: String,
    pub logarithmic: bool,
}

/// A series of bars.
#[derive(Serialize, Deserialize)]
pub struct Bars {
    pub name: String,
    /// The values, one for each category; `None` if not measured.
    pub values: Vec<Option<f64>>,
}

/// A series of points.
#[derive(Serialize, Deserialize)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Axis {
    /// Returns an axis from zero, in equal steps.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), logarithmic: false }
    }

    /// Returns an axis in powers of ten; every value is above zero.
    pub fn logarithmic(label: &str) -> Self {
        Self { label: label.to_owned(), logarithmic: true }
    }
}

impl Plot {
    /// Returns the plot as SVG.
    pub fn svg(&self) -> String {
        draw::svg(self)
    }
}
