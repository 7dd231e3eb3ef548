use super::*;

#[test]
fn first_words_are_stable_and_texts_fit_one_line() {
    let cases = [
        (Refusal::Owned, "OWNED"),
        (Refusal::Suspect { left_ms: 17 }, "GUARDED 17"),
        (Refusal::Guarded { left_ms: 17, cause: Cause::Flush }, "GUARDED 17"),
        (Refusal::SlotGuarded { left_ms: 17 }, "GUARDED 17"),
        (Refusal::Evicted { left_ms: 17 }, "GUARDED 17"),
        (Refusal::NotYet, "NOTYET 10"),
        (
            Refusal::BytesFull { max: 7 },
            "QUEUEFULL what waits on this node takes as many bytes as it may (7, lock.max-waiting-bytes)",
        ),
        (
            Refusal::ShareTaken { parameter: "lock.max-waiters" },
            "QUEUEFULL the requests of this user, or of this listener, have their share of lock.max-waiters,",
        ),
        (Refusal::OutOfMemory, "OOM "),
        (Refusal::QueueFull { max: 5 }, "QUEUEFULL as many requests wait on this node as may (5, lock.max-waiters)"),
        (Refusal::OwnerQueueFull, "QUEUEFULL this owner has 32 requests"),
        (Refusal::Patience, "ERR the time to wait must be an integer from 0 (not at all) to 86400000 milliseconds"),
        (
            Refusal::KeepAlive,
            "ERR KEEPALIVE must be an integer from the ttl to 2592000000 milliseconds, and the ttl at least 1000",
        ),
        (Refusal::KeepAliveFull, "KEEPALIVEFULL this node renews 100000 leases a second"),
        (Refusal::NoConnection, "ERR KEEPALIVE follows the connection"),
        (Refusal::BreakCutShort, "ERR the lock was moved"),
        (Refusal::BreakGoesOn, "UNBLOCKED this client waits no longer"),
        (Refusal::NoListener, "NOLISTENER no connection"),
        (Refusal::ListenerTaken, "ERR another connection listens"),
        (Refusal::ListenerName, "ERR the name of a listener must be 16 to 64 bytes long"),
        (Refusal::ListensNowhere, "ERR LOCK.HEAR listens"),
        (Refusal::Ticket, "ERR TICKET must be an integer from 0 to 9007199254740991"),
        (Refusal::ListedWaiters, "ERR WAITERS must be an integer from 1 to 1000"),
        (Refusal::FenceTooFar { max: 5 }, "ERR token must be at most 5"),
        (Refusal::Floor { option: "FLOOR" }, "ERR FLOOR needs a token from 1 to 6755399441055744"),
        (Refusal::GuardLength, "ERR ARM needs an integer from 1 to 172800000"),
        (Refusal::WrongType, "WRONGTYPE"),
        (Refusal::MasterOnly, "READONLY"),
        (Refusal::Forbidden, "NOPERM"),
        (Refusal::Panicked, "LOCKPANIC"),
        (Refusal::Poisoned, "LOCKPANIC"),
        (Refusal::OwnerLength, "ERR owner"),
        (Refusal::NoteLength { argument: "NOTE" }, "ERR NOTE"),
        (Refusal::NoteSequence, "ERR SEQ must be an integer from 0 to 9007199254740991"),
        (Refusal::NotesExhausted, "ERR the note of this grant has the sequence number 9007199254740991"),
        (Refusal::Ttl { max_ms: 5 }, "ERR ttl must be an integer from 1 to 5 milliseconds"),
        (Refusal::KnownToken, "ERR TOKEN must be an integer from 0 (free) to 9007199254740991"),
        (Refusal::Token { argument: "token" }, "ERR token must be an integer from 1 to 9007199254740991"),
        (Refusal::Level, "ERR LEVEL"),
        (Refusal::UnknownOption { known: "RETRY" }, "ERR unknown option: this command takes RETRY"),
        (Refusal::RepeatedOption { name: "NOTE" }, "ERR option NOTE was given twice"),
        (Refusal::MissingValue { name: "NOTE" }, "ERR option NOTE needs a value"),
        (Refusal::OldMembers { version: 5 }, "OLDMEMBERS 5 "),
        (Refusal::NotMember, "NOTMEMBER"),
        (Refusal::Outbid, "OUTBID"),
        (Refusal::Unsettled { left_ms: 17 }, "UNSETTLED 17 "),
        (Refusal::MembersApart, "ERR MEMBERS"),
        (Refusal::Members, "ERR MEMBERS must be 1 to 31 nodes"),
        (Refusal::MembersVersion { argument: "version" }, "ERR version must be an integer from 0 to 9007199254740991"),
        (Refusal::Ballot, "ERR the ballot"),
        (Refusal::NothingJoins, "ERR JOIN"),
        (Refusal::MembersForm, "ERR LOCK.SETMEMBERS"),
        (Refusal::Internal, "ERR LOCK.EFFECT"),
    ];
    for (refusal, start) in cases {
        let text = refusal.to_string();
        assert!(text.starts_with(start), "{text}");
        assert!(!text.contains(['\r', '\n', '\0']) && !text.contains("  "), "{text}");
    }
}
