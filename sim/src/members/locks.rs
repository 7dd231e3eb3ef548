//! Clients that work with different versions of the set: no two rely on a lock at once, and tokens grow.
//!
//! One program, the changer, goes through a list of versions. Clients and nodes learn of each version at any moment
//! after its decision, or never. There is one key. No client releases it: when a holder gives up, the lease of its
//! grant ends. Clocks do not drift, and a node keeps its locks through a restart, since the other models cover those
//! cases.

use palisade_core::quorum::{
    Acquire, Answer, Ask, Call, Change, ChangeProgress, Held, MemberRequest, MemberSays, NodeId, Progress, majority,
};
use palisade_core::{BootTime, Members, Membership, Token};
use stateright::{Model, Property};

use super::bounds::{Checked, TICK_MS};
use super::list::list;
use crate::checker::Explained;
use crate::rules::Rule;

/// The id of a node after it lost its memory.
const ANOTHER: u128 = 100;

/// A grant of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Grant {
    owner: usize,
    token: u64,
    ends: BootTime,
}

/// A node with one key.
#[derive(Clone, Debug, PartialEq, Hash)]
struct Node {
    id: u128,
    membership: Membership,
    last: u64,
    grant: Option<Grant>,
    guarded_until: BootTime,
}

/// The stage of a client's acquisition.
#[derive(Clone, Debug, PartialEq, Hash)]
enum Stage {
    Idle,
    Asks(Acquire),
    Holds(Held),
    Done,
}

/// A client: the version that it works with, and its messages on their way.
#[derive(Clone, Debug, PartialEq, Hash)]
struct Client {
    version: usize,
    /// The version whose nodes the client asks. It equals `version` unless a rule is switched off.
    asks: usize,
    stage: Stage,
    sent: Vec<(u64, Call)>,
    extensions: u8,
    /// The moment of the request, and the length of the lease.
    began: BootTime,
    ttl_ms: u32,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct State {
    ticks: u8,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    /// The attempt to decide the next version, and the last decided version.
    change: Option<Change>,
    decided: usize,
    highest_won: u64,
    restarts: u8,
    amnesias: u8,
    broken: Option<String>,
}

/// A possible next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Time passes.
    Tick,
    /// A client asks for the lock.
    Asks { client: usize },
    /// A holder begins a round of extension.
    Extends { client: usize },
    /// A message of the client arrives, and the answer comes back.
    Arrives { client: usize, sent: usize },
    /// The client learns of the last decided version.
    Learns { client: usize },
    /// The program that changes the set begins with the next version. If that takes a single step, the members with a
    /// bit in `asks` agree.
    Changes { asks: u8 },
    /// The program that changes the set asks a member, and the member answers.
    Tells { member: usize },
    /// A node learns of the last decided version.
    IsTold { node: usize },
    /// A node restarts.
    Restarts { node: usize },
    /// A node loses its memory.
    Forgets { node: usize },
}

impl Explained for Checked {
    fn why(state: &State) -> Option<String> {
        state.broken.clone()
    }
}

impl State {
    fn now(&self) -> BootTime {
        BootTime::from_us(1_000_000).plus_ms(u32::from(self.ticks) * TICK_MS)
    }

    /// Lets a tick pass. Removes everything that has ended, so that states that differ only in that become equal.
    fn passes(&mut self) {
        self.ticks += 1;
        let now = self.now();
        for node in &mut self.nodes {
            node.grant = node.grant.filter(|grant| now < grant.ends);
        }
        for client in &mut self.clients {
            let is_over = match &client.stage {
                Stage::Idle | Stage::Done => false,
                Stage::Asks(_) => client.began.plus_ms(client.ttl_ms) <= now,
                Stage::Holds(held) => held.valid_until() <= now,
            };
            if is_over {
                client.stage = Stage::Done;
                client.sent.clear();
            }
        }
    }

    fn is_valid(&self, held: &Held) -> bool {
        self.now() < held.valid_until()
    }
}

