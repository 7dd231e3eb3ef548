//! Performs a request step by step.
//!
//! A server calls the module back in the middle of an effect (a key is unlinked, an event published). So the node is
//! borrowed while the engine decides on the next step, but not while the step is performed. Key events are published
//! when all steps are done.

use palisade_core::engine::{Event, Finding, Key, Reply as Answer, Request, Run, Step};
use palisade_core::{Now, Refusal};

use super::blocked_clients::{self, Asker};
use super::key_events::KeyEvents;
use super::questions::Questions;
use super::{cluster, effects, grant_events, watchers};
use crate::durability::incarnation;
use crate::ffi::{Context, LockKey, free_value};
use crate::state;

/// The changes that a performed request has made.
pub struct Performed {
    /// True if a new lock was stored in the key. Its lease may end before all others, so the timer may have to be set.
    /// (A change of a stored lock can only make its lease longer.)
    pub is_stored: bool,
    /// True if waiting requests may have an answer now.
    pub touches_queue: bool,
}

/// Performs `request` for `key`, and calls `tell` with the answer for its client. If the client has to wait, its answer
/// comes later. Then publishes the key events. The caller reads nothing from `key` afterwards, which may be closed.
#[inline(always)]
pub fn perform<T>(
    ctx: Context<'_>,
    key: &mut LockKey<'_>,
    request: &Request<'_>,
    asker: &Asker,
    now: Now,
    tell: impl FnOnce(&mut LockKey<'_>, Performed, &Result<Answer, Refusal>) -> T,
) -> T {
    let name = key.name();
    let at = Key { db: ctx.db(), name: name.bytes() };
    let shared = state::with(|node| node.share_name(at));
    let mut run = Run::new(Key { name: shared.as_deref().unwrap_or(at.name), ..at }, request);
    let mut questions = Questions::default();
    let mut said = Finding::Yes;
    let (mut is_stored, mut has_more, mut events) = (false, false, KeyEvents::default());
    let answer = loop {
        // The step is written in place, which is faster than passing it from call to call.
        let mut step = Step::ReadSlots;
        state::with(|node| step = run.next(key.lock_mut(), said, node, now));
        said = Finding::Yes;
        match step {
            Step::Store(event) => {
                effects::store(ctx, key, run.take_granted(), now);
                events.add(ctx, event);
                is_stored = true;
            }
            Step::Replace => {
                effects::store(ctx, key, run.take_granted(), now);
                [Event::Expired, Event::Acquired].into_iter().for_each(|event| events.add(ctx, event));
                is_stored = true;
            }
            Step::Changed(event, id) => {
                effects::replicate_change(ctx, key, id, now);
                event.into_iter().for_each(|event| events.add(ctx, event));
                if event == Some(Event::Converted) {
                    state::with(|node| node.take_converted()).into_iter().for_each(free_value);
                }
            }
            Step::Left(event) => {
                effects::replicate_end(ctx, key, run.take_ended(), now);
                events.add(ctx, event);
            }
            Step::Publish(event) => events.add(ctx, event),
            Step::Delete(event) => {
                event.into_iter().for_each(|event| events.add(ctx, event));
                has_more |= effects::delete(ctx, key, event);
            }
            Step::AnswerWatchers => watchers::answer(ctx, key, now.boot),
            Step::Ask(question) => said = questions.ask(ctx, name, question, asker, now.boot),
            Step::ReadSlots => cluster::ensure_known(ctx, name.bytes()),
            Step::Redirect => questions.redirect_all(ctx, name),
            Step::Block if !ctx.may_block() => said = Finding::No,
            Step::Block => said = Finding::Blocked(blocked_clients::block(ctx, name, request, *asker)),
            Step::Write => incarnation::save(now),
            Step::Done(_) => {}
        }
        if let Some(answer) = run.final_answer() {
            break answer;
        }
    };
    grant_events::publish(ctx);
    let told = tell(key, Performed { is_stored, touches_queue: run.touches_queue() || has_more }, answer);
    events.publish(ctx, key);
    told
}
