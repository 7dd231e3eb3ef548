//! The requests of clients to a node, with all values checked. Each command is declared once, with the
//! [`grammar`](crate::grammar), together with its request.
//!
//! A node's module and an agent parse words into requests here. The engine, the simulation and the models work with the
//! requests.

mod gate;
mod holding;
mod looking;
mod nodes;
mod values;
mod words;

pub use gate::{Gate, GateMemory};
pub use holding::{Acquire, Annotate, AskedAcquire, Convert, Extend, Fence, Form, Reenter, Release};
pub use looking::{AskedWait, Break, Check, Hear, Info, Known, Wait, Watch};
pub use nodes::{Floor, Guard, Help, Log, Members, Node, SetMembers, Top};
pub use values::{
    Behind, Conversion, GuardMs, Level, ListedEntries, ListedHolders, ListedWaiters, ListenerName, MembersVersion,
    Note, NoteSequence, Owner, Patience, Ticket, TokenFloor, Ttl, permit,
};
pub use words::Milliseconds;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::{Bounds, Spec};
    use crate::refusal::Refusal;

    const BOUNDS: Bounds = Bounds { max_ttl_ms: 500 };

    fn words(line: &str) -> impl Iterator<Item = &[u8]> {
        line.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes)
    }

    #[test]
    fn words_become_a_request() {
        let line = "me 500 limit 3 PERMIT 2 WAIT 7 BEHIND 4 FENCE 9 Retry NOTE why KEEPALIVE 60000";
        let AskedAcquire { request, form, keepalive } = Acquire::read(words(line), BOUNDS).unwrap();
        assert_eq!((request.owner.bytes(), request.ttl.ms(), request.note.bytes()), (&b"me"[..], 500, &b"why"[..]));
        assert_eq!(request.wanted, permit(3, Some(2)).unwrap());
        assert_eq!((request.patience.ms(), request.behind.get(), request.retry), (7, 4, true));
        assert_eq!((request.fence.unwrap().get(), keepalive.unwrap().0), (9, Some(60_000)));
        let forms = ["me 1", "me 1 WAIT 0", "me 1 LIMIT 1", "me 1 LIMIT 1 WAIT 5"];
        let forms = forms.map(|line| Acquire::read(words(line), BOUNDS).unwrap().form);
        assert_eq!((form, forms), (Form::Permit, [Form::Token, Form::TokenAndWait, Form::Permit, Form::Permit]));
        let known = ["5", "5 TOKEN 0", "5 TOKEN 0 SEQ 0", "5 TOKEN 7 SEQ 1"]
            .map(|line| Watch::read(words(line), BOUNDS).unwrap().known);
        let grant = Known::Grant(crate::Token::new(7).unwrap(), Some(NoteSequence::FIRST.next().unwrap()));
        assert_eq!(known, [Known::Free, Known::Free, Known::Free, grant]);
    }

    #[test]
    fn the_first_fault_from_the_left_is_the_answer() {
        let missing = |name| Refusal::MissingValue { name };
        let known = "SHARED, LIMIT k, PERMIT n, KEEPALIVE ms, WAIT ms, BEHIND n, FENCE token, RETRY and NOTE text";
        let cases = [
            ("me 501 WAIT x", Refusal::Ttl { max_ms: 500 }),
            ("me 1 WAIT x WAIT", Refusal::Patience),
            ("me 1 WAIT", missing("WAIT")),
            ("me 1 FENCE 0", Refusal::Token { argument: "FENCE" }),
            ("me 1 RETRY retry", Refusal::RepeatedOption { name: "RETRY" }),
            ("me 1 NX WAIT", Refusal::UnknownOption { known }),
            ("me 1 BEHIND 1 SHARED LIMIT 5", Refusal::Needs { option: "BEHIND", needs: "WAIT" }),
            ("me 1 SHARED LIMIT 5", Refusal::Excludes { options: "SHARED and LIMIT" }),
            ("me 1 PERMIT 5", Refusal::Needs { option: "PERMIT", needs: "LIMIT" }),
            ("me 1 LIMIT x", Refusal::Limit),
        ];
        for (line, refusal) in cases {
            assert_eq!(Acquire::read(words(line), BOUNDS).unwrap_err(), refusal, "{line}");
        }
        let unknown = Refusal::UnknownOption { known: "LIFT or ARM ms" };
        for (line, refusal) in
            [("LIFT ARM x", unknown), ("arm 5 lift", unknown), ("ARM", missing("ARM")), ("ARM 0", Refusal::GuardLength)]
        {
            assert_eq!(Guard::read(words(line), BOUNDS).unwrap_err(), refusal, "{line}");
        }
    }

    #[test]
    fn what_is_told_of_a_command() {
        let told = |spec: Spec| (spec.arity(), spec.syntax(spec.arguments));
        assert_eq!(told(Check::SPEC), (3, "LOCK.CHECK key token".to_owned()));
        assert_eq!(told(Hear::SPEC), (3, "LOCK.HEAR name ms".to_owned()));
        assert_eq!(told(Node::SPEC), (-1, "LOCK.NODE [KEY key]".to_owned()));
        assert_eq!(told(Annotate::SPEC), (-4, "LOCK.NOTE key owner text [SEQ n] [TOKEN token]".to_owned()));
        assert_eq!(told(Guard::SPEC), (-1, "LOCK.GUARD [LIFT] [ARM ms]".to_owned()));
        assert_eq!(Guard::SPEC.arguments[0].documented(), "lift");
    }
}