impl Node {
    fn answer(&mut self, owner: usize, ask: Ask, now: BootTime) -> Answer {
        let grant = self.grant.filter(|grant| now < grant.ends);
        let own = grant.filter(|grant| grant.owner == owner);
        let token = |token: u64| Token::new(token).map_or(Answer::Failed, Answer::Token);
        match ask {
            Ask::Acquire { retry: true, .. } if own.is_some() => token(own.map_or(0, |own| own.token)),
            Ask::Acquire { .. } if grant.is_some() => Answer::No,
            Ask::Acquire { .. } if now <= self.guarded_until => Answer::Guarded { ms: 1 },
            Ask::Acquire { ttl_ms, proposal, .. } => {
                self.last = if proposal.get() > self.last { proposal.get() } else { self.last + 1 };
                self.grant = Some(Grant { owner, token: self.last, ends: now.plus_ms(ttl_ms) });
                token(self.last)
            }
            Ask::Fence { token: to } => own.map_or(Answer::No, |own| {
                self.last = self.last.max(to.get());
                self.grant = Some(Grant { token: own.token.max(to.get()), ..own });
                token(own.token.max(to.get()))
            }),
            Ask::Extend { ttl_ms, token: of } => own.filter(|own| own.token == of.get()).map_or(Answer::No, |own| {
                self.grant = Some(Grant { ends: own.ends.max(now.plus_ms(ttl_ms)), ..own });
                token(own.token)
            }),
            Ask::Share => Answer::Failed,
        }
    }
}

impl Checked {
    fn is_off(&self, rule: Rule) -> bool {
        self.0.without == Some(rule)
    }

    /// Returns the nodes of a version, in the order in which messages number them from 0.
    fn nodes(&self, version: usize) -> &[u8] {
        &self.0.versions[version]
    }

    fn members(&self, version: usize) -> Members {
        Members { version: version as u64 + 1, list: list(self.nodes(version)) }
    }

    /// Delivers a client's message to a node of its version.
    fn deliver(&self, state: &mut State, client: usize, sent: usize) -> Option<()> {
        let now = state.now();
        let (round, call) = state.clients[client].sent.remove(sent);
        let place = *self.nodes(state.clients[client].asks).get(call.node)?;
        let node = &mut state.nodes[usize::from(place)];
        let is_admitted = node.membership.admits(state.clients[client].version as u64 + 1)
            || self.is_off(Rule::OlderClientsAreRefused);
        let is_member = node.id == u128::from(place) || self.is_off(Rule::MembersHaveIds);
        let answer = if is_admitted && is_member { node.answer(client, call.ask, now) } else { Answer::Failed };
        let id = (is_admitted && is_member).then_some(NodeId(node.id));
        let more = match &mut state.clients[client].stage {
            Stage::Asks(acquire) => match acquire.on_answer(call.node, id, call.ask, answer, now) {
                Progress::Goes(calls) => calls.into_iter().map(|call| (0, call)).collect(),
                Progress::Held(held) => {
                    self.win(state, client, held);
                    return Some(());
                }
                Progress::TooLate | Progress::Impossible => {
                    state.clients[client].stage = Stage::Done;
                    vec![]
                }
            },
            Stage::Holds(held) => {
                let calls = held.on_answer(round, call.node, id, call.ask, answer, now);
                let round = held.round();
                state.highest_won = state.highest_won.max(held.token().get());
                calls.into_iter().map(|call| (round, call)).collect()
            }
            Stage::Idle | Stage::Done => vec![],
        };
        state.clients[client].sent.extend(more);
        if matches!(state.clients[client].stage, Stage::Done) {
            state.clients[client].sent.clear();
        }
        self.judge(state);
        Some(())
    }

    fn win(&self, state: &mut State, client: usize, held: Held) {
        let token = held.token().get();
        if state.is_valid(&held) {
            if token <= state.highest_won {
                state.broken = Some(format!("token order: {token} after {}", state.highest_won));
            }
            state.highest_won = token;
        }
        state.clients[client].stage = Stage::Holds(held);
        self.judge(state);
    }

