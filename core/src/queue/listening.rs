//! Listeners: connections that receive a node's answers to many waiting requests.
//!
//! A client that waits for many locks would need as many connections if each request blocked one. Instead one
//! connection listens under a name, and requests over other connections name it: their answers are its *news*. A
//! request has the same place and the same answer either way. When a listener ends, its requests leave their queues, as
//! the request of a blocked client does when its connection ends. Many requests leave in slices.
//!
//! News that the listener has not taken yet keeps the place of its request. So a client that sends requests and never
//! listens soon finds no room for further ones.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::keepalive::ClientId;
use crate::queue::of_key::WaiterId;
use crate::queue::shares::{Load, Loads, UserId};
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::request::{ListenerName, Owner};
use crate::values::limits::{ANSWERS_A_PASS_MAX, NEWS_AT_A_TIME_MAX, NEWS_BYTES_AT_A_TIME_MAX};
use crate::values::time::BootTime;

/// The outcome of one waiting request, for its listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The key of the lock that the request waited for.
    pub key: Box<[u8]>,
    /// The owner in whose name the request waited.
    pub owner: Box<[u8]>,
    /// The outcome: an answer or an error.
    pub told: NewsBody,
}

/// The outcome of a waiting request, as its listener receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewsBody {
    /// The answer that a rule gave.
    Answer(Answer),
    /// An error of the server, which begins with its code.
    Error(Box<str>),
}

impl News {
    fn load(&self) -> Load {
        Load::of_entry(true, &[&self.key, &self.owner])
    }
}

/// A waiting request whose answer goes to a listener.
#[derive(Clone, Debug)]
struct HeardRequest {
    listener: ClientId,
    /// The number of the listener. A connection can become a listener several times, each time with another number.
    number: u64,
    user: UserId,
    /// The bytes of the key, then those of the owner.
    about: Box<[u8]>,
    key_bytes: usize,
}

impl HeardRequest {
    fn load(&self) -> Load {
        Load::of_entry(true, &[&self.about])
    }

    /// Returns the places and bytes that this entry takes, and the request's entry in the queue without its note.
    fn load_with_queue(&self) -> Load {
        self.load().plus(Load::of_entry(false, &[&self.about]))
    }
}

/// A connection that listens (LOCK.HEAR), with its requests and news.
#[derive(Clone, Debug)]
struct Listener {
    number: u64,
    name: Arc<[u8]>,
    /// The user of the connection. Only requests of this user may name the listener.
    user: Box<[u8]>,
    user_id: UserId,
    /// The places and bytes that the listener's waiting requests and its news (answers that it has not received yet)
    /// take.
    load: Load,
    requests: BTreeSet<WaiterId>,
    /// The news, by number, the oldest first. A tree, because a list that doubles would stop the server for long.
    news: BTreeMap<u64, News>,
    /// If the listener waits for news now: the end of that wait, and the id of its blocked client.
    asks: Option<(BootTime, WaiterId)>,
}

/// The kind of thing that was removed after its listener had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// A request: the caller removes it from its queue.
    Request(WaiterId),
    /// Something else, such as news: the caller has nothing to do.
    Other,
}

/// The listeners of a node, by connection, with their requests and news.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    all: HashMap<ClientId, Listener>,
    names: HashMap<Arc<[u8]>, ClientId>,
    requests: BTreeMap<WaiterId, HeardRequest>,
    timeouts: BTreeSet<(BootTime, ClientId)>,
    /// Listeners that wait for news and have some: the driver sends it.
    ready: BTreeSet<ClientId>,
    /// Listeners that do not wait for news now.
    idle: BTreeSet<ClientId>,
    /// Listeners that have ended, and whose requests are still to be removed from their queues.
    ended: VecDeque<Listener>,
    /// The number given to the last request or listener.
    last: u64,
    loads: Loads,
}

