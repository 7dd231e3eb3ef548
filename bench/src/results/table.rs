//! Tables of figures with units.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// Figures in rows, each column with its unit.
#[derive(Serialize, Deserialize)]
pub struct Table {
    /// The name for programs: unique in its run.
    pub name: String,
    pub title: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
    /// Remarks needed to read the table correctly.
    pub notes: Vec<String>,
}

/// The head of a column.
#[derive(Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    /// The unit; empty if there is none, or for text.
    pub unit: String,
    /// The digits after the point; `None` for text.
    pub decimals: Option<usize>,
    /// True if pages omit the column: it is for programs that read the JSON.
    #[serde(default)]
    pub is_hidden: bool,
}

/// One figure, or a word.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    Number(f64),
    Text(String),
    /// An empty cell: not measured here.
    Nothing,
}

impl Table {
    /// Returns a table without columns or rows.
    pub fn new(name: &str, title: impl Into<String>) -> Self {
        Self { name: name.to_owned(), title: title.into(), columns: Vec::new(), rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a column of words.
    pub fn words(self, name: &str) -> Self {
        self.with(name, "", None)
    }

    /// Omits the last added column from pages: only the JSON has it.
    pub fn hidden(mut self) -> Self {
        self.columns.last_mut().expect("a column was added").is_hidden = true;
        self
    }

    /// Adds a column of numbers in `unit`, shown with `decimals` digits after the point.
    pub fn numbers(self, name: &str, unit: &str, decimals: usize) -> Self {
        self.with(name, unit, Some(decimals))
    }

    fn with(mut self, name: &str, unit: &str, decimals: Option<usize>) -> Self {
        self.columns.push(Column { name: name.to_owned(), unit: unit.to_owned(), decimals, is_hidden: false });
        self
    }

    /// Adds a row, a cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        assert_eq!(N, self.columns.len(), "a row of {} has as many cells as it has columns", self.name);
        self.rows.push(cells.into());
    }

    /// Adds a note.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Iterates over the columns that are shown on pages.
    fn shown(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| !column.is_hidden)
    }

    /// Returns the table in Markdown, with its title and notes.
    pub fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n", self.title);
        for column in self.shown() {
            let unit = if column.unit.is_empty() { String::new() } else { format!(", {}", column.unit) };
            write!(text, "| {}{unit} ", column.name).unwrap();
        }
        text.push_str("|\n");
        for column in self.shown() {
            text.push_str(if column.decimals.is_some() { "|--:" } else { "|---" });
        }
        text.push_str("|\n");
        for row in &self.rows {
            for (column, cell) in self.columns.iter().zip(row).filter(|(column, _)| !column.is_hidden) {
                match cell {
                    Cell::Number(number) => write!(text, "| {number:.*} ", column.decimals.unwrap_or(0)).unwrap(),
                    Cell::Text(words) => write!(text, "| {words} ").unwrap(),
                    Cell::Nothing => text.push_str("| "),
                }
            }
            text.push_str("|\n");
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        for note in &self.notes {
            writeln!(text, "- {note}").unwrap();
        }
        text
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        // JSON has no numbers that are not finite.
        if number.is_finite() { Self::Number(number) } else { Self::Nothing }
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(number as f64)
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(number as f64)
    }
}

impl From<&str> for Cell {
    fn from(words: &str) -> Self {
        Self::Text(words.to_owned())
    }
}

impl From<String> for Cell {
    fn from(words: String) -> Self {
        Self::Text(words)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(cell: Option<T>) -> Self {
        cell.map_or(Self::Nothing, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_has_units_decimals_and_gaps() {
        let mut table = Table::new("cost", "Cost")
            .words("operation")
            .numbers("CPU", "us", 2)
            .words("rounds")
            .hidden()
            .numbers("ratio", "", 1);
        table.row(["PING".into(), 1.005.into(), "1 to 2".into(), None::<f64>.into()]);
        table.row(["SET".into(), f64::NAN.into(), "1 to 2".into(), 3_u64.into()]);
        table.note("A note.");
        assert_eq!(
            table.markdown(),
            "### Cost\n\n| operation | CPU, us | ratio |\n|---|--:|--:|\n| PING | 1.00 | |\n| SET | | 3.0 |\n\n- A note.\n"
        );
    }

    #[test]
    fn cells_outlive_json() {
        let cells: Vec<Cell> = vec!["a".into(), 1.5.into(), None::<f64>.into()];
        let json = serde_json::to_string(&cells).unwrap();
        assert_eq!(json, r#"["a",1.5,null]"#);
        let again: Vec<Cell> = serde_json::from_str(&json).unwrap();
        assert!(matches!(&again[..], [Cell::Text(_), Cell::Number(_), Cell::Nothing]));
    }
}
