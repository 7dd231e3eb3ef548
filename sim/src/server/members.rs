//! The set of nodes that a node belongs to: the messages of programs that change the set, and the connections that the
//! node ends.

use palisade_core::quorum::{MemberRequest, MemberSays};
use palisade_core::{Accepted, Members, Membership, Now, Refusal, SavedMembership, WaiterId};

use super::Server;
use crate::messages::{Hears, Request};
use crate::rules::Rule;

/// The smallest token floor, used when the rule `TokensGoOn` is switched off.
const NO_FLOOR: u64 = 1;

impl Server {
    /// Returns the set that the node knows.
    pub fn members(&self) -> &Members {
        self.node.membership().decided()
    }

    /// Returns the answer that rejects a request which is meant for another server, or whose connection joined with an
    /// older version of the set and has ended. Returns `None` if the node accepts the request.
    pub(super) fn is_not_heard(&self, request: &Request) -> Option<Hears> {
        if request.meant.is_some_and(|meant| meant != self.id()) && !self.without.is(Rule::MembersHaveIds) {
            return Some(Hears::Another);
        }
        let is_older = request.joined.is_some_and(|version| !self.node.membership().admits(version));
        (is_older && !self.without.is(Rule::OlderClientsAreRefused)).then(|| Hears::Later(self.members().version))
    }

    /// Returns the answer to a program that changes the set. `taken_for` is the member in whose name the node answers,
    /// if any. The state must be on disk before the answer is sent.
    ///
    /// # Errors
    ///
    /// The node refuses.
    pub fn hear_changer(
        &mut self,
        told: &MemberRequest,
        taken_for: Option<u128>,
        now: Now,
    ) -> Result<MemberSays, Refusal> {
        self.node.ready(now.boot)?;
        // With `LeasesEndFirst` switched off, the node assumes that its leases have ended.
        let late = now.boot.plus_ms(2 * self.setup.max_ttl_ms);
        let at = if self.without.is(Rule::LeasesEndFirst) { Now::new(late, now.wall_us) } else { now };
        let says = match told.clone() {
            MemberRequest::Promise { version, ballot } => {
                let (accepted, floor) = match taken_for {
                    None => self.node.promise_members(version, ballot, at)?,
                    Some(own) => {
                        let floor = self.node.tokens().high().clamp(NO_FLOOR, palisade_core::limits::FLOOR_MAX);
                        (self.node.tamper().membership.promise(version, ballot, own, at.boot)?.cloned(), floor)
                    }
                };
                let accepted = accepted.filter(|_| !self.without.is(Rule::EarlierIsCompleted));
                MemberSays::Promised { accepted, floor }
            }
            MemberRequest::Accept { version, ballot, list, floor } => {
                let floor = if self.without.is(Rule::TokensGoOn) { NO_FLOOR } else { floor };
                let promised = self.node.membership().saved().promised;
                let ballot = if self.without.is(Rule::PromisesAreKept) { ballot.max(promised) } else { ballot };
                if self.without.is(Rule::OneNodeAtATime) {
                    // With `OneNodeAtATime` switched off, the node accepts any list.
                    self.node.promise_members(version, ballot, at)?;
                    let accepted = Some(Accepted { ballot, list });
                    let saved = SavedMembership { accepted, ..self.node.membership().saved().clone() };
                    *self.node.tamper().membership = Membership::restore(saved, 0, at.boot);
                } else if let Some(own) = taken_for {
                    self.node.tamper().membership.accept(version, ballot, list, own, at.boot)?;
                    self.node.raise_floor(floor);
                } else {
                    self.node.accept_members(version, ballot, list, floor, at)?;
                }
                MemberSays::Accepted
            }
        };
        self.save_first(now);
        Ok(says)
    }

    /// Makes `members` the node's set. Returns true if it is new. Requests on connections that joined with an older
    /// version stop waiting.
    pub fn adopt(&mut self, members: Members, now: Now) -> bool {
        if self.node.ready(now.boot).is_err() {
            return false;
        }
        let is_news = self.node.decide_members(members, now) == Ok(true);
        if is_news {
            self.save_first(now);
        }
        if !self.without.is(Rule::OlderClientsAreRefused) {
            let version = self.members().version;
            let joined = self.joined.iter();
            let older: Vec<WaiterId> = joined.filter(|(_, joined)| **joined < version).map(|(id, _)| *id).collect();
            for id in older {
                self.joined.remove(&id);
                self.node.leave_queue(id, now.boot);
                self.watch.is_gone(id, true);
            }
        }
        is_news
    }
}
