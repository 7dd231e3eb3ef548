//! Resumes a lock that another process acquired for the same owner, from the grants that its nodes still have.

use super::acquire::{Acquire, Progress};
use super::ask::{NodeId, majority};
use super::distinct::first_as;
use super::known::{HoldStatus, known};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// A grant of the owner, as one node shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnGrant {
    /// The token of the grant on this node.
    pub token: Token,
    /// The time that is left of the lease, as the node reported it, in milliseconds.
    pub left_ms: u64,
}

/// The result of asking the nodes for the owner's grants.
#[derive(Clone, Debug)]
pub enum Resumed {
    /// More nodes have to answer before this can be decided; or a majority showed the lock so late that nothing is left
    /// of its lease, counted from the question, and has to be asked again.
    Open,
    /// No majority has the lock: its lease has ended, or it was never held.
    NotHeld,
    /// A majority has the lock. The acquisition continues where the other process left it; it may first have to raise
    /// the nodes' tokens to a common one.
    Goes(Box<(Acquire, Progress)>),
}

/// Decides from the nodes' answers whether the owner holds the lock. `start` was read before the first node was asked.
/// `answers` has for each node the server and the owner's grant there; `None` if the node has not answered.
///
/// A majority's grants are the state of an [`Acquire`] that a majority has granted, so the machine continues from
/// there. The only difference: the leases began earlier. The owner may rely on the time that is left of them on a
/// majority, counted from `start`. Nodes with less are asked again at the next extension.
///
/// The tokens of a majority may differ if the other process ended before it raised them. Then only the largest is
/// certainly above every earlier holder's.
pub fn resume(start: BootTime, answers: &[Option<(NodeId, Option<OwnGrant>)>], now: BootTime) -> Resumed {
    let needed = majority(answers.len());
    let ids: Vec<Option<NodeId>> = answers.iter().map(|answer| answer.as_ref().map(|(id, _)| *id)).collect();
    let mut found = Vec::new();
    let mut without = 0;
    for (node, answer) in answers.iter().enumerate() {
        match answer {
            // A second name of a server that counts already does not count.
            Some(_) if first_as(&ids, node).is_some() => without += 1,
            Some((id, Some(has))) => found.push((node, *id, *has)),
            Some((_, None)) => without += 1,
            None => {}
        }
    }
    match known(answers.len(), found.len(), answers.len() - found.len() - without) {
        HoldStatus::Held => {}
        HoldStatus::NotHeld => return Resumed::NotHeld,
        HoldStatus::Unknown => return Resumed::Open,
    }
    found.sort_by_key(|(.., has)| std::cmp::Reverse(has.left_ms));
    found.truncate(needed);
    let Some((.., least)) = found.last() else { return Resumed::Open };
    let largest = found.iter().map(|(.., has)| has.token).max().unwrap_or(least.token);
    let tokens = found.iter().map(|&(node, id, has)| (node, id, has.token));
    let ttl_ms = u32::try_from(least.left_ms).unwrap_or(u32::MAX);
    let (machine, progress) = Acquire::resume(answers.len(), ttl_ms, start, largest, tokens, now);
    match progress {
        Progress::TooLate => Resumed::Open,
        progress => Resumed::Goes(Box::new((machine, progress))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::{Ask, Call, valid_until};
    use super::*;
    use crate::fixture::{at, token};

    type Answer = Option<(NodeId, Option<OwnGrant>)>;

    fn has(node: u128, value: u64, left_ms: u64) -> Answer {
        Some((NodeId(node), Some(OwnGrant { token: token(value), left_ms })))
    }

    fn has_not(node: u128) -> Answer {
        Some((NodeId(node), None))
    }

    fn looked(answers: &[Answer]) -> Resumed {
        resume(at(1_000).boot, answers, at(1_010).boot)
    }

    #[track_caller]
    fn goes(answers: &[Answer]) -> (Acquire, Progress) {
        match looked(answers) {
            Resumed::Goes(goes) => *goes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_majority_has_is_held_for_as_long_as_its_leases() {
        let (_, Progress::Held(held)) = goes(&[has(0, 7, 900), has(1, 7, 500), None, has(3, 7, 300), has(4, 7, 800)])
        else {
            panic!()
        };
        assert_eq!((held.token(), held.valid_until()), (token(7), valid_until(at(1_000).boot, 500)));
        assert_eq!(held.nodes_held(), 3);
    }

    /// The other process ended after its first round. The token 10 of one node is not above an earlier holder's token
    /// on node 0, so the tokens are raised first.
    #[test]
    fn tokens_that_were_not_raised_yet_are() {
        let (mut machine, Progress::Goes(calls)) = goes(&[has(0, 25, 900), has(1, 10, 900), None]) else { panic!() };
        let fence = Ask::Fence { token: token(25) };
        assert_eq!(calls, [Call { node: 1, ask: fence, after_ms: 0 }]);
        let answer = super::super::Answer::Token(token(25));
        let Progress::Held(held) = machine.on_answer(1, Some(NodeId(1)), fence, answer, at(1_020).boot) else {
            panic!()
        };
        assert_eq!(held.token(), token(25));
    }

    #[test]
    fn a_minority_is_not_enough_and_silence_is_no_answer() {
        let two = [has(0, 7, 900), has(1, 7, 900), None, None, None];
        assert!(matches!(looked(&two), Resumed::Open));
        let three_without = [has(0, 7, 900), has(1, 7, 900), has_not(2), has_not(3), has_not(4)];
        assert!(matches!(looked(&three_without), Resumed::NotHeld));
        let one_server = [has(0, 7, 900), has(0, 7, 900), has_not(2)];
        assert!(matches!(looked(&one_server), Resumed::NotHeld), "one server under two names");
        let late = [has(0, 7, 9), has(1, 7, 9), None];
        assert!(matches!(looked(&late), Resumed::Open), "it may have been extended by the time that it is told");
    }
}
