//! Keeps a lock on a majority: extends it, and restores it on nodes that lost it.

mod member;
mod moving;
mod share;
#[cfg(test)]
mod tests;

use self::member::{Grant, Member};
use self::share::{AGAIN_MS, Sharing};
use super::ask::{Answer, Ask, Call, NodeId, majority, valid_until};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// A lock that a majority holds for one owner.
///
/// It is extended in rounds. An answer counts only for the round in which it was asked, and only while the earlier
/// validity still runs. With a majority of answers the lock has a new validity, counted from the start of *that* round.
/// A node takes part in a round only if it had acknowledged at least the holder's token when the round began. A node
/// that lost the lock and grants it again is *healed*. It counts from the next round on, and so does a node that
/// granted the lock late, because its lease may be an old one. If two names lead to one server, the second is asked to
/// extend the lock, but does not count.
///
/// A writer may become a reader ([`Held::share`]). From the moment at which the first node converts the grant, the
/// owner may rely on it only as a reader. Once a majority has converted it, other readers get in. Extensions and raises
/// stay the same. A node that converts late only keeps readers out for longer. A grant that comes late, or heals a
/// node, is followed by LOCK.CONVERT in any case, because it may have been requested as a writer's.
///
/// Healed nodes may have larger tokens. The holder's token rises once a majority has acknowledged the larger one. It
/// never falls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    token: Token,
    /// The largest token that a node was asked to raise its own to. A node may do so late.
    raised_to: Token,
    ttl_ms: u32,
    valid_until: BootTime,
    members: Vec<Member>,
    round: Round,
    /// The number of rounds begun. Answers to the acquisition belong to round 0.
    rounds: u64,
    /// True if the owner was a writer and is now a reader.
    is_reader: bool,
    /// True if another process may use the same owner, and raise the tokens of its grants.
    is_spoken_for: bool,
    /// True if the lock counts as taken away ([`Held::is_lost`]).
    is_lost: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Round {
    start: BootTime,
    /// For each node, whether it takes part in this round and has not answered yet.
    open: Vec<bool>,
    yes: Vec<bool>,
    extended: bool,
}

impl Held {
    pub(super) fn new(
        members: Vec<(Option<NodeId>, Option<Token>, bool)>,
        token: Token,
        ttl_ms: u32,
        valid_until: BootTime,
    ) -> Self {
        let member = |(id, acked, raising)| {
            let grant = if raising { Grant::Raising { from: acked, extends: false } } else { acked.into() };
            Member::new(id, grant, valid_until)
        };
        let members: Vec<_> = members.into_iter().map(member).collect();
        let none = vec![false; members.len()];
        let round = Round { open: none.clone(), yes: none, ..Round::default() };
        let is_lost = false;
        let (raised_to, rounds, is_reader, is_spoken_for) = (token, 0, false, false);
        Self { token, raised_to, ttl_ms, valid_until, members, round, rounds, is_reader, is_spoken_for, is_lost }
    }

    /// Notes that another process may use the same owner ([`resume`](super::resume())), and raise tokens to make them
    /// equal. If a node then no longer has the token that it acknowledged last, it may have a larger one. So it is
    /// asked which token it has for this owner before it counts as a node without the lock.
    pub fn is_spoken_for_elsewhere(&mut self) {
        self.is_spoken_for = true;
    }

    /// Returns whether another process may use the same owner.
    pub(super) fn may_go_on_elsewhere(&self) -> bool {
        self.is_spoken_for
    }

    /// Returns the lock's fencing token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the length of the lock's leases, in milliseconds.
    pub fn ttl_ms(&self) -> u32 {
        self.ttl_ms
    }

    /// Returns the moment until which the lock's owner may rely on it.
    pub fn valid_until(&self) -> BootTime {
        self.valid_until
    }

    /// Returns how many nodes are known to have the lock with at least the holder's token.
    pub fn nodes_held(&self) -> usize {
        self.members.iter().filter(|member| member.acked() >= Some(self.token)).count()
    }

