//! The report of a campaign, for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::ValueEnum as _;
use serde::Serialize;

use super::faults::{Fault, On, Wrong};
use super::gated::judge::Counts;
use super::journal::{Line, now_us};
use super::judge::{History, JudgedEvent};
use super::kinds::Kind;
use super::world::{CLIENTS, CONTENDED_KEYS};
use super::{Outcome, timeline};
use crate::history::{HeldAs, Holder, Occurrence, TimeUs};

/// The time before and after a violation whose events are shown, in microseconds.
const AROUND_US: u64 = 2_000_000;

/// The most lines shown around a violation.
const AROUND_MAX: usize = 60;

/// The most violations that are shown with the events around them.
const SHOWN_MAX: usize = 10;

/// The delay, in microseconds, up to which a loss that is reported after the end of the validity counts as in time on a
/// busy machine.
const IN_TIME_US: u64 = 20_000;

/// The client crate's longest pause between two attempts to connect, in microseconds.
const RECONNECT_US: u64 = 1_000_000;

/// Returns a progress line for the terminal.
pub fn progress(from: TimeUs, history: &History, faults: &[Fault], wrong: usize) -> String {
    let numbers = Numbers::of(history);
    let mut text = format!(
        "{:5.0} s  acquired {:6}  handed over {:6}  lost {:5}  stale refused {:5}  violations {wrong}\n         faults:",
        (now_us() - from) as f64 / 1e6,
        numbers.acquired,
        numbers.handed_over,
        numbers.lost,
        numbers.refused
    );
    for (kind, count) in by_kind(faults) {
        let _ = write!(text, " {kind} {count},");
    }
    text.trim_end_matches(',').to_owned()
}

fn by_kind(faults: &[Fault]) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    faults.iter().for_each(|fault| *kinds.entry(fault.kind).or_default() += 1);
    kinds
}

/// The counts of a campaign.
#[derive(Debug, Default)]
pub struct Numbers {
    /// The number of locks that were taken.
    pub acquired: usize,
    /// The number of locks taken by readers.
    pub shared: usize,
    /// The number of permits taken.
    pub permits: usize,
    /// Locks taken by clients that had begun to wait while another client held the lock.
    pub handed_over: usize,
    /// The number of extensions of leases and of raised tokens, together.
    pub extended: usize,
    /// The answers to requests for locks, by kind.
    pub answers: BTreeMap<String, usize>,
    /// The waits of requests that got the lock, in microseconds, sorted.
    pub waits_us: Vec<u64>,
    /// Locks that were lost while they were held.
    pub lost: usize,
    /// The results of releases, by kind.
    pub released: BTreeMap<String, usize>,
    /// Updates that the register accepted.
    pub updates: usize,
    /// Accesses that the register refused.
    pub refused: usize,
}

impl Numbers {
    /// Counts the events of a sorted history.
    pub fn of(history: &History) -> Self {
        let mut numbers = Self::default();
        for line in &history.lines {
            match line {
                Line::Asked { answer, waits, took_us, .. } => {
                    *numbers.answers.entry(answer.clone()).or_default() += 1;
                    if *waits && answer == "held" {
                        numbers.waits_us.push(*took_us);
                    }
                }
                Line::Lost { .. } => numbers.lost += 1,
                Line::Released { answer, .. } => *numbers.released.entry(answer.clone()).or_default() += 1,
                // Other modules judge the other lines.
                _ => {}
            }
        }
        let mut ends: BTreeMap<u32, (Holder, TimeUs)> = BTreeMap::new();
        for JudgedEvent { event, arrival } in &history.seen {
            match event.what {
                Occurrence::Held { since, until, mode, .. } => {
                    numbers.acquired += 1;
                    numbers.shared += usize::from(mode == HeldAs::Shared);
                    numbers.permits += usize::from(matches!(mode, HeldAs::Permit { .. }));
                    numbers.handed_over += usize::from(ends.get(&event.key).is_some_and(|&(_, end)| since < end));
                    ends.insert(event.key, (event.who, until));
                }
                Occurrence::Extended { until, .. } => {
                    numbers.extended += 1;
                    ends.entry(event.key).and_modify(|end| end.1 = until);
                }
                Occurrence::Ended => {
                    if let Some(end) = ends.get_mut(&event.key).filter(|end| end.0 == event.who) {
                        end.1 = end.1.min(event.at);
                    }
                }
                Occurrence::Converted { .. } => {}
                Occurrence::Wrote { .. } => {
                    let taken = arrival.is_some_and(|arrival| arrival.taken);
                    numbers.refused += usize::from(!taken);
                    numbers.updates += usize::from(taken && arrival.is_some_and(|arrival| arrival.writes));
                }
            }
        }
        numbers.waits_us.sort_unstable();
        numbers
    }
}

