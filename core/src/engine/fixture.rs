//! A driver in memory, for tests of what happens to one key and its queue.

use std::collections::BTreeMap;

use super::{By, Event, Finding, Key as At, Question, Reply, Request, Run, Step, Work};
use crate::fixture::{KEY, asks, at, key_of, node, owner, releases, token, ttl};
use crate::format::record::{Applied, Arrival, Here, apply, decode_told, encode, encode_change, encode_end};
use crate::lock::Lock;
use crate::node::Node;
use crate::queue::of_key::WaiterId;
use crate::queue::shares::Asker;
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::request::{Acquire, Annotate, Conversion, Convert, Known, Note, Patience, Ticket, Wait, Watch};
use crate::rules::watch::Watched;
use crate::values::mode::{Mode, Wanted};
use crate::values::time::{BootId, BootTime};
use crate::values::token::Token;

const BOOT: BootId = BootId([0; 16]);

/// The largest number of steps that a request may take. A request that takes more is in an endless loop.
const STEPS_MAX: usize = 1_000;

/// The key `k` of one node. The fixture does in memory what a server does: it stores the lock, and answers the engine's
/// questions.
pub struct Key {
    pub node: Node,
    /// The lock in the key, if there is one.
    pub lock: Option<Lock>,
    /// The locks in other keys, by name.
    pub others: BTreeMap<Vec<u8>, Lock>,
    /// The lock on a replica that received every change of the key.
    replica: Option<Lock>,
    /// The mode that requests of this fixture ask for.
    pub wanted: Wanted,
    /// The token that requests of this fixture propose.
    pub fence: Option<Token>,
    /// The present time, in milliseconds since boot.
    pub now: u64,
    /// Replaces the server's answer to a question. If it returns `None`, the usual answer counts.
    pub says: fn(Question) -> Option<Finding>,
    /// True if the server can block clients.
    pub blocks: bool,
    /// The steps of the latest request.
    pub steps: Vec<Step>,
    next_id: u64,
    /// The ids of watchers that received a change, until the test takes them.
    pub told: Vec<u64>,
    /// The ids of watchers whose time ended without a change.
    pub told_nothing: Vec<u64>,
    /// The number of slices in which BREAKs of many grants continued. The first slice of a BREAK is not counted.
    pub slices: usize,
}

impl Key {
    pub fn new() -> Self {
        let others = BTreeMap::new();
        let wanted = Wanted::Exclusive;
        Self {
            node: node(),
            lock: None,
            others,
            replica: None,
            wanted,
            fence: None,
            now: 0,
            says: |_| None,
            blocks: true,
            steps: vec![],
            next_id: 1,
            told: vec![],
            told_nothing: vec![],
            slices: 0,
        }
    }

    /// Returns the key with a lock that "a" holds for one second.
    pub fn held() -> Self {
        let mut key = Self::new();
        key.acquire("a", 1_000, 0).unwrap();
        key
    }

    /// Returns the key with a lock that "a" holds for one second. The owners `names` wait for it in this order. Each
    /// waits 5 s, to hold the lock for one second. Also returns the ids of their requests.
    pub fn with_queue<const N: usize>(names: [&str; N]) -> (Self, [u64; N]) {
        let mut key = Self::held();
        let ids = names.map(|name| key.acquire(name, 1_000, 5_000).unwrap().unwrap());
        (key, ids)
    }

    /// Performs `request` for the key `k`, and returns the answer.
    pub fn perform(&mut self, request: &Request<'_>) -> Result<Reply, Refusal> {
        self.perform_for(b"k", request)
    }

    /// Performs `request` for the key `name`, and returns the answer.
    pub fn perform_for(&mut self, name: &[u8], request: &Request<'_>) -> Result<Reply, Refusal> {
        let mut held = if name == b"k" { self.lock.take() } else { self.others.remove(name) };
        let answer = self.steps_of(name, &mut held, request);
        match held {
            Some(lock) if name != b"k" => drop(self.others.insert(name.to_vec(), lock)),
            held if name == b"k" => self.lock = held,
            _ => {}
        }
        answer
    }

