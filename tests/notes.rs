//! LOCK.NOTE: the note and its sequence number stay with the lock wherever it is renamed, saved or replicated.

use crate::harness::{Client, Reply, Server, Setup, error, in_step, int, null, pair, text};

/// The largest sequence number.
const LAST: i64 = 9_007_199_254_740_991;

/// Returns the note and the sequence number.
fn note(client: &mut Client, key: &str) -> (Reply, Reply) {
    let told = client.insist(&format!("LOCK.INFO {key}"));
    (told.field("note"), told.field("seq"))
}

fn told_token(client: &mut Client) -> i64 {
    client.insist("LOCK.INFO k").field("token").as_int()
}

#[test]
fn the_larger_number_stays_and_nothing_else_changes() {
    let server = Server::start();
    let mut me = server.client();
    let first = me.say("LOCK.ACQUIRE k me 60000 NOTE first").as_int();
    assert_eq!(note(&mut me, "k"), (text("first"), int(0)));
    for (line, number, now) in [
        ("LOCK.NOTE k me second", 1, "second"),
        ("LOCK.NOTE k me third SEQ 7", 7, "third"),
        ("LOCK.NOTE k me third SEQ 7", 7, "third"),
        ("LOCK.NOTE k me late SEQ 6", 7, "third"),
        ("LOCK.NOTE k me zero SEQ 0", 7, "third"),
        ("LOCK.NOTE k me fourth", 8, "fourth"),
        ("LOCK.NOTE k me last SEQ 9007199254740991", LAST, "last"),
    ] {
        assert_eq!(me.say(line), int(number), "{line}");
        assert_eq!(note(&mut me, "k"), (text(now), int(number)), "{line}");
    }
    assert!(error(me.say("LOCK.NOTE k me more")).starts_with("ERR the note of this grant has the sequence number"));
    assert_eq!(me.say("LOCK.NOTE k you mine"), null());
    assert_eq!(me.say(&format!("LOCK.NOTE k me mine TOKEN {}", first + 1)), null());
    assert_eq!(me.say("LOCK.NOTE free me mine"), null());
    assert_eq!(told_token(&mut me), first);
    me.say("LOCK.RELEASE k me");
    assert_eq!(me.say("LOCK.NOTE k me late"), null(), "it is nobody's, and stays so");
    assert_eq!(me.say("EXISTS k"), int(0));
    // The next grant starts without a note.
    me.say("LOCK.ACQUIRE k me 60000");
    assert_eq!(note(&mut me, "k"), (text(""), int(0)));
    assert_eq!(server.info("notes"), 4);
}

/// The longest note and the largest sequence number survive a restart from each kind of file, and the start proves that
/// it remembers them.
#[test]
fn a_note_survives_a_restart() {
    let long = "n".repeat(1024);
    for setup in [Setup::new(), Setup::new().aof()] {
        let mut server = setup.start();
        let mut me = server.client();
        let one = me.say("LOCK.ACQUIRE k me 60000 NOTE first").as_int();
        assert_eq!(me.say(&format!("LOCK.NOTE k me {long} SEQ {LAST}")), int(LAST));
        let digest = me.say("DEBUG DIGEST");
        server.shutdown("SAVE");
        server.start_again();
        let mut me = server.client();
        assert_eq!(note(&mut me, "k"), (text(&long), int(LAST)));
        assert_eq!((told_token(&mut me), me.say("DEBUG DIGEST")), (one, digest));
        assert_eq!(me.say("LOCK.EXTEND k me 60000"), int(one));
    }
}

#[test]
fn a_replica_is_told_of_a_note() {
    let (master, replica) = pair();
    let (mut me, mut there) = (master.client(), replica.client());
    me.say("LOCK.ACQUIRE k me 60000");
    me.say("LOCK.ACQUIRE r one 60000 SHARED");
    me.say("LOCK.ACQUIRE r two 60000 SHARED");
    assert_eq!((me.say("LOCK.NOTE k me text SEQ 5"), me.say("LOCK.NOTE r one text")), (int(5), int(1)));
    in_step(&mut me);
    assert_eq!(note(&mut there, "k"), (text("text"), int(5)));
    assert_eq!(note(&mut there, "r"), (text("text"), int(1)));
    assert!(error(there.say("LOCK.NOTE k me text")).starts_with("READONLY"));
    assert_eq!(me.say("DEBUG DIGEST"), there.say("DEBUG DIGEST"));
}

/// A client may have forged the payload, so the restored lock is suspect. It keeps its note, and takes no other.
#[test]
fn a_restored_lock_keeps_its_note_and_takes_no_other() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    me.say("LOCK.NOTE k me text SEQ 5");
    let payload = me.say("DUMP k").as_bytes().to_vec();
    me.say("DEL k");
    assert_eq!(me.send(&[b"RESTORE", b"k", b"0", &payload]), text("OK"));
    assert_eq!(note(&mut me, "k"), (text("text"), int(5)));
    assert!(error(me.say("LOCK.NOTE k me other")).starts_with("GUARDED"));
}