/// Returns the value at the fraction `part` of a sorted list.
fn at<T: Copy + Default>(sorted: &[T], part: f64) -> T {
    let n = (sorted.len().saturating_sub(1)) as f64 * part;
    sorted.get(n.round() as usize).copied().unwrap_or_default()
}

/// Writes the report, the timeline, and all data as JSON lines.
///
/// # Errors
///
/// A file cannot be written.
pub fn write(outcome: &Outcome) -> io::Result<()> {
    let out = &outcome.out;
    write_lines(&out.join("history.jsonl"), outcome.history.seen.iter().map(|seen| &seen.event))?;
    write_lines(&out.join("faults.jsonl"), &outcome.faults)?;
    timeline::write(outcome, &out.join("timeline.svg"))?;
    fs::write(out.join("report.md"), markdown(outcome))
}

fn write_lines(path: &Path, values: impl IntoIterator<Item = impl Serialize>) -> io::Result<()> {
    let mut file = io::BufWriter::new(fs::File::create(path)?);
    for value in values {
        serde_json::to_writer(&mut file, &value)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

fn markdown(outcome: &Outcome) -> String {
    let numbers = Numbers::of(&outcome.history);
    let seconds = (outcome.until - outcome.from) as f64 / 1e6;
    let settings = &outcome.settings;
    let mut text = String::from("# Fault campaign\n\n");
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(match outcome.wrong.len() {
        0 => "**No violation.**".to_owned(),
        count => format!("**{count} violations.** The first is at {}.", time(outcome, outcome.wrong[0].at)),
    });
    line(String::new());
    line("| what | value |\n|---|---|".to_owned());
    let mut row = |what: &str, value: String| line(format!("| {what} | {value} |"));
    row("seed", settings.seed.to_string());
    row("duration", format!("{seconds:.0} s ({} s with faults were asked for)", settings.seconds));
    let version = outcome.ends.first().map_or("", |end| &end.version);
    let (nodes, cluster) = (
        settings.nodes(),
        match (settings.cluster, settings.brief) {
            (true, true) => ", one cluster, in brief",
            (true, false) => ", one cluster",
            (false, _) => "",
        },
    );
    row("nodes", format!("{nodes}{cluster}, server version {version}, module {}", env!("CARGO_PKG_VERSION")));
    row("lock.max-ttl, lock.max-clock-skew", format!("{} ms, {} ms", settings.max_ttl_ms, settings.skew_ms));
    let (each, all) = (settings.tasks(), outcome.lives.len());
    let tasks = format!("{CLIENTS} at a time with {each} tasks each, {all} in all");
    row("client processes", tasks);
    row("keys", format!("{CONTENDED_KEYS} that all want, and one of each client's own"));
    if !outcome.full_disks {
        row("disk full", "not done: mounting is not permitted here".to_owned());
    }
    let left_out = |kind: &&Kind| !settings.cluster && !settings.does(**kind);
    for kind in Kind::value_variants().iter().filter(left_out) {
        row(&kind.to_string(), "not done: it was not asked for, or its program was not named".to_owned());
    }
    let (shared, permits, handed_over) = (numbers.shared, numbers.permits, numbers.handed_over);
    row(
        "acquisitions",
        format!("{}, of these {shared} to read and {permits} permits; {handed_over} handed over", numbers.acquired),
    );
    row("leases extended or tokens raised", numbers.extended.to_string());
    row("updates of the register", numbers.updates.to_string());
    row("stale accesses refused by the register", numbers.refused.to_string());
    let ms = |us: u64| format!("{:.1} ms", us as f64 / 1e3);
    let waits = &numbers.waits_us;
    row(
        "waits of those served",
        format!("p50 {}, p99 {}, longest {}", ms(at(waits, 0.5)), ms(at(waits, 0.99)), ms(at(waits, 1.0))),
    );
    row("losses told", losses(outcome));
    let kept = &outcome.kept;
    row(
        "leases kept by KEEPALIVE",
        format!(
            "{}; {} had to last, as nothing was done to their node or connection, of these {} for longer than their ttl; {} were \
             over when their connection had ended",
            kept.kept, kept.judged, kept.prolonged, kept.left
        ),
    );
    let elections = &outcome.elections;
    row(
        "elections",
        format!(
            "{} terms won, {} proclamations more; observers were told {} times who leads, {} times of one who did not know",
            elections.terms, elections.proclaimed, elections.observed, elections.unfinished
        ),
    );
    let given_back = &outcome.given_back;
    row(
        "releases through agents",
        format!(
            "{} owners were told that they held the lock until now, {} of them after the end of its validity",
            given_back.held, given_back.late
        ),
    );
    row("writes behind gates", writes(&outcome.gated.gates));
    match outcome.postgresql {
        true => row("writes behind fences of PostgreSQL", writes(&outcome.gated.fences)),
        false if settings.cluster => {}
        false => row("writes behind fences of PostgreSQL", "NOT DONE: PostgreSQL is not installed here".to_owned()),
    }
    row("answers", format!("{:?}", numbers.answers));
    row("releases", format!("{:?}", numbers.released));
    let (proved, unproved) = outcome.starts;
    row(
        "starts of servers",
        format!("{proved} proved that they remember every grant, {unproved} could not and were guarded"),
    );
    let mut reasons: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for guarded in &outcome.guards {
        reasons.entry(&guarded.reason).or_default().push(guarded.until.saturating_sub(guarded.from));
    }
    for (reason, mut lasted) in reasons {
        lasted.sort_unstable();
        row(
            &format!("guards ({reason})"),
            format!("{}: p50 {}, longest {}", lasted.len(), ms(at(&lasted, 0.5)), ms(at(&lasted, 1.0))),
        );
    }
    if let Some(worst) = outcome.recoveries.iter().max_by_key(|recovery| recovery.took_us) {
        // The longest expected recovery: a majority must serve, the longest lease of a dead holder ends, and a client
        // reconnects.
        let expected = worst.guard_us + settings.max_ttl_ms * 1_000 + RECONNECT_US;
        row(
            "recoveries",
            format!(
                "{}; worst {} at {}, when the nodes that were needed were guarded for {} more, leases of up to {} ms ran and connections were \
                 made again after up to {} ms: {} than all of that",
                outcome.recoveries.len(),
                ms(worst.took_us),
                time(outcome, worst.from),
                ms(worst.guard_us),
                settings.max_ttl_ms,
                RECONNECT_US / 1_000,
                if worst.took_us <= expected { "shorter" } else { "longer" }
            ),
        );
    }
    if !settings.cluster {
        let alone = format!("{} of nodes, each asked for every key with the others away", outcome.majorities);
        row("majorities at the end", alone);
    }
    for end in &outcome.ends {
        let (held, deadlines, waiters) = end.left;
        let left = format!("{held} locks, {deadlines} deadlines, {waiters} waiters left");
        row(&format!("{} at the end", end.name), format!("{:.1} MiB, {left}", end.memory as f64 / f64::from(1 << 20)));
    }
    line("\n## Faults\n\n| fault | times |\n|---|--:|".to_owned());
    for (kind, count) in by_kind(&outcome.faults) {
        line(format!("| {kind} | {count} |"));
    }
    line(format!("| all | {} |", outcome.faults.len()));
    line("\n## Who held what\n\n![timeline](timeline.svg)\n".to_owned());
    line("## Violations\n".to_owned());
    if outcome.wrong.is_empty() {
        line("None.".to_owned());
    }
    for wrong in outcome.wrong.iter().take(SHOWN_MAX) {
        line(violation(outcome, wrong));
    }
    if outcome.wrong.len() > SHOWN_MAX {
        line("### The others\n".to_owned());
        for wrong in &outcome.wrong[SHOWN_MAX..] {
            line(format!("- {} {}", time(outcome, wrong.at), wrong.what));
        }
    }
    text
}

fn writes(counts: &Counts) -> String {
    let Counts { landed, fenced, fenced_after, fenced_calmly, unanswered, lost } = counts;
    let after: String = fenced_after.iter().map(|(over, count)| format!("{count} after a {over}, ")).collect();
    format!(
        "{landed} landed, {lost} of them lost with their server; {fenced} late ones refused: {after}{fenced_calmly} \
         without a fault since the newer write; {unanswered} unanswered"
    )
}

/// Describes when losses were reported, relative to the end of the validity. A process that was stopped learns of its
/// loss only when it continues.
fn losses(outcome: &Outcome) -> String {
    let (mut early, mut in_time, mut stopped, mut late) = (0, 0, 0, vec![]);
    for line in &outcome.history.lines {
        let Line::Lost { at, who, until, .. } = *line else { continue };
        let client = outcome.lives.get(who.client as usize - 1).copied();
        let was_stopped = |fault: &&Fault| {
            fault.kind == "client stopped"
                && Some(fault.on) == client.map(On::Client)
                && fault.from <= at
                && fault.until.is_none_or(|end| end + IN_TIME_US >= until)
        };
        if at < until {
            early += 1;
        } else if at - until <= IN_TIME_US {
            in_time += 1;
        } else if outcome.faults.iter().any(|fault| was_stopped(&fault)) {
            stopped += 1;
        } else {
            late.push(at - until);
        }
    }
    let longest = late.iter().max().copied().unwrap_or(0) as f64 / 1e3;
    format!(
        "{}: {early} before the validity ended, {in_time} within {} ms after, {stopped} when the stopped process went on, {} \
         later (longest {longest:.1} ms)",
        early + in_time + stopped + late.len(),
        IN_TIME_US / 1_000,
        late.len()
    )
}

/// Returns a moment as text for the reader: seconds since the campaign began.
fn time(outcome: &Outcome, at: TimeUs) -> String {
    format!("{:.6} s", (at.cast_signed() - outcome.from.cast_signed()) as f64 / 1e6)
}

fn violation(outcome: &Outcome, wrong: &Wrong) -> String {
    let mut text = format!("### {}: {}\n\n", time(outcome, wrong.at), wrong.what);
    let near = |at: TimeUs| at + AROUND_US >= wrong.at && at <= wrong.at + AROUND_US / 4;
    for fault in &outcome.faults {
        if fault.from <= wrong.at + AROUND_US / 4 && fault.until.is_none_or(|until| until + 4 * AROUND_US >= wrong.at) {
            let until = fault.until.map_or("the end".to_owned(), |until| time(outcome, until));
            let _ = writeln!(
                text,
                "- {} to {until}: {}, {} {}",
                time(outcome, fault.from),
                fault.on,
                fault.kind,
                fault.note
            );
        }
    }
    let Some(key) = wrong.key else { return text };
    text.push_str("\n```\n");
    let around: Vec<&JudgedEvent> =
        outcome.history.seen.iter().filter(|seen| seen.event.key == key && near(seen.event.at)).collect();
    let skipped = around.len().saturating_sub(AROUND_MAX);
    for JudgedEvent { event, arrival } in &around[skipped..] {
        let what = match event.what {
            Occurrence::Held { since, until, token, .. } => {
                format!("holds it: asked at {}, until {}, token {token}", time(outcome, since), time(outcome, until))
            }
            Occurrence::Extended { until, token } => format!("extended until {}, token {token}", time(outcome, until)),
            Occurrence::Ended => "relies on it no longer".to_owned(),
            Occurrence::Converted { token, mode } => format!("relies on it as {mode:?}, token {token}"),
            Occurrence::Wrote { token, .. } => {
                let answer = if arrival.is_some_and(|arrival| arrival.taken) { "taken" } else { "refused" };
                format!("accesses the register with token {token}: {answer}")
            }
        };
        let _ = writeln!(text, "{} {} {what}", time(outcome, event.at), event.who);
    }
    text.push_str("```\n");
    text
}
