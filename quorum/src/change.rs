//! Decides the next version of the set of nodes. A program that adds or removes a node asks the members of the present
//! version.

use super::ask::majority;
use crate::{Accepted, Ballot, Member, Members};

/// One attempt to have a list of nodes decided as the set's next version, by Paxos. The nodes' part is `Membership` in
/// `palisade-core`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    base: Members,
    ballot: Ballot,
    /// The proposed list. It is the requested one, unless a majority may have accepted another one in an earlier
    /// attempt.
    list: Vec<Member>,
    /// The highest ballot among the lists that members accepted before.
    earlier: Option<Ballot>,
    is_accepting: bool,
    floor: u64,
    /// The ids of the members that agreed in this stage, by index.
    yes: Vec<Option<u128>>,
    /// For each member, by index, true if it refused or did not answer in this stage.
    no: Vec<bool>,
}

/// A request to every member of the present version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemberRequest {
    /// Promise to ignore attempts with smaller ballots.
    Promise {
        /// The version that is to be decided.
        version: u64,
        /// The ballot of this attempt.
        ballot: Ballot,
    },
    /// Accept this list as the next version.
    Accept {
        /// The version that is to be decided.
        version: u64,
        /// The ballot of this attempt.
        ballot: Ballot,
        /// The nodes of the next version.
        list: Vec<Member>,
        /// The highest token that clients of earlier versions may have. The node issues only larger tokens from now on.
        floor: u64,
    },
}

/// A member's answer to [`MemberRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemberSays {
    /// The member promises, and says what it accepted before.
    Promised {
        /// The list that the member accepted before, and its ballot.
        accepted: Option<Accepted>,
        /// The highest token that this member has issued.
        floor: u64,
    },
    /// The member accepted the list.
    Accepted,
    /// The member refused, or did not answer.
    No,
}

/// The state of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChangeProgress {
    /// More members have to answer.
    Goes,
    /// A majority promised. The caller now sends [`Change::request`], which has changed, to all members.
    Accepts,
    /// The next version is decided. The caller sends it to every node of both versions.
    Decided(Members),
    /// This attempt can no longer succeed. A new one with a larger ballot may.
    Impossible,
}

impl Change {
    /// Begins an attempt to decide the list `wants` as the version after `base`. The caller sends [`Change::request`]
    /// to all members of `base`.
    pub fn begin(base: Members, ballot: Ballot, wants: Vec<Member>) -> Self {
        let (yes, no) = (vec![None; base.list.len()], vec![false; base.list.len()]);
        Self { base, ballot, list: wants, earlier: None, is_accepting: false, floor: 0, yes, no }
    }

    /// Returns what the caller has to send to all members of the present version now.
    pub fn request(&self) -> MemberRequest {
        let (version, ballot) = (self.next_version(), self.ballot);
        match self.is_accepting {
            false => MemberRequest::Promise { version, ballot },
            true => MemberRequest::Accept { version, ballot, list: self.list.clone(), floor: self.floor },
        }
    }

    /// Handles the answer `says` to the request `told`. It came from the server `id`, which is number `member` in the
    /// list.
    pub fn on_answer(&mut self, member: usize, id: u128, told: &MemberRequest, says: MemberSays) -> ChangeProgress {
        if *told != self.request() {
            return ChangeProgress::Goes;
        }
        // Version 0 lists no ids, so any server counts there, by the id that it reports.
        let is_member = self.base.version == 0 || self.base.list[member].id == Some(id);
        let is_counted = self.yes.contains(&Some(id));
        match says {
            MemberSays::Promised { accepted, floor } if is_member && !is_counted && !self.is_accepting => {
                self.floor = self.floor.max(floor);
                if let Some(accepted) = accepted.filter(|accepted| Some(accepted.ballot) > self.earlier) {
                    (self.earlier, self.list) = (Some(accepted.ballot), accepted.list);
                }
                self.yes[member] = Some(id);
            }
            MemberSays::Accepted if is_member && !is_counted && self.is_accepting => self.yes[member] = Some(id),
            _ if self.yes[member].is_some() => {}
            _ => self.no[member] = true,
        }
        self.progress()
    }

    /// Returns the number of the version that is to be decided. If there is no larger number, the nodes refuse it.
    fn next_version(&self) -> u64 {
        self.base.version.saturating_add(1)
    }