    /// Returns the token that `node` is known to have; `None` if it has none or is raising it. LOCK.CHECK on that node
    /// has to name this token.
    pub fn token_at(&self, node: usize) -> Option<Token> {
        match self.members[node].grant {
            Grant::Acked(token) => Some(token),
            Grant::None | Grant::Raising { .. } => None,
        }
    }

    /// Notes that a check of `node`, which is the server `id`, showed that it does not have `token`: the lock was taken
    /// away there.
    pub fn on_missing(&mut self, node: usize, id: Option<NodeId>, token: Token, now: BootTime) -> Vec<Call> {
        if self.token_at(node) != Some(token) || self.members[node].id != id || now >= self.valid_until {
            return vec![];
        }
        if self.is_spoken_for {
            self.members[node].raise();
            return vec![Call::now(node, Ask::Fence { token: self.token })];
        }
        // Answers that are still to come were sent before this one, so they do not count.
        self.round.open[node] = false;
        self.on_lacking(node, now);
        vec![]
    }

    /// Returns the number of the latest round.
    pub fn round(&self) -> u64 {
        self.rounds
    }

    /// Returns the outcome of the latest round. `Some(true)`: it extended validity. `Some(false)`: it no longer can.
    /// `None`: both are still possible.
    pub fn outcome(&self) -> Option<bool> {
        if self.round.extended {
            return Some(true);
        }
        let count = |of: &[bool]| of.iter().filter(|&&is| is).count();
        let possible = count(&self.round.open) + count(&self.round.yes);
        if possible < majority(self.members.len()) { Some(false) } else { None }
    }

    /// Returns whether the lock was taken away (BREAK, DEL, FLUSHALL): some nodes lost it while their leases ran, and
    /// the others are no majority. It stays lost even if nodes have granted it again, because someone may be taking it
    /// away on one node after the other. A node that has granted it again no longer counts as one that lost it in two
    /// cases: a majority has extended the lock a quarter of a lease later, or the lease that it lost would have ended
    /// by then.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns whether the lock was taken away at `node` ([`Self::is_lost`]). The node may have granted it again since.
    pub fn was_gone_from(&self, node: usize) -> bool {
        self.members[node].taken_at.is_some()
    }

    /// Notes that `node` does not have the lock. If its lease had not ended, the lock was taken away there.
    fn on_lacking(&mut self, node: usize, now: BootTime) {
        let member = &mut self.members[node];
        // The answer to a raise still decides about the round if the node also refused to extend.
        member.grant = match member.grant {
            Grant::Raising { extends: true, .. } => Grant::Raising { from: None, extends: true },
            _ => Grant::None,
        };
        // Otherwise the lease may simply have ended.
        if now < member.leased_until {
            member.taken_at = Some(now);
            let is_taken = |member: &&Member| member.taken_at.is_some() && now < member.leased_until;
            let taken = self.members.iter().filter(is_taken).count();
            self.is_lost |= taken > self.members.len() - majority(self.members.len());
        }
    }

    /// Begins a round at `now`, for leases of `ttl_ms`, and returns its calls. Nodes that lost the lock are asked to
    /// grant it again: at once if they were added to the set, or if nobody took it away there and no other process may
    /// use the owner; otherwise once a majority has extended it in a later round. They are asked for the holder's own
    /// token if possible, so that no other node has to raise its token.
    pub fn extend(&mut self, ttl_ms: u32, now: BootTime) -> Vec<Call> {
        self.rounds += 1;
        self.ttl_ms = ttl_ms;
        let takes_part = |member: &Member| member.acked() >= Some(self.token);
        let open: Vec<_> = self.members.iter().map(takes_part).collect();
        let none = vec![false; open.len()];
        self.round = Round { start: now, yes: none, open, extended: false };
        let ask = |node: usize, member: &Member| match member.acked() {
            Some(token) if token >= self.token => Some(Ask::Extend { ttl_ms, token }),
            Some(_) => Some(Ask::Fence { token: self.token }),
            // Perhaps the lock was broken on this server, which will report that under its first name. If it granted
            // the lock again under its second name, that would undo the break.
            None => match self.first_name(node, member.id) {
                Some(token) => Some(Ask::Extend { ttl_ms, token }),
                // It may have the lock, or somebody may be taking it away there.
                None if member.grant != Grant::None => Some(Ask::Fence { token: self.token }),
                // Nobody can have taken it away on an added node, and perhaps a majority of the new set needs that node.
                None => (member.is_added || member.taken_at.is_none() && !self.is_spoken_for).then(|| self.heal()),
            },
        };
        let members = self.members.iter().enumerate();
        members.filter_map(|(node, member)| Some(Call::now(node, ask(node, member)?))).collect()
    }

