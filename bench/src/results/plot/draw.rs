//! Plots as SVG: title and legend on top, nothing drawn over the figures.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Axis, Bars, Form, Line, Plot};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: u32 = 900;
const LINES_HEIGHT: u32 = 480;
const BAR: u32 = 18;
const BETWEEN_CATEGORIES: u32 = 10;
/// The heights of the title, of a line of the legend, and of the space below the axis with its label.
const TITLE: u32 = 34;
const LEGEND_LINE: u32 = 20;
const BELOW: u32 = 60;
/// The approximate width of a character: the picture is created without the fonts in which it is shown.
const CHARACTER: u32 = 7;
const FONT: (&str, i32) = ("sans-serif", 13);

/// Colours that the colour-blind can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(240, 228, 66),
];

/// Returns the picture of `plot`.
pub fn svg(plot: &Plot) -> String {
    let names: Vec<&str> = match &plot.form {
        Form::Bars { series, .. } => series.iter().map(|bars| bars.name.as_str()).collect(),
        Form::Lines { lines, .. } => lines.iter().map(|line| line.name.as_str()).collect(),
    };
    let legend = Legend::of(&names);
    let height = match &plot.form {
        Form::Bars { categories, series, .. } => {
            categories.len() as u32 * (series.len() as u32 * BAR + BETWEEN_CATEGORIES) + BELOW + 10
        }
        Form::Lines { .. } => LINES_HEIGHT,
    };
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, TITLE + legend.height() + height)).into_drawing_area();
        root.fill(&WHITE).unwrap();
        let (head, body) = root.split_vertically(TITLE + legend.height());
        let title = ("sans-serif", 17).into_text_style(&head).pos(Pos::new(HPos::Center, VPos::Center));
        head.draw(&Text::new(plot.title.as_str(), (WIDTH as i32 / 2, TITLE as i32 / 2), title)).unwrap();
        legend.draw(&head);
        match &plot.form {
            Form::Bars { value, categories, series } => draw_bars(&body, value, categories, series),
            Form::Lines { x, y, lines } => draw_lines(&body, x, y, lines),
        }
        root.present().unwrap();
    }
    text
}

/// Names of series with their colours, as many per line as fit.
struct Legend<'a>(Vec<Vec<(usize, &'a str)>>);

impl<'a> Legend<'a> {
    fn of(names: &[&'a str]) -> Self {
        let mut lines: Vec<Vec<(usize, &str)>> = Vec::new();
        let mut used = WIDTH;
        // A single series is named by the title.
        for (n, name) in names.iter().enumerate().filter(|_| names.len() > 1) {
            let width = Self::width(name);
            if used + width > WIDTH - 40 {
                lines.push(Vec::new());
                used = 0;
            }
            used += width;
            lines.last_mut().unwrap().push((n, name));
        }
        Self(lines)
    }

    fn width(name: &str) -> u32 {
        name.chars().count() as u32 * CHARACTER + 36
    }

    fn height(&self) -> u32 {
        self.0.len() as u32 * LEGEND_LINE
    }

    fn draw(&self, area: &Area) {
        let style = FONT.into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
        for (line, entries) in self.0.iter().enumerate() {
            let y = (TITLE + line as u32 * LEGEND_LINE + LEGEND_LINE / 2) as i32;
            let whole: u32 = entries.iter().map(|(_, name)| Self::width(name)).sum();
            let mut x = (WIDTH - whole) as i32 / 2;
            for (n, name) in entries {
                area.draw(&Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour(*n).filled())).unwrap();
                area.draw(&Text::new(*name, (x + 20, y), style.clone())).unwrap();
                x += Self::width(name) as i32;
            }
        }
    }
}

fn colour(n: usize) -> RGBColor {
    COLOURS[n % COLOURS.len()]
}