    fn progress(&mut self) -> ChangeProgress {
        let needed = majority(self.base.list.len());
        if self.yes.iter().flatten().count() >= needed {
            if self.is_accepting {
                return ChangeProgress::Decided(Members { version: self.next_version(), list: self.list.clone() });
            }
            self.is_accepting = true;
            self.yes.fill(None);
            self.no.fill(false);
            return ChangeProgress::Accepts;
        }
        let lost = self.no.iter().filter(|&&no| no).count();
        if lost > self.base.list.len() - needed { ChangeProgress::Impossible } else { ChangeProgress::Goes }
    }
}

/// Returns the list after one step from `present` to `wanted`. The step adds a node that is missing or, if none is,
/// removes one that is not wanted. `None` if the lists are equal.
pub fn step_towards(present: &[Member], wanted: &[Member]) -> Option<Vec<Member>> {
    if let Some(missing) = wanted.iter().find(|member| !present.contains(member)) {
        return Some(present.iter().chain([missing]).cloned().collect());
    }
    let leaves = present.iter().position(|member| !wanted.contains(member))?;
    let stays = present.iter().enumerate().filter(|(n, _)| *n != leaves);
    Some(stays.map(|(_, member)| member.clone()).collect())
}

/// The steps of a program that changes the set: from the version that it found, by one node at a time, to the nodes
/// that it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    at: Members,
    has_stepped: bool,
}

impl Path {
    /// Begins at the version that the program found when it started.
    pub fn begin(at: Members) -> Self {
        Self { at, has_stepped: false }
    }

    /// Notes the set's present version. Returns false if another program moved the set away from `wanted`: if both
    /// programs went on, they would undo each other's steps without end.
    pub fn on_present(&mut self, present: &Members, wanted: &[Member]) -> bool {
        if present.version <= self.at.version {
            return true;
        }
        let only = |one: &[Member], other: &[Member]| -> Vec<Member> {
            one.iter().filter(|member| !other.contains(member)).cloned().collect()
        };
        let (added, removed) = (only(&present.list, &self.at.list), only(&self.at.list, &present.list));
        let steps = (added.len() + removed.len()) as u64;
        let is_on_it = only(&added, wanted).is_empty() && only(&removed, wanted).len() == removed.len();
        let is_followed = self.at.version == 0 || is_on_it && steps == present.version - self.at.version;
        self.at = present.clone();
        is_followed
    }

