//! `LOCK.RELEASE key owner [LEVEL n] [TOKEN t]`
//!
//! Replicas and the AOF receive the command unchanged. For them it means that this owner's lock is gone. They decide
//! nothing again, and read neither clock, holds nor options.

use palisade_core::engine::{Event, Request};
use palisade_core::request::{self, Form};
use palisade_core::{Refusal, record};

use super::key::open;
use crate::driver::{effects, timer};
use crate::durability::start;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, driver};

/// LOCK.RELEASE: gives back holds; without holds the grant ends.
pub struct Release;

impl Command for Release {
    // Not `master_only`, since a replica runs the command when its master sends it. `run` refuses clients of a replica.
    const SPEC: Spec = Spec::new(request::Release::SPEC, AclGroup::Write, "0.1.0", "O(1)");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        if call.ctx.is_replayed() {
            let gone = delete_lock(call);
            // On an error the server would only log it and go on with its AOF, so this notes that a lock is missing.
            if gone.is_err() && call.ctx.is_from_aof() {
                start::missed_a_lock();
            }
            return gone;
        }
        if !call.ctx.is_master() {
            return Err(Refusal::MasterOnly);
        }
        let request = Request::Release(request::Release::read(call.words(), config::bounds())?);
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}

/// Removes the lock in the key because a master, or the AOF, says that it is gone. Another owner's lock stays.
fn delete_lock(call: &Call<'_>) -> Result<Reply, Refusal> {
    let request::Release { owner, .. } = request::Release::read(call.words(), config::bounds())?;
    let mut key = open(call)?;
    record::ensure_of(owner, key.lock()).map_err(Refusal::BadRecord)?;
    if effects::delete(call.ctx, &mut key, Some(Event::Released)) {
        timer::arm(call.ctx);
    }
    Ok(Reply::Integer(0))
}
