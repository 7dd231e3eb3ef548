//! `LOCK.RELEASE key owner [LEVEL n] [TOKEN t]`
//!
//! On a replication link and in the AOF the command is sent unchanged, and says that the lock which this owner held is
//! gone. Nothing is decided again there: the clock, the holds and the options are not read.

use palisade_core::engine::{Event, Request};
use palisade_core::request::{self, Form};
use palisade_core::{Refusal, record};

use super::key::open;
use crate::driver::{effects, timer};
use crate::durability::start;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, driver};

/// Gives back holds.
pub struct Release;

impl Command for Release {
    // Replicas refuse it from clients.
    const SPEC: Spec = Spec::new(request::Release::SPEC, AclGroup::Write, "0.1.0", "O(1)");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        if call.ctx.is_told() {
            let gone = gone(call);
            // On an error the server only logs it and continues with its AOF.
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

/// Removes the lock in the key, if this owner held it. Another owner's lock stays.
fn gone(call: &Call<'_>) -> Result<Reply, Refusal> {
    let request::Release { owner, .. } = request::Release::read(call.words(), config::bounds())?;
    let mut key = open(call)?;
    record::ensure_of(owner, key.lock()).map_err(Refusal::BadRecord)?;
    if effects::freed(call.ctx, &mut key, Some(Event::Released)) {
        timer::arm(call.ctx);
    }
    Ok(Reply::Integer(0))
}