    fn steps_of(&mut self, name: &[u8], held: &mut Option<Lock>, request: &Request<'_>) -> Result<Reply, Refusal> {
        let (shared, now) = (self.node.share_name(key_of(name)), at(self.now));
        let key = key_of(shared.as_deref().unwrap_or(name));
        let (mut run, mut said) = (Run::new(key, request), Finding::Yes);
        self.steps.clear();
        if name == b"k" && held.is_none() {
            // The test itself deleted the key, so the replica has nothing either.
            self.replica = None;
        }
        for _ in 0..STEPS_MAX {
            let step = run.next(held.as_mut(), said, &mut self.node, now);
            self.steps.push(step);
            said = Finding::Yes;
            match step {
                Step::Store(_) | Step::Replace => {
                    let lock = *run.take_granted().expect("there is something to store");
                    match held {
                        Some(held) => drop(held.replace(lock)),
                        None => *held = Some(lock),
                    }
                    self.tell(name, |record, now| encode(held.as_ref().unwrap(), now, BOOT, record));
                }
                Step::Changed(_, id) => {
                    let lock = held.as_ref().expect("only what is there is changed");
                    self.tell(name, |record, now| encode_change(lock, id, now, BOOT, record));
                }
                Step::Left(_) => {
                    let ended = run.take_ended().expect("a grant that left");
                    self.tell(name, |record, now| encode_end(&ended, now, BOOT, record));
                }
                Step::Delete(_) => {
                    let mut lock = held.take().expect("only what is there is deleted");
                    self.node.cancel_expiry(key, &mut lock);
                    self.replica = self.replica.take().filter(|_| name != b"k");
                }
                Step::Ask(question) => said = (self.says)(question).unwrap_or(Finding::Yes),
                Step::AnswerWatchers => {
                    let told = self.node.take_outdated(key, held.as_ref(), usize::MAX, now.boot);
                    self.told.extend(told.iter().map(|id| id.0));
                }
                Step::Block if !self.blocks => said = Finding::No,
                Step::Block => said = Finding::Blocked(self.new_id()),
                Step::Publish(_) | Step::ReadSlots | Step::Redirect | Step::Write => {}
                Step::Done(answer) => {
                    assert!(name != b"k" || self.written(held.as_ref()) == self.written(self.replica.as_ref()));
                    self.assert_counted();
                    return answer;
                }
            }
        }
        panic!("{request:?} is never done")
    }

    /// Checks that the node counts exactly the present waiters and watchers.
    fn assert_counted(&self) {
        let (waiting, watching) = (&self.node.waiting, &self.node.watching);
        for (load, count) in [(waiting.loads().all(), waiting.len()), (watching.loads().all(), watching.len())] {
            assert!(load.places as usize == count && (load.bytes == 0) == (count == 0), "{load:?} of {count}");
        }
    }