    /// Notes the version that an attempt of this program decided. The first attempt may complete a list that a dead
    /// program left; then the steps begin from there. Returns the same as [`Path::on_present`].
    pub fn on_decided(&mut self, decided: &Members, wanted: &[Member]) -> bool {
        if !std::mem::replace(&mut self.has_stepped, true) {
            self.at = decided.clone();
        }
        self.on_present(decided, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::ChangeProgress::*;
    use super::*;

    fn list(ids: &[u128]) -> Vec<Member> {
        ids.iter().map(|&id| Member { id: Some(id), address: format!("10.0.0.{id}:6379") }).collect()
    }

    fn promised(accepted: Option<(Ballot, &[u128])>, floor: u64) -> MemberSays {
        let accepted = accepted.map(|(ballot, ids)| Accepted { ballot, list: list(ids) });
        MemberSays::Promised { accepted, floor }
    }

    #[test]
    fn a_majority_promises_then_accepts() {
        let base = Members { version: 3, list: list(&[1, 2, 3]) };
        let mut change = Change::begin(base, 7, list(&[1, 2, 3, 4]));
        let promise = change.request();
        assert_eq!(promise, MemberRequest::Promise { version: 4, ballot: 7 });
        assert_eq!(change.on_answer(0, 1, &promise, promised(None, 50)), Goes);
        assert_eq!(change.on_answer(1, 1, &promise, promised(None, 50)), Goes, "not that member");
        assert_eq!(change.on_answer(2, 3, &promise, promised(None, 60)), Accepts);
        let accept = change.request();
        assert_eq!(accept, MemberRequest::Accept { version: 4, ballot: 7, list: list(&[1, 2, 3, 4]), floor: 60 });
        assert_eq!(change.on_answer(1, 2, &promise, promised(Some((6, &[1, 2])), 99)), Goes, "too late to matter");
        assert_eq!(change.on_answer(0, 1, &accept, MemberSays::Accepted), Goes);
        assert_eq!(change.on_answer(0, 1, &accept, MemberSays::Accepted), Goes, "said twice");
        let decided = Decided(Members { version: 4, list: list(&[1, 2, 3, 4]) });
        assert_eq!(change.on_answer(2, 3, &accept, MemberSays::Accepted), decided);
    }

    #[test]
    fn what_may_be_decided_already_is_completed() {
        let base = Members { version: 3, list: list(&[1, 2, 3]) };
        let mut change = Change::begin(base, 7, list(&[1, 2]));
        let promise = change.request();
        assert_eq!(change.on_answer(0, 1, &promise, promised(Some((5, &[1, 2, 3, 4])), 0)), Goes);
        assert_eq!(change.on_answer(1, 2, &promise, promised(Some((3, &[1, 2, 3, 5])), 0)), Accepts);
        assert!(
            matches!(change.request(), MemberRequest::Accept { list: accepts, .. } if accepts == list(&[1, 2, 3, 4]))
        );
    }

    #[test]
    fn without_a_majority_it_ends() {
        let base = Members { version: 0, list: list(&[1, 2, 3]) };
        let mut change = Change::begin(base, 7, list(&[1, 2, 3]));
        let promise = change.request();
        assert_eq!(change.on_answer(0, 1, &promise, MemberSays::No), Goes);
        assert_eq!(change.on_answer(2, 1, &promise, promised(None, 0)), Goes);
        assert_eq!(change.on_answer(1, 1, &promise, promised(None, 0)), Impossible, "one server under two names");
    }

    /// Neighbouring versions differ by one node. Any majority of one shares a node with any majority of the other.
    #[test]
    fn majorities_of_neighbours_meet() {
        for n in 1..20 {
            assert!(majority(n) + majority(n + 1) > n + 1, "{n}");
        }
    }

    #[test]
    fn a_program_whose_steps_are_undone_is_told_so() {
        let version = |version, ids: &[u128]| Members { version, list: list(ids) };
        let wanted = list(&[1, 3, 4]);
        let on_its_way: [(u64, &[u128], bool); 8] = [
            (5, &[1, 2, 3], true),
            (6, &[1, 2, 3, 4], true),
            (7, &[1, 3, 4], true),
            (6, &[1, 3], true),
            (6, &[1, 2, 3, 5], false),
            (6, &[1, 2], false),
            (7, &[1, 2, 3], false),
            (8, &[1, 3, 4], false),
        ];
        for (number, ids, expected) in on_its_way {
            let mut path = Path::begin(version(5, &[1, 2, 3]));
            assert_eq!(path.on_present(&version(number, ids), &wanted), expected, "{number} {ids:?}");
        }
        let mut path = Path::begin(version(0, &[]));
        assert!(path.on_present(&version(3, &[7, 8]), &wanted), "somebody founded it meanwhile");
        assert!(path.on_present(&version(2, &[8]), &wanted), "an answer of before");
        // A change that was left unfinished is completed first, so the set may differ from what the program found. If
        // another change comes later, the program stops.
        let mut path = Path::begin(version(5, &[1, 2, 3]));
        assert!(path.on_decided(&version(6, &[1, 2, 3, 5]), &wanted));
        assert!(path.on_decided(&version(7, &[1, 2, 3, 4, 5]), &wanted));
        assert!(!path.on_decided(&version(8, &[1, 2, 3, 4]), &list(&[1, 3, 4, 5])));
    }

    #[test]
    fn one_step_at_a_time() {
        let steps = |from: &[u128], to: &[u128]| {
            let (mut at, mut steps) = (list(from), vec![]);
            while let Some(next) = step_towards(&at, &list(to)) {
                assert!(Members { version: 1, list: at }.is_next_to(&next));
                steps.push(next.len());
                at = next;
            }
            steps
        };
        assert_eq!(steps(&[1, 2, 3], &[1, 2, 3, 4, 5]), [4, 5]);
        assert_eq!(steps(&[1, 2, 3], &[2, 3, 4]), [4, 3]);
        assert_eq!(steps(&[1, 2, 3, 4, 5], &[3, 1, 5]), [4, 3]);
        assert_eq!(steps(&[1, 2], &[2, 1]), [0; 0]);
    }
}
