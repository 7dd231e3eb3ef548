//! The pages of docs/clients: blocks of code and output, each after a marker, and the tables of the index and of
//! docs/keepalive.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The page with the table of clients.
pub const INDEX: &str = "README.md";

/// The column with the client's version in the table of the index. The first column has the client's name.
const VERSION: usize = 1;
/// The column with the servers.
const SERVERS: usize = 2;
/// The column with the day of the run.
const DAY: usize = 3;
/// The column that says whether the client sends a request again by itself.
pub const SENDS_AGAIN: usize = 4;

/// The page about leases without a heartbeat. The columns of its table are the client, one for each server, and
/// [`INHERITED`].
pub const KEEPALIVE: &str = "../keepalive.md";
pub const INHERITED: usize = 4;

/// A page of docs/clients, with its code and output.
pub struct Page {
    name: String,
    text: String,
}

impl Page {
    pub fn read(name: &str) -> Self {
        let text = fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("docs/clients/{name}: {error}"));
        Self { name: name.to_owned(), text }
    }

    /// Reads the page, changes it and writes it. Only one caller does so at a time.
    pub fn change(name: &str, change: impl FnOnce(&mut Page)) {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut page = Self::read(name);
        change(&mut page);
        // The file is renamed into place, so that no reader finds half of it.
        let whole = path(name).with_extension("new");
        fs::write(&whole, page.text).unwrap();
        fs::rename(whole, path(name)).unwrap();
    }

    pub fn code(&self, recipe: &str) -> String {
        self.block(&code_marker(recipe))
    }

    pub fn output(&self, recipe: &str) -> String {
        self.block(&output_marker(recipe))
    }

    pub fn set_code(&mut self, recipe: &str, code: &str) {
        self.set_block(&code_marker(recipe), code);
    }

    pub fn set_output(&mut self, recipe: &str, output: &str) {
        self.set_block(&output_marker(recipe), output);
    }

    fn block(&self, marker: &str) -> String {
        self.text[self.span(marker)].to_owned()
    }

    fn set_block(&mut self, marker: &str, content: &str) {
        let span = self.span(marker);
        let content: String = content.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        self.text.replace_range(span, &content);
    }

    /// Returns the position of the fenced block after `marker`.
    fn span(&self, marker: &str) -> std::ops::Range<usize> {
        const FENCE: &str = "```";
        let find = || {
            let fence = self.text.find(marker)? + marker.len() + 1;
            self.text[fence..].starts_with(FENCE).then_some(())?;
            let start = fence + self.text[fence..].find('\n')? + 1;
            let end = start + self.text[start - 1..].find(&format!("\n{FENCE}"))?;
            Some(start..end)
        };
        find().unwrap_or_else(|| panic!("docs/clients/{} has no block right behind {marker}", self.name))
    }

    /// Returns the cells of a client's row in the page's table.
    pub fn row(&self, client: &str) -> Option<Vec<String>> {
        self.cells(&start_of_row(client))
    }

    /// Returns the cells of the row that begins with `start`.
    fn cells(&self, start: &str) -> Option<Vec<String>> {
        let row = self.text.lines().find(|line| line.starts_with(start))?;
        Some(row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
    }

    fn change_row(&mut self, start: &str, change: impl FnOnce(&mut [String])) {
        let mut cells = self.cells(start).unwrap_or_else(|| panic!("docs/clients/{} has no row {start} …", self.name));
        change(&mut cells);
        let row = format!("| {} |", cells.join(" | "));
        let lines = self.text.lines().map(|line| if line.starts_with(start) { &row } else { line });
        self.text = lines.map(|line| format!("{line}\n")).collect();
    }

    /// Records that the recipe ran on a server with this version of a client. Runs of other versions or on other days
    /// are removed.
    pub fn ran_on(&mut self, client: &str, version: &str, server: &str, day: &str) {
        self.change_row(&start_of_row(client), |cells| {
            let same = cells[VERSION] == version && cells[DAY] == day;
            let earlier = if same { cells[SERVERS].split(", ").collect() } else { BTreeSet::new() };
            let servers = earlier.into_iter().chain([server]).collect::<BTreeSet<_>>();
            cells[SERVERS] = servers.into_iter().collect::<Vec<_>>().join(", ");
            cells[VERSION] = version.to_owned();
            cells[DAY] = day.to_owned();
        });
    }

    /// Records whether the client by itself repeats a command whose answer was lost.
    pub fn sends_again(&mut self, client: &str, answer: &str) {
        self.change_row(&start_of_row(client), |cells| cells[SENDS_AGAIN] = answer.to_owned());
    }

    /// Records after how many milliseconds another client had the lock of a killed holder, and whether programs that
    /// the holder starts inherit its connection. Each server has a column, named after the version measured last.
    pub fn took(&mut self, client: &str, server: &str, milliseconds: u128, inherited: &str) {
        const HEAD: &str = "| client |";
        let major = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let head = self.cells(HEAD).unwrap_or_default();
        let column = head.iter().position(|name| major(name) == major(server));
        let column = column.unwrap_or_else(|| panic!("no column for {server} in {head:?}"));
        self.change_row(HEAD, |names| names[column] = server.to_owned());
        self.change_row(&start_of_row(client), |cells| {
            cells[column] = milliseconds.to_string();
            cells[INHERITED] = inherited.to_owned();
        });
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/clients").join(name)
}

fn code_marker(recipe: &str) -> String {
    format!("<!-- tests/clients/{recipe} -->")
}

fn output_marker(recipe: &str) -> String {
    format!("<!-- tests/clients/{recipe} prints -->")
}

fn start_of_row(client: &str) -> String {
    format!("| [{client}](")
}
