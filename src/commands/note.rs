//! `LOCK.NOTE key owner text [SEQ n] [TOKEN t]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::{self, Form};

use super::key::open;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, driver};

/// Another note.
pub struct Note;

impl Command for Note {
    const SPEC: Spec = Spec {
        command: request::Annotate::SPEC,
        complexity: "O(1)",
        since: "0.2.0",
        acl: AclGroup::Write,
        master_only: true,
        refused_when_poisoned: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request = Request::Note(request::Annotate::read(call.words(), config::bounds())?);
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}