    /// Lets `write` encode a change of the lock, and applies that record to the replica.
    fn tell(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>, BootTime)) {
        if name != b"k" {
            return;
        }
        let (mut record, now) = (vec![], at(self.now).boot);
        write(&mut record, now);
        let told = decode_told(&record, Here { arrival: Arrival::Stream, now, boot: BOOT }).unwrap();
        match apply(told, self.replica.as_mut()).unwrap() {
            Applied::Anew(lock) => self.replica = Some(lock),
            Applied::Grant(_) | Applied::Gone => {}
        }
    }

    fn written(&self, lock: Option<&Lock>) -> Vec<u8> {
        let mut record = vec![];
        lock.iter().for_each(|lock| encode(lock, at(self.now).boot, BOOT, &mut record));
        record
    }

    fn new_id(&mut self) -> WaiterId {
        self.next_id += 1;
        WaiterId(self.next_id - 1)
    }

    /// Performs an ACQUIRE of the owner `name`. Returns the request's id if it waits in the queue.
    pub fn acquire(&mut self, name: &str, ttl_ms: u64, wait_ms: u64) -> Result<Option<u64>, Refusal> {
        self.ask(name, ttl_ms, wait_ms, false)
    }

    /// Performs an ACQUIRE with RETRY of the owner `name`. Returns the request's id if it waits in the queue.
    pub fn acquire_again(&mut self, name: &str, ttl_ms: u64, wait_ms: u64) -> Result<Option<u64>, Refusal> {
        self.ask(name, ttl_ms, wait_ms, true)
    }

    fn ask(&mut self, name: &str, ttl_ms: u64, wait_ms: u64, retry: bool) -> Result<Option<u64>, Refusal> {
        let patience = Patience::new(Some(wait_ms)).unwrap();
        let ask = Acquire { ttl: ttl(ttl_ms), wanted: self.wanted, retry, fence: self.fence, patience, ..asks(name) };
        let answer = self.perform(&Request::Acquire(ask))?;
        Ok((answer == Reply::Later).then(|| self.next_id - 1))
    }

    /// Performs a LOCK.WAIT of the owner `name`. Returns the answer, and the id of the request, by which a later answer
    /// is found.
    pub fn wait(&mut self, name: &str, wait_ms: u64, ticket: Option<u64>) -> Result<(Reply, u64), Refusal> {
        self.wait_for(b"k", name, wait_ms, ticket)
    }

    /// Performs a LOCK.WAIT, as [`Key::wait`], for the key `key`.
    pub fn wait_for(
        &mut self,
        key: &[u8],
        name: &str,
        wait_ms: u64,
        ticket: Option<u64>,
    ) -> Result<(Reply, u64), Refusal> {
        let patience = Patience::new(Some(wait_ms)).unwrap();
        let ticket = ticket.map(|ticket| Ticket::new(Some(ticket)).unwrap());
        let answer = self.perform_for(
            key,
            &Request::Wait(Wait {
                owner: owner(name),
                wanted: self.wanted,
                patience,
                ticket,
                note: Note::default(),
                behind: Default::default(),
            }),
        )?;
        Ok((answer, if answer == Reply::Later { self.next_id - 1 } else { 0 }))
    }

    /// Performs a RELEASE of the owner `name`; returns the number of holds left, or `None` if it held nothing.
    pub fn release(&mut self, name: &str) -> Option<u32> {
        match self.perform(&Request::Release(releases(name))) {
            Ok(Reply::Holds(left)) => Some(left),
            _ => None,
        }
    }

    /// Performs a LOCK.WATCH by a client that knows the state `known`. Returns the watcher's id unless it is answered
    /// at once.
    pub fn watch(&mut self, known: Known, wait_ms: u64) -> Result<Option<u64>, Refusal> {
        let ask = Watch { known, patience: Patience::new(Some(wait_ms)).unwrap() };
        let now = at(self.now).boot;
        Ok(match self.node.watch(self.lock.as_ref(), &ask, now)? {
            Watched::Differs | Watched::Same => None,
            Watched::Watches => {
                let key = KEY;
                self.node.ensure_may_watch(key, Asker::default())?;
                let id = self.new_id();
                self.node.add_watcher(key, (id, Asker::default()), self.lock.as_ref(), &ask, now);
                Some(id.0)
            }
        })
    }

    /// Replaces the note of the grant of the owner `name`.
    pub fn annotate(&mut self, name: &str) -> Result<Reply, Refusal> {
        let note = Note::new(b"text").unwrap();
        self.perform(&Request::Note(Annotate { owner: owner(name), note, sequence: None, token: None }))
    }

    /// Converts the grant of the owner `name`; returns its token on success.
    pub fn convert(&mut self, name: &str, to: Conversion) -> Result<Reply, Refusal> {
        self.perform(&Request::Convert(Convert { owner: owner(name), to, token: None }))
    }

    /// Deletes the key `k`, as the server does for another command (DEL).
    pub fn del(&mut self) {
        let key = KEY;
        if let Some(mut lock) = self.lock.take() {
            self.node.record_deleted(key, &lock, at(self.now).boot);
            self.node.cancel_expiry(key, &mut lock);
        }
        self.node.on_lock_gone(key);
    }

    /// Renames the key `from` to `k`, so that its lock replaces the content of `k`.
    pub fn rename(&mut self, from: &[u8]) {
        let mut lock = self.others.remove(from).expect("it holds a lock");
        self.node.record_deleted(key_of(from), &lock, at(self.now).boot);
        self.node.cancel_expiry(key_of(from), &mut lock);
        if self.lock.is_some() {
            self.del();
        }
        self.node.on_lock_arrived(KEY, &mut lock, at(self.now).boot);
        (self.replica, self.lock) = (Some(lock.clone()), Some(lock));
    }

    /// Performs all due work, and returns the answers to waiting requests, by their ids.
    pub fn settle(&mut self) -> Vec<(u64, Answer)> {
        let now = at(self.now).boot;
        loop {
            if self.node.time_out(now) {
                continue;
            }
            if let Some(id) = self.node.take_watcher_timed_out(now) {
                self.told_nothing.push(id.0);
                continue;
            }
            if let Some((db, name)) = self.node.take_watch_due(now) {
                let held = self.lock.as_ref().filter(|_| *name == *b"k");
                let told = self.node.take_outdated(At { db, name: &name }, held, 1, now);
                self.told.extend(told.iter().map(|id| id.0));
                continue;
            }
            let Some(work) = self.node.take_due(now, true) else { break };
            self.slices += usize::from(matches!(work, Work::Break(_)));
            let answer = self.perform_for(work.key().name, &work.request());
            assert!(answer.is_ok() || matches!(work, Work::Renew(_)), "nobody asked");
        }
        self.node.waiting.take_answers(usize::MAX).into_iter().map(|(id, answer)| (id.0, answer)).collect()
    }

    /// Performs a random step, then all due work.
    pub fn random_step(&mut self, (step, who, wanted, lease, passes): (u8, u8, usize, u64, u64)) {
        let name = who.to_string();
        let first = self.lock.as_ref().filter(|_| who > 0).map(|lock| lock.first().token());
        self.wanted = [Wanted::Exclusive, Wanted::Shared, Wanted::Permit { limit: 3, number: None }][wanted];
        match step {
            0 => drop(self.acquire(&name, lease, 0)),
            1 | 2 => drop(self.acquire(&name, lease, 100)),
            3 => drop(self.wait(&name, 100, None)),
            4 => drop(self.release(&name)),
            5 => drop(self.perform(&Request::Break(first))),
            6 => drop(self.convert(&name, if who > 1 { Conversion::Shared } else { Conversion::Exclusive })),
            7 => drop(self.perform(&Request::Fence(owner(&name), token(lease * 1_000_000 + 7_000_000)))),
            _ => self.del(),
        }
        self.now += passes;
        self.settle();
    }

    pub fn holder(&self) -> Option<&[u8]> {
        self.lock.as_ref().filter(|lock| !lock.is_expired(at(self.now).boot)).map(|lock| lock.first().owner())
    }

    /// Returns the owners that hold the lock, sorted, with their modes.
    pub fn holders(&self) -> Vec<(Vec<u8>, Mode)> {
        let now = at(self.now).boot;
        let grants = self.lock.iter().flat_map(Lock::grants).filter(|(_, grant)| !grant.is_expired(now));
        let mut holders: Vec<_> = grants.map(|(mode, grant)| (grant.owner().to_vec(), mode)).collect();
        holders.sort_by(|one, other| one.0.cmp(&other.0));
        holders
    }

    pub fn queue(&self) -> Vec<u64> {
        self.node.waiting.of(KEY).map(|waiter| waiter.id.0).collect()
    }

    /// Returns those steps of the latest request that have an effect: neither questions nor answers.
    pub fn effects(&self) -> Vec<Step> {
        self.steps.iter().copied().filter(|step| !matches!(step, Step::Ask(_) | Step::Done(_))).collect()
    }

    /// Answers, in the server's place, that the module failed and grants nothing.
    pub fn says_poisoned(question: Question) -> Option<Finding> {
        matches!(question, Question::MayGrant(_)).then_some(Finding::Refused(Refusal::Poisoned))
    }

    /// Answers, in the server's place, that the user of the second waiter has lost the permission.
    pub fn says_second_is_forbidden(question: Question) -> Option<Finding> {
        (question == Question::IsPermitted(WaiterId(2))).then_some(Finding::Refused(Refusal::Forbidden))
    }

    /// Answers, in the server's place, that the node may grant nothing by itself for now. The commands of clients may
    /// grant.
    pub fn says_not_yet(question: Question) -> Option<Finding> {
        (question == Question::MayGrant(By::Itself)).then_some(Finding::Refused(Refusal::NotYet))
    }
}

/// Returns the ids of the requests whose answer is a grant.
pub fn granted(answers: &[(u64, Answer)]) -> Vec<u64> {
    answers.iter().filter(|(_, answer)| matches!(answer, Answer::Granted { .. })).map(|(id, _)| *id).collect()
}

/// Returns the two steps by which a lock is handed over after `event` ended it.
pub fn handed_over(event: Event) -> [Step; 2] {
    [Step::Publish(event), Step::Store(Event::HandedOver)]
}
