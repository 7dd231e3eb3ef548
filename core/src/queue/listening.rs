//! Listeners: connections over which a node tells what became of many requests.
//!
//! A client that waits for many locks would need as many connections if each request blocked one. Instead one connection listens under a
//! name, and requests that came over others name it: their answers are its *news*. Where a request stands and what it is told does
//! not depend on that. A listener is to its requests what its connection is to a blocked client: when it ends, they leave their queues.
//!
//! News that nobody has asked for yet are bounded with the requests that wait: a client that sends requests and never hears gets no more in.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::keepalive::ClientId;
use crate::queue::of_key::WaiterId;
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::request::{ListenerName, Owner};
use crate::values::limits::{MAX_WAITERS_DEFAULT, NEWS_AT_A_TIME_MAX};
use crate::values::time::BootTime;

/// What became of a request, for its listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The lock.
    pub key: Box<[u8]>,
    /// Whose request it was.
    pub owner: Box<[u8]>,
    /// What it is told.
    pub told: Told,
}

/// What a request is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// By the rules.
    Answer(Answer),
    /// By the server: an error of its own, code first.
    Error(Box<str>),
}

/// A request whose answer is news.
#[derive(Clone, Debug)]
struct Heard {
    listener: ClientId,
    /// Its key, and then its owner.
    about: Box<[u8]>,
    key_bytes: usize,
}

/// A connection that listens.
#[derive(Clone, Debug)]
struct Listener {
    name: Arc<[u8]>,
    /// Only its own requests are its news.
    user: Box<[u8]>,
    requests: BTreeSet<WaiterId>,
    news: VecDeque<News>,
    /// Until when it is to be told, if it asks now.
    until: Option<BootTime>,
}

/// The listeners of a node, each named by its connection.
#[derive(Clone, Debug)]
pub struct Listeners {
    all: HashMap<ClientId, Listener>,
    names: HashMap<Arc<[u8]>, ClientId>,
    requests: HashMap<WaiterId, Heard>,
    timeouts: BTreeSet<(BootTime, ClientId)>,
    /// Those that ask and have news.
    ready: BTreeSet<ClientId>,
    /// Those that do not ask now.
    idle: BTreeSet<ClientId>,
    /// Requests whose listener ended: they are to leave their queues.
    leaving: VecDeque<WaiterId>,
    /// Requests so far.
    last: u64,
    /// News that are kept, of all listeners.
    kept: usize,
    /// How many requests there may be, those that wait and those whose news are kept.
    pub(crate) max: u32,
}

impl Default for Listeners {
    fn default() -> Self {
        Self {
            all: HashMap::new(),
            names: HashMap::new(),
            requests: HashMap::new(),
            timeouts: BTreeSet::new(),
            ready: BTreeSet::new(),
            idle: BTreeSet::new(),
            leaving: VecDeque::new(),
            last: 0,
            kept: 0,
            max: MAX_WAITERS_DEFAULT,
        }
    }
}

impl Listeners {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many requests wait whose answers are news.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The connection `client` of `user` asks for news under `name`: those there are, a part if there are many. It has been a listener
    /// from then on. Under another name before, or as another user, it was another one, which ends.
    pub fn ask(&mut self, client: ClientId, name: ListenerName<'_>, user: &[u8]) -> Result<Vec<News>, Refusal> {
        let name = name.bytes();
        if self.names.get(name).is_some_and(|&other| other != client) {
            return Err(Refusal::ListenerTaken);
        }
        if self.all.get(&client).is_some_and(|before| *before.name != *name || *before.user != *user) {
            self.end(client);
        }
        let listener = self.all.entry(client).or_insert_with(|| {
            let name: Arc<[u8]> = name.into();
            self.names.insert(Arc::clone(&name), client);
            self.idle.insert(client);
            Listener { name, user: user.into(), requests: BTreeSet::new(), news: VecDeque::new(), until: None }
        });
        let news = listener.take_news();
        self.kept -= news.len();
        Ok(news)
    }

