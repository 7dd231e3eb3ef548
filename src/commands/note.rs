//! `LOCK.NOTE key owner text [SEQ n] [TOKEN t]`

use palisade_core::engine::Request;
use palisade_core::request::{Annotate, Note as Text, NoteSequence, Owner};
use palisade_core::{Refusal, Token};

use super::declaration::arguments;
use super::key::open;
use crate::driver::blocked_clients::Form;
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::{clock, driver};

arguments! {
    /// What is asked.
    struct Asked<'a> {
        owner: Owner<'a>,
        text: Text<'a>,
        [SEQ n] seq: NoteSequence,
        [TOKEN t as token] token: Token,
    }
}

/// Another note.
pub struct Note;

impl Command for Note {
    const SPEC: Spec = Spec {
        name: c"LOCK.NOTE",
        summary: c"Replaces the note of a grant and answers its sequence number, one more than the last one's; with \
                   SEQ only if that is larger than the last one's. Null if this owner does not hold the lock.",
        complexity: c"O(1)",
        since: c"0.2.0",
        // The new note may be longer than the last one.
        flags: c"write fast deny-oom",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Update),
        arguments: Asked::ARGUMENTS,
        master_only: true,
        refused_when_poisoned: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { owner, text, seq, token } = Asked::read(call)?;
        let request = Request::Note(Annotate { owner, note: text, sequence: seq, token });
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}