    /// Handles the answer of `node`, which is the server `id`, to an `ask` of round `round`.
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
                // The node may have the lock with a larger token, because a raise overtook this extension.
                match &mut self.members[node].grant {
                    Grant::Raising { extends, .. } => {
                        *extends = true;
                        vec![]
                    }
                    Grant::Acked(token) => vec![Call::now(node, Ask::Extend { ttl_ms, token: *token })],
                    Grant::None => vec![],
                }
            }
            (Ask::Extend { token, .. }, Answer::No) if self.is_unsure_of(node, token, now) => {
                let member = &mut self.members[node];
                member.grant = Grant::Raising { from: member.acked(), extends: true };
                vec![Call::now(node, Ask::Fence { token: self.token })]
            }
            (Ask::Extend { .. }, answer) => self.on_extended(node, id, answer, now),
            // Validity is over, so the answer is of no use: the holder releases the lock on all nodes.
            _ if now >= self.valid_until => vec![],
            (_, Answer::NotYet { ms }) => again(ms),
            (Ask::Share, answer) => self.on_shared(node, id, answer, now),
            (ask, Answer::Token(token)) => {
                let calls = self.on_token(node, id, token, now);
                if let Ask::Acquire { ttl_ms, retry: true, .. } = ask
                    && round == self.rounds
                    && self.members[node].id == id
                {
                    let until = valid_until(self.round.start, ttl_ms);
                    self.members[node].leased_until = until.max(self.members[node].leased_until);
                }
                calls
            }
            // The node does not have the lock, or nobody knows: then the next round asks again.
            (Ask::Fence { .. }, answer) => {
                let unknown = Grant::Raising { from: None, extends: false };
                let grant = if answer == Answer::No { Grant::None } else { unknown };
                let before = std::mem::replace(&mut self.members[node].grant, grant);
                // The node had no larger token, so it refused the extension because it does not have the lock.
                if matches!(before, Grant::Raising { extends: true, .. }) {
                    return self.on_extended(node, id, answer, now);
                }
                if answer == Answer::No {
                    self.on_lacking(node, now);
                }
                vec![]
            }
            (Ask::Acquire { .. }, _) => {
                self.note_second_name(node, id);
                vec![]
            }
        }
    }

    /// Returns the token that the server `id` acknowledged under another name than `node`, if it did.
    fn first_name(&self, node: usize, id: Option<NodeId>) -> Option<Token> {
        let is_other = |(other, member): &(usize, &Member)| *other != node && member.id == id && id.is_some();
        self.members.iter().enumerate().filter(is_other).find_map(|(_, member)| member.acked())
    }

    /// Returns whether `node` is a second name of the server `id`, which has the lock under its first name. If so, the
    /// node no longer counts in this round.
    fn note_second_name(&mut self, node: usize, id: Option<NodeId>) -> bool {
        let is_second = self.first_name(node, id).is_some();
        if is_second && self.members[node].acked().is_none() {
            self.members[node].id = id;
            self.round.open[node] = false;
        }
        is_second
    }

    /// Returns whether `node` may have a larger token than `token`, the one that it was asked to extend.
    fn may_have_more_than(&self, node: usize, token: Token) -> bool {
        let may_have_more = match self.members[node].grant {
            Grant::None => false,
            Grant::Acked(acked) => acked > token,
            Grant::Raising { from, .. } => from.is_some(),
        };
        self.round.open[node] && may_have_more
    }

    /// Returns whether `node`, which refused an extension in time, may have the lock with a larger token: one that
    /// another process raised, or that it was asked to raise and did not acknowledge.
    fn is_unsure_of(&self, node: usize, token: Token, now: BootTime) -> bool {
        let member = &self.members[node];
        let may_have_it = match member.acked() {
            Some(acked) => self.is_spoken_for && acked == token,
            None => member.taken_at.is_none_or(|at| at < self.round.start),
        };
        self.round.open[node] && may_have_it && now < self.valid_until
    }

    fn on_extended(&mut self, node: usize, id: Option<NodeId>, answer: Answer, now: BootTime) -> Vec<Call> {
        let took_part = std::mem::take(&mut self.round.open[node]);
        let same_server = id.is_some() && id == self.members[node].id;
        match answer {
            Answer::Token(_) if took_part && same_server && now < self.valid_until => {
                let until = valid_until(self.round.start, self.ttl_ms);
                self.round.yes[node] = true;
                self.members[node].leased_until = until.max(self.members[node].leased_until);
                let yes = self.round.yes.iter().filter(|&&yes| yes).count();
                if yes < majority(self.members.len()) {
                    return vec![];
                }
                self.valid_until = self.valid_until.max(until);
                let is_first = !std::mem::replace(&mut self.round.extended, true);
                self.has_been_extended();
                if is_first { self.heal_after_majority() } else { vec![] }
            }
            // Another server has this name now, and has the lock: in a cluster, its slot has moved. The new server
            // takes the node's place, and counts from the next round on, as a healed node does.
            Answer::Token(token) if took_part && now < self.valid_until => self.on_token(node, id, token, now),
            Answer::No => {
                let member = &mut self.members[node];
                (member.id, member.grant) = (id, Grant::None);
                if !took_part || now >= self.valid_until {
                    return vec![];
                }
                self.on_lacking(node, now);
                let waits =
                    self.members[node].is_taken_lately(self.ttl_ms, now) || self.is_spoken_for && !self.round.extended;
                if waits { vec![] } else { vec![Call::now(node, self.heal())] }
            }
            _ => vec![],
        }
    }

    /// Notes that a majority has extended the lock. A loss that is older than a quarter of a lease no longer counts if
    /// the node has the lock again.
    fn has_been_extended(&mut self) {
        for member in self.members.iter_mut().filter(|member| member.acked().is_some()) {
            if !member.is_taken_lately(self.ttl_ms, self.round.start) {
                member.taken_at = None;
            }
        }
    }

    /// Returns the calls that ask for the lock again where it was taken away, or on any node without it if another
    /// process may use the same owner. Only a round that began a quarter of a lease after a loss shows that the lock is
    /// not being released or broken on one node after the other. Without it, two processes that keep one lock would each
    /// count the nodes that the other one restores.
    fn heal_after_majority(&self) -> Vec<Call> {
        let is_taken = |node: usize, member: &Member| {
            let waits = member.taken_at.is_some() || self.is_spoken_for;
            let is_due = waits && !member.is_taken_lately(self.ttl_ms, self.round.start);
            is_due && member.grant == Grant::None && self.first_name(node, member.id).is_none()
        };
        let members = self.members.iter().enumerate();
        members.filter(|(node, member)| is_taken(*node, member)).map(|(node, _)| Call::now(node, self.heal())).collect()
    }

    /// Notes that `node` has the lock for this owner with `token`. Returns the calls that raise all nodes to the
    /// largest known token.
    fn on_token(&mut self, node: usize, id: Option<NodeId>, token: Token, now: BootTime) -> Vec<Call> {
        if id.is_none() || self.note_second_name(node, id) {
            return vec![];
        }
        let extends = matches!(self.members[node].grant, Grant::Raising { extends: true, .. });
        if id != self.members[node].id {
            // Another server has this name now. It had acknowledged nothing when the round began, so it does not take
            // part in the round.
            self.round.open[node] = false;
        }
        let before = &self.members[node];
        let sharing = before.sharing.after_grant(before.acked().is_none() || before.id != id);
        // Nobody knows how long the lease on another server lasts. A late grant was requested together with the others,
        // so its lease lasts as long as theirs.
        let is_other = before.id.is_some() && before.id != id;
        let leased_until = if is_other { BootTime::default() } else { before.leased_until };
        // The lease that the node lost would have ended by now anyway. So the node has restarted, and nobody took the
        // lock away.
        let taken_at = before.taken_at.filter(|_| now < before.leased_until);
        let is_added = false;
        self.members[node] = Member { id, grant: Grant::Acked(token), leased_until, taken_at, sharing, is_added };
        let mut acked: Vec<_> = self.members.iter().filter_map(Member::acked).collect();
        acked.sort_unstable_by(|one, other| other.cmp(one));
        let largest = acked[0].max(self.token);
        // `common` is the largest token such that a majority has acknowledged it or a larger one.
        if let Some(&common) = acked.get(majority(self.members.len()) - 1) {
            self.token = self.token.max(common);
        }
        self.raised_to = largest.max(self.raised_to);
        let mut calls = Vec::new();
        for (node, member) in self.members.iter_mut().enumerate() {
            if member.acked().is_some_and(|acked| acked < largest) {
                member.raise();
                calls.push(Call::now(node, Ask::Fence { token: largest }));
            }
        }
        if extends && self.round.open[node] {
            calls.push(Call::now(node, Ask::Extend { ttl_ms: self.ttl_ms, token }));
        }
        calls.extend(self.share_there(node));
        calls
    }

    /// Makes the owner a reader, whatever the nodes answer. Returns the calls that convert the grant on each node.
    pub fn share(&mut self) -> Vec<Call> {
        self.is_reader = true;
        (0..self.members.len()).filter_map(|node| self.share_there(node)).collect()
    }

    /// Notes that the owner is a reader, perhaps because another process converted a writer's grant. The nodes for which
    /// `shares` returns true have it as shared. Returns the calls that convert it on the others, if they have it.
    pub fn continues_as_reader(&mut self, shares: impl Fn(usize) -> bool) -> Vec<Call> {
        for (node, member) in self.members.iter_mut().enumerate().filter(|(node, _)| shares(*node)) {
            debug_assert!(member.sharing == Sharing::Not, "{node} was asked");
            member.sharing = Sharing::Shares;
        }
        self.share()
    }

    /// Returns whether a majority has converted the grant to shared, so that other readers get in.
    pub fn is_shared(&self) -> bool {
        let shares = |member: &&Member| member.acked().is_some() && member.sharing == Sharing::Shares;
        self.members.iter().filter(shares).count() >= majority(self.members.len())
    }

    /// Returns the call that converts the grant on `node`; `None` if it is converted or asked already.
    fn share_there(&mut self, node: usize) -> Option<Call> {
        let sharing = &mut self.members[node].sharing;
        let is_needed = self.is_reader && *sharing == Sharing::Not;
        is_needed.then(|| {
            *sharing = Sharing::Asked;
            Call::now(node, Ask::Share)
        })
    }

    /// Handles the answer of `node`, which is the server `id`, to [`Ask::Share`].
    fn on_shared(&mut self, node: usize, id: Option<NodeId>, answer: Answer, now: BootTime) -> Vec<Call> {
        let member = &mut self.members[node];
        let was = std::mem::replace(&mut member.sharing, Sharing::Not);
        let again = |after_ms| Call { node, ask: Ask::Share, after_ms };
        match answer {
            _ if was == Sharing::AskedBefore => self.share_there(node).into_iter().collect(),
            Answer::Token(_) if member.acked().is_some() && member.id == id => {
                member.sharing = Sharing::Shares;
                vec![]
            }
            // The node has a grant of which this side did not know, or another server does. That grant is converted
            // too.
            Answer::Token(token) => self.on_token(node, id, token, now),
            Answer::No => {
                if member.acked().is_some() {
                    self.on_lacking(node, now);
                }
                vec![]
            }
            Answer::Guarded { .. } | Answer::NotYet { .. } | Answer::Failed => {
                member.sharing = Sharing::Asked;
                // Once a majority has converted it, nobody waits for the others.
                let pause_ms = if self.is_shared() { (self.ttl_ms / 3).max(AGAIN_MS) } else { AGAIN_MS };
                vec![again(pause_ms)]
            }
        }
    }

    fn heal(&self) -> Ask {
        Ask::Acquire { ttl_ms: self.ttl_ms, proposal: self.token, retry: true }
    }
}
