//! Clients whose requests wait: when each may begin to, and what each is told.

use palisade_core::engine::Request;
use palisade_core::limits::DISK_WAIT_MS;
use palisade_core::{Answer, BootTime, Refusal, Waiter, WaiterId, Want};

use crate::oracle::Place;
use crate::world::World;

/// So few answers are sent at a time: there are more now and then.
const ANSWERS_A_PASS: usize = 2;

/// A request that waits.
pub struct Waits {
    pub place: Place,
    pub owner: Vec<u8>,
    /// The ttl that it asks for; `None`: a turn.
    pub ttl_ms: Option<u32>,
    pub since: BootTime,
    pub until: BootTime,
    /// It waits for the disk alone.
    pub at_once: bool,
    /// Its owner took it back.
    pub taken_back: bool,
}

impl World {
    pub fn new_client(&mut self) -> WaiterId {
        self.clients += 1;
        WaiterId(self.clients)
    }

    /// The request waits as `waiter`, and asked to wait for `ms`.
    pub fn enters(&mut self, place: Place, waiter: Waiter, ms: u32, request: &Request<'_>) {
        let ttl_ms = match waiter.want {
            Want::Lock { ttl, .. } => Some(ttl.ms()),
            Want::Turn => None,
        };
        let (owner, since, until) = (waiter.owner().bytes().to_vec(), waiter.since, waiter.until);
        let at_once = waiter.at_once;
        if at_once {
            let Request::Acquire { ask, may_block } = request else { panic!("{request:?} waits for the disk alone") };
            assert!(*may_block && ask.fence.is_none());
            self.is_hindered_for_disk();
        } else {
            assert!(ms > 0);
        }
        assert_eq!((since, until), (self.boot, self.boot.plus_ms(if at_once { DISK_WAIT_MS } else { ms })));
        if at_once || !self.is_held(place) || self.is_held_by(place, &owner) {
            let due = self.node.next_due();
            assert!(due.is_some_and(|due| due <= self.boot.max(self.hindered)), "nobody looks after {owner:?}");
        }
        self.waits.insert(waiter.id.0, Waits { place, owner, ttl_ms, since, until, at_once, taken_back: false });
    }

    pub fn leave(&mut self, which: u8) {
        let Some(&id) = self.waits.keys().nth(usize::from(which) % self.waits.len().max(1)) else { return };
        self.waits.remove(&id);
        assert!(self.node.leave_queue(WaiterId(id)).is_some());
        assert!(self.node.leave_queue(WaiterId(id)).is_none());
    }

    pub fn take_back(&mut self, place: Place, owner: &[u8]) {
        self.oracle.took_back(place, owner);
        let own = self.waits.values_mut().filter(|waits| waits.place == place && waits.owner == owner);
        own.for_each(|waits| waits.taken_back = true);
    }

    pub fn tell(&mut self, place: Place, owner: &[u8]) {
        self.oracle.told(place, owner, self.boot.plus_ms(self.node.waiting().handoff_window_ms));
    }

    /// Sends the answers; each request gets one.
    pub fn deliver(&mut self) {
        for (id, answer) in std::mem::take(&mut self.outbox) {
            self.is_told(id, answer);
        }
        while self.node.waiting().has_answers() {
            let answers = self.node.take_answers(ANSWERS_A_PASS);
            assert!(answers.len() <= ANSWERS_A_PASS);
            answers.into_iter().for_each(|(id, answer)| self.is_told(id, answer));
        }
    }

    pub fn is_told(&mut self, id: WaiterId, answer: Answer) {
        let waits = self.waits.remove(&id.0).expect("one answer to a request that waits");
        let was_forbidden = self.forbidden.remove(&id);
        assert_eq!(was_forbidden, answer == Answer::Refused(Refusal::Forbidden), "{answer:?}");
        let Waits { place, owner, ttl_ms, since, until, at_once, taken_back } = waits;
        match answer {
            Answer::Granted { token, waited_ms, .. } => {
                assert!(self.is_held_by(place, &owner) && self.locks[&place].first().token() == token);
                let waited_ms = u32::try_from(waited_ms).expect("no wait is longer");
                self.lasts(place, since.plus_ms(waited_ms), ttl_ms.expect("who asked for it is granted it"));
            }
            Answer::Turn(_) if !self.is_held_by(place, &owner) => {
                assert!(!self.is_held(place) && self.boot <= until);
                self.tell(place, &owner);
            }
            Answer::Turn(_) => {}
            Answer::TimedOut(_) if at_once && !taken_back => {
                let kept = self.oracle.is_kept(place, self.boot);
                assert!(kept || self.is_held(place) && !self.is_held_by(place, &owner), "{owner:?} was to wait");
            }
            Answer::TimedOut(_) => assert!(self.boot > until || taken_back, "{owner:?} was to wait until {until:?}"),
            Answer::Refused(Refusal::NotYet) => assert!(at_once && self.boot > until),
            Answer::Refused(Refusal::Poisoned) => assert!(self.was_poisoned),
            Answer::Refused(refusal) => assert!(!refusal.to_string().is_empty()),
        }
    }
}
