//! Commands of a lock's owner other than ACQUIRE and RELEASE: EXTEND, REENTER, CONVERT, NOTE, FENCE. The words become a
//! request to the engine, whose answer is a number or Null.

use palisade_core::engine::Request;
use palisade_core::request::{self, Form};
use palisade_core::{Refusal, grammar};

use super::key::open;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, driver};

const fn spec(command: grammar::Spec, since: &'static str) -> Spec {
    Spec::new(command, AclGroup::Write, since, "O(1)").master_only().refused_when_poisoned()
}

#[inline(always)]
fn answer(call: &Call<'_>, request: &Request<'_>) -> Result<Reply, Refusal> {
    driver::answer(call.ctx, &mut open(call)?, request, &Form::Token.into(), clock::now())
}

/// LOCK.EXTEND: moves the deadline further away.
pub struct Extend;

impl Command for Extend {
    const SPEC: Spec = spec(request::Extend::SPEC, "0.1.0");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        answer(call, &Request::Extend(request::Extend::read(call.words(), config::bounds())?))
    }
}

/// LOCK.REENTER: adds a hold.
pub struct Reenter;

impl Command for Reenter {
    const SPEC: Spec = spec(request::Reenter::SPEC, "0.1.0");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        answer(call, &Request::Reenter(request::Reenter::read(call.words(), config::bounds())?))
    }
}

/// LOCK.CONVERT: changes the grant's mode.
pub struct Convert;

impl Command for Convert {
    const SPEC: Spec = spec(request::Convert::SPEC, "1.0.0");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        answer(call, &Request::Convert(request::Convert::read(call.words(), config::bounds())?))
    }
}

/// LOCK.NOTE: replaces the note.
pub struct Note;

impl Command for Note {
    const SPEC: Spec = spec(request::Annotate::SPEC, "1.0.0");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        answer(call, &Request::Note(request::Annotate::read(call.words(), config::bounds())?))
    }
}

/// LOCK.FENCE: raises the token of a grant, in the second round in which a quorum client acquires a lock.
pub struct Fence;

impl Command for Fence {
    const SPEC: Spec = spec(request::Fence::SPEC, "0.1.0");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Fence { owner, token } = request::Fence::read(call.words(), config::bounds())?;
        answer(call, &Request::Fence(owner, token))
    }
}