    fn judge(&self, state: &mut State) {
        let holds = |client: &&Client| matches!(&client.stage, Stage::Holds(held) if state.is_valid(held));
        if state.clients.iter().filter(holds).count() > 1 {
            state.broken = Some("exclusion: two clients rely on the lock".to_owned());
        }
    }

    fn learn(&self, state: &mut State, client: usize) {
        let after = state.decided;
        let client = &mut state.clients[client];
        client.version = after;
        let stays = match client.stage {
            Stage::Asks(_) => self.is_off(Rule::AcquisitionsBeginAnew),
            Stage::Holds(_) => self.is_off(Rule::HeldByTheNewMajority),
            Stage::Idle | Stage::Done => false,
        };
        if stays {
            return;
        }
        let ids: Vec<_> = self.nodes(after).iter().map(|&node| Some(NodeId(node.into()))).collect();
        client.asks = client.version;
        client.sent.clear();
        match &mut client.stage {
            Stage::Asks(_) => client.stage = Stage::Idle,
            Stage::Holds(held) => {
                let calls = held.move_to(&ids);
                client.sent.extend(calls.into_iter().map(|call| (held.round(), call)));
            }
            Stage::Idle | Stage::Done => {}
        }
    }

    /// Delivers to a member the question of the program that changes the set.
    fn tell(&self, state: &mut State, member: usize) -> Option<()> {
        let now = state.now();
        let late = now.plus_ms(10 * self.0.ttl_ms());
        let change = state.change.as_mut()?;
        let tell = change.request();
        let place = *self.0.versions[state.decided].get(member)?;
        let node = &mut state.nodes[usize::from(place)];
        let asked_at = if self.is_off(Rule::LeasesEndFirst) { late } else { now };
        let says = match tell.clone() {
            MemberRequest::Promise { version, ballot } => {
                let floor = node.last;
                let promise = node.membership.promise(version, ballot, node.id, asked_at);
                promise.ok().map(|accepted| MemberSays::Promised { accepted: accepted.cloned(), floor })
            }
            MemberRequest::Accept { version, ballot, list, floor } => {
                let accepted = match self.is_off(Rule::OneNodeAtATime) {
                    true => Ok(()),
                    false => node.membership.accept(version, ballot, list, node.id, asked_at),
                };
                if accepted.is_ok() && !self.is_off(Rule::TokensGoOn) {
                    node.last = node.last.max(floor);
                }
                accepted.ok().map(|()| MemberSays::Accepted)
            }
        };
        // A member that refuses now may agree later.
        let progress = change.on_answer(member, node.id, &tell, says?);
        if self.is_off(Rule::MajorityAccepts) || matches!(progress, ChangeProgress::Decided(_)) {
            state.change = None;
            state.decided += 1;
        }
        Some(())
    }
}

