//! Keeping a lock on a majority: extending it, and giving it back to nodes that lost it.

mod moving;
mod share;
#[cfg(test)]
mod tests;

use self::share::{AGAIN_MS, Sharing};
use super::ask::{Answer, Ask, Call, NodeId, majority, valid_until};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// A lock that a majority holds for one owner.
///
/// It is prolonged in rounds. An answer counts for its own round alone, and only while the validity from before still runs;
/// a majority of them make the new validity, counted from the start of *that* round. A node takes part in a round only if
/// it had acknowledged at least the holder's token when the round began: a node that lost the lock and is granted it again
/// (*healed*), or that granted it late, adds nothing before the next round, since its own lease may be an old one. A second name of
/// a server that has the lock is asked to extend it, and adds nothing.
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
        let ask = |node: usize, member: &Member| match member.acked {
            Some(token) if token >= self.token => Ask::Extend { ttl_ms, token },
            Some(_) => Ask::Fence { token: self.token },
            // Asked to grant it, it could undo a break that the first name is about to tell of.
            None => self.first_name(node, member.id).map_or(heal, |token| Ask::Extend { ttl_ms, token }),
        };
        self.members.iter().enumerate().map(|(node, member)| Call::now(node, ask(node, member))).collect()
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
            (Ask::Extend { token, .. }, Answer::No) if self.is_unsure_of(node, token, now) => {
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
            (Ask::Acquire { .. }, _) => {
                self.note_second_name(node, id);
                vec![]
            }
        }
    }

    /// The token that the server `id` has under another name than `node`.
    fn first_name(&self, node: usize, id: Option<NodeId>) -> Option<Token> {
        let is_other = |(other, member): &(usize, &Member)| *other != node && member.id == id && id.is_some();
        self.members.iter().enumerate().filter(is_other).find_map(|(_, member)| member.acked)
    }

    /// Notes it if `node` is another name of the server `id`, which has the lock under its first: returns whether it is.
    fn note_second_name(&mut self, node: usize, id: Option<NodeId>) -> bool {
        let is_second = self.first_name(node, id).is_some();
        if is_second && self.members[node].acked.is_none() {
            self.members[node].id = id;
            self.round.open[node] = false;
        }
        is_second
    }

    /// Whether `node` may have a larger token than it was asked to extend.
    fn may_have_more_than(&self, node: usize, token: Token) -> bool {
        let member = &self.members[node];
        self.round.open[node] && member.acked.is_some_and(|acked| member.raising || acked > token)
    }

    /// Whether `node`, asked in time to extend the lock, may have it with a larger token: one that another process raised, or that it was
    /// asked to raise without an answer.
    fn is_unsure_of(&self, node: usize, token: Token, now: BootTime) -> bool {
        let member = &self.members[node];
        let may_have_it = match member.acked {
            Some(acked) => self.is_spoken_for && acked == token,
            None => !member.is_gone,
        };
        self.round.open[node] && may_have_it && now < self.valid_until
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
                (member.id, member.acked) = (id, None);
                // Said later it may be that the lease has ended.
                if !took_part || now >= self.valid_until {
                    return vec![];
                }
                member.was_gone = true;
                self.round.no[node] = true;
                if self.is_lost() { vec![] } else { vec![Call::now(node, self.heal())] }
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
        if id.is_none() || self.note_second_name(node, id) {
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
