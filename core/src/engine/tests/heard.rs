//! Tests of requests whose answers go to a listener (LOCK.HEAR), among requests of blocked clients.

use proptest::prelude::*;

use crate::engine::{Finding, Request, Run, Step};
use crate::fixture::*;
use crate::keepalive::ClientId;
use crate::node::Node;
use crate::queue::listening::{News, NewsBody};
use crate::queue::of_key::{WaiterId, Want};
use crate::queue::shares::Load;
use crate::request::{Behind, ListenerName, Note, Patience, Wait};
use crate::values::mode::{Mode, Wanted};

fn asks(node: &mut Node, client: u64) -> Vec<News> {
    let name = [client as u8; 16];
    node.listen(ClientId(client), ListenerName::new(&name).unwrap(), b"ann", || Ok(())).unwrap()
}

fn of(news: &[News]) -> Vec<&[u8]> {
    news.iter().map(|news| &*news.owner).collect()
}

/// Asks for a turn at a held lock, with answers to `listener`; returns the id if the request waits.
fn waits(node: &mut Node, listener: u64, who: &str, ms: u64, now: u64) -> Option<WaiterId> {
    let patience = Patience::new(Some(ms)).unwrap();
    let (note, behind) = (Note::default(), Behind::default());
    let ask = Wait { owner: owner(who), wanted: Wanted::Exclusive, patience, ticket: None, note, behind };
    let request = Request::Wait(ask);
    let mut lock = exclusive(owner("holder"), note, token(1), at(0).boot, ttl(60_000));
    let (mut run, mut said, mut id) = (Run::new(KEY, &request), Finding::Yes, None);
    loop {
        match run.next(Some(&mut lock), said, node, at(now)) {
            Step::Done(_) => return id,
            Step::Block => {
                id = node.listeners.begin(ClientId(listener), b"k", owner(who));
                said = Finding::Blocked(id.unwrap());
            }
            _ => said = Finding::Yes,
        }
    }
}

/// A node with three listeners, and what each of them should receive.
struct ListenersFixture {
    node: Node,
    /// The waiting requests: id, listener and owner.
    open: Vec<(WaiterId, u64, String)>,
    /// For each listener, the owners whose requests are answered but which it has not received yet.
    untold: [Vec<String>; 3],
    lives: [bool; 3],
    now: u64,
}

type Checked = Result<(), TestCaseError>;

impl ListenersFixture {
    fn new() -> Self {
        Self { node: node(), open: vec![], untold: Default::default(), lives: [false; 3], now: 0 }
    }

    fn step(&mut self, what: u8, listener: u64, who: String, ms: u64) -> Checked {
        let (node, now, client) = (&mut self.node, at(self.now).boot, ClientId(listener));
        match what {
            0 | 1 if self.lives[listener as usize] => {
                let id = waits(node, listener, &who, ms, self.now);
                self.open.extend(id.map(|id| (id, listener, who)));
            }
            2 => {
                node.listeners.remove_wait(client);
                let news = asks(node, listener);
                self.lives[listener as usize] = true;
                self.is_told(listener, &news)?;
                self.node.listeners.add_wait(client, WaiterId(listener), at(self.now + ms).boot);
            }
            3 => {
                node.listeners.end(client);
                self.lives[listener as usize] = false;
                self.untold[listener as usize].clear();
                self.open.retain(|(_, other, _)| *other != listener);
                while node.remove_one_left(now) {}
            }
            4 => while node.listeners.take_timed_out(now).is_some() {},
            _ => self.end_first(ms)?,
        }
        Ok(())
    }

    /// Ends the request that has waited longest; `ms` chooses the way: its listener gives it up, its owner withdraws
    /// it, or it gets the lock.
    fn end_first(&mut self, ms: u64) -> Checked {
        let (Some((_, listener, who)), now) = (self.open.first().cloned(), at(self.now).boot) else { return Ok(()) };
        match ms % 3 {
            0 => {
                // A RELEASE by another listener must not end it.
                let mut stop = |listener| self.node.stop_waiting(KEY, owner(&who), ClientId(listener), now);
                prop_assert_eq!((stop(listener + 1), stop(listener)), (0, 1));
            }
            1 => self.node.queues().withdraw(KEY, owner(&who), now),
            _ => drop(self.node.queues().answer_granted(KEY, owner(&who), (Mode::Exclusive, token(9)), now)),
        }
        Ok(())
    }

    /// Delivers answers to the listeners. Checks that each listener that asks receives exactly the answers that it has
    /// not received yet.
    fn tell(&mut self) -> Checked {
        while self.node.time_out(at(self.now).boot) {}
        for (id, answer) in self.node.take_answers(usize::MAX) {
            self.node.listeners.add_news(id, NewsBody::Answer(answer));
            if let Some(place) = self.open.iter().position(|(other, ..)| *other == id) {
                let (_, listener, owner) = self.open.remove(place);
                self.untold[listener as usize].push(owner);
            }
        }
        while let Some((WaiterId(listener), news)) = self.node.listeners.take_ready() {
            self.is_told(listener, &news)?;
        }
        Ok(())
    }

    fn is_told(&mut self, listener: u64, news: &[News]) -> Checked {
        let told = std::mem::take(&mut self.untold[listener as usize]);
        prop_assert_eq!(of(news), told.iter().map(String::as_bytes).collect::<Vec<_>>());
        Ok(())
    }

    fn check(&self) -> Checked {
        let (node, open) = (&self.node, &self.open);
        let waiting: Vec<_> = node.waiting.of(KEY).map(|waiter| (waiter.id, waiter.want)).collect();
        prop_assert_eq!(waiting.len(), open.len());
        let each = waiting.iter().all(|(id, want)| *want == Want::Turn && open.iter().any(|(other, ..)| other == id));
        prop_assert!(each);
        prop_assert_eq!(node.listeners.requests(), open.len());
        let untold: usize = self.untold.iter().map(Vec::len).sum();
        prop_assert_eq!(node.load().places as usize, open.len() + untold, "each has its place until it is heard");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// A listener that lives receives one answer to each of its requests. When a listener ends, its requests leave
    /// their queue.
    #[test]
    fn each_request_is_news_once_or_leaves(
        steps in prop::collection::vec((0u8..6, 0u64..3, 0u8..4, 1u64..60), 1..80)
    ) {
        let mut heard = ListenersFixture::new();
        for (n, (what, listener, who, ms)) in steps.into_iter().enumerate() {
            heard.now += ms / 6;
            heard.step(what, listener, format!("{who}-{n}"), ms)?;
            heard.tell()?;
            heard.check()?;
        }
        let (node, now) = (&mut heard.node, at(heard.now).boot);
        (0..3).for_each(|listener| node.listeners.end(ClientId(listener)));
        while node.remove_one_left(now) {}
        prop_assert_eq!(node.load(), Load::NONE);
    }
}
