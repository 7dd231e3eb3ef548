//! LOCK.NOTE: replaces the note of a grant.

use crate::lock::{Lock, live_of};
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::{Annotate, NoteSequence};
use crate::rules::on_grant::OnGrant;
use crate::values::time::Now;

/// Replaces the note of the owner's grant if the new note's sequence number is larger. So a repetition or an older
/// request changes nothing. Lease, holds and token stay.
pub fn annotate(
    held: Option<&mut Lock>,
    ask: &Annotate<'_>,
    node: &mut Node,
    now: Now,
) -> Result<OnGrant<NoteSequence>, Refusal> {
    let Some((lock, own)) = live_of(held, ask.owner, ask.token, now.boot) else { return Ok(OnGrant::NotHeld) };
    let grant = lock.grant(own);
    node.ensure_trusted(grant, now.boot)?;
    let last = grant.note_sequence();
    let sequence = match ask.sequence {
        Some(sequence) => sequence,
        None => last.next()?,
    };
    if sequence <= last {
        return Ok(OnGrant::Unchanged(last));
    }
    lock.grant_mut(own).set_note(ask.note, sequence);
    node.counters.notes += 1;
    Ok(OnGrant::Changed(own, sequence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::lock::grant::GrantId;
    use crate::request::Note;
    use crate::values::limits::NOTE_SEQUENCE_MAX;
    use OnGrant::*;

    fn sequence(number: u64) -> NoteSequence {
        NoteSequence::new(Some(number)).unwrap()
    }

    #[test]
    fn each_request_has_its_outcome() {
        let node = &mut node();
        let own = GrantId::default();
        // (owner, SEQ of the first note, SEQ of the new note, TOKEN, at ms, outcome)
        let cases = [
            ("me", 0, None, None, 500, Ok(Changed(own, sequence(1)))),
            ("me", 4, None, Some(7), 1_000, Ok(Changed(own, sequence(5)))),
            ("me", 4, Some(9), None, 500, Ok(Changed(own, sequence(9)))),
            ("me", 4, Some(4), None, 500, Ok(Unchanged(sequence(4)))),
            ("me", 4, Some(0), None, 500, Ok(Unchanged(sequence(4)))),
            ("me", 0, Some(0), None, 500, Ok(Unchanged(sequence(0)))),
            ("me", 4, None, Some(8), 500, Ok(NotHeld)),
            ("you", 4, None, None, 500, Ok(NotHeld)),
            ("me", 4, None, None, 1_001, Ok(NotHeld)),
            ("me", NOTE_SEQUENCE_MAX, None, None, 500, Err(Refusal::NotesExhausted)),
            ("me", NOTE_SEQUENCE_MAX, Some(NOTE_SEQUENCE_MAX), None, 500, Ok(Unchanged(sequence(NOTE_SEQUENCE_MAX)))),
        ];
        for (name, before, asked, tok, now, expected) in cases {
            let mut lock = mine(2);
            lock.grant_mut(own).set_note(Note::new(b"old").unwrap(), sequence(before));
            let ask = Annotate {
                owner: owner(name),
                note: Note::new(b"new").unwrap(),
                sequence: asked.map(sequence),
                token: tok.map(token),
            };
            assert_eq!(annotate(Some(&mut lock), &ask, node, at(now)), expected, "{ask:?}");
            let (note, number) = match expected {
                Ok(Changed(_, number)) => (&b"new"[..], number),
                _ => (&b"old"[..], sequence(before)),
            };
            let grant = lock.first();
            assert_eq!((grant.note(), grant.note_sequence()), (note, number));
            assert_eq!((grant.token(), grant.holds(), grant.deadline()), (token(7), 2, at(1_000).boot));
        }
        assert_eq!(node.counters.notes, 3);
    }

    #[test]
    fn an_absent_lock_stays_absent_and_a_suspect_one_keeps_its_note() {
        let node = &mut node();
        let ask = Annotate { owner: owner("me"), note: Note::new(b"new").unwrap(), sequence: None, token: None };
        assert_eq!(annotate(None, &ask, node, at(0)), Ok(NotHeld));
        let mut lock = suspect();
        assert_eq!(annotate(Some(&mut lock), &ask, node, at(0)), Err(Refusal::Suspect { left_ms: 1_000 }));
        assert_eq!(lock, suspect());
    }
}
