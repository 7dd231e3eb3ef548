//! The story on the screen: time, subject, event.

// The story shows the elapsed time to its reader.
#![allow(clippy::disallowed_methods)]

use std::io::IsTerminal;
use std::time::Instant;

/// The subject of a line.
#[derive(Clone, Copy)]
pub enum Who {
    Nodes,
    First,
    Second,
    Register,
}

/// Writes the lines of the story.
pub struct Teller {
    start: Instant,
    colours: bool,
}

impl Teller {
    /// Starts the clock of the story. Uses colours on a terminal, unless NO_COLOR is set.
    pub fn begin() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { start: Instant::now(), colours: wanted && std::io::stdout().is_terminal() }
    }

    /// Writes a line without a time.
    pub fn title(&self, text: &str) {
        println!("{}", self.paint("1", text));
    }

    /// Writes an event, with the time since the beginning.
    pub fn tell(&self, who: Who, text: &str) {
        let (name, colour) = match who {
            Who::Nodes => ("nodes", "33"),
            Who::First => ("first", "32"),
            Who::Second => ("second", "36"),
            Who::Register => ("register", "35"),
        };
        let name = self.paint(colour, &format!("{name:<8}"));
        println!("{:5.1} s  {name}  {text}", self.start.elapsed().as_secs_f64());
    }

    /// Writes another line about the last event.
    pub fn more(&self, text: &str) {
        println!("{:19}{text}", "");
    }

    /// Returns the text of a refusal, highlighted.
    pub fn refusal(&self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Returns the elapsed time in seconds.
    pub fn seconds(&self) -> u64 {
        self.start.elapsed().as_secs()
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
