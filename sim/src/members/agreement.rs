//! Several programs (changers) change the set of nodes at once: no version ever gets two lists.

use palisade_core::quorum::{Change, ChangeProgress, MemberRequest, MemberSays};
use palisade_core::{Accepted, BootTime, Member, Members, Membership, Refusal};
use stateright::{Model, Property};

use super::list::list;
use crate::checker::{Bounded, Explained};
use crate::rules::Rule;

const NODES: u8 = 3;

/// A moment at which all leases have ended. [`super::locks`] checks the rules about leases.
const LATE: BootTime = BootTime::from_us(1_000_000);

/// The bounds of a model.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The list that each changer wants as the next version, and its number of attempts.
    wants: Vec<(Vec<Member>, u8)>,
    /// True if answers may get lost and changers may die.
    losses: bool,
    without: Option<Rule>,
}

/// Returns the sound model, with this number of attempts per changer.
pub fn sound(attempts: u8) -> Bounded<&'static str> {
    Bounded::new("two changers of a set of three", move || Checked(Bounds::sound(attempts)))
}

impl Bounds {
    /// Returns bounds with a changer that adds a node and one that removes a node, with this number of attempts each.
    fn sound(attempts: u8) -> Self {
        Self { wants: vec![(list(&[0, 1, 2, 3]), attempts), (list(&[0, 1]), attempts)], losses: true, without: None }
    }

    pub(super) fn without(rule: Rule) -> Self {
        Self { losses: false, without: Some(rule), ..Self::sound(1) }
    }
}

/// A changer, a program that changes the set: its attempt, its messages on the way, and the number of attempts left.
#[derive(Clone, Debug, PartialEq, Hash)]
struct Changer {
    attempt: Option<Change>,
    sent: Vec<(usize, MemberRequest)>,
    left: u8,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct State {
    nodes: Vec<Membership>,
    changers: Vec<Changer>,
    ballots: u8,
    decided: Option<Vec<Member>>,
    broken: Option<String>,
}

/// A possible next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A changer, a program that changes the set, begins an attempt; earlier messages may still arrive.
    Begins { changer: usize },
    /// A message arrives, and the answer comes back.
    Arrives { changer: usize, sent: usize },
    /// A message arrives, but its answer is lost, or the program that sent it has died.
    ArrivesInVain { changer: usize, sent: usize },
}

pub(super) struct Checked(pub(super) Bounds);

impl Explained for Checked {
    fn why(state: &State) -> Option<String> {
        state.broken.clone()
    }
}

impl Checked {
    fn is_off(&self, rule: Rule) -> bool {
        self.0.without == Some(rule)
    }

    fn answer(&self, node: &mut Membership, own: usize, tell: &MemberRequest) -> MemberSays {
        let own = own as u128;
        let says = |answer: Result<MemberSays, Refusal>| answer.unwrap_or(MemberSays::No);
        match tell.clone() {
            MemberRequest::Promise { version, ballot } => {
                let accepted = node.promise(version, ballot, own, LATE).map(|accepted| accepted.cloned());
                let earlier = |accepted: Option<Accepted>| match self.is_off(Rule::EarlierIsCompleted) {
                    true => None,
                    false => accepted,
                };
                says(accepted.map(|accepted| MemberSays::Promised { accepted: earlier(accepted), floor: 0 }))
            }
            MemberRequest::Accept { version, ballot, list, .. } => {
                let ballot = match self.is_off(Rule::PromisesAreKept) {
                    // With the rule switched off, the node accepts every ballot.
                    true => ballot.max(node.saved().promised),
                    false => ballot,
                };
                says(node.accept(version, ballot, list, own, LATE).map(|()| MemberSays::Accepted))
            }
        }
    }
}

impl Model for Checked {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut node = Membership::default();
        let first = Members { version: 1, list: list(&[0, 1, 2]) };
        node.decide(first, 0, BootTime::default()).expect("it is the first");
        let changer = |&(_, left): &(Vec<Member>, u8)| Changer { attempt: None, sent: vec![], left };
        vec![State {
            nodes: vec![node; NODES.into()],
            changers: self.0.wants.iter().map(changer).collect(),
            ballots: 0,
            decided: None,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (changer, Changer { sent, left, .. }) in state.changers.iter().enumerate() {
            if *left > 0 {
                actions.push(Action::Begins { changer });
            }
            for sent in 0..sent.len() {
                actions.push(Action::Arrives { changer, sent });
                if self.0.losses {
                    actions.push(Action::ArrivesInVain { changer, sent });
                }
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        let to_all = |tell: &MemberRequest| (0..NODES.into()).map(|node| (node, tell.clone())).collect::<Vec<_>>();
        match action {
            Action::Begins { changer } => {
                state.ballots += 1;
                let base = state.nodes[0].decided().clone();
                let attempt = Change::begin(base, state.ballots.into(), self.0.wants[changer].0.clone());
                let changer = &mut state.changers[changer];
                changer.left -= 1;
                changer.sent.extend(to_all(&attempt.request()));
                changer.attempt = Some(attempt);
            }
            Action::Arrives { changer, sent } => {
                let (node, tell) = state.changers[changer].sent.remove(sent);
                let says = self.answer(&mut state.nodes[node], node, &tell);
                let changer = &mut state.changers[changer];
                match changer.attempt.as_mut()?.on_answer(node, node as u128, &tell, says) {
                    ChangeProgress::Accepts => {
                        changer.sent.extend(to_all(&changer.attempt.as_ref()?.request()));
                    }
                    ChangeProgress::Decided(Members { list, .. }) => match &state.decided {
                        Some(decided) if *decided != list => {
                            state.broken = Some("agreement: one version has two lists".to_owned());
                        }
                        _ => state.decided = Some(list),
                    },
                    ChangeProgress::Goes | ChangeProgress::Impossible => {}
                }
            }
            Action::ArrivesInVain { changer, sent } => {
                let (node, tell) = state.changers[changer].sent.remove(sent);
                self.answer(&mut state.nodes[node], node, &tell);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("nothing is broken", |_, state: &State| state.broken.is_none())]
    }
}
