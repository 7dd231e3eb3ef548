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
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::arguments::{Sort, Top};
use crate::contention;
use crate::exit::{End, Failure};
use crate::lock_view::LockView;
use crate::look::{self, Listed, locks};
use crate::node_view::{self, NodeView};
use crate::nodes::Nodes;
use crate::show::{out, printable, table};

/// Locks that are looked at a time on each node: enough to see who is in whose way, little work for the nodes.
const LOOKED_AT: usize = 5_000;

/// Time between two looks, unless another one is asked for.
const INTERVAL: Duration = Duration::from_secs(2);

/// Locks that are shown without a terminal.
const SHOWN: usize = 20;

/// Contended keys that are shown.
const CONTENDED: usize = 5;

/// Shows it, once or until the person has seen enough.
///
/// # Errors
/// Too few nodes can be asked, at the first look.
pub async fn run(nodes: &Nodes, top: &Top) -> Result<End, Failure> {
    let mut view = View { nodes, pattern: top.filter.as_bytes(), sort: top.sort, before: None };
    if top.once || !stdout().is_terminal() {
        if let Some(apart) = top.interval {
            view.page(SHOWN).await?;
            sleep(apart).await;
        }
        out(&view.page(SHOWN).await?)?;
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
        let page = view.page(lines).await.unwrap_or_else(|failure| failure.text + "\n");
        draw(&page).map_err(failed)?;
    }
}

fn is_end(code: KeyCode, modifiers: KeyModifiers) -> bool {
    matches!(code, KeyCode::Char('q') | KeyCode::Esc)
        || (code == KeyCode::Char('c') && modifiers == KeyModifiers::CONTROL)
}

/// What is shown, and what was seen at the last look.
struct View<'a> {
    nodes: &'a Nodes,
    pattern: &'a [u8],
    sort: Sort,
    before: Option<Look>,
}

/// The counters of the nodes at one moment.
struct Look {
    at: Instant,
    nodes: Vec<NodeView>,
}

impl View<'_> {
    /// Nodes, their rates, and the locks, in the order that is asked for.
    async fn page(&mut self, most: usize) -> Result<String, Failure> {
        let views = NodeView::all(self.nodes).await;
        let now = Look { at: Instant::now(), nodes: views };
        let Listed { views: mut found, more, is_whole } =
            locks(self.nodes, self.pattern, LOOKED_AT, Some(LOOKED_AT)).await?;
        sort(&mut found, self.sort);
        let count = if more > 0 { format!("more than {}", found.len()) } else { format!("{}", found.len()) };
        found.truncate(most);
        let rates = self.before.as_ref().map_or(String::new(), |before| rates(before, &now) + "\n");
        let rows = node_view::rows(&now.nodes);
        self.before = Some(now);
        let contended = contention::rows(self.nodes, CONTENDED).await;
        let contended = if contended.is_empty() { contended } else { contended + "\n" };
        let locks = look::rows(&found, self.nodes);
        let missing =
            is_whole.err().map_or(String::new(), |_| ", without those of masters that cannot be asked".to_owned());
        Ok(format!(
            "{rows}\n{rates}{contended}{}\nlocks: {count}{missing}, by {}\n",
            locks.trim_end(),
            self.sort.word()
        ))
    }
}

/// What the nodes did in a second between two looks.
fn rates(before: &Look, now: &Look) -> String {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(f64::MIN_POSITIVE);
    let row = |now: &NodeView| {
        // One that was started anew counts from nothing; another server may be the master by now.
        let is_same = |then: &&NodeView| {
            (then.number, &then.node, then.incarnation) == (now.number, &now.node, now.incarnation)
                && then.error.is_none()
                && now.error.is_none()
        };
        let then = before.nodes.iter().find(is_same);
        let rate = |names: &[&str]| {
            let Some(then) = then else { return "-".to_owned() };
            let grown = |name: &&str| now.info.number(name).saturating_sub(then.info.number(name));
            let count: u64 = names.iter().map(grown).sum();
            format!("{:.1}", count as f64 / seconds)
        };
        vec![
            now.number.to_string(),
            now.node.clone(),
            rate(&["lock_grants"]),
            rate(&["lock_contended"]),
            rate(&["lock_hand_overs", "lock_turns"]),
            rate(&["lock_wait_timeouts"]),
            rate(&["lock_expiries"]),
        ]
    };
    let headings = ["#", "NODE", "GRANTS/s", "REFUSED/s", "WAITED/s", "IN VAIN/s", "EXPIRED/s"];
    table(&headings, &[2, 3, 4, 5, 6], now.nodes.iter().map(row))
}

fn sort(locks: &mut [LockView], by: Sort) {
    let largest = |lock: &LockView| match by {
        Sort::Waiters => (lock.waiters, lock.first.held_ms),
        Sort::Held => (lock.first.held_ms, lock.waiters),
        Sort::Holders => (lock.holders, lock.waiters),
        // The shortest lease first.
        Sort::Lease => (u64::MAX - lock.first.ttl_ms, lock.waiters),
        Sort::Key => (0, 0),
    };
    // They come by name.
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

/// The whole terminal, given back when this is dropped.
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
    use crate::lock_view::GrantView;
    use crate::node_view::Info;

    #[test]
    fn each_order() {
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
        let look = |seconds, nodes: &[(u64, &str)]| Look {
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
        let text = rates(&before, &now);
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows, [["1", "2.5", "0.0", "1.5", "0.0", "0.0"], ["2", "-", "-", "-", "-", "-"]]);
    }

    fn start() -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }
}
