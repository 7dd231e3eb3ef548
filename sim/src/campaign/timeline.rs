//! Draws a campaign: the holders of each lock over time, and the faults.
//!
//! The top shows the whole run. Below it, windows of some seconds show the interesting moments: violations first, then
//! times with many faults. In a window, each lock is a row with its holders as bars, and each node is a row with its
//! faults. The faults of the network and the clients follow.

use std::io;
use std::path::Path;

use svg::Document;
use svg::node::element::{Group, Line, Rectangle, Text, Title};

use super::Outcome;
use super::faults::{Fault, On};
use super::judge::{Claim, claims};
use super::world::{CLIENTS, CONTENDED_KEYS};
use crate::history::TimeUs;

const WIDTH: f64 = 1_800.0;
const MARGIN: f64 = 150.0;
const ROW: f64 = 26.0;
const LANE: f64 = 14.0;

/// The length of a window in microseconds. A window is a part of the run that is drawn in detail.
const WINDOW_US: u64 = 12_000_000;

/// The largest number of windows.
const WINDOWS: usize = 5;

/// The approximate width of a letter in pixels.
const LETTER: f64 = 5.6;

const TEXT: &str = "#333";
const GRID: &str = "#ddd";
const GUARD: &str = "#f2c14e";
const VIOLATION: &str = "#d00000";
const HOLDERS: [&str; 10] =
    ["#8ecae6", "#a7c957", "#ffb4a2", "#cdb4db", "#90dbf4", "#b9fbc0", "#f1c0e8", "#e9c46a", "#a3b18a", "#bde0fe"];

/// Writes the picture to `path`.
///
/// # Errors
/// The file cannot be written.
pub fn write(outcome: &Outcome, path: &Path) -> io::Result<()> {
    let holds = claims(&outcome.history.seen);
    let mut drawing = Drawing { all: Group::new(), y: 10.0 };
    drawing.overview(outcome, &holds);
    for from in windows(outcome) {
        drawing.window(outcome, &holds, from, from + WINDOW_US);
    }
    let (width, height) = (WIDTH + MARGIN + 20.0, drawing.y + 10.0);
    let paper = Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "white");
    let document = Document::new()
        .set("viewBox", (0, 0, width as u64, height as u64))
        .set("width", width)
        .set("height", height)
        .set("font-family", "DejaVu Sans, sans-serif")
        .set("font-size", 10)
        .add(paper)
        .add(drawing.all);
    svg::save(path, &document)
}

/// Returns the beginnings of the windows to draw: at violations, then where there were the most faults and refused
/// accesses, then at the last recovery. No two windows overlap.
fn windows(outcome: &Outcome) -> Vec<TimeUs> {
    let mut begins: Vec<TimeUs> = vec![];
    let last = outcome.until.saturating_sub(WINDOW_US).max(outcome.from);
    let mut add = |at: TimeUs| {
        let begin = at.saturating_sub(WINDOW_US / 2).clamp(outcome.from, last);
        if begins.len() < WINDOWS && begins.iter().all(|other| other.abs_diff(begin) >= WINDOW_US) {
            begins.push(begin);
        }
    };
    outcome.wrong.iter().for_each(|wrong| add(wrong.at));
    let refused = |from: TimeUs| {
        let window = outcome.history.seen.iter().filter(|seen| (from..from + WINDOW_US).contains(&seen.event.at));
        window.filter(|seen| seen.arrival.is_some_and(|arrival| !arrival.taken)).count()
    };
    let faults = |from: TimeUs| {
        let began = outcome.faults.iter().filter(|fault| (from..from + WINDOW_US).contains(&fault.from));
        began.map(|fault| if matches!(fault.on, On::AllNodes) { 10 } else { 1 }).sum::<usize>()
    };
    let mut moments: Vec<TimeUs> = (outcome.from..last).step_by(WINDOW_US as usize).collect();
    moments.sort_by_cached_key(|&at| std::cmp::Reverse(refused(at) + faults(at)));
    moments.iter().for_each(|&at| add(at + WINDOW_US / 2));
    // If fewer windows are in use, one shows the last storm and the recovery from it.
    if let Some(recovery) = outcome.recoveries.last() {
        add(recovery.from);
    }
    begins.sort_unstable();
    begins
}

