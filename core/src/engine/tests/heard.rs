//! Requests whose answers a listener hears, beside those of blocked clients.

use proptest::prelude::*;

use crate::engine::{Request, Run, Said, Step};
use crate::fixture::*;
use crate::keepalive::ClientId;
use crate::node::Node;
use crate::queue::listening::{News, Told};
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

/// Asks for a turn as a command does, of a lock that is held; whether it waits.
fn waits(node: &mut Node, listener: u64, who: &str, ms: u64, now: u64) -> Option<WaiterId> {
    let patience = Patience::new(Some(ms)).unwrap();
    let (note, behind) = (Note::default(), Behind::default());
    let ask = Wait { owner: owner(who), wanted: Wanted::Exclusive, patience, ticket: None, note, behind };
    let request = Request::Wait(ask);
    let mut lock = exclusive(owner("holder"), note, token(1), at(0).boot, ttl(60_000));
    let (mut run, mut said, mut id) = (Run::new(KEY, &request), Said::Yes, None);
    loop {
        match run.next(Some(&mut lock), said, node, at(now)) {
            Step::Done(_) => return id,
            Step::Block => {
                id = node.listeners.begin(ClientId(listener), b"k", owner(who));
                said = Said::Blocked(id.unwrap());
            }
            _ => said = Said::Yes,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Whatever happens, each request whose listener lives is news exactly once, and those of a listener that ended leave their queue.
    #[test]
    fn each_request_is_news_once_or_leaves(
        steps in prop::collection::vec((0u8..6, 0u64..3, 0u8..4, 1u64..60), 1..80)
    ) {
        let mut node = node();
        // Of each request that waits: its listener and owner. Of each listener: what it was not told yet.
        let mut open: Vec<(WaiterId, u64, String)> = vec![];
        let mut untold: Vec<Vec<String>> = vec![vec![]; 3];
        let mut lives = [false; 3];
        let mut now = 0;
        for (n, (what, listener, who, ms)) in steps.into_iter().enumerate() {
            let client = ClientId(listener);
            now += ms / 6;
            let collect = |node: &mut Node, open: &mut Vec<(WaiterId, u64, String)>, untold: &mut Vec<Vec<String>>| {
                while node.time_out(at(now).boot) {}
                for (id, answer) in node.take_answers(usize::MAX) {
                    node.listeners.tell(id, Told::Answer(answer));
                    if let Some(place) = open.iter().position(|(other, ..)| *other == id) {
                        let (_, listener, owner) = open.remove(place);
                        untold[listener as usize].push(owner);
                    }
                }
            };
            match what {
                0 | 1 if lives[listener as usize] => {
                    let who = format!("{who}-{n}");
                    if let Some(id) = waits(&mut node, listener, &who, ms, now) {
                        open.push((id, listener, who));
                    }
                }
                2 => {
                    node.listeners.waits_no_more(client);
                    let news = asks(&mut node, listener);
                    lives[listener as usize] = true;
                    let told = std::mem::take(&mut untold[listener as usize]);
                    prop_assert_eq!(of(&news), told.iter().map(String::as_bytes).collect::<Vec<_>>());
                    node.listeners.waits(client, WaiterId(listener), at(now + ms).boot);
                }
                3 => {
                    node.listeners.end(client);
                    lives[listener as usize] = false;
                    untold[listener as usize].clear();
                    open.retain(|(_, other, _)| *other != listener);
                    while node.let_one_leave(at(now).boot) {}
                }
                4 => while node.listeners.take_timed_out(at(now).boot).is_some() {},
                _ => if let Some((_, _, who)) = open.first().cloned() {
                    let key = KEY;
                    match ms % 3 {
                            0 => {
                                // Of another listener's request nothing changes.
                                let (_, listener, _) = open[0];
                                let mut stop = |listener| {
                                    node.stop_waiting(key, owner(&who), ClientId(listener), at(now).boot)
                                };
                                prop_assert_eq!((stop(listener + 1), stop(listener)), (0, 1));
                            }
                            1 => node.queues().withdraw(KEY, owner(&who), at(now).boot),
                        _ => drop(node.queues().granted(key, owner(&who), (Mode::Exclusive, token(9)), at(now).boot)),
                    }
                },
            }
            collect(&mut node, &mut open, &mut untold);
            while let Some((id, news)) = node.listeners.take_ready() {
                let told = std::mem::take(&mut untold[id.0 as usize]);
                prop_assert_eq!(of(&news), told.iter().map(String::as_bytes).collect::<Vec<_>>());
            }
            let waiting: Vec<_> = node.waiting.of(KEY).map(|waiter| (waiter.id, waiter.want)).collect();
            prop_assert_eq!(waiting.len(), open.len());
            let each = waiting.iter().all(|(id, want)| *want == Want::Turn && open.iter().any(|(other, ..)| other == id));
            prop_assert!(each);
            prop_assert_eq!(node.listeners.requests(), open.len());
            let untold: usize = untold.iter().map(Vec::len).sum();
            prop_assert_eq!(node.load().places as usize, open.len() + untold, "each has its place until it is heard");
        }
        (0..3).for_each(|listener| node.listeners.end(ClientId(listener)));
        while node.let_one_leave(at(now).boot) {}
        prop_assert_eq!(node.load(), Load::NONE);
    }
}
