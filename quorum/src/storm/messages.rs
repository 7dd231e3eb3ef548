//! The messages that reach nodes and clients in the test `storm`.

use super::*;

impl World {
    pub(super) fn at_node(&mut self, name: usize, owner: Owner, says: Message, request: u64) {
        let server = self.names[name];
        let (is_not_ready, wrong) = (self.agenda.one_in(30), self.wrong);
        let (node, clock) = &mut self.nodes[server];
        let now = clock.at(self.agenda.now);
        node.grants.retain(|grant| grant.until >= now);
        let answer = match says {
            Message::Show => {
                let own = node.grants.iter().find(|grant| grant.owner == owner);
                let has = own.and_then(|grant| {
                    Some(OwnGrant { token: Token::new(grant.token)?, left_ms: (grant.until - now).div_ceil(1_000) })
                });
                if let Some(takes) = self.agenda.draw_delay(LATE_US) {
                    let answer = (NodeId(server as u128), has);
                    self.agenda.at(self.agenda.now + takes, Event::Shown { name, request, answer });
                }
                return;
            }
            Message::Release { is_plain } => return node.release(owner, is_plain, wrong),
            Message::Adopt => {
                if node.adopt(owner)
                    && let Some(takes) = self.agenda.draw_delay(LATE_US)
                {
                    self.agenda.at(self.agenda.now + takes, Event::Adopted { owner, request });
                }
                return;
            }
            Message::Look(token) => {
                match node.grants.iter().any(|grant| grant.owner == owner && grant.token == token.get()) {
                    true => Answer::Token(token),
                    false => Answer::No,
                }
            }
            Message::Ask(..) if is_not_ready => Answer::NotYet { ms: 3 },
            Message::Ask(ask, mode) => node.answer(owner, ask, mode, now, wrong),
        };
        if let Some(takes) = self.agenda.draw_delay(LATE_US) {
            let answer = Some((NodeId(server as u128), answer));
            self.agenda.at(self.agenda.now + takes, Event::Answers { name, request, answer });
        }
    }

    /// Handles the first answer to the request `request`, or its timeout (`None`).
    pub(super) fn heard(&mut self, name: usize, request: u64, answer: Option<(NodeId, Answer)>) {
        if let Some((owner, token)) = self.looks.remove(&request) {
            return self.looked(owner, name, token, answer);
        }
        let Some((owner, round, ask)) = self.open.remove(&request) else { return };
        let (id, answer) = answer.map_or((None, Answer::Failed), |(id, answer)| (Some(id), answer));
        let now = self.local(owner.0);
        let wrong = self.wrong;
        let client = &mut self.clients[owner.0];
        if client.acquisition != owner.1 {
            return;
        }
        match &mut client.stage {
            Stage::Idle | Stage::Looking { .. } | Stage::Adopting { .. } => {}
            Stage::Raising { machine, told } => {
                let told = *told;
                let progress = machine.on_answer(name, id, ask, answer, now);
                self.raise(owner, told, progress);
            }
            Stage::Acquiring(machine) => match machine.on_answer(name, id, ask, answer, now) {
                Progress::Goes(calls) => {
                    let raises = calls.iter().any(|call| matches!(call.ask, Ask::Fence { .. }));
                    if let (Some(Wrong::NoSecondRound), true, Answer::Token(token)) = (wrong, raises, answer) {
                        // This fault makes the client go on as if all nodes had given this answer.
                        for other in 0..self.names.len() {
                            let id = Some(NodeId(1_000 + other as u128));
                            if let Progress::Held(held) = machine.on_answer(other, id, ask, Answer::Token(token), now) {
                                return self.hold(owner, held, 0);
                            }
                        }
                    }
                    self.call(owner, 0, calls);
                }
                Progress::Held(held) => self.hold(owner, held, 0),
                Progress::TooLate | Progress::Impossible => self.leave(owner),
            },
            Stage::Holding { held, .. } => {
                let calls = held.on_answer(round, name, id, ask, answer, now);
                let round = held.round();
                let is_over = held.is_lost() || now >= held.valid_until();
                self.call(owner, round, calls);
                if is_over {
                    self.leave(owner);
                }
            }
        }
    }

    /// Asks a node, for a client that holds the lock, whether it still has the token that it acknowledged.
    pub(super) fn look_at(&mut self, owner: Owner, name: usize) {
        let Some(token) = self.held(owner).and_then(|held| held.token_at(name)) else { return };
        let request = self.agenda.number();
        self.looks.insert(request, (owner, token));
        self.send(self.agenda.now, name, owner, Message::Look(token), request);
    }

    pub(super) fn looked(&mut self, owner: Owner, name: usize, token: Token, answer: Option<(NodeId, Answer)>) {
        let Some((id, Answer::No)) = answer else { return };
        let now = self.local(owner.0);
        let Some(held) = self.held(owner) else { return };
        let calls = held.on_missing(name, Some(id), token, now);
        let (is_lost, round) = (held.is_lost(), held.round());
        self.call(owner, round, calls);
        self.missing += 1;
        if is_lost {
            self.leave(owner);
        }
    }

    /// Lets another process of the same owner ask nodes to raise their tokens. That process receives the answers, not
    /// this one.
    pub(super) fn raise_elsewhere(&mut self, owner: Owner) {
        let above = self.agenda.below(1_000);
        let Some(token) = self.held(owner).and_then(|held| Token::new(held.token().get() + above)) else { return };
        self.raised += 1;
        for name in 0..self.names.len() {
            let says = Message::Ask(Ask::Fence { token }, self.clients[owner.0].asks);
            let request = self.agenda.number();
            self.send(self.agenda.now, name, owner, says, request);
        }
    }
}