fn colour(fault: &Fault) -> &'static str {
    match fault.kind {
        kind if kind.contains("killed") => "#495057",
        kind if kind.contains("stopped") => "#5e81c8",
        "shut down" => "#adb5bd",
        "disk full" => "#a47148",
        kind if kind.contains("failed over") => "#9d4edd",
        "wall clock stepped" => "#2a9d8f",
        "delay" | "delivered late" => "#f4a261",
        kind if kind.contains("swallowed") || kind.contains("connections") => "#e76f51",
        _ => "#c77dff",
    }
}

fn is_network(fault: &Fault) -> bool {
    matches!(colour(fault), "#f4a261" | "#e76f51")
}

struct Drawing {
    all: Group,
    y: f64,
}

impl Drawing {
    fn add(&mut self, node: impl Into<Box<dyn svg::Node>>) {
        self.all = std::mem::replace(&mut self.all, Group::new()).add(node);
    }

    fn label(&mut self, x: f64, y: f64, text: impl Into<String>) {
        self.add(Text::new(text.into()).set("x", x).set("y", y).set("fill", TEXT));
    }

    fn heading(&mut self, text: impl Into<String>) {
        self.y += 22.0;
        let text = Text::new(text.into()).set("x", 10).set("y", self.y).set("font-size", 15).set("font-weight", "bold");
        self.add(text.set("fill", TEXT));
        self.y += 10.0;
    }

    /// Draws a bar with a tooltip. Draws `text` in the bar if it fits.
    fn bar(&mut self, x: (f64, f64), y: (f64, f64), fill: &str, text: &str, tip: String) {
        let width = (x.1 - x.0).max(1.0);
        let rectangle =
            Rectangle::new().set("x", x.0).set("y", y.0).set("width", width).set("height", y.1).set("fill", fill);
        let mut group = Group::new().add(Title::new(tip)).add(rectangle);
        // Only the beginning of the text that fits is drawn.
        let room = (width / LETTER) as usize;
        if room > 3 && !text.is_empty() {
            let text: String = text.chars().take(room).collect();
            let dark = matches!(fill, "#495057" | "#5e81c8" | "#9d4edd" | "#a47148" | "#2a9d8f");
            let text = Text::new(text).set("x", x.0 + 2.0).set("y", y.0 + y.1 / 2.0 + 3.5).set("font-size", 9);
            group = group.add(text.set("fill", if dark { "white" } else { TEXT }));
        }
        self.add(group);
    }

    fn tick(&mut self, x: f64, y: (f64, f64), colour: &str, width: f64) {
        let line = Line::new().set("x1", x).set("x2", x).set("y1", y.0).set("y2", y.1);
        self.add(
            line.set("stroke", colour)
                .set("stroke-width", width)
                .set("stroke-opacity", if colour == GRID { 0.5 } else { 1.0 }),
        );
    }

    fn axis(&mut self, outcome: &Outcome, from: TimeUs, until: TimeUs, top: f64) {
        let seconds = (until - from) as f64 / 1e6;
        let step = [0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0].into_iter().find(|step| seconds / step <= 30.0);
        let step_us = (step.unwrap_or(600.0) * 1e6) as u64;
        let mut at = from - (from - outcome.from) % step_us;
        while at <= until {
            if at >= from {
                let x = place(at, from, until);
                self.tick(x, (top, self.y), GRID, 1.0);
                self.label(x - 8.0, self.y + 12.0, format!("{} s", (at - outcome.from) as f64 / 1e6));
            }
            at += step_us;
        }
        self.y += 16.0;
    }