    /// The listener, which had no news, is to be told as soon as it has, or at `until`.
    pub fn waits(&mut self, client: ClientId, until: BootTime) {
        let Some(listener) = self.all.get_mut(&client) else { return };
        debug_assert!(listener.until.is_none() && listener.news.is_empty(), "it asks once at a time");
        listener.until = Some(until);
        self.timeouts.insert((until, client));
        self.idle.remove(&client);
    }

    /// The listener does not ask any more, until it asks again. Whether it did.
    pub fn waits_no_more(&mut self, client: ClientId) -> bool {
        let Some(listener) = self.all.get_mut(&client) else { return false };
        let Some(until) = listener.until.take() else { return false };
        self.timeouts.remove(&(until, client));
        self.ready.remove(&client);
        self.idle.insert(client)
    }

    /// The listener of this name, if `user` listens under it.
    pub fn find(&self, name: ListenerName<'_>, user: &[u8]) -> Result<ClientId, Refusal> {
        let client = self.names.get(name.bytes()).filter(|client| *self.all[client].user == *user);
        client.copied().ok_or(Refusal::NoListener)
    }

    /// The same, for one more request, if more can be kept for listeners.
    pub fn named(&self, name: ListenerName<'_>, user: &[u8]) -> Result<ClientId, Refusal> {
        let listener = self.find(name, user)?;
        if self.requests.len() + self.kept >= self.max as usize {
            return Err(Refusal::QueueFull { max: self.max });
        }
        Ok(listener)
    }

    /// A request of `owner` for `key` waits; its answer is news for this listener. The request's name.
    pub fn begin(&mut self, listener: ClientId, key: &[u8], owner: Owner<'_>) -> WaiterId {
        self.last += 1;
        let id = WaiterId::heard(self.last);
        if let Some(found) = self.all.get_mut(&listener) {
            found.requests.insert(id);
            let about = [key, owner.bytes()].concat().into();
            self.requests.insert(id, Heard { listener, about, key_bytes: key.len() });
        } else {
            self.leaving.push_back(id);
        }
        id
    }

    /// Whose news the answer to this request is; `None`: the listener ended.
    pub fn listener_of(&self, id: WaiterId) -> Option<ClientId> {
        self.requests.get(&id).map(|heard| heard.listener)
    }

    /// The request waits no more: that is news. Nobody hears it whose listener ended.
    pub fn tell(&mut self, id: WaiterId, told: Told) {
        let Some(Heard { listener: client, about, key_bytes }) = self.requests.remove(&id) else { return };
        let Some(listener) = self.all.get_mut(&client) else { return };
        listener.requests.remove(&id);
        let (key, owner) = about.split_at(key_bytes);
        listener.news.push_back(News { key: key.into(), owner: owner.into(), told });
        self.kept += 1;
        if listener.until.is_some() {
            self.ready.insert(client);
        }
        if self.requests.is_empty() {
            // After a storm the table is as large as it was.
            self.requests.shrink_to_fit();
        }
    }

    /// Takes out the news of a listener that asks for them.
    pub fn take_ready(&mut self) -> Option<(ClientId, Vec<News>)> {
        let client = *self.ready.first()?;
        self.waits_no_more(client);
        let news = self.all.get_mut(&client).map(Listener::take_news).unwrap_or_default();
        self.kept -= news.len();
        Some((client, news))
    }

    /// The listener whose time has been up longest at `now`: it has no news.
    pub fn take_timed_out(&mut self, now: BootTime) -> Option<ClientId> {
        let &(_, client) = self.timeouts.first().filter(|(until, _)| now > *until)?;
        self.waits_no_more(client);
        Some(client)
    }

