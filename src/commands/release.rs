//! `LOCK.RELEASE key owner [LEVEL n] [TOKEN t]`
//!
//! Over a replication link and in the AOF it is an effect, sent as it came: that the lock which this owner held is gone. Nothing is decided
//! anew there: neither the clock, the holds nor the options are looked at.

use palisade_core::engine::{Event, Request};
use palisade_core::request::{Level, Owner, Release as Ask};
use palisade_core::{Refusal, Token, record};

use super::declaration::arguments;
use super::key::open;
use crate::driver::blocked_clients::Form;
use crate::driver::{effects, timer};
use crate::durability::start;
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::{clock, driver};

arguments! {
    /// What is asked.
    struct Asked<'a> {
        owner: Owner<'a>,
        [LEVEL n as level] level: Level,
        [TOKEN t as token] token: Token,
    }
}

/// Gives holds back.
pub struct Release;

impl Command for Release {
    const SPEC: Spec = Spec {
        name: c"LOCK.RELEASE",
        summary: c"Gives one hold back, or all down to a level, and answers how many are left (0: the lock is free); \
                   Null if this owner does not hold it.",
        complexity: c"O(1)",
        since: c"0.1.0",
        flags: c"write fast",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Delete),
        arguments: Asked::ARGUMENTS,
        // Of those that come from clients.
        master_only: false,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        if call.ctx.is_told() {
            let gone = gone(call);
            // The server goes on with its AOF, and only logs that.
            if gone.is_err() && call.ctx.is_from_aof() {
                start::missed_a_lock();
            }
            return gone;
        }
        if !call.ctx.is_master() {
            return Err(Refusal::MasterOnly);
        }
        let Asked { owner, level, token } = Asked::read(call)?;
        let request = Request::Release(Ask { owner, level, token });
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}

/// The lock in the key is gone, if there is one: its owner gave it back. That of anybody else stays.
fn gone(call: &Call<'_>) -> Result<Reply, Refusal> {
    let Asked { owner, .. } = Asked::read(call)?;
    let mut key = open(call)?;
    record::ensure_of(owner, key.lock()).map_err(Refusal::BadRecord)?;
    if effects::freed(call.ctx, &mut key, Some(Event::Released)) {
        timer::arm(call.ctx);
    }
    Ok(Reply::Integer(0))
}