impl Listeners {
    /// Returns the number of listeners that have not ended.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether the node has no listener.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the number of waiting requests with a listener.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Returns the places and bytes that all listeners take, with their requests and news.
    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Returns the places and bytes that the listener `client` takes, by its waiting requests and by its news (results
    /// that it has not received yet).
    pub(crate) fn load_of(&self, client: ClientId) -> Load {
        self.all.get(&client).map_or(Load::NONE, |listener| listener.load)
    }

    /// Returns the places and bytes of a listener that has neither requests nor news.
    pub(crate) fn load_of_one(name: ListenerName<'_>, user: &[u8]) -> Load {
        Load::of_entry(false, &[name.bytes(), user])
    }

    /// Returns whether the connection `client` of `user` listens under `name`. Refuses a name that another connection
    /// uses.
    pub(crate) fn is_listening(&self, client: ClientId, name: ListenerName<'_>, user: &[u8]) -> Result<bool, Refusal> {
        if self.names.get(name.bytes()).is_some_and(|&other| other != client) {
            return Err(Refusal::ListenerTaken);
        }
        Ok(self.all.get(&client).is_some_and(|own| *own.name == *name.bytes() && *own.user == *user))
    }

    /// Makes the connection `client` of `user` listen under `name`, which no other uses. An earlier listener of this
    /// connection, under another name or as another user, ends.
    pub(crate) fn listen(&mut self, client: ClientId, name: ListenerName<'_>, user: &[u8]) {
        self.end(client);
        let (user_id, load) = (UserId::of(user), Self::load_of_one(name, user));
        self.loads.add(user_id, load);
        self.last += 1;
        let name: Arc<[u8]> = name.bytes().into();
        self.names.insert(Arc::clone(&name), client);
        self.idle.insert(client);
        let listener = Listener {
            number: self.last,
            name,
            user: user.into(),
            user_id,
            load: Load::NONE,
            requests: BTreeSet::new(),
            news: BTreeMap::new(),
            asks: None,
        };
        self.all.insert(client, listener);
    }

    /// Removes and returns news of the listener `client`; if there is much, only a part.
    pub(crate) fn take_news(&mut self, client: ClientId) -> Vec<News> {
        let Some(listener) = self.all.get_mut(&client) else { return vec![] };
        listener.take_news(NEWS_AT_A_TIME_MAX, &mut self.loads)
    }

    /// Notes that the listener `client`, which has no news, waits for some until `until`. `id` is the id of its blocked
    /// client.
    pub fn add_wait(&mut self, client: ClientId, id: WaiterId, until: BootTime) {
        let Some(listener) = self.all.get_mut(&client) else { return };
        debug_assert!(listener.asks.is_none() && listener.news.is_empty(), "it asks once at a time");
        listener.asks = Some((until, id));
        self.timeouts.insert((until, client));
        self.idle.remove(&client);
    }

    /// Notes that the listener `client` no longer waits for news. Returns the id of its blocked client, if it waited.
    pub fn remove_wait(&mut self, client: ClientId) -> Option<WaiterId> {
        let (until, id) = self.all.get_mut(&client)?.asks.take()?;
        self.timeouts.remove(&(until, client));
        self.ready.remove(&client);
        self.idle.insert(client);
        Some(id)
    }

    /// Returns the connection that listens under `name`, if its user is `user`.
    pub fn find(&self, name: ListenerName<'_>, user: &[u8]) -> Result<ClientId, Refusal> {
        let client = self.names.get(name.bytes()).filter(|client| *self.all[client].user == *user);
        client.copied().ok_or(Refusal::NoListener)
    }

    /// Adds a waiting request of `owner` for `key`, whose answer goes to the listener on the connection `client`.
    /// Returns the request's id; `None` if nobody listens there.
    pub fn begin(&mut self, client: ClientId, key: &[u8], owner: Owner<'_>) -> Option<WaiterId> {
        let listener = self.all.get_mut(&client)?;
        self.last += 1;
        let id = WaiterId::of_listener(self.last);
        let about = [key, owner.bytes()].concat().into();
        let (number, user) = (listener.number, listener.user_id);
        let heard = HeardRequest { listener: client, number, user, about, key_bytes: key.len() };
        listener.requests.insert(id);
        listener.load = listener.load.plus(heard.load_with_queue());
        self.loads.add(user, heard.load());
        self.requests.insert(id, heard);
        Some(id)
    }

    /// Returns the listener of the request `id`; `None` if it has ended.
    pub fn listener_of(&self, id: WaiterId) -> Option<ClientId> {
        let heard = self.requests.get(&id)?;
        let is_there = self.all.get(&heard.listener).is_some_and(|listener| listener.number == heard.number);
        is_there.then_some(heard.listener)
    }

    /// Adds the outcome of the request `id` to the news of its listener. The outcome is dropped if the listener has
    /// ended.
    pub fn add_news(&mut self, id: WaiterId, told: NewsBody) {
        let Some(heard) = self.take_request(id) else { return };
        let listener = self.all.get_mut(&heard.listener).filter(|listener| listener.number == heard.number);
        let Some(listener) = listener else { return self.loads.remove(heard.user, heard.load()) };
        listener.requests.remove(&id);
        let (key, owner) = heard.about.split_at(heard.key_bytes);
        let news = News { key: key.into(), owner: owner.into(), told };
        listener.load = listener.load.minus(heard.load_with_queue()).plus(news.load());
        self.last += 1;
        listener.news.insert(self.last, news);
        if listener.asks.is_some() {
            self.ready.insert(heard.listener);
        }
    }

    fn take_request(&mut self, id: WaiterId) -> Option<HeardRequest> {
        self.requests.remove(&id)
    }

    /// Removes and returns news of a listener that waits for some, with the id of its blocked client. Call it until it
    /// returns `None`.
    pub fn take_ready(&mut self) -> Option<(WaiterId, Vec<News>)> {
        let client = *self.ready.first()?;
        let id = self.remove_wait(client)?;
        Some((id, self.take_news(client)))
    }

    /// Ends the wait of the listener whose time ended first, if it is over at `now`. Returns the id of its blocked
    /// client, which is answered that there is no news.
    pub fn take_timed_out(&mut self, now: BootTime) -> Option<WaiterId> {
        let &(_, client) = self.timeouts.first().filter(|(until, _)| now > *until)?;
        self.remove_wait(client)
    }

    /// Returns the time at which the next listener's wait is over. If listeners have ended and left requests, that is
    /// at once.
    pub(crate) fn next_due(&self) -> Option<BootTime> {
        if !self.ended.is_empty() {
            return Some(BootTime::default());
        }
        self.timeouts.first().map(|(until, _)| until.plus_us(1))
    }

    /// Returns at most `count` listeners after `last` that do not wait for news now: the driver checks whether their
    /// connections are still open. After the last one it starts again with the first.
    pub fn idle_after(&self, last: ClientId, count: usize) -> Vec<ClientId> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after: Vec<_> = self.idle.range((Excluded(last), Unbounded)).take(count).copied().collect();
        if after.is_empty() { self.idle.iter().take(count).copied().collect() } else { after }
    }