    /// Draws the whole run: acquisitions per second, faults, and the times at which everything was healed.
    fn overview(&mut self, outcome: &Outcome, holds: &[Claim]) {
        let (from, until) = (outcome.from, outcome.until);
        let kinds = outcome.faults.len();
        let wrong = outcome.wrong.len();
        self.heading(format!(
            "The whole run, seed {}: {} acquisitions, {kinds} faults, {wrong} violations",
            outcome.settings.seed,
            holds.len()
        ));
        let top = self.y;
        const HEIGHT: f64 = 70.0;
        let slots = 300;
        let mut counts = vec![0_u32; slots];
        for hold in holds {
            counts[((hold.from - from) as usize * slots / (until - from + 1) as usize).min(slots - 1)] += 1;
        }
        let most = f64::from(counts.iter().copied().max().unwrap_or(1).max(1));
        for (n, &count) in counts.iter().enumerate() {
            let height = f64::from(count) / most * HEIGHT;
            let x = MARGIN + n as f64 * WIDTH / slots as f64;
            let next = x + WIDTH / slots as f64 - 0.5;
            self.bar((x, next), (top + HEIGHT - height, height), "#8ecae6", "", format!("{count} acquisitions"));
        }
        self.label(10.0, top + HEIGHT / 2.0, "acquisitions");
        self.y = top + HEIGHT + 6.0;
        let rows: [(&str, fn(&Fault) -> bool); 3] = [
            ("servers, clocks", |fault| matches!(fault.on, On::Node(_) | On::AllNodes) && !is_network(fault)),
            ("network", is_network),
            ("clients", |fault| matches!(fault.on, On::Client(_)) && !is_network(fault)),
        ];
        for (name, of) in rows {
            self.label(10.0, self.y + 12.0, name);
            for fault in outcome.faults.iter().filter(|fault| of(fault)) {
                let x = place(fault.from, from, until);
                self.tick(x, (self.y, self.y + 16.0), colour(fault), 1.5);
            }
            self.y += 20.0;
        }
        self.label(10.0, self.y + 8.0, "healed, until had again");
        for recovery in &outcome.recoveries {
            let x = (place(recovery.from, from, until), place(recovery.from + recovery.took_us, from, until));
            self.bar(x, (self.y, 10.0), "#55a630", "", format!("{} ms", recovery.took_us / 1_000));
        }
        self.y += 16.0;
        self.violations(outcome, from, until, top);
        self.axis(outcome, from, until, top);
    }

    fn violations(&mut self, outcome: &Outcome, from: TimeUs, until: TimeUs, top: f64) {
        for wrong in outcome.wrong.iter().filter(|wrong| (from..=until).contains(&wrong.at)) {
            let x = place(wrong.at, from, until);
            self.tick(x, (top - 4.0, self.y), VIOLATION, 2.0);
        }
    }

    fn window(&mut self, outcome: &Outcome, holds: &[Claim], from: TimeUs, until: TimeUs) {
        let second = |at: TimeUs| (at - outcome.from) as f64 / 1e6;
        self.heading(format!("From {:.1} s to {:.1} s", second(from), second(until)));
        let top = self.y;
        for key in 0..CONTENDED_KEYS + CLIENTS as u32 {
            self.lock_row(outcome, holds, key, from, until);
        }
        self.y += 6.0;
        for node in 0..outcome.settings.nodes() {
            self.node_row(outcome, node, from, until);
        }
        self.y += 6.0;
        let network = outcome.faults.iter().filter(|fault| is_network(fault));
        self.lanes("network", network, from, until, |fault| format!("{}: {} {}", fault.on, fault.kind, fault.note));
        for client in 0..CLIENTS {
            let of = outcome.faults.iter().filter(|fault| fault.on == On::Client(client) && !is_network(fault));
            self.lanes(&format!("client {}", client + 1), of, from, until, |fault| {
                format!("{} {}", fault.kind, fault.note)
            });
        }
        self.violations(outcome, from, until, top);
        self.axis(outcome, from, until, top);
    }

