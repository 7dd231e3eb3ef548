//! Output for people: tables, times, and texts from others, in which everything that controls a terminal is escaped.

use std::io::{self, Write};
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table};
use palisade_quorum::{Printable, is_obeyed};
use serde::Serialize;

use crate::exit::Failure;

/// Writes lines to standard output. Characters that control a terminal are escaped.
///
/// # Errors
///
/// Those of [`raw`].
pub fn out(text: &str) -> Result<(), Failure> {
    let lines: Vec<String> = text.split('\n').map(|line| printable(line.as_bytes())).collect();
    raw(&lines.join("\n"))
}

/// Writes this program's own text to standard output, unchanged.
///
/// # Errors
///
/// The output cannot be written, or its reader is gone.
pub fn raw(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_is_gone()),
        done => done.map_err(|why| Failure::of("the output cannot be written", why)),
    }
}

/// Writes `value` to standard output as JSON, on one line.
///
/// # Errors
///
/// Those of [`out`].
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|why| Failure::of("no JSON can be made of this", why))?;
    raw(&(json_escaped(&text) + "\n"))
}

/// Writes `value` to standard output as JSON.
///
/// # Errors
///
/// Those of [`out`].
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|why| Failure::of("no JSON can be made of this", why))?;
    let lines: Vec<String> = text.lines().map(json_escaped).collect();
    raw(&(lines.join("\n") + "\n"))
}

/// Writes `value` as JSON for programs, or `text` for people.
///
/// # Errors
/// Those of [`out`].
pub fn print(as_json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
    if as_json { json(value) } else { out(&text()) }
}

/// Escapes characters that control a terminal in a line of JSON. They can only occur in its strings.
fn json_escaped(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    for c in line.chars() {
        if is_obeyed(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escaped += &format!("\\u{unit:04x}"));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Prints a message for the user on standard error. A failure is ignored.
pub fn print_message(text: &str) {
    let _ = writeln!(io::stderr(), "palisade: {}", printable(text.as_bytes()));
}

/// Returns text from outside this program as one line, with its control characters escaped. Existing escapes stay as
/// they are.
pub fn printable(bytes: &[u8]) -> String {
    Printable(&String::from_utf8_lossy(bytes)).to_string()
}

/// Formats a length of time to the second, or a short one to the millisecond.
pub fn time(ms: u64) -> String {
    const SHORT_MS: u64 = 1_000;
    let ms = if ms < SHORT_MS { ms } else { ms / 1_000 * 1_000 };
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

/// Formats a duration as [`time`] does.
pub fn duration(length: Duration) -> String {
    time(length.as_millis() as u64)
}

/// Formats columns with headings; those in `numbers` are right-aligned.
pub fn table(headings: &[&str], numbers: &[usize], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    // Cells are escaped before the columns are measured.
    let rows = rows.into_iter().map(|row| row.iter().map(|cell| printable(cell.as_bytes())).collect::<Vec<_>>());
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
        for c in
            "\u{7f}\u{9b}\u{ad}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0001}"
                .chars()
        {
            let text = format!("a{c}b");
            let shown = format!("a\\u{{{:x}}}b", c as u32);
            assert_eq!(printable(text.as_bytes()), shown);
            assert_eq!(printable(shown.as_bytes()), shown);
            let json = json_escaped(&serde_json::to_string(&text).unwrap());
            assert!(json.is_ascii() && !json.contains('\u{7f}'), "{json}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
        let readable = "b\u{fc}ro \u{65e5}\u{672c} \u{5e9}\u{5dc}\u{5d5}\u{5dd} e\u{301} \\n \u{1f525}";
        assert_eq!(printable(readable.as_bytes()), readable);
        assert_eq!(json_escaped(readable), readable);
    }

    #[test]
    fn times_show_two_units_at_most() {
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