    /// When the next listener's time is up, or requests are to leave their queues.
    pub(crate) fn next_due(&self) -> Option<BootTime> {
        if !self.leaving.is_empty() {
            return Some(BootTime::default());
        }
        self.timeouts.first().map(|(until, _)| until.plus_us(1))
    }

    /// Listeners that do not ask now, `count` at most, those that come after `last`: their connections may be closed. From the first on
    /// where there is none.
    pub fn idle_after(&self, last: ClientId, count: usize) -> Vec<ClientId> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after: Vec<_> = self.idle.range((Excluded(last), Unbounded)).take(count).copied().collect();
        if after.is_empty() { self.idle.iter().take(count).copied().collect() } else { after }
    }

    /// The connection `client` is closed: if it listened, its requests are to leave their queues.
    pub fn end(&mut self, client: ClientId) {
        self.waits_no_more(client);
        self.idle.remove(&client);
        let Some(Listener { name, requests, news, .. }) = self.all.remove(&client) else { return };
        self.names.remove(&name);
        self.kept -= news.len();
        for id in requests {
            self.requests.remove(&id);
            self.leaving.push_back(id);
        }
    }

    /// Takes out a request that is to leave its queue.
    pub(crate) fn take_leaving(&mut self) -> Option<WaiterId> {
        let id = self.leaving.pop_front();
        if self.leaving.is_empty() {
            self.leaving.shrink_to_fit();
        }
        id
    }

    /// Every request whose answer is news, in the order in which they came.
    pub fn all_requests(&self) -> BTreeSet<WaiterId> {
        self.requests.keys().copied().collect()
    }
}

