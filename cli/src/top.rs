//! `palisade top`: the nodes and the most contended locks, live.

use std::cmp::Reverse;
use std::io::{IsTerminal, Write, stdout};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyModifiers};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{cursor, execute, queue};
use futures_util::StreamExt;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::arguments::{Sort, Top};
use crate::contention::Contention;
use crate::exit::{End, Failure};
use crate::lock_view::LockView;
use crate::look::{self, Listed, locks};
use crate::members::present::present;
use crate::node_view::{self, NodeView};
use crate::nodes::Nodes;
use crate::show::{print, printable, table};

/// The most locks inspected on each node at a time: enough to find the holders that block others, and little work for
/// the nodes.
const LOOKED_AT: usize = 5_000;

/// The default interval between two updates.
const INTERVAL: Duration = Duration::from_secs(2);

/// The number of locks shown without a terminal.
const SHOWN: usize = 20;

/// The number of most contended keys that are shown.
const CONTENDED: usize = 5;

/// Shows the page, once or until the user leaves. JSON is printed once.
///
/// # Errors
///
/// Too few nodes can be asked for the first page.
pub async fn run(nodes: &Nodes, top: &Top, as_json: bool) -> Result<End, Failure> {
    let mut view = View { given: nodes, pattern: top.filter.as_bytes(), sort: top.sort, before: None };
    if top.once || as_json || !stdout().is_terminal() {
        if let Some(apart) = top.interval {
            view.read(SHOWN).await?;
            sleep(apart).await;
        }
        let shown = view.read(SHOWN).await?;
        print(as_json, &shown, || shown.text())?;
        return Ok(End::OK);
    }
    let failed = |why| Failure::of("the terminal cannot be used", why);
    let _screen = Screen::enter().map_err(failed)?;
    let mut keys = EventStream::new();
    let mut look = interval(top.interval.unwrap_or(INTERVAL).max(Duration::from_millis(100)));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = look.tick() => {}
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) if is_end(key.code, key.modifiers) => return Ok(End::OK),
                Some(Ok(Event::Key(key))) if key.code == KeyCode::Char('s') => view.sort = view.sort.next(),
                Some(Ok(_)) => {}
                _ => return Ok(End::OK),
            },
        }
        let lines = size().map_or(24, |(_, lines)| usize::from(lines));
        let shown = view.read(lines).await;
        let page = shown.map_or_else(|failure| failure.text + "\n", |shown| shown.text());
        draw(&page).map_err(failed)?;
    }
}

fn is_end(code: KeyCode, modifiers: KeyModifiers) -> bool {
    matches!(code, KeyCode::Char('q') | KeyCode::Esc)
        || (code == KeyCode::Char('c') && modifiers == KeyModifiers::CONTROL)
}

/// The data of the present page, and the counters at the previous one.
struct View<'a> {
    /// The nodes of `--nodes`. Each page asks them anew for the present set.
    given: &'a Nodes,
    pattern: &'a [u8],
    sort: Sort,
    before: Option<Sample>,
}

/// The counters of the nodes at one moment.
struct Sample {
    at: Instant,
    nodes: Vec<NodeView>,
}

/// The nodes and locks that a page shows.
#[derive(Serialize)]
struct Shown {
    nodes: Vec<NodeView>,
    /// The rates of each node since the last page; none for the first one.
    rates: Vec<Rates>,
    contended: Contention,
    /// The first of the locks, in the order that the user chose.
    locks: Vec<LockView>,
    /// The number of locks found on all nodes.
    seen: usize,
    /// True if some locks were left out.
    has_more: bool,
    /// True if all masters of clusters could be asked, so that no lock is missing.
    is_whole: bool,
    #[serde(skip)]
    sort: Sort,
    /// The nodes that were asked.
    #[serde(skip)]
    asked: Nodes,
}

/// Events per second on a node; `None` if unknown, as after a restart.
#[derive(Debug, PartialEq, Serialize)]
struct Rates {
    number: usize,
    node: String,
    granted: Option<f64>,
    refused: Option<f64>,
    waited: Option<f64>,
    in_vain: Option<f64>,
    expired: Option<f64>,
}

impl View<'_> {
    /// Asks all nodes. Returns their data and rates, and the first `most` locks in the requested order.
    async fn read(&mut self, most: usize) -> Result<Shown, Failure> {
        let asked = present(self.given).await;
        let now = Sample { at: Instant::now(), nodes: NodeView::all(&asked).await };
        let Listed { views: mut found, more, is_whole, .. } =
            locks(&asked, self.pattern, LOOKED_AT, Some(LOOKED_AT)).await?;
        sort(&mut found, self.sort);
        let seen = found.len();
        found.truncate(most);
        let rates = self.before.as_ref().map_or(vec![], |before| rates(before, &now));
        let nodes = now.nodes.clone();
        self.before = Some(now);
        let contended = Contention::ask(&asked, CONTENDED).await;
        let (has_more, is_whole) = (more > 0, is_whole.is_ok());
        Ok(Shown { nodes, rates, contended, locks: found, seen, has_more, is_whole, sort: self.sort, asked })
    }
}

impl Shown {
    /// Returns the page as text for people.
    fn text(&self) -> String {
        let count = if self.has_more { format!("more than {}", self.seen) } else { self.seen.to_string() };
        let paragraph = |text: String| if text.is_empty() { text } else { text + "\n" };
        let missing = if self.is_whole { "" } else { ", without those of masters that cannot be asked" };
        format!(
            "{}\n{}{}{}\nlocks: {count}{missing}, by {}\n",
            node_view::rows(&self.nodes),
            paragraph(rows(&self.rates)),
            paragraph(self.contended.rows()),
            look::rows(&self.locks, &self.asked).trim_end(),
            self.sort.word()
        )
    }
}

