//! `palisade gate`: commands that the data's server performs unless a newer holder has passed the gate.

use crate::fixture::{Nodes, PALISADE, palisade_at, run};
use crate::harness::{Setup, int, text};

#[test]
fn a_command_runs_until_a_newer_holder_has_passed() {
    let nodes = Nodes::start(1);
    let gate = |token: u64, words: &str| run(nodes.palisade(&format!("gate invoices --token {token} {words}")));
    let written = gate(7, "-- SET invoice:42 open");
    assert_eq!((written.code(), written.out()), (Some(0), "OK\n".to_owned()), "{written:?}");
    let passed = gate(8, "");
    assert_eq!((passed.code(), passed.out()), (Some(0), "1\n".to_owned()), "{passed:?}");
    let refused = gate(7, "-- SET invoice:42 late");
    assert_eq!(refused.code(), Some(197), "{refused:?}");
    assert!(refused.err().contains("invoices: ") && refused.err().contains("FENCED 8 "), "{refused:?}");
    let read = gate(8, "--json -- MGET invoice:42 invoice:43");
    assert_eq!((read.code(), read.out()), (Some(0), "[\n  \"open\",\n  null\n]\n".to_owned()), "{read:?}");
}

/// `palisade gate` sends a token with its mode: that of a reader or of a permit. With `--held`, the lock itself decides
/// in place of a gate.
#[test]
fn the_mode_is_that_of_the_grant() {
    let nodes = Nodes::start(1);
    let status = |words: &str| run(nodes.palisade(&format!("gate {words}"))).code();
    assert_eq!(status("g --token 9 --shared"), Some(0));
    assert_eq!(status("g --token 8 --shared"), Some(0), "beside another reader");
    assert_eq!(status("g --token 8 --permit 1"), Some(197));
    assert_eq!(status("g --token 9 --shared --permit 1"), Some(193));
    let token = nodes.say("LOCK.ACQUIRE k me 60000").remove(0).as_int();
    assert_eq!(status(&format!("k --token {token} --held -- SET x 1")), Some(0));
    nodes.say("LOCK.BREAK k");
    assert_eq!(status(&format!("k --token {token} --held -- SET x 2")), Some(197));
    assert_eq!(nodes.say("GET x"), [text("1")]);
}

/// Token and permit number come from `palisade exec`.
#[test]
fn a_command_under_a_lock_needs_no_token_on_its_command_line() {
    let nodes = Nodes::start(1);
    let ran = run(nodes.exec("jobs", &format!("exec {PALISADE} gate jobs:gate -- INCR done")));
    assert_eq!((ran.code(), ran.out()), (Some(0), "1\n".to_owned()), "{ran:?}");
    let ran = run(nodes.exec("--limit 2 slots", &format!("exec {PALISADE} gate slots:gate -- INCR done")));
    assert_eq!((ran.code(), ran.out()), (Some(0), "2\n".to_owned()), "{ran:?}");
    assert_eq!(nodes.say("LOCK.INFO slots:gate").remove(0).field("permits"), int(1));
}

#[test]
fn what_is_wrong_is_named() {
    let nodes = Nodes::start(2);
    let ended = run(nodes.palisade("gate g --token 1"));
    assert_eq!(ended.code(), Some(193));
    assert!(ended.err().contains("name that one alone, with --nodes"), "{ended:?}");
    let one = nodes.servers[0].address();
    nodes.servers[0].client().say("RPUSH list 1");
    let status = |words: &str| {
        let ended = run(palisade_at(&one, &format!("gate {words}")));
        (ended.code(), ended.err())
    };
    for (words, code, says) in [
        ("g -- SET x 1", 193, "--token"),
        ("g --token 1 -- BLPOP x 1", 193, "NOPERM lock.gate-commands"),
        ("list --token 1 -- SET x 1", 193, "WRONGTYPE Operation against a key"),
        ("g --token 1 -- NONSENSE", 193, "no command of the name"),
        ("g --token 1 -- LPUSH x", 193, "wrong number of arguments"),
    ] {
        let (ended, said) = status(words);
        assert!(ended == Some(code) && said.contains(says), "{words}: {ended:?} {said}");
    }
    let bare = Setup::new().module_later().start();
    let ended = run(palisade_at(&bare.address(), "gate g --token 1"));
    assert!(ended.code() == Some(193) && ended.err().contains("no lock module"), "{ended:?}");
    let ended = run(palisade_at("redis://127.0.0.1:1", "gate g --token 1"));
    assert_eq!(ended.code(), Some(196), "{ended:?}");
}
