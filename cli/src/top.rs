//! `palisade top`: the nodes and the most contended locks, live.

use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyModifiers};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{cursor, execute, queue};
use futures_util::StreamExt;
use tokio::time::{MissedTickBehavior, interval};

use crate::exit::{End, Failure};
use crate::lock_view::LockView;
use crate::look::{self, locks};
use crate::node_view::{self, NodeView};
use crate::nodes::Nodes;
use crate::show::{out, printable};

/// Locks that are looked at a time on each node: enough to see who is in whose way, little work for the nodes.
const LOOKED_AT: usize = 5_000;

/// Locks that are shown without a terminal.
const SHOWN: usize = 20;

/// Shows it, once or until the person has seen enough.
///
/// # Errors
/// Too few nodes can be asked, at the first look.
pub async fn run(nodes: &Nodes, once: bool, every: Duration) -> Result<End, Failure> {
    if once || !stdout().is_terminal() {
        out(&page(nodes, SHOWN).await?)?;
        return Ok(End::OK);
    }
    let failed = |why| Failure::of("the terminal cannot be used", why);
    let _screen = Screen::enter().map_err(failed)?;
    let mut keys = EventStream::new();
    let mut look = interval(every.max(Duration::from_millis(100)));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = look.tick() => {}
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) if is_end(key.code, key.modifiers) => return Ok(End::OK),
                Some(Ok(_)) => {}
                _ => return Ok(End::OK),
            },
        }
        let lines = size().map_or(24, |(_, lines)| usize::from(lines));
        let page = page(nodes, lines).await.unwrap_or_else(|failure| failure.text + "\n");
        draw(&page).map_err(failed)?;
    }
}

fn is_end(code: KeyCode, modifiers: KeyModifiers) -> bool {
    matches!(code, KeyCode::Char('q') | KeyCode::Esc)
        || (code == KeyCode::Char('c') && modifiers == KeyModifiers::CONTROL)
}

/// Nodes, and the most contended locks first.
async fn page(nodes: &Nodes, most: usize) -> Result<String, Failure> {
    let views: Vec<NodeView> = NodeView::all(nodes).await.into_iter().map(|(view, _)| view).collect();
    let (mut found, more) = locks(nodes, b"*", LOOKED_AT, Some(LOOKED_AT)).await?;
    found.sort_by_key(|lock: &LockView| std::cmp::Reverse((lock.waiters, lock.first.held_ms)));
    let count = if more > 0 { format!("more than {}", found.len()) } else { format!("{}", found.len()) };
    found.truncate(most);
    Ok(format!("{}\n{}\nlocks: {count}\n", node_view::rows(&views), look::rows(&found, nodes).trim_end()))
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
    write!(screen, "q ends this")?;
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
