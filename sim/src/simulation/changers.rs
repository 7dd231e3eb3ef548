//! Programs that change the set of nodes, as an operator runs them: step by step, where a majority of the members
//! decides each step.
//!
//! A program asks which nodes answer and which version they know. It founds the first version, and then reaches the
//! wanted nodes by single steps. Two programs may run at once, and a program may die at any message.

use std::collections::BTreeMap;

use palisade_core::Member;
use palisade_core::Members;
use palisade_core::quorum::{Change, ChangeProgress, MemberRequest, MemberSays, NodeId, majority, step_towards};
use rand::RngExt;

use super::agenda::Next;
use super::changer::{Answers, Changer, ChangerRequest, Message};
use super::outcome::Failure;
use super::sets::{address, place};
use super::world::World;
use crate::rules::Rule;

/// The client number of a program's messages, which cuts of single clients do not affect.
const NO_CLIENT: usize = usize::MAX;

impl World<'_> {
    pub(super) fn changer_begins(&mut self, of: usize, wants: u16, dies_after: Option<u16>) {
        self.is_founded = true;
        let (ids, latest) = (BTreeMap::new(), Members::default());
        self.changers.insert(of, Changer { wants, dies_after, look: 0, ids, latest, attempt: None });
        self.changer_looks(of);
    }

    /// Asks all nodes again which version they know.
    fn changer_looks(&mut self, of: usize) {
        let Some(changer) = self.changers.get_mut(&of) else { return };
        changer.look += 1;
        (changer.ids, changer.attempt) = (BTreeMap::new(), None);
        (0..self.plan.nodes.len()).for_each(|node| self.changer_sends(of, node, ChangerRequest::Look));
        self.changer_waits(of, 0);
    }

    /// Gives the nodes time to answer after a pause of `pause_us`.
    fn changer_waits(&mut self, of: usize, pause_us: u64) {
        if let Some(changer) = self.changers.get(&of) {
            let patience_us = u64::from(self.plan.node_timeout_ms) * 1_000;
            self.plan_at(self.at + pause_us + patience_us, Next::ChangerGoesOn(of, changer.look));
        }
    }

    fn changer_sends(&mut self, of: usize, node: usize, says: ChangerRequest) {
        let Some(changer) = self.changers.get_mut(&of) else { return };
        let look = changer.look;
        if let Some(left) = &mut changer.dies_after {
            if *left == 0 {
                self.tell(|| format!("the program of fault {of} dies"));
                self.changers.remove(&of);
                return;
            }
            *left -= 1;
        }
        for delay in self.copies(node, NO_CLIENT, true).into_iter().take(1) {
            let message = Message { of, look, node, says: says.clone() };
            self.plan_at(self.at + delay, Next::ToMember(Box::new(message)));
        }
    }

    /// Delivers a program's question to a node.
    pub(super) fn member_hears(&mut self, Message { of, look, node, says }: Message<ChangerRequest>) {
        let answers = match says {
            ChangerRequest::Look => self.on_server(node, |server, _| Answers::Knows(server.members().clone())),
            ChangerRequest::Tell(member, told) => {
                let latest = self.changers.get(&of).map(|changer| changer.latest.list.clone()).unwrap_or_default();
                let taken_for = latest.get(member).and_then(|member| member.id);
                let taken_for = taken_for.filter(|_| self.without.is(Rule::MembersHaveIds));
                let says =
                    self.on_server(node, |server, now| server.hear_changer(&told, taken_for, now).ok()).flatten();
                let says = says.filter(|_| self.write_members(node)).unwrap_or(MemberSays::No);
                self.tell(|| format!("node {node} is told {told:?}, says {says:?}"));
                self.nodes[node].server.is_some().then_some(Answers::Member(member, told, says))
            }
            ChangerRequest::Decided(members) => {
                let version = members.version;
                if self.on_server(node, |server, now| server.adopt(members, now)) == Some(true) {
                    self.tell(|| format!("node {node} is told that version {version} is decided"));
                    self.write_members(node);
                    self.connections_of_older_end(node, version);
                }
                None
            }
        };
        let Some(says) = answers else { return };
        let id = self.nodes[node].server.as_ref().map_or(NodeId(0), crate::server::Server::id);
        for delay in self.copies(node, NO_CLIENT, false).into_iter().take(1) {
            let message = Message { of, look, node, says: says.clone() };
            self.plan_at(self.at + delay, Next::FromMember(id, Box::new(message)));
        }
    }

    /// Writes the node's membership to disk before the node answers. Returns true if the disk accepts writes now.
    fn write_members(&mut self, node: usize) -> bool {
        let hangs = self.nodes[node].hangs_until > self.at;
        if !hangs {
            self.write_at_once(node);
        }
        !hangs
    }

    /// Delivers a node's answer to the program that changes the set of nodes.
    pub(super) fn changer_hears(&mut self, id: NodeId, message: Message<Answers>) -> Result<(), Failure> {
        let Message { of, look, node, says } = message;
        let Some(changer) = self.changers.get_mut(&of).filter(|changer| changer.look == look) else { return Ok(()) };
        match says {
            Answers::Knows(members) => {
                changer.ids.insert(node, id.0);
                if members.version > changer.latest.version {
                    changer.latest = members;
                }
            }
            Answers::Member(member, told, says) => {
                let Some(attempt) = &mut changer.attempt else { return Ok(()) };
                let one_is_enough = self.without.is(Rule::MajorityAccepts) && says == MemberSays::Accepted;
                let is_any = self.without.is(Rule::MembersHaveIds);
                let id =
                    changer.latest.list.get(member).and_then(|member| member.id).filter(|_| is_any).unwrap_or(id.0);
                let progress = attempt.on_answer(member, id, &told, says);
                let decided = match (progress, told) {
                    (_, MemberRequest::Accept { version, list, .. }) if one_is_enough => Members { version, list },
                    (ChangeProgress::Decided(members), _) => members,
                    (ChangeProgress::Accepts, _) => {
                        self.changer_tells(of);
                        return Ok(());
                    }
                    (ChangeProgress::Goes | ChangeProgress::Impossible, _) => return Ok(()),
                };
                return self.changer_decided(of, decided);
            }
        }
        Ok(())
    }

    /// Sends the attempt's next message to the members of the current version.
    fn changer_tells(&mut self, of: usize) {
        let Some(changer) = self.changers.get(&of) else { return };
        let Some(attempt) = &changer.attempt else { return };
        let tell = attempt.request();
        let nodes = match changer.latest.version {
            0 => (0..self.plan.first_set()).collect(),
            _ => changer.latest.list.iter().map(|member| place(&member.address)).collect::<Vec<_>>(),
        };
        for (member, node) in nodes.into_iter().enumerate() {
            self.changer_sends(of, node, ChangerRequest::Tell(member, tell.clone()));
        }
    }

    fn changer_decided(&mut self, of: usize, decided: Members) -> Result<(), Failure> {
        let Some(changer) = self.changers.get_mut(&of) else { return Ok(()) };
        let before = std::mem::replace(&mut changer.latest, decided.clone());
        changer.attempt = None;
        self.tell(|| format!("version {} is decided: {:?}", decided.version, decided.list));
        self.is_decided(&decided)?;
        let mut nodes: Vec<_> = before.list.iter().chain(&decided.list).map(|member| place(&member.address)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.into_iter().for_each(|node| self.changer_sends(of, node, ChangerRequest::Decided(decided.clone())));
        self.changer_waits(of, 0);
        Ok(())
    }

    /// Ends the time for answers: the program begins an attempt, or starts a new round.
    pub(super) fn changer_goes_on(&mut self, of: usize, look: u32) {
        let Some(changer) = self.changers.get(&of).filter(|changer| changer.look == look) else { return };
        let was_looking = changer.attempt.is_none() && !changer.ids.is_empty();
        let Some(list) = self.changer_step(changer).filter(|_| was_looking) else {
            // The program has reached its goal, or too few nodes answered. It starts another round after a while.
            let pause = self.rng.random_range(0..u64::from(self.plan.ttl_ms) * 1_000);
            if let Some(changer) = self.changers.get_mut(&of) {
                changer.attempt = None;
                changer.look += 1;
                let look = changer.look;
                self.plan_at(self.at + pause, Next::ChangerLooks(of, look));
            }
            return;
        };
        let ballot = u128::from(self.at) << 16 | of as u128;
        let first = self.plan.first_set();
        if let Some(changer) = self.changers.get_mut(&of) {
            let base = match changer.latest.version {
                0 => {
                    Members { version: 0, list: (0..first).map(|n| Member { id: None, address: address(n) }).collect() }
                }
                _ => changer.latest.clone(),
            };
            changer.attempt = Some(Change::begin(base, ballot, list));
        }
        self.changer_tells(of);
        self.changer_waits(of, 0);
    }

    pub(super) fn changer_looks_again(&mut self, of: usize, look: u32) {
        if self.changers.get(&of).is_some_and(|changer| changer.look == look) {
            self.changer_looks(of);
        }
    }

    /// Returns the list that the program proposes next; `None` if nothing is left to do, or if fewer than a majority of
    /// the proposed nodes answered.
    fn changer_step(&self, changer: &Changer) -> Option<Vec<Member>> {
        let member = |node: usize| Member { id: changer.ids.get(&node).copied(), address: address(node) };
        let present = &changer.latest;
        let next = if present.version == 0 {
            if self.newest().is_some() {
                // The operator knows that a set exists whose nodes do not answer, and must not found another one.
                return None;
            }
            (0..self.plan.first_set()).map(member).collect()
        } else {
            let wanted: Vec<_> = (0..self.plan.nodes.len()).filter(|node| changer.wants >> node & 1 == 1).collect();
            let as_it_is = |node: usize| present.list.iter().find(|member| place(&member.address) == node).cloned();
            let wanted = wanted.into_iter().filter_map(|node| match changer.ids.get(&node) {
                Some(_) => Some(member(node)),
                None => as_it_is(node),
            });
            let wanted: Vec<_> = wanted.collect();
            match self.without.is(Rule::OneNodeAtATime) {
                true => Some(wanted.clone()).filter(|_| wanted != present.list && !wanted.is_empty())?,
                false => step_towards(&present.list, &wanted)?,
            }
        };
        let answers =
            |member: &&Member| changer.ids.get(&place(&member.address)).copied() == member.id && member.id.is_some();
        (next.iter().filter(answers).count() >= majority(next.len())).then_some(next)
    }
}
