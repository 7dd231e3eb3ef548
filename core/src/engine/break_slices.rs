//! A BREAK of grants that share a token: it ends one after the other, in slices if there are many.

use super::at::At;
use super::passing::Passing;
use super::run::{Run, Stage};
use super::step::{By, Event, Finding, Reply, Request, Step};
use crate::history::ending::Ending;
use crate::node::Node;
use crate::queue::breaking::Breaking;
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::rules::break_lock::break_lock;
use crate::values::key::Key;
use crate::values::limits::ENDED_A_STEP_MAX;
use crate::values::token::Token;

impl Run<'_> {
    /// Removes a grant with this token, or the whole lock if it is the last grant. When `left` more grants have been
    /// removed, the next slice continues.
    #[inline(never)]
    pub(super) fn break_one(&mut self, token: Token, left: usize, at: &mut At<'_>) -> Option<Step> {
        let by = if let Request::BreakOn(_) = self.request { By::Itself } else { By::Command };
        let Some(id) = at.held.as_deref().and_then(|lock| lock.last_with_token(token)) else {
            self.answer_break(at.node);
            return self.serve_queue(by, Reply::Token(token), at);
        };
        if let (0, Request::BreakOn(breaking)) = (left, self.request) {
            at.node.breaking.push_back(Breaking { since: at.now.boot, ..(*breaking).clone() });
            return self.answer(Ok(Reply::Null));
        }
        self.ended = at.take(id, Ending::Broken);
        if self.ended.is_none() {
            self.answer_break(at.node);
            return self.end_broken(by, token, at.node);
        }
        self.then(Stage::Breaks { token, left: left - 1 }, Step::Left(Event::Broken))
    }

    /// Blocks the client until all grants with `token` are broken. A client that cannot be blocked (in a script or a
    /// transaction) is refused, since breaking them all at once would stop the server for other clients.
    pub(super) fn break_later(&mut self, token: Token, at: &mut At<'_>) -> Option<Step> {
        let Finding::Blocked(client) = at.said else { return self.answer(Err(Refusal::BreaksTooMany)) };
        break_lock(self.key, at.held.as_deref_mut(), Some(token), at.node, at.now);
        let Key { db, name } = self.key;
        at.node.breaking.push_back(Breaking {
            db,
            name: name.into(),
            token,
            since: at.now.boot,
            is_cut: false,
            client: Some(client),
        });
        self.touches_queue = true;
        self.answer(Ok(Reply::Later))
    }

    /// Begins the next slice of a BREAK that has not ended all grants with its token. If the key no longer holds the
    /// lock, the client gets an error: the grants may be under another name now, or on another node.
    pub(super) fn begin_slice(&mut self, breaking: &Breaking, at: &mut At<'_>) -> Option<Step> {
        self.touches_queue = true;
        if at.held.is_some() && !breaking.is_cut {
            return self.continue_at(Stage::Breaks { token: breaking.token, left: ENDED_A_STEP_MAX });
        }
        at.node.tell_of_break(breaking, Answer::Refused(Refusal::BreakCutShort));
        self.serve_queue(By::Itself, Reply::Null, at)
    }

    /// Ends the lock, and with it every BREAK in progress on this lock: their clients are answered.
    pub(super) fn end_broken(&mut self, by: By, token: Token, node: &mut Node) -> Option<Step> {
        self.touches_queue |= node.end_breaks(self.key);
        self.continue_at(Stage::Passes(Passing::ended(Event::Broken, by), Reply::Token(token)))
    }

    /// Answers the client of this BREAK, if the request is a later slice of it: no grant is left.
    fn answer_break(&mut self, node: &mut Node) {
        if let Request::BreakOn(breaking) = self.request {
            node.answer_break(breaking);
            self.touches_queue = true;
        }
    }
}
