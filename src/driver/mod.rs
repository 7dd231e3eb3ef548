//! Performs what the engine decides on the server: the only code that writes to it.
//!
//! A server calls the module back in the middle of an effect (a key is unlinked, an event is told), so the node is borrowed
//! while the engine decides what is next, and not while that is done.

pub mod blocked_clients;
pub mod effects;
mod questions;
pub mod timer;

use palisade_core::engine::{Event, Key, Reply as Answer, Request, Run, Said, Step};
use palisade_core::{Now, Refusal};

use crate::ffi::{Context, LockKey, Reply};
use crate::{cluster, life, state};
use blocked_clients::Form;
use questions::Questions;

/// Does `request` for `key`, and answers the client that sent it in this form.
pub fn answer(
    ctx: Context<'_>,
    key: &mut LockKey<'_>,
    request: &Request<'_>,
    form: Form,
    now: Now,
) -> Result<Reply, Refusal> {
    let Performed { answer, is_stored, touches_queue } = perform(ctx, key, request, form, now);
    if touches_queue {
        blocked_clients::deliver(ctx);
    }
    if is_stored || touches_queue {
        timer::arm(ctx);
    }
    answer.map(|answer| blocked_clients::reply_at_once(answer, form))
}

/// Does what is due for `key`. The caller delivers the answers, and sets the timer.
fn perform_due(ctx: Context<'_>, key: &mut LockKey<'_>, request: &Request<'_>, now: Now) {
    // Nobody is answered, so nothing is refused either.
    let _ = perform(ctx, key, request, Form::Token, now);
}

/// What came of a request.
struct Performed {
    answer: Result<Answer, Refusal>,
    /// The key holds another lock now, whose lease may end before all others. (That of one that was changed ends later than
    /// before.)
    is_stored: bool,
    /// Somebody may have an answer now.
    touches_queue: bool,
}

/// Performs `request` step by step.
#[inline(always)]
fn perform(ctx: Context<'_>, key: &mut LockKey<'_>, request: &Request<'_>, form: Form, now: Now) -> Performed {
    let name = key.name();
    let mut run = Run::new(Key { db: ctx.db(), name: name.bytes() }, request);
    let mut questions = Questions::default();
    let mut said = Said::Yes;
    let mut is_stored = false;
    let answer = loop {
        let step = state::with(|node| run.next(key.lock_mut(), said, node, now));
        said = Said::Yes;
        match step {
            Step::Store(event) => {
                effects::store(ctx, key, run.granted(), event, now);
                is_stored = true;
            }
            Step::Replace => {
                effects::tell(ctx, Event::Expired, name);
                effects::store(ctx, key, run.granted(), Event::Acquired, now);
                is_stored = true;
            }
            Step::Changed(event) => {
                effects::changed(ctx, key, now);
                if let Some(event) = event {
                    effects::tell(ctx, event, name);
                }
            }
            Step::Tell(event) => effects::tell(ctx, event, name),
            Step::Delete(event) => {
                if let Some(event) = event {
                    effects::tell(ctx, event, name);
                }
                effects::freed(ctx, key);
            }
            Step::Ask(question) => said = questions.ask(ctx, name, question, now.boot),
            Step::LookAtSlots => cluster::know(ctx, name),
            Step::Redirect => questions.redirect_all(ctx, name),
            Step::Block => said = Said::Blocked(blocked_clients::block(ctx, request, form)),
            Step::Write => life::save(now),
            Step::Done(answer) => break answer,
        }
        if let Some(answer) = run.answered() {
            break answer;
        }
    };
    Performed { answer, is_stored, touches_queue: run.touches_queue() }
}
