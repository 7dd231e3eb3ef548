//! In the test `storm`: another process continues with the lock of an owner whose process is gone.

use super::*;

impl World {
    /// Replaces the owner's process by another one, which asks the nodes for the grants.
    pub(super) fn replace(&mut self, owner: Owner) {
        let start = self.local(owner.0);
        let client = &mut self.clients[owner.0];
        if client.acquisition != owner.1 {
            return;
        }
        let told = match &client.stage {
            Stage::Acquiring(_) => OwnerView { ends: u64::MAX, ..OwnerView::default() },
            Stage::Holding { held, ends, .. } => {
                OwnerView { until: held.valid_until(), token: held.token().get(), ends: *ends }
            }
            Stage::Idle | Stage::Looking { .. } | Stage::Raising { .. } | Stage::Adopting { .. } => return,
        };
        // The old process was only stopped, or its messages are still on their way. If it never learned that it has the
        // lock, it may still release the lock. If it did, it relies on the lock until its lease ends.
        let was_told = told.until > BootTime::default();
        if !was_told && self.agenda.one_in(2) {
            let at = self.agenda.now + self.agenda.below(LATE_US);
            self.agenda.at(at, Event::GivesBack(owner, true));
        }
        if was_told && self.wrong == Some(Wrong::GivesBackWhatIsOver) {
            let at = self.agenda.now + TTL_US;
            self.agenda.at(at, Event::GivesBack(owner, false));
        }
        let client = &mut self.clients[owner.0];
        client.stage = Stage::Looking { start, seen: vec![None; self.names.len()], told };
        for name in 0..self.names.len() {
            let request = self.agenda.number();
            self.shows.insert(request, owner);
            self.send(self.agenda.now, name, owner, Message::Show, request);
        }
        // The new process gives up if too few nodes answer by then.
        self.agenda.at(self.agenda.now + 3 * GIVEN_US, Event::GivesUp(owner));
    }

    pub(super) fn shown(&mut self, name: usize, request: u64, answer: (NodeId, Option<OwnGrant>)) {
        let Some(owner) = self.shows.remove(&request) else { return };
        let (now, wrong) = (self.local(owner.0), self.wrong);
        let client = &mut self.clients[owner.0];
        let Stage::Looking { start, seen, told } = &mut client.stage else { return };
        if client.acquisition != owner.1 {
            return;
        }
        seen[name] = Some(answer);
        let (start, told) = (*start, *told);
        let resumed = match wrong {
            Some(wrong) => wrong.resumed(start, seen, now),
            None => resume(start, seen, now),
        };
        match resumed {
            Resumed::Open => {}
            Resumed::NotHeld => self.leave(owner),
            Resumed::Goes(goes) => {
                let (machine, progress) = *goes;
                client.stage = Stage::Raising { machine, told };
                self.raise(owner, told, progress);
            }
        }
    }

    pub(super) fn raise(&mut self, owner: Owner, told: OwnerView, progress: Progress) {
        match progress {
            Progress::Goes(calls) => self.call(owner, 0, calls),
            Progress::TooLate | Progress::Impossible => self.leave(owner),
            Progress::Held(held) if self.wrong == Some(Wrong::ResumesUnmarked) => self.take_up(owner, held, told),
            Progress::Held(held) => {
                self.clients[owner.0].stage = Stage::Adopting { held, adopted: 0, told };
                for name in 0..self.names.len() {
                    let request = self.agenda.number();
                    self.adoptions.insert(request);
                    self.send(self.agenda.now, name, owner, Message::Adopt, request);
                }
            }
        }
    }

    pub(super) fn adopted(&mut self, owner: Owner, request: u64) {
        // Only the first answer of each node counts.
        if !self.adoptions.remove(&request) {
            return;
        }
        let needed = self.names.len() / 2 + 1;
        let client = &mut self.clients[owner.0];
        let Stage::Adopting { held, adopted, told } = &mut client.stage else { return };
        if client.acquisition != owner.1 {
            return;
        }
        *adopted += 1;
        if *adopted >= needed {
            let (held, told) = (held.clone(), *told);
            self.take_up(owner, held, told);
        }
    }

    pub(super) fn take_up(&mut self, owner: Owner, held: Held, told: OwnerView) {
        self.resumed += 1;
        if held.token().get() < told.token {
            self.broken = Some(format!("token order: {} after {} of its own", held.token().get(), told.token));
        }
        // The owner already relies on the lock, so it may go on before the adoption is done.
        if self.local(owner.0) < told.until {
            let mode = self.clients[owner.0].asks;
            self.keep(owner, held, mode, told.ends);
        } else {
            self.hold(owner, held, told.token);
        }
    }
}
