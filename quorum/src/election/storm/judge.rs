//! Hands answers to observers, and compares what they report with what happened.

use super::{FRESH_US, LockReport, Server, World, Wrong, owner_bytes};
use crate::values::time::BootTime;
use crate::{NodeId, majority};

impl World {
    pub(super) fn see(&mut self, observer: usize, name: usize, request: u64, id: NodeId, says: LockReport) {
        let it = &mut self.watchers[observer];
        let (awaited, asked) = it.asks[name];
        if awaited != request {
            return;
        }
        let now = BootTime::from_us(it.clock.at(self.agenda.now));
        match self.wrong {
            Some(Wrong::GoesBack) => it.machine.forget(),
            Some(Wrong::NobodyByAMinority) => it.machine.less = 1,
            Some(Wrong::BelievesTheEarlier) => it.machine.believes_the_earlier = true,
            _ => {}
        }
        it.machine.on_answer(name, id, says, asked, now);
        let observed = it.machine.observed(now);
        let leader = observed.leader.map(|leader| (leader.term.get(), leader.sequence, leader.value.clone()));
        let is_fresh = observed.is_fresh;
        self.judge(observer, leader, is_fresh);
    }

    fn judge(&mut self, observer: usize, leader: Option<(u64, u64, Vec<u8>)>, is_fresh: bool) {
        let needed = majority(self.names.len());
        let now = self.agenda.now;
        let count = |is: &dyn Fn(&Server) -> bool| self.servers.iter().filter(|server| is(server)).count();
        let it = &mut self.watchers[observer];
        let mut broken = None;
        match &leader {
            Some((term, sequence, value)) => {
                // A term has one leader: the one that won it.
                match self.won.get(term) {
                    Some(owner) if owner_bytes(*owner) == *value => {}
                    _ => {
                        broken = Some(format!(
                            "observer {observer} believes {} in term {term}, who did not win it",
                            String::from_utf8_lossy(value)
                        ))
                    }
                }
                if it.last > Some((*term, *sequence)) {
                    broken = Some(format!("observer {observer} goes back from {:?} to {term} {sequence}", it.last));
                }
                self.seen += u32::from(it.last.is_none_or(|(last, _)| last < *term));
                (it.last, it.is_none) = (Some((*term, *sequence)), false);
            }
            None if !it.is_none => {
                if let Some((term, _)) = it.last {
                    it.is_none = true;
                    self.nobody += 1;
                    let owner = self.won[&term];
                    let lately = |server: &Server| server.denied.get(&owner).is_some_and(|at| at + FRESH_US > now);
                    let denies = count(&lately);
                    if denies < needed {
                        broken = Some(format!("observer {observer} ended term {term}, and {denies} nodes said so"));
                    }
                }
            }
            None => {}
        }
        if is_fresh && broken.is_none() {
            for (term, owner) in &self.won {
                let proclaimed = |server: &Server| {
                    let holds = server
                        .node
                        .grants
                        .iter()
                        .any(|grant| grant.owner == *owner && grant.until >= server.clock.at(now));
                    holds && server.proclaimed.get(owner).is_some_and(|since| since + FRESH_US < now)
                };
                if it.last.is_none_or(|(last, _)| last < *term) && count(&proclaimed) >= needed {
                    broken = Some(format!("observer {observer} is fresh and has not seen term {term}"));
                }
            }
        }
        self.broken = self.broken.take().or(broken);
    }
}
