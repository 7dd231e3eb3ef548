//! Keeping a lock on a majority: extending it, and giving it back to nodes that lost it.

mod moving;
mod share;

use self::share::{AGAIN_MS, Sharing};
use super::ask::{Answer, Ask, Call, NodeId, majority, valid_until};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// A lock that a majority holds for one owner.
///
/// It is prolonged in rounds. An answer counts for its own round alone, and only while the validity from before still runs;
/// a majority of them make the new validity, counted from the start of *that* round. A node takes part in a round only if
/// it had acknowledged at least the holder's token when the round began: a node that lost the lock and is granted it again
/// (*healed*), or that granted it late, adds nothing before the next round, since its own lease may be an old one.
///
/// A writer may go on as a reader ([`Held::share`]). From the moment at which the first node is told, its owner may rely on it as a
/// reader only: where a majority knows, other readers get in. Nothing else changes. A node that does not know yet keeps readers
/// out for a while longer, so it does not matter when it learns of it; its extensions and raises are the same, and a grant that
/// comes late, or heals a node, is followed by LOCK.CONVERT, whichever mode it was asked for in.
///
/// The holder's token rises, when healed nodes have larger ones, once a majority has acknowledged the larger one. It never
/// falls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    token: Token,
    ttl_ms: u32,
    valid_until: BootTime,
    members: Vec<Member>,
    round: Round,
    /// Rounds begun; answers of the acquisition are of round 0.
    rounds: u64,
    /// Its owner was a writer and is a reader.
    is_reader: bool,
    /// Another process may speak for the same owner, and raise tokens.
    is_spoken_for: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Member {
    id: Option<NodeId>,
    /// What the node is known to have; `None`: it does not have the lock, or with an unknown token.
    acked: Option<Token>,
    /// It was asked to raise that and has not answered: what it has now is one or the other.
    raising: bool,
    /// It refused an extension meanwhile, which named the lower token: it is asked again when it has answered.
    asks_again: bool,
    /// Asked to raise its token or to share the lock, it said that it does not have it any more, and has not granted it again.
    is_gone: bool,
    /// It said so since the validity was extended last, whatever it has granted since.
    was_gone: bool,
    /// Whether it knows that its owner is a reader from now on.
    sharing: Sharing,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Round {
    start: BootTime,
    /// By node: took part and has not answered; or said yes.
    open: Vec<bool>,
    yes: Vec<bool>,
    no: Vec<bool>,
    extended: bool,
}

impl Held {
    pub(super) fn new(
        members: Vec<(Option<NodeId>, Option<Token>, bool)>,
        token: Token,
        ttl_ms: u32,
        valid_until: BootTime,
    ) -> Self {
        let member = |(id, acked, raising)| Member {
            id,
            acked,
            raising,
            asks_again: false,
            is_gone: false,
            was_gone: false,
            sharing: Sharing::Not,
        };
        let members: Vec<_> = members.into_iter().map(member).collect();
        let none = vec![false; members.len()];
        let round = Round { open: none.clone(), yes: none.clone(), no: none, ..Round::default() };
        Self { token, ttl_ms, valid_until, members, round, rounds: 0, is_reader: false, is_spoken_for: false }
    }

    /// Another process may speak for the same owner ([`resume`](super::resume())), and raise tokens to bring them together. So a node that
    /// does not have the token which it acknowledged last may have a larger one: before it counts as one that does not have the lock, it is
    /// asked what it has for this owner.
    pub fn is_spoken_for_elsewhere(&mut self) {
        self.is_spoken_for = true;
    }

    /// The fencing token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The length of its leases, in milliseconds.
    pub fn ttl_ms(&self) -> u32 {
        self.ttl_ms
    }

    /// Until when its owner may rely on it.
    pub fn valid_until(&self) -> BootTime {
        self.valid_until
    }

    /// How many nodes are known to have it with at least the holder's token.
    pub fn nodes_held(&self) -> usize {
        self.members.iter().filter(|member| member.acked >= Some(self.token)).count()
    }

    /// The token that `node` is known to have, if it is not being raised: what can be looked for there.
    pub fn token_at(&self, node: usize) -> Option<Token> {
        let member = &self.members[node];
        member.acked.filter(|_| !member.raising)
    }

    /// `node`, which is the server `id`, was looked at and does not have `token`: somebody took the lock away there. It is not asked to
    /// grant it again before the next round, for whoever takes a lock away does so on one node after the other.
    pub fn on_missing(&mut self, node: usize, id: Option<NodeId>, token: Token, now: BootTime) -> Vec<Call> {
        if self.token_at(node) != Some(token) || self.members[node].id != id || now >= self.valid_until {
            return vec![];
        }
        let member = &mut self.members[node];
        if self.is_spoken_for {
            member.raising = true;
            return vec![Call::now(node, Ask::Fence { token: self.token })];
        }
        (member.acked, member.is_gone, member.was_gone) = (None, true, true);
        // What it may still answer was said before it was looked at.
        self.round.no[node] |= std::mem::take(&mut self.round.open[node]);
        vec![]
    }

    /// The number of the round that was begun last.
    pub fn round(&self) -> u64 {
        self.rounds
    }

    /// What came of that round: `Some(true)`, the validity is extended; `Some(false)`, it cannot be any more by this round;
    /// `None`, that is open.
    pub fn outcome(&self) -> Option<bool> {
        if self.round.extended {
            return Some(true);
        }
        let count = |of: &[bool]| of.iter().filter(|&&is| is).count();
        let possible = count(&self.round.open) + count(&self.round.yes);
        if possible < majority(self.members.len()) { Some(false) } else { None }
    }

    /// So many nodes said, in one round of extension or when they were to raise their tokens or to share it, that they do not
    /// have it any more that no majority is left: somebody took it away (BREAK, DEL, FLUSHALL). It is not taken back.
    pub fn is_lost(&self) -> bool {
        // A node that said so twice is one node.
        let gone = self.members.iter().zip(&self.round.no).filter(|(member, no)| member.is_gone || **no).count();
        gone > self.members.len() - majority(self.members.len())
    }

    /// Whether `node` said, while its lease ran, that it does not have the lock any more, after the validity was extended last. It may have
    /// granted it again.
    pub fn was_gone_from(&self, node: usize) -> bool {
        self.members[node].was_gone
    }

    /// So many nodes said so, one after the other, that no majority can have had it for all of the time: if its validity ends now, it
    /// does so because somebody took it away.
    pub fn was_taken_away(&self) -> bool {
        self.members.iter().filter(|member| member.was_gone).count() > self.members.len() - majority(self.members.len())
    }

    /// Begins a round at `now`: leases of `ttl_ms` from here on. Nodes that lost the lock are asked to grant it again, with
    /// the holder's own token where they can: then no other node has to raise its own.
    pub fn extend(&mut self, ttl_ms: u32, now: BootTime) -> Vec<Call> {
        self.rounds += 1;
        self.ttl_ms = ttl_ms;
        let takes_part = |member: &Member| member.acked >= Some(self.token);
        let open: Vec<_> = self.members.iter().map(takes_part).collect();
        let none = vec![false; open.len()];
        self.round = Round { start: now, yes: none.clone(), open, no: none, extended: false };
        let heal = self.heal();
        let ask = |member: &Member| match member.acked {
            Some(token) if token >= self.token => Ask::Extend { ttl_ms, token },
            Some(_) => Ask::Fence { token: self.token },
            None => heal,
        };
        self.members.iter().enumerate().map(|(node, member)| Call::now(node, ask(member))).collect()
    }

    /// `node`, which is the server `id`, answered an `ask` of round `round`.
    pub fn on_answer(
        &mut self,
        round: u64,
        node: usize,
        id: Option<NodeId>,
        ask: Ask,
        answer: Answer,
        now: BootTime,
    ) -> Vec<Call> {
        let again = |ms| vec![Call { node, ask, after_ms: ms }];
        match (ask, answer) {
            (Ask::Extend { .. }, _) if round != self.rounds => vec![],
            (Ask::Extend { .. }, Answer::NotYet { ms }) => again(ms),
            (Ask::Extend { ttl_ms, token }, Answer::No) if self.may_have_more_than(node, token) => {
                // It has the lock, with a token that was raised since it was asked.
                let member = &mut self.members[node];
                member.asks_again = member.raising;
                let token = member.acked.filter(|_| !member.raising);
                token.map(|token| Call::now(node, Ask::Extend { ttl_ms, token })).into_iter().collect()
            }
            (Ask::Extend { token, .. }, Answer::No) if self.is_spoken_for && self.has_open(node, token, now) => {
                let member = &mut self.members[node];
                (member.raising, member.asks_again) = (true, true);
                vec![Call::now(node, Ask::Fence { token: self.token })]
            }
            (Ask::Extend { .. }, answer) => self.on_extended(node, id, answer, now),
            // Too late to be of use: whoever holds it releases it everywhere.
            _ if now >= self.valid_until => vec![],
            (_, Answer::NotYet { ms }) => again(ms),
            (Ask::Share, answer) => self.on_shared(node, id, answer),
            (_, Answer::Token(token)) => self.on_token(node, id, token),
            // It does not have it, or what it has is not known: the next round asks it to grant it again.
            (Ask::Fence { .. }, answer) => {
                let member = &mut self.members[node];
                (member.acked, member.raising) = (None, false);
                // The extension that it refused is refused for good.
                if std::mem::take(&mut member.asks_again) {
                    return self.on_extended(node, id, answer, now);
                }
                member.is_gone |= answer == Answer::No;
                member.was_gone |= answer == Answer::No;
                vec![]
            }
            (Ask::Acquire { .. }, _) => vec![],
        }
    }

    /// Whether `node` may have a larger token than it was asked to extend.
    fn may_have_more_than(&self, node: usize, token: Token) -> bool {
        let member = &self.members[node];
        self.round.open[node] && member.acked.is_some_and(|acked| member.raising || acked > token)
    }

    /// Whether `node` has been asked in time to extend what it acknowledged last, and has not answered.
    fn has_open(&self, node: usize, token: Token, now: BootTime) -> bool {
        self.round.open[node] && self.members[node].acked == Some(token) && now < self.valid_until
    }

    fn on_extended(&mut self, node: usize, id: Option<NodeId>, answer: Answer, now: BootTime) -> Vec<Call> {
        let took_part = std::mem::take(&mut self.round.open[node]);
        let same_server = id.is_some() && id == self.members[node].id;
        match answer {
            Answer::Token(_) if took_part && same_server && now < self.valid_until => {
                self.round.yes[node] = true;
                let yes = self.round.yes.iter().filter(|&&yes| yes).count();
                if yes >= majority(self.members.len()) {
                    self.round.extended = true;
                    let until = valid_until(self.round.start, self.ttl_ms);
                    self.valid_until = self.valid_until.max(until);
                    self.has_been_extended();
                }
                vec![]
            }
            // The server behind this name was replaced by one that has the lock: in a cluster, where its slot has moved. It takes the seat,
            // and counts from the next round on, as one that was healed.
            Answer::Token(token) if took_part && now < self.valid_until => self.on_token(node, id, token),
            Answer::No => {
                let member = &mut self.members[node];
                member.acked = None;
                // Said later it may be that the lease has ended.
                let in_time = now < self.valid_until;
                member.was_gone |= took_part && in_time;
                self.round.no[node] |= took_part && in_time;
                if in_time && !self.is_lost() { vec![Call::now(node, self.heal())] } else { vec![] }
            }
            _ => vec![],
        }
    }

    /// A majority has had it all the time: what some nodes lost before and have again does not matter any more.
    fn has_been_extended(&mut self) {
        for (member, no) in self.members.iter_mut().zip(&mut self.round.no) {
            *no &= member.acked.is_none();
            member.was_gone = *no || member.is_gone;
        }
    }

    /// `node` has the lock for this owner, with `token`: all are brought to the largest token that is known.
    fn on_token(&mut self, node: usize, id: Option<NodeId>, token: Token) -> Vec<Call> {
        let others = self.members.iter().enumerate().filter(|(other, _)| *other != node);
        if id.is_none() || others.map(|(_, member)| member).any(|member| member.id == id && member.acked.is_some()) {
            return vec![];
        }
        let asks_again = self.members[node].asks_again;
        if id != self.members[node].id {
            // Another server under this name: it had acknowledged nothing when the round began.
            self.round.open[node] = false;
        }
        let before = &self.members[node];
        let sharing = before.sharing.after_grant(before.acked.is_none() || before.id != id);
        let was_gone = before.was_gone && !self.round.extended;
        self.round.no[node] &= !self.round.extended;
        self.members[node] =
            Member { id, acked: Some(token), raising: false, asks_again: false, is_gone: false, was_gone, sharing };
        let mut acked: Vec<_> = self.members.iter().filter_map(|member| member.acked).collect();
        acked.sort_unstable_by(|one, other| other.cmp(one));
        let largest = acked[0].max(self.token);
        // What a majority has at least.
        if let Some(&common) = acked.get(majority(self.members.len()) - 1) {
            self.token = self.token.max(common);
        }
        let mut calls = Vec::new();
        for (node, member) in self.members.iter_mut().enumerate() {
            if member.acked.is_some_and(|acked| acked < largest) {
                member.raising = true;
                calls.push(Call::now(node, Ask::Fence { token: largest }));
            }
        }
        if asks_again && self.round.open[node] {
            calls.push(Call::now(node, Ask::Extend { ttl_ms: self.ttl_ms, token }));
        }
        calls.extend(self.share_there(node));
        calls
    }

    /// Its owner is a reader from now on, whatever the nodes answer: each is told.
    pub fn share(&mut self) -> Vec<Call> {
        self.is_reader = true;
        (0..self.members.len()).filter_map(|node| self.share_there(node)).collect()
    }

    /// Whether a majority has it as a reader's, so that other readers get in.
    pub fn is_shared(&self) -> bool {
        let shares = |member: &&Member| member.acked.is_some() && member.sharing == Sharing::Shares;
        self.members.iter().filter(shares).count() >= majority(self.members.len())
    }

    /// Tells `node`, unless that is not needed.
    fn share_there(&mut self, node: usize) -> Option<Call> {
        let sharing = &mut self.members[node].sharing;
        let is_needed = self.is_reader && *sharing == Sharing::Not;
        is_needed.then(|| {
            *sharing = Sharing::Asked;
            Call::now(node, Ask::Share)
        })
    }

    /// `node`, which is the server `id`, was told that the owner is a reader.
    fn on_shared(&mut self, node: usize, id: Option<NodeId>, answer: Answer) -> Vec<Call> {
        let member = &mut self.members[node];
        let was = std::mem::replace(&mut member.sharing, Sharing::Not);
        let again = |after_ms| Call { node, ask: Ask::Share, after_ms };
        match answer {
            _ if was == Sharing::AskedBefore => self.share_there(node).into_iter().collect(),
            Answer::Token(_) if member.acked.is_some() && member.id == id => {
                member.sharing = Sharing::Shares;
                vec![]
            }
            // It has the lock after all, or another server does: how it stands there is asked once more.
            Answer::Token(token) => self.on_token(node, id, token),
            Answer::No => {
                member.is_gone |= member.acked.is_some();
                member.was_gone |= member.acked.is_some();
                (member.acked, member.raising) = (None, false);
                vec![]
            }
            Answer::Guarded { .. } | Answer::NotYet { .. } | Answer::Failed => {
                member.sharing = Sharing::Asked;
                vec![again(AGAIN_MS)]
            }
        }
    }

    fn heal(&self) -> Ask {
        Ask::Acquire { ttl_ms: self.ttl_ms, proposal: self.token, retry: true }
    }
}

#[cfg(test)]
mod tests {
    use super::super::acquire::tests::id;
    use super::*;
    use crate::fixture::{at, token};

    const TTL_MS: u32 = 1_000;

    /// Held by nodes 0, 1 and 2 of five with token 100, from 0 ms on.
    fn held() -> Held {
        let members = (0..5).map(|n| (id(n), (n < 3).then(|| token(100)), false)).collect();
        Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS))
    }

    fn extend(held: &mut Held, ms: u64) -> Vec<Call> {
        held.extend(TTL_MS, at(ms).boot)
    }

    fn yes(held: &mut Held, round: u64, node: usize, ms: u64) -> Vec<Call> {
        let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
        held.on_answer(round, node, id(node as u128), ask, Answer::Token(token(100)), at(ms).boot)
    }

    fn no(held: &mut Held, round: u64, node: usize, ms: u64) -> Vec<Call> {
        let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
        held.on_answer(round, node, id(node as u128), ask, Answer::No, at(ms).boot)
    }

    fn healed(held: &mut Held, node: usize, value: u64, ms: u64) -> Vec<Call> {
        let ask = held.heal();
        held.on_answer(held.round(), node, id(node as u128), ask, Answer::Token(token(value)), at(ms).boot)
    }

    fn fenced(held: &mut Held, node: usize, value: u64, ms: u64) -> Vec<Call> {
        let ask = Ask::Fence { token: token(value) };
        held.on_answer(held.round(), node, id(node as u128), ask, Answer::Token(token(value)), at(ms).boot)
    }

    /// A node was replaced, and its successor was granted the lock, while a round ran: it is healed, no more.
    /// Looked at, a majority does not have it: it is lost, whatever the rest answers. No node is asked to grant it again meanwhile, so
    /// whoever takes it away on one node after the other is not undone.
    #[test]
    fn what_a_majority_is_missing_is_lost() {
        let mut held = held();
        let calls = extend(&mut held, 100);
        assert_eq!(calls.len(), 5);
        held.on_missing(0, id(0), token(100), at(105).boot);
        held.on_missing(0, id(0), token(100), at(105).boot);
        assert!(!held.is_lost() && held.token_at(0).is_none(), "one node is one node");
        assert!(yes(&mut held, 1, 0, 110).is_empty(), "what it says of before it was looked at is late");
        assert_eq!(held.outcome(), Some(false), "two are left who can extend it");
        held.on_missing(1, id(1), token(99), at(105).boot);
        held.on_missing(2, id(7), token(100), at(105).boot);
        held.on_missing(3, id(3), token(100), at(105).boot);
        assert!(!held.is_lost(), "another token, another server, and one that never had it");
        held.on_missing(1, id(1), token(100), at(105).boot);
        held.on_missing(2, id(2), token(100), at(105).boot);
        assert!(held.is_lost());
    }

    /// Another process of the same owner raised the tokens. The nodes do not have the ones that they acknowledged here, which was taken for
    /// a lock that is gone: its owner was granted another permit.
    #[test]
    fn tokens_that_another_process_raises() {
        let raised = |held: &mut Held, node: usize, calls: &[Call]| {
            // As soon as one has told, the others are asked for that much before they are asked what they have.
            let ask = Ask::Fence { token: token(if node == 0 { 100 } else { 200 }) };
            assert_eq!(calls, if node == 0 { vec![Call::now(node, ask)] } else { vec![] });
            held.on_answer(held.round(), node, id(node as u128), ask, Answer::Token(token(200)), at(120).boot)
        };
        let mut held = held();
        held.is_spoken_for_elsewhere();
        extend(&mut held, 100);
        let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(200) };
        for node in 0..3 {
            let calls = no(&mut held, 1, node, 110);
            let calls = raised(&mut held, node, &calls);
            assert!(calls.contains(&Call::now(node, ask)), "then it is extended in this round: {calls:?}");
            held.on_answer(1, node, id(node as u128), ask, Answer::Token(token(200)), at(130).boot);
        }
        assert_eq!((held.outcome(), held.token(), held.is_lost()), (Some(true), token(200), false));
        // The same where it was looked at.
        let mut held = self::held();
        held.is_spoken_for_elsewhere();
        for node in 0..3 {
            let calls = held.on_missing(node, id(node as u128), token(100), at(105).boot);
            raised(&mut held, node, &calls);
            assert!(held.on_missing(node, id(node as u128), token(100), at(121).boot).is_empty());
        }
        assert_eq!((held.token(), held.is_lost(), held.was_taken_away()), (token(200), false, false));
    }

    /// Whoever has nothing says so when it is asked what it has.
    #[test]
    fn a_lock_that_another_process_gave_back_is_lost() {
        for looked_at in [false, true] {
            let mut held = held();
            held.is_spoken_for_elsewhere();
            extend(&mut held, 100);
            for (node, is_lost) in [(0, false), (1, false), (2, true)] {
                let calls = match looked_at {
                    true => held.on_missing(node, id(node as u128), token(100), at(105).boot),
                    false => no(&mut held, 1, node, 110),
                };
                held.on_answer(1, node, id(node as u128), calls[0].ask, Answer::No, at(120).boot);
                assert_eq!((held.is_lost(), held.was_taken_away()), (is_lost, is_lost), "{node}");
            }
        }
    }

    /// Two nodes had lost it and have it again, three extended it, and one of these was then broken.
    #[test]
    fn what_nodes_lost_before_an_extension_does_not_add_to_what_they_lose_after_it() {
        for healed_first in [false, true] {
            let members = (0..5).map(|n| (id(n), Some(token(100)), false)).collect();
            let mut held = Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
            extend(&mut held, 100);
            let heal = |held: &mut Held| [0, 1].iter().for_each(|node| drop(healed(held, *node, 100, 115)));
            (0..2).for_each(|node| drop(no(&mut held, 1, node, 110)));
            if healed_first {
                heal(&mut held);
            }
            (2..5).for_each(|node| drop(yes(&mut held, 1, node, 120)));
            if !healed_first {
                heal(&mut held);
            }
            held.on_missing(2, id(2), token(100), at(130).boot);
            assert_eq!((held.is_lost(), held.was_taken_away(), held.nodes_held()), (false, false, 4));
        }
    }

    /// It was broken on one node after the other, and each granted it again before the next one was asked: a majority never lost it
    /// at once, and nobody could extend it. That was told as nodes that could not be asked.
    #[test]
    fn a_node_that_granted_it_again_is_one_that_it_was_gone_from() {
        let mut held = held();
        for (round, node) in [(1, 0), (2, 1), (3, 2)] {
            assert!(!held.was_taken_away());
            extend(&mut held, round * 100);
            no(&mut held, round, node, round * 100 + 10);
            healed(&mut held, node, 100, round * 100 + 20);
        }
        assert_eq!((held.is_lost(), held.was_taken_away()), (false, true));
        assert!((0..3).all(|node| held.was_gone_from(node)) && !held.was_gone_from(3));
        // Once a majority has extended it, that is over.
        extend(&mut held, 400);
        (0..3).for_each(|node| drop(yes(&mut held, 4, node, 410)));
        assert!(held.outcome() == Some(true) && !held.was_taken_away() && !held.was_gone_from(0));
    }

    /// What was looked at while it was being extended was asked to grant it again, by the answer to the extension.
    #[test]
    fn what_is_missing_in_a_round_stays_missing_in_it() {
        let mut held = held();
        extend(&mut held, 100);
        for (node, is_lost) in [(0, false), (1, false), (2, true)] {
            held.on_missing(node, id(node as u128), token(100), at(105).boot);
            no(&mut held, 1, node, 110);
            healed(&mut held, node, 100, 115);
            assert_eq!(held.is_lost(), is_lost, "{node}");
        }
    }

    /// A process that was stopped asks when its leases have ended.
    #[test]
    fn what_is_said_when_validity_is_over_is_no_loss_before() {
        let mut held = held();
        extend(&mut held, 100);
        for node in 0..3 {
            no(&mut held, 1, node, 5_000);
            held.on_missing(node, id(node as u128), token(100), at(5_000).boot);
        }
        assert_eq!((held.is_lost(), held.was_taken_away()), (false, false));
    }

    #[test]
    fn a_node_that_grants_it_again_is_missing_nothing() {
        let mut held = held();
        held.on_missing(0, id(0), token(100), at(105).boot);
        held.on_missing(1, id(1), token(100), at(105).boot);
        let calls = extend(&mut held, 100);
        assert!(calls.iter().any(|call| call.node == 0 && call.ask == held.heal()));
        healed(&mut held, 0, 100, 110);
        held.on_missing(2, id(2), token(100), at(105).boot);
        assert!(!held.is_lost());
    }

    #[test]
    fn a_server_that_takes_a_nodes_name_adds_nothing_to_the_round() {
        let mut held = held();
        extend(&mut held, 300);
        yes(&mut held, 1, 0, 310);
        yes(&mut held, 1, 1, 310);
        let (heal, ask) = (held.heal(), Ask::Extend { ttl_ms: TTL_MS, token: token(100) });
        for ask in [heal, ask] {
            held.on_answer(1, 2, id(9), ask, Answer::Token(token(100)), at(320).boot);
        }
        assert_eq!((held.outcome(), held.valid_until()), (Some(false), valid_until(at(0).boot, TTL_MS)));
        extend(&mut held, 400);
        for node in [0, 1] {
            yes(&mut held, 2, node, 410);
        }
        held.on_answer(2, 2, id(9), ask, Answer::Token(token(100)), at(410).boot);
        assert_eq!(held.valid_until(), valid_until(at(400).boot, TTL_MS), "in the next one it counts");
    }

    #[test]
    fn a_majority_extends_from_the_rounds_start_and_the_others_are_healed() {
        let mut held = held();
        let calls = extend(&mut held, 300);
        assert!(calls[..3].iter().all(|call| call.ask == Ask::Extend { ttl_ms: TTL_MS, token: token(100) }));
        assert!(calls[3..].iter().all(|call| matches!(call.ask, Ask::Acquire { retry: true, .. })));
        yes(&mut held, 1, 0, 310);
        yes(&mut held, 1, 1, 310);
        assert_eq!(held.outcome(), None);
        yes(&mut held, 1, 2, 350);
        assert_eq!((held.outcome(), held.valid_until()), (Some(true), valid_until(at(300).boot, TTL_MS)));
    }

    #[test]
    fn answers_count_for_their_own_round_once_and_in_time() {
        let mut held = held();
        extend(&mut held, 100);
        yes(&mut held, 1, 0, 110);
        yes(&mut held, 1, 0, 110);
        yes(&mut held, 1, 1, 110);
        assert_eq!(held.outcome(), None, "one node answered twice");
        extend(&mut held, 200);
        yes(&mut held, 1, 2, 210);
        yes(&mut held, 2, 0, 210);
        yes(&mut held, 2, 1, 210);
        assert_eq!(held.outcome(), None, "one answer was of an older round");
        let until = held.valid_until();
        let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
        held.on_answer(2, 2, id(2), ask, Answer::Token(token(100)), until);
        assert_ne!(held.outcome(), Some(true), "it came when the old validity had ended");
        assert_eq!(held.valid_until(), until);
    }

    /// The lock was broken on all nodes while their tokens were being raised. They said so then, and the next round took it back,
    /// node by node, as if they had restarted.
    #[test]
    fn broken_while_tokens_are_raised_it_is_lost() {
        let mut held = held();
        let fence = Ask::Fence { token: token(200) };
        extend(&mut held, 100);
        healed(&mut held, 3, 200, 110);
        for (node, is_lost) in [(0, false), (1, false), (2, true)] {
            held.on_answer(1, node, id(node as u128), fence, Answer::No, at(120).boot);
            assert_eq!(held.is_lost(), is_lost, "{node}");
        }
        // One that grants it again has only restarted.
        healed(&mut held, 2, 200, 130);
        assert!(!held.is_lost());
    }

    /// A node that came back empty and was healed adds no validity to the round under way, nor does a late grant.
    #[test]
    fn a_healed_node_counts_from_the_next_round_on() {
        let mut held = held();
        extend(&mut held, 100);
        yes(&mut held, 1, 0, 110);
        yes(&mut held, 1, 1, 110);
        let calls = no(&mut held, 1, 2, 110);
        assert_eq!(calls, [Call::now(2, held.heal())], "lost there: healed");
        assert_eq!(held.outcome(), Some(false));
        healed(&mut held, 2, 100, 120);
        yes(&mut held, 1, 2, 130);
        assert_eq!(held.outcome(), Some(false));
        extend(&mut held, 150);
        (0..3).for_each(|node| drop(yes(&mut held, 2, node, 160)));
        assert_eq!(held.outcome(), Some(true));
    }

    /// Nodes restart one at a time; a lock that is gone from a majority at once was taken away.
    #[test]
    fn what_a_majority_lost_at_once_is_not_taken_back() {
        let mut held = held();
        extend(&mut held, 100);
        assert!(!no(&mut held, 1, 0, 110).is_empty());
        assert!(!no(&mut held, 1, 1, 110).is_empty());
        assert!(!held.is_lost());
        assert!(no(&mut held, 1, 2, 110).is_empty());
        assert!(held.is_lost());
    }

    /// A node that had restarted said that it does not have the lock when it was to raise its token, and again when it was to extend
    /// it. It was counted twice, so that two nodes of five made a lock lost that three had.
    #[test]
    fn a_node_that_says_twice_that_it_is_gone_is_one_node() {
        let members = (0..5).map(|n| (id(n), (n < 4).then(|| token(100)), false)).collect();
        let mut held = Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
        extend(&mut held, 100);
        healed(&mut held, 4, 200, 110);
        for node in [0, 1] {
            let fence = Ask::Fence { token: token(200) };
            held.on_answer(1, node, id(node as u128), fence, Answer::No, at(120).boot);
            no(&mut held, 1, node, 121);
        }
        assert!(!held.is_lost());
        for node in [2, 3] {
            yes(&mut held, 1, node, 122);
            fenced(&mut held, node, 200, 122);
        }
        assert_eq!((held.nodes_held(), held.is_lost()), (3, false));
    }

    /// A straggler's grant, with the lease it had, is nothing to rely on.
    #[test]
    fn a_late_grant_of_the_acquisition_counts_from_the_next_round_on() {
        let mut held = held();
        extend(&mut held, 100);
        yes(&mut held, 1, 0, 110);
        yes(&mut held, 1, 1, 110);
        let ask = Ask::Acquire { ttl_ms: TTL_MS, proposal: token(100), retry: false };
        held.on_answer(0, 3, id(3), ask, Answer::Token(token(100)), at(115).boot);
        yes(&mut held, 1, 3, 120);
        assert_eq!(held.outcome(), None);
        assert_eq!(held.nodes_held(), 4);
    }

    #[test]
    fn the_token_rises_when_a_majority_has_the_larger_one_and_never_falls() {
        let mut held = held();
        extend(&mut held, 100);
        let calls = healed(&mut held, 3, 200, 110);
        let raise: Vec<_> = (0..3).map(|node| Call::now(node, Ask::Fence { token: token(200) })).collect();
        assert_eq!(calls, raise);
        assert_eq!(held.token(), token(100));
        fenced(&mut held, 0, 200, 120);
        assert_eq!(held.token(), token(100), "two of five");
        fenced(&mut held, 1, 200, 120);
        assert_eq!(held.token(), token(200));
        // A node below is brought up, and takes part only then.
        let calls = healed(&mut held, 4, 150, 130);
        assert!(calls.contains(&Call::now(4, Ask::Fence { token: token(200) })));
        let calls = extend(&mut held, 200);
        assert_eq!(calls[4].ask, Ask::Fence { token: token(200) });
        assert_eq!(calls[0].ask, Ask::Extend { ttl_ms: TTL_MS, token: token(200) });
        assert_eq!(held.token(), token(200));
    }

    /// A late grant has a larger token, so all are raised to it, while a round is on its way that names the lower one: the
    /// nodes refuse it, and have the lock.
    #[test]
    fn a_raise_that_overtakes_an_extension_loses_nothing() {
        for fence_answered_first in [false, true] {
            let mut held = held();
            extend(&mut held, 100);
            assert_eq!(healed(&mut held, 3, 200, 110).len(), 3, "all are asked to raise");
            let mut again = vec![];
            for node in 0..3 {
                if fence_answered_first {
                    fenced(&mut held, node, 200, 120);
                    again.extend(no(&mut held, 1, node, 121));
                } else {
                    assert!(no(&mut held, 1, node, 120).is_empty());
                    again.extend(fenced(&mut held, node, 200, 121));
                }
            }
            assert!(!held.is_lost());
            let expected = Ask::Extend { ttl_ms: TTL_MS, token: token(200) };
            let extensions: Vec<_> = again.iter().filter(|call| call.ask == expected).collect();
            assert_eq!(extensions.len(), 3, "{again:?}");
            for node in 0..3 {
                held.on_answer(1, node, id(node as u128), expected, Answer::Token(token(200)), at(130).boot);
            }
            assert_eq!((held.outcome(), held.token()), (Some(true), token(200)));
        }
    }

    #[test]
    fn a_lower_token_of_a_healed_node_lowers_nothing() {
        let mut held = held();
        extend(&mut held, 100);
        no(&mut held, 1, 2, 110);
        let calls = healed(&mut held, 2, 50, 120);
        assert_eq!((held.token(), held.nodes_held()), (token(100), 2));
        assert_eq!(calls, [Call::now(2, Ask::Fence { token: token(100) })]);
    }

    #[test]
    fn a_shorter_lease_shortens_nothing() {
        let mut held = held();
        let until = held.valid_until();
        held.extend(200, at(100).boot);
        (0..3).for_each(|node| drop(yes(&mut held, 1, node, 110)));
        assert_eq!((held.outcome(), held.valid_until()), (Some(true), until));
    }

    #[test]
    fn nothing_is_raised_or_healed_when_validity_is_over() {
        let mut held = held();
        extend(&mut held, 100);
        let late = held.valid_until();
        let ask = held.heal();
        for node in 0..5 {
            assert!(held.on_answer(1, node, id(node as u128), ask, Answer::Token(token(500)), late).is_empty());
        }
        assert_eq!(held.token(), token(100));
    }

    /// The server behind a name was replaced: what the new one says is not what the old one promised.
    #[test]
    fn another_server_under_the_same_name_does_not_count() {
        let mut held = held();
        extend(&mut held, 100);
        yes(&mut held, 1, 0, 110);
        yes(&mut held, 1, 1, 110);
        let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
        held.on_answer(1, 2, id(77), ask, Answer::Token(token(100)), at(110).boot);
        assert_eq!(held.outcome(), Some(false));
        // And a server that is in the set already does not count under a second name.
        assert!(held.on_answer(1, 4, id(0), held.heal(), Answer::Token(token(100)), at(110).boot).is_empty());
        assert_eq!(held.nodes_held(), 3);
    }

    /// A slot of a cluster moved with its locks: who has it now was not asked when the round began, and is asked in the next one.
    #[test]
    fn a_server_that_the_lock_moved_to_counts_from_the_next_round_on() {
        let member = (id(0), Some(token(100)), false);
        let mut held = Held::new(vec![member], token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
        let until = held.valid_until();
        let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
        extend(&mut held, 100);
        assert!(held.on_answer(1, 0, id(77), ask, Answer::Token(token(100)), at(110).boot).is_empty());
        assert_eq!((held.outcome(), held.valid_until(), held.nodes_held()), (Some(false), until, 1));
        extend(&mut held, 200);
        held.on_answer(2, 0, id(77), ask, Answer::Token(token(100)), at(210).boot);
        assert_eq!((held.outcome(), held.valid_until()), (Some(true), valid_until(at(200).boot, TTL_MS)));
        // One that does not have it takes nobody's seat.
        extend(&mut held, 300);
        held.on_answer(3, 0, id(78), ask, Answer::No, at(310).boot);
        assert!(held.is_lost());
    }

    #[test]
    fn a_raise_that_failed_leaves_it_unknown_and_asked_again() {
        let mut held = held();
        extend(&mut held, 100);
        healed(&mut held, 3, 200, 110);
        held.on_answer(1, 0, id(0), Ask::Fence { token: token(200) }, Answer::Failed, at(150).boot);
        let calls = extend(&mut held, 200);
        assert!(matches!(calls[0].ask, Ask::Acquire { retry: true, .. }));
        let Ask::Acquire { proposal, .. } = calls[0].ask else { panic!() };
        assert!(proposal >= held.token());
    }
}