    fn lock_row(&mut self, outcome: &Outcome, holds: &[Claim], key: u32, from: TimeUs, until: TimeUs) {
        let own = key >= CONTENDED_KEYS;
        let name =
            if own { format!("lock {key} (of client {})", key - CONTENDED_KEYS + 1) } else { format!("lock {key}") };
        self.label(10.0, self.y + 14.0, name);
        let of_key = holds.iter().filter(|hold| hold.key == key && hold.from < until && hold.until > from);
        for hold in of_key {
            let x = (place(hold.from.max(from), from, until), place(hold.until.min(until), from, until));
            let fill = HOLDERS[hold.who.client as usize % HOLDERS.len()];
            let text = format!("{}.{} …{:04}", hold.who.client, hold.who.acquisition, hold.token % 10_000);
            let tip = format!("{}, token {}, {} us", hold.who, hold.token, hold.until - hold.from);
            self.bar(x, (self.y, 16.0), fill, &text, tip);
        }
        let accesses = outcome.history.seen.iter().filter(|seen| seen.event.key == key);
        for seen in accesses.filter(|seen| (from..until).contains(&seen.event.at)) {
            if let Some(arrival) = seen.arrival {
                let x = place(seen.event.at, from, until);
                let (colour, width) = if arrival.taken { ("#6c757d", 0.7) } else { (VIOLATION, 2.0) };
                self.tick(x, (self.y + 17.0, self.y + 22.0), colour, width);
            }
        }
        self.y += ROW;
    }

    fn node_row(&mut self, outcome: &Outcome, node: usize, from: TimeUs, until: TimeUs) {
        let y = self.y;
        let guards = outcome.guards.iter().filter(|guarded| guarded.node == node);
        for guarded in guards.filter(|guarded| guarded.from < until && guarded.until > from) {
            let x = (place(guarded.from.max(from), from, until), place(guarded.until.min(until), from, until));
            let text = format!("guarded ({})", guarded.reason);
            self.bar(x, (y, 11.0), GUARD, &text, text.clone());
        }
        self.y += 12.0;
        let of = outcome
            .faults
            .iter()
            .filter(|fault| matches!(fault.on, On::Node(on) if on == node) || fault.on == On::AllNodes);
        let of = of.filter(|fault| !is_network(fault));
        self.lanes(&format!("node {}", node + 1), of, from, until, |fault| format!("{} {}", fault.kind, fault.note));
        self.y = self.y.max(y + ROW);
    }

    /// Draws faults as bars, side by side where they overlap.
    fn lanes<'a>(
        &mut self,
        name: &str,
        faults: impl Iterator<Item = &'a Fault>,
        from: TimeUs,
        until: TimeUs,
        text: impl Fn(&Fault) -> String,
    ) {
        self.label(10.0, self.y + 10.0, name);
        let mut ends: Vec<f64> = vec![];
        for fault in faults {
            let end = fault.until.unwrap_or(until);
            if fault.from >= until || end <= from {
                continue;
            }
            let text = text(fault);
            let x0 = place(fault.from.max(from), from, until);
            // A bar is wide enough to be seen, so a short fault looks longer. The tooltip has its true length.
            let x1 = place(end.min(until), from, until).max(x0 + 4.0);
            let lane = ends.iter().position(|&end| end + 1.0 < x0).unwrap_or(ends.len());
            let room = if x1 - x0 < 40.0 { text.len().min(24) as f64 * LETTER } else { 0.0 };
            if lane == ends.len() {
                ends.push(0.0);
            }
            ends[lane] = x1.max(x0 + room);
            let y = self.y + lane as f64 * LANE;
            let tip = format!("{text}, {} ms", (end - fault.from) / 1_000);
            if room > 0.0 {
                self.bar((x0, x1), (y, LANE - 2.0), colour(fault), "", tip);
                let short: String = text.chars().take(23).collect();
                self.add(Text::new(short).set("x", x1 + 1.0).set("y", y + 9.0).set("font-size", 8).set("fill", "#666"));
            } else {
                self.bar((x0, x1), (y, LANE - 2.0), colour(fault), &text, tip);
            }
        }
        self.y += LANE * ends.len().max(1) as f64 + 2.0;
    }
}

/// Returns the horizontal position of a moment.
fn place(at: TimeUs, from: TimeUs, until: TimeUs) -> f64 {
    MARGIN + (at - from) as f64 / (until - from) as f64 * WIDTH
}
