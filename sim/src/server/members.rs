//! The set of nodes that a node is in: what programs that change it say, and the connections that it ends.

use palisade_core::quorum::{MemberSays, TellMember};
use palisade_core::{Accepted, Members, Membership, Now, Refusal, SavedMembership, WaiterId};

use super::Server;
use crate::messages::{Hears, Request};
use crate::rules::Rule;

/// The smallest floor, where the one that is asked for is left out.
const NO_FLOOR: u64 = 1;

impl Server {
    /// The set as it knows it.
    pub fn members(&self) -> &Members {
        self.node.membership().decided()
    }

    /// Why a request is not heard: another server is meant, or its client joined with an older version, and its connection is ended.
    pub(super) fn is_not_heard(&self, request: &Request) -> Option<Hears> {
        if request.meant.is_some_and(|meant| meant != self.id()) && !self.without.is(Rule::MembersHaveIds) {
            return Some(Hears::Another);
        }
        let is_older = request.joined.is_some_and(|version| !self.node.membership().admits(version));
        (is_older && !self.without.is(Rule::OlderClientsAreRefused)).then(|| Hears::Later(self.members().version))
    }

    /// What it says to a program that changes the set; where it is `taken_for` a member, in its name. It is to be on the disk before it is said.
    ///
    /// # Errors
    /// It refuses.
    pub fn hears_changer(
        &mut self,
        told: &TellMember,
        taken_for: Option<u128>,
        now: Now,
    ) -> Result<MemberSays, Refusal> {
        self.node.ready(now.boot)?;
        // Without the rule it takes its leases for ended.
        let late = now.boot.plus_ms(2 * self.setup.max_ttl_ms);
        let at = if self.without.is(Rule::LeasesEndFirst) { Now::new(late, now.wall_us) } else { now };
        let says = match told.clone() {
            TellMember::Promise { version, ballot } => {
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
            TellMember::Accept { version, ballot, list, floor } => {
                let floor = if self.without.is(Rule::TokensGoOn) { NO_FLOOR } else { floor };
                let promised = self.node.membership().saved().promised;
                let ballot = if self.without.is(Rule::PromisesAreKept) { ballot.max(promised) } else { ballot };
                if self.without.is(Rule::OneNodeAtATime) {
                    // Whatever the lists are.
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

    /// It is told that `members` are the set; whether that is news. Who waited on a connection of an older version waits no longer.
    pub fn decides(&mut self, members: Members, now: Now) -> bool {
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
