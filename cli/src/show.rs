//! What people read: tables, times, and texts from elsewhere without what a terminal would obey.

use std::io::{self, Write};
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use crate::exit::Failure;

/// Writes to the standard output.
///
/// # Errors
/// It cannot be written, or nobody reads it any more.
pub fn out(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_is_gone()),
        done => done.map_err(|why| Failure::of("the output cannot be written", why)),
    }
}

/// Writes `value` as JSON to the standard output.
///
/// # Errors
/// As [`out`].
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|why| Failure::of("no JSON can be made of this", why))?;
    out(&(text + "\n"))
}

/// Says something to the person, beside the output. Nobody may be there to read it.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "palisade: {text}");
}

/// A text from elsewhere on one line, its control characters shown and not obeyed.
pub fn printable(bytes: &[u8]) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().collect() } else { String::from(c) };
    String::from_utf8_lossy(bytes).chars().map(escaped).collect()
}

/// A length of time: to the second, short ones to the millisecond.
pub fn time(ms: u64) -> String {
    const SHORT_MS: u64 = 1_000;
    let ms = if ms < SHORT_MS { ms } else { ms / 1_000 * 1_000 };
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

/// The same of a duration.
pub fn duration(length: Duration) -> String {
    time(length.as_millis() as u64)
}

/// Columns with a heading each; those in `numbers` are flush right.
pub fn table(headings: &[&str], numbers: &[usize], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings);
    table.add_rows(rows);
    for (n, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if numbers.contains(&n) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys() {
        assert_eq!(printable("büro\x1b[31m\nx".as_bytes()), "büro\\u{1b}[31m\\nx");
        assert_eq!(printable(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn times() {
        for (ms, expected) in [(0, "0s"), (7, "7ms"), (8_200, "8s"), (63_999, "1m 3s"), (90_000_000, "1day 1h")] {
            assert_eq!(time(ms), expected);
        }
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["日本".to_owned(), "12".to_owned()]];
        assert_eq!(table(&["KEY", "N"], &[1], rows), "KEY    N\na      1\n日本  12\n");
    }
}