fn draw_bars(area: &Area, value: &Axis, categories: &[String], series: &[Bars]) {
    let most =
        series.iter().flat_map(|bars| bars.values.iter().flatten()).fold(0.0, |most: f64, value| most.max(*value));
    let longest = categories.iter().map(|name| name.chars().count()).max().unwrap_or(0) as u32;
    let row = series.len() as f64 * f64::from(BAR) + f64::from(BETWEEN_CATEGORIES);
    let mut chart = ChartBuilder::on(area)
        .margin_left(longest * CHARACTER + 16)
        .margin_right(30)
        .x_label_area_size(BELOW - 10)
        // Room for the figure at the end of the longest bar.
        .build_cartesian_2d(0.0..(most * 1.12).max(f64::MIN_POSITIVE), (row * categories.len() as f64)..0.0)
        .unwrap();
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(BLACK.mix(0.05))
        .x_desc(value.label.as_str())
        .x_label_formatter(&|value| short(*value))
        .label_style(FONT)
        .axis_desc_style(FONT)
        .draw()
        .unwrap();
    let name = FONT.into_text_style(area).pos(Pos::new(HPos::Right, VPos::Center));
    let figure = ("sans-serif", 12).into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
    for (category, label) in categories.iter().enumerate() {
        let top = category as f64 * row + f64::from(BETWEEN_CATEGORIES) / 2.0;
        let middle = top + (row - f64::from(BETWEEN_CATEGORIES)) / 2.0;
        let (x, y) = chart.backend_coord(&(0.0, middle));
        let (left, up) = area.get_base_pixel();
        area.draw(&Text::new(label.as_str(), (x - left - 8, y - up), name.clone())).unwrap();
        for (n, bars) in series.iter().enumerate() {
            let Some(value) = bars.values[category] else { continue };
            let from = top + n as f64 * f64::from(BAR) + 1.0;
            let to = from + f64::from(BAR) - 2.0;
            chart.draw_series([Rectangle::new([(0.0, from), (value, to)], colour(n).filled())]).unwrap();
            let place = (value + most * 0.006, (from + to) / 2.0);
            chart.draw_series([Text::new(short(value), place, figure.clone())]).unwrap();
        }
    }
}

fn draw_lines(area: &Area, x: &Axis, y: &Axis, lines: &[Line]) {
    let range = |axis: &Axis, of: fn(&(f64, f64)) -> f64| -> Range<f64> {
        let values = || lines.iter().flat_map(|line| line.points.iter().map(of));
        let most = values().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let least = values().fold(f64::INFINITY, f64::min);
        match axis.logarithmic {
            // This leaves room on both sides of the values.
            true => (least / 1.3)..(most * 1.3),
            false => 0.0..(most * 1.08),
        }
    };
    let (xs, ys) = (range(x, |point| point.0), range(y, |point| point.1));
    match (x.logarithmic, y.logarithmic) {
        (false, false) => draw_on(area, (x, xs), (y, ys), lines),
        (true, false) => draw_on(area, (x, xs.log_scale()), (y, ys), lines),
        (false, true) => draw_on(area, (x, xs), (y, ys.log_scale()), lines),
        (true, true) => draw_on(area, (x, xs.log_scale()), (y, ys.log_scale()), lines),
    }
}

fn draw_on<X, Y>(area: &Area, x: (&Axis, X), y: (&Axis, Y), lines: &[Line])
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin_left(14)
        .margin_right(30)
        .margin_top(8)
        .x_label_area_size(BELOW - 10)
        .y_label_area_size(72)
        .build_cartesian_2d(x.1, y.1)
        .unwrap();
    chart
        .configure_mesh()
        .light_line_style(BLACK.mix(0.05))
        .x_desc(x.0.label.as_str())
        .y_desc(y.0.label.as_str())
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .label_style(FONT)
        .axis_desc_style(FONT)
        .draw()
        .unwrap();
    for (n, line) in lines.iter().enumerate() {
        let colour = colour(n);
        chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2))).unwrap();
        chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 3, colour.filled()))).unwrap();
    }
}

/// Returns a number with about three significant digits.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 || v == v.trunc() => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}