/// Returns the events per second on each node between the readings `before` and `now`.
fn rates(before: &Sample, now: &Sample) -> Vec<Rates> {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(f64::MIN_POSITIVE);
    let of_node = |now: &NodeView| {
        // A node that restarted counts from zero, and another server may be the master now.
        let is_same = |then: &&NodeView| {
            (then.number, &then.node, then.incarnation) == (now.number, &now.node, now.incarnation)
                && then.error.is_none()
                && now.error.is_none()
        };
        let then = before.nodes.iter().find(is_same);
        let rate = |names: &[&str]| {
            let grown = |name: &&str| Some(now.info.number(name).saturating_sub(then?.info.number(name)));
            let count: u64 = names.iter().map(grown).sum::<Option<u64>>()?;
            Some(count as f64 / seconds)
        };
        Rates {
            number: now.number,
            node: now.node.clone(),
            granted: rate(&["lock_grants"]),
            refused: rate(&["lock_contended"]),
            waited: rate(&["lock_hand_overs", "lock_turns"]),
            in_vain: rate(&["lock_wait_timeouts"]),
            expired: rate(&["lock_expiries"]),
        }
    };
    now.nodes.iter().map(of_node).collect()
}

/// Returns rates as a table, one node per row; empty if there are none.
fn rows(rates: &[Rates]) -> String {
    if rates.is_empty() {
        return String::new();
    }
    let shown = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
    let row = |Rates { number, node, granted, refused, waited, in_vain, expired }: &Rates| {
        let rates = [*granted, *refused, *waited, *in_vain, *expired].map(shown);
        [number.to_string(), node.clone()].into_iter().chain(rates).collect()
    };
    let headings = ["#", "NODE", "GRANTS/s", "REFUSED/s", "WAITED/s", "IN VAIN/s", "EXPIRED/s"];
    table(&headings, &[2, 3, 4, 5, 6], rates.iter().map(row))
}

fn sort(locks: &mut [LockView], by: Sort) {
    let largest = |lock: &LockView| match by {
        Sort::Waiters => (lock.waiters, lock.first.held_ms),
        Sort::Held => (lock.first.held_ms, lock.waiters),
        Sort::Holders => (lock.holders, lock.waiters),
        // The shortest remaining lease first.
        Sort::Lease => (u64::MAX - lock.first.ttl_ms, lock.waiters),
        Sort::Key => (0, 0),
    };
    // Locks that are equal in this order stay sorted by name.
    locks.sort_by_key(|lock| Reverse(largest(lock)));
}

fn draw(page: &str) -> std::io::Result<()> {
    let (columns, lines) = size()?;
    let mut screen = stdout().lock();
    queue!(screen, BeginSynchronizedUpdate, cursor::MoveTo(0, 0))?;
    for line in page.lines().take(usize::from(lines).saturating_sub(1)) {
        let line: String = printable(line.as_bytes()).chars().take(usize::from(columns)).collect();
        write!(screen, "{line}")?;
        queue!(screen, Clear(ClearType::UntilNewLine))?;
        write!(screen, "\r\n")?;
    }
    queue!(screen, Clear(ClearType::FromCursorDown))?;
    write!(screen, "q ends this, s sorts by something else")?;
    queue!(screen, EndSynchronizedUpdate)?;
    screen.flush()
}

/// The full-screen terminal, which is restored when this is dropped.
struct Screen;

impl Screen {
    fn enter() -> std::io::Result<Self> {
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::Info;
    use crate::lock_view::GrantView;

    #[test]
    fn locks_sort_in_each_order() {
        let lock = |key: &str, waiters, held_ms, ttl_ms, holders| LockView {
            key: key.to_owned(),
            waiters,
            holders,
            first: GrantView { held_ms, ttl_ms, ..GrantView::default() },
            ..LockView::default()
        };
        let all = [lock("a", 1, 9, 50, 1), lock("b", 5, 1, 70, 2), lock("c", 1, 10, 60, 7)];
        let mut by = Sort::Waiters;
        for expected in ["bca", "cab", "cba", "acb", "abc"] {
            let mut locks = all.clone();
            sort(&mut locks, by);
            let keys: String = locks.iter().map(|lock| lock.key.as_str()).collect();
            assert_eq!(keys, expected, "{by:?}");
            by = by.next();
        }
        assert_eq!(by, Sort::Waiters, "round and round");
    }

    #[test]
    fn what_grew_in_the_time_between() {
        let look = |seconds, nodes: &[(u64, &str)]| Sample {
            at: start() + Duration::from_secs(seconds),
            nodes: nodes
                .iter()
                .enumerate()
                .map(|(n, (incarnation, info))| NodeView {
                    number: n + 1,
                    incarnation: *incarnation,
                    info: Info::of(info),
                    ..NodeView::default()
                })
                .collect(),
        };
        let before = look(0, &[(1, "lock_grants:10\nlock_turns:2\nlock_hand_overs:0\n"), (1, "lock_grants:10\n")]);
        let now = look(2, &[(1, "lock_grants:15\nlock_turns:4\nlock_hand_overs:1\n"), (2, "lock_grants:3\n")]);
        let text = rows(&rates(&before, &now));
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows, [["1", "2.5", "0.0", "1.5", "0.0", "0.0"], ["2", "-", "-", "-", "-", "-"]]);
    }

    fn start() -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }
}