impl Model for Checked {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let node = |place: u8| {
            let mut membership = Membership::default();
            if self.nodes(0).contains(&place) {
                membership.decide(self.members(0), 0, BootTime::default()).expect("it is the first");
            }
            Node { id: place.into(), membership, last: 0, grant: None, guarded_until: BootTime::default() }
        };
        let (extensions, ttl_ms) = (self.0.extensions, self.0.ttl_ms());
        let client = Client {
            version: 0,
            asks: 0,
            stage: Stage::Idle,
            sent: vec![],
            extensions,
            began: BootTime::default(),
            ttl_ms,
        };
        vec![State {
            ticks: 0,
            nodes: (0..self.0.nodes).map(node).collect(),
            clients: vec![client; self.0.proposals.len()],
            change: None,
            decided: 0,
            highest_won: 0,
            restarts: self.0.restarts,
            amnesias: self.0.amnesias,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.ticks < self.0.ticks {
            actions.push(Action::Tick);
        }
        for (client, of) in state.clients.iter().enumerate() {
            actions.extend((0..of.sent.len()).map(|sent| Action::Arrives { client, sent }));
            match &of.stage {
                Stage::Idle => actions.push(Action::Asks { client }),
                Stage::Asks(_) => {}
                Stage::Holds(_) if of.extensions > 0 => actions.push(Action::Extends { client }),
                Stage::Holds(_) => {}
                Stage::Done => continue,
            }
            if of.version < state.decided {
                actions.push(Action::Learns { client });
            }
        }
        match &state.change {
            Some(_) => actions.extend((0..self.nodes(state.decided).len()).map(|member| Action::Tells { member })),
            None if state.decided + 1 == self.0.versions.len() => {}
            None if self.0.at_once => {
                let members = self.nodes(state.decided).len();
                let is_majority = |asks: &u8| asks.count_ones() as usize == majority(members);
                actions.extend((1..1 << members).filter(is_majority).map(|asks| Action::Changes { asks }));
            }
            None => actions.push(Action::Changes { asks: 0 }),
        }
        for (node, of) in state.nodes.iter().enumerate() {
            if of.membership.decided().version <= state.decided as u64 && of.id != ANOTHER {
                actions.push(Action::IsTold { node });
            }
            if state.restarts > 0 {
                actions.push(Action::Restarts { node });
            }
            if state.amnesias > 0 {
                actions.push(Action::Forgets { node });
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        let now = state.now();
        match action {
            Action::Tick => state.passes(),
            Action::Asks { client } => {
                let proposal = Token::new(self.0.proposals[client])?;
                let nodes = self.nodes(state.clients[client].version).len();
                let (acquire, calls) = Acquire::begin(nodes, self.0.ttl_ms(), proposal, now);
                state.clients[client].stage = Stage::Asks(acquire);
                state.clients[client].began = now;
                state.clients[client].sent = calls.into_iter().map(|call| (0, call)).collect();
            }
            Action::Extends { client } => {
                let client = &mut state.clients[client];
                let Stage::Holds(held) = &mut client.stage else { return None };
                client.extensions -= 1;
                let calls = held.extend(self.0.ttl_ms(), now);
                let round = held.round();
                client.sent = calls.into_iter().map(|call| (round, call)).collect();
            }
            Action::Arrives { client, sent } => self.deliver(&mut state, client, sent)?,
            Action::Learns { client } => self.learn(&mut state, client),
            Action::Changes { asks } => {
                let (before, wants) = (state.decided, self.members(state.decided + 1).list);
                state.change = Some(Change::begin(self.members(before), 1, wants));
                let asked = || (0..u8::BITS as usize).filter(|member| asks >> member & 1 == 1);
                for member in asked().chain(asked()) {
                    if state.decided == before {
                        self.tell(&mut state, member)?;
                    }
                }
                if asks > 0 && state.decided == before {
                    return None;
                }
            }
            Action::Tells { member } => self.tell(&mut state, member)?,
            Action::IsTold { node } => {
                let members = self.members(state.decided);
                state.nodes[node].membership.decide(members, self.0.ttl_ms(), now).ok()?;
            }
            Action::Restarts { node } => {
                state.restarts -= 1;
                let node = &mut state.nodes[node];
                let saved = match self.is_off(Rule::VersionIsKept) {
                    true => Membership::default().saved().clone(),
                    false => node.membership.saved().clone(),
                };
                node.membership = Membership::restore(saved, self.0.ttl_ms(), now);
            }
            Action::Forgets { node } => {
                state.amnesias -= 1;
                // The node starts above every token that may have been issued. The other models check that this is so.
                let last = state.nodes.iter().map(|node| node.last).max()?;
                let node = &mut state.nodes[node];
                node.membership = Membership::default();
                (node.grant, node.last) = (None, last);
                node.guarded_until = now.plus_ms(self.0.ttl_ms());
                if !self.is_off(Rule::MembersHaveIds) {
                    node.id = ANOTHER;
                }
            }
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("nothing is broken", |_, state: &State| state.broken.is_none())]
    }
}