    /// Ends the listener of the connection `client`, which is closed. Its requests are removed from their queues later.
    pub fn end(&mut self, client: ClientId) {
        self.remove_wait(client);
        self.idle.remove(&client);
        if let Some(listener) = self.all.remove(&client) {
            self.names.remove(&listener.name);
            self.ended.push_back(listener);
        }
    }

    /// Removes one thing that an ended listener left: a request, or a slice of news. `None` if nothing is left.
    pub(crate) fn take_left(&mut self) -> Option<Left> {
        let listener = self.ended.front_mut()?;
        if !listener.news.is_empty() {
            listener.take_news(ANSWERS_A_PASS_MAX, &mut self.loads);
            return Some(Left::Other);
        }
        if let Some(id) = listener.requests.pop_first() {
            if let Some(heard) = self.take_request(id) {
                self.loads.remove(heard.user, heard.load());
            }
            return Some(Left::Request(id));
        }
        let Listener { name, user, user_id, .. } = self.ended.pop_front()?;
        self.loads.remove(user_id, Load::of_entry(false, &[&name, &user]));
        Some(Left::Other)
    }
}

impl Listener {
    /// Removes and returns the oldest news: at least one, and at most `count`. The keys and owners of several must fit
    /// into the bytes of one answer.
    fn take_news(&mut self, count: usize, loads: &mut Loads) -> Vec<News> {
        let mut bytes = 0;
        let fits = |(n, news): &(usize, &News)| {
            bytes += news.key.len() + news.owner.len();
            *n == 0 || bytes <= NEWS_BYTES_AT_A_TIME_MAX
        };
        let count = self.news.values().take(count).enumerate().take_while(fits).count();
        let news: Vec<_> = (0..count).filter_map(|_| self.news.pop_first()).map(|(_, news)| news).collect();
        for news in &news {
            self.load = self.load.minus(news.load());
            loads.remove(self.user_id, news.load());
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::node::{Node, Settings};
    use crate::queue::shares::Asker;
    use crate::request::Note;
    use crate::values::key::Key;

    const NAME: [u8; 16] = *b"listens-0123456:";

    fn name(n: u8) -> [u8; 16] {
        let mut name = NAME;
        name[15] = n;
        name
    }

    fn asks(node: &mut Node, client: u64, n: u8) -> Result<Vec<News>, Refusal> {
        node.listen(ClientId(client), ListenerName::new(&name(n)).unwrap(), b"ann", || Ok(()))
    }

    fn of(news: &[News]) -> Vec<&[u8]> {
        news.iter().map(|news| &*news.owner).collect()
    }

    #[test]
    fn a_name_is_one_connection_s_and_one_user_s() {
        let mut node = Node::new(0);
        let named = |node: &Node, n, user: &[u8]| node.listeners.find(ListenerName::new(&name(n)).unwrap(), user);
        assert_eq!(named(&node, 1, b"ann"), Err(Refusal::NoListener));
        assert_eq!(asks(&mut node, 7, 1), Ok(vec![]));
        assert_eq!(named(&node, 1, b"ann"), Ok(ClientId(7)));
        assert_eq!(named(&node, 1, b"bob"), Err(Refusal::NoListener), "of another user");
        assert_eq!(asks(&mut node, 8, 1), Err(Refusal::ListenerTaken));
        let id = node.listeners.begin(ClientId(7), b"k", owner("a")).unwrap();
        // The same connection under another name is another listener.
        assert_eq!(asks(&mut node, 7, 2), Ok(vec![]));
        assert_eq!((named(&node, 1, b"ann"), node.listeners.listener_of(id)), (Err(Refusal::NoListener), None));
        assert_eq!(node.listeners.take_left(), Some(Left::Request(id)));
        assert_eq!(asks(&mut node, 8, 1), Ok(vec![]));
        // The same connection as another user is another listener too.
        node.listen(ClientId(8), ListenerName::new(&name(1)).unwrap(), b"bob", || Ok(())).unwrap();
        assert_eq!(named(&node, 1, b"bob"), Ok(ClientId(8)));
        assert_eq!(node.listeners.len(), 2);
    }

    #[test]
    fn news_wait_for_who_does_not_ask_and_come_in_order() {
        let mut node = Node::new(0);
        asks(&mut node, 7, 1).unwrap();
        let count = NEWS_AT_A_TIME_MAX + 5;
        for n in 0..count {
            let id = node.listeners.begin(ClientId(7), b"k", owner(&n.to_string())).unwrap();
            node.listeners.add_news(id, NewsBody::Answer(Answer::Turn(1)));
            node.listeners.add_news(id, NewsBody::Answer(Answer::Turn(1)));
        }
        assert_eq!(node.listeners.take_ready(), None, "nobody asks");
        let first = asks(&mut node, 7, 1).unwrap();
        let rest = asks(&mut node, 7, 1).unwrap();
        assert_eq!((first.len(), rest.len()), (NEWS_AT_A_TIME_MAX, 5), "each is news once");
        let order: Vec<_> = (0..count).map(|n| n.to_string().into_bytes()).collect();
        assert_eq!(of(&first).into_iter().chain(of(&rest)).collect::<Vec<_>>(), order);
        assert_eq!(asks(&mut node, 7, 1), Ok(vec![]));
        // A waiting listener is answered as soon as it has news, or when its time is over.
        node.listeners.add_wait(ClientId(7), WaiterId(70), at(100).boot);
        let id = node.listeners.begin(ClientId(7), b"key", owner("me")).unwrap();
        assert_eq!((node.listeners.take_ready(), node.listeners.take_timed_out(at(100).boot)), (None, None));
        node.listeners.add_news(id, NewsBody::Error("MOVED 1 there".into()));
        let told =
            News { key: b"key"[..].into(), owner: b"me"[..].into(), told: NewsBody::Error("MOVED 1 there".into()) };
        assert_eq!(node.listeners.take_ready(), Some((WaiterId(70), vec![told])));
        node.listeners.add_wait(ClientId(7), WaiterId(70), at(100).boot);
        assert_eq!(node.listeners.next_due(), Some(at(100).boot.plus_us(1)));
        assert_eq!(node.listeners.take_timed_out(at(101).boot), Some(WaiterId(70)));
        assert_eq!((node.listeners.next_due(), node.listeners.idle_after(ClientId(7), 5)), (None, vec![ClientId(7)]));
    }

    /// Regression: one answer with 67 keys of a megabyte kept the server from its other clients for 25 ms. An answer
    /// now has a bounded number of bytes, but at least one piece of news.
    #[test]
    fn an_answer_has_a_bounded_number_of_bytes_and_one_piece_of_news_at_least() {
        let mut node = Node::new(0);
        asks(&mut node, 7, 1).unwrap();
        let half = NEWS_BYTES_AT_A_TIME_MAX / 2;
        // The first key alone is larger than an answer may be. Of the others two fit into one answer.
        for len in [2 * NEWS_BYTES_AT_A_TIME_MAX, half - 1, half - 1, 1, half, half] {
            let id = node.listeners.begin(ClientId(7), &vec![b'k'; len], owner("a")).unwrap();
            node.listeners.add_news(id, NewsBody::Answer(Answer::Turn(1)));
        }
        let parts: Vec<_> = (0..5).map(|_| asks(&mut node, 7, 1).unwrap().len()).collect();
        assert_eq!(parts, [1, 2, 2, 1, 0], "with their owners");
    }

    /// A client sends requests that are answered, and its listener never receives the results. They take places until
    /// it does, or until its connection ends, so further requests are refused.
    #[test]
    fn a_client_that_never_hears_gets_no_more_in() {
        let mut node = Node::new(0);
        asks(&mut node, 7, 1).unwrap();
        let before = node.load();
        let about = || (owner("a"), Note::default());
        let ask = |node: &mut Node| {
            let asker = Asker { listener: Some(ClientId(7)), ..Asker::default() };
            node.ensure_may_wait(Key { db: 0, name: b"k" }, about(), asker)?;
            let id = node.listeners.begin(ClientId(7), b"k", owner("a")).unwrap();
            node.listeners.add_news(id, NewsBody::Answer(Answer::Turn(1)));
            Ok(())
        };
        node.configure(Settings { max_waiters: 6, ..Settings::default() });
        for _ in 0..3 {
            ask(&mut node).unwrap();
        }
        assert_eq!(ask(&mut node), Err(Refusal::ShareTaken { parameter: "lock.max-waiters" }));
        assert_eq!(node.listeners.load_of(ClientId(7)).places, 3);
        assert_eq!(asks(&mut node, 7, 1).unwrap().len(), 3, "heard");
        assert_eq!((node.load(), ask(&mut node)), (before, Ok(())));
        node.listeners.end(ClientId(7));
        while node.remove_one_left(at(0).boot) {}
        assert_eq!(node.load(), Load::NONE);
    }

    /// A listener ends with many requests and much news. Its end itself is immediate; these are removed in slices.
    #[test]
    fn what_a_listener_leaves_goes_in_slices() {
        let many = 10 * ANSWERS_A_PASS_MAX;
        let mut node = Node::new(0);
        asks(&mut node, 7, 1).unwrap();
        for n in 0..2 * many {
            let id = node.listeners.begin(ClientId(7), b"k", owner("a")).unwrap();
            if n % 2 == 0 {
                node.listeners.add_news(id, NewsBody::Answer(Answer::Turn(1)));
            }
        }
        let places = |node: &Node| node.load().places as usize;
        node.listeners.end(ClientId(7));
        assert_eq!((places(&node), node.listeners.requests()), (2 * many, many), "it ended, and nothing else happened");
        assert_eq!((node.listeners.len(), asks(&mut node, 7, 1)), (0, Ok(vec![])), "the name is free");
        let (mut left, mut steps) = (2 * many, 0);
        while node.remove_one_left(at(0).boot) {
            let now = places(&node);
            assert!(left - now <= ANSWERS_A_PASS_MAX, "{} at once", left - now);
            (left, steps) = (now, steps + 1);
        }
        assert_eq!((left, node.listeners.requests()), (0, 0));
        assert!(steps > many, "a request at a time");
    }
}