impl Listener {
    fn take_news(&mut self) -> Vec<News> {
        let count = self.news.len().min(NEWS_AT_A_TIME_MAX);
        let news = self.news.drain(..count).collect();
        if self.news.is_empty() {
            self.news.shrink_to_fit();
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::node::Node;

    const NAME: [u8; 16] = *b"listens-0123456:";

    fn name(n: u8) -> [u8; 16] {
        let mut name = NAME;
        name[15] = n;
        name
    }

    fn asks(node: &mut Node, client: u64, n: u8) -> Result<Vec<News>, Refusal> {
        node.listeners.ask(ClientId(client), ListenerName::new(&name(n)).unwrap(), b"ann")
    }

    fn of(news: &[News]) -> Vec<&[u8]> {
        news.iter().map(|news| &*news.owner).collect()
    }

    #[test]
    fn a_name_is_one_connection_s_and_one_user_s() {
        let mut node = Node::new(0);
        let named = |node: &Node, n, user: &[u8]| node.listeners.named(ListenerName::new(&name(n)).unwrap(), user);
        assert_eq!(named(&node, 1, b"ann"), Err(Refusal::NoListener));
        assert_eq!(asks(&mut node, 7, 1), Ok(vec![]));
        assert_eq!(named(&node, 1, b"ann"), Ok(ClientId(7)));
        assert_eq!(named(&node, 1, b"bob"), Err(Refusal::NoListener), "of another user");
        assert_eq!(asks(&mut node, 8, 1), Err(Refusal::ListenerTaken));
        let id = node.listeners.begin(ClientId(7), b"k", owner("a"));
        // Under another name it is another listener.
        assert_eq!(asks(&mut node, 7, 2), Ok(vec![]));
        assert_eq!((named(&node, 1, b"ann"), node.listeners.listener_of(id)), (Err(Refusal::NoListener), None));
        assert_eq!(node.listeners.take_leaving(), Some(id));
        assert_eq!(asks(&mut node, 8, 1), Ok(vec![]));
        // And so it is as another user.
        node.listeners.ask(ClientId(8), ListenerName::new(&name(1)).unwrap(), b"bob").unwrap();
        assert_eq!(named(&node, 1, b"bob"), Ok(ClientId(8)));
        assert_eq!(node.listeners.len(), 2);
    }

    #[test]
    fn news_wait_for_who_does_not_ask_and_come_in_order() {
        let mut node = Node::new(0);
        asks(&mut node, 7, 1).unwrap();
        let count = NEWS_AT_A_TIME_MAX + 5;
        for n in 0..count {
            let id = node.listeners.begin(ClientId(7), b"k", owner(&n.to_string()));
            node.listeners.tell(id, Told::Answer(Answer::Turn(1)));
            node.listeners.tell(id, Told::Answer(Answer::Turn(1)));
        }
        assert_eq!(node.listeners.take_ready(), None, "nobody asks");
        let first = asks(&mut node, 7, 1).unwrap();
        let rest = asks(&mut node, 7, 1).unwrap();
        assert_eq!((first.len(), rest.len()), (NEWS_AT_A_TIME_MAX, 5), "each is news once");
        let order: Vec<_> = (0..count).map(|n| n.to_string().into_bytes()).collect();
        assert_eq!(of(&first).into_iter().chain(of(&rest)).collect::<Vec<_>>(), order);
        assert_eq!(asks(&mut node, 7, 1), Ok(vec![]));
        // Who asks and waits is told at once, and in time that there is none.
        node.listeners.waits(ClientId(7), at(100).boot);
        let id = node.listeners.begin(ClientId(7), b"key", owner("me"));
        assert_eq!((node.listeners.take_ready(), node.listeners.take_timed_out(at(100).boot)), (None, None));
        node.listeners.tell(id, Told::Error("MOVED 1 there".into()));
        let told = News { key: b"key"[..].into(), owner: b"me"[..].into(), told: Told::Error("MOVED 1 there".into()) };
        assert_eq!(node.listeners.take_ready(), Some((ClientId(7), vec![told])));
        node.listeners.waits(ClientId(7), at(100).boot);
        assert_eq!(node.listeners.next_due(), Some(at(100).boot.plus_us(1)));
        assert_eq!(node.listeners.take_timed_out(at(101).boot), Some(ClientId(7)));
        assert_eq!((node.listeners.next_due(), node.listeners.idle_after(ClientId(7), 5)), (None, vec![ClientId(7)]));
    }

    /// Requests that are answered wait no more, but what nobody hears is kept: it counts until it is heard, or its listener ends.
    #[test]
    fn a_client_that_never_hears_gets_no_more_in() {
        let mut node = Node::new(0);
        node.listeners.max = 3;
        let named = |node: &Node, n| node.listeners.named(ListenerName::new(&name(n)).unwrap(), b"ann");
        asks(&mut node, 7, 1).unwrap();
        asks(&mut node, 8, 2).unwrap();
        for _ in 0..2 {
            let id = node.listeners.begin(ClientId(7), b"k", owner("a"));
            node.listeners.tell(id, Told::Answer(Answer::Turn(1)));
        }
        assert_eq!(named(&node, 2), Ok(ClientId(8)));
        node.listeners.begin(ClientId(8), b"k", owner("b"));
        assert_eq!(named(&node, 1), Err(Refusal::QueueFull { max: 3 }));
        assert_eq!(named(&node, 2), Err(Refusal::QueueFull { max: 3 }));
        let find = |n| node.listeners.find(ListenerName::new(&name(n)).unwrap(), b"ann");
        assert_eq!((find(2), find(3)), (Ok(ClientId(8)), Err(Refusal::NoListener)), "to take one back");
        assert_eq!(asks(&mut node, 7, 1).unwrap().len(), 2, "heard");
        assert_eq!((named(&node, 1), named(&node, 2)), (Ok(ClientId(7)), Ok(ClientId(8))));
        for _ in 0..2 {
            let id = node.listeners.begin(ClientId(7), b"k", owner("a"));
            node.listeners.tell(id, Told::Answer(Answer::Turn(1)));
        }
        node.listeners.end(ClientId(7));
        assert_eq!(named(&node, 2), Ok(ClientId(8)));
    }
}
