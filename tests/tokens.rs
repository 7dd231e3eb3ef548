//! Tokens of a key only ever grow.

use std::fs;

use crate::harness::{Reply, Server, Setup, int, wait_until};

const LIMIT: i64 = 1 << 53;

#[test]
fn strictly_grow_whatever_happens_to_the_key() {
    let server = Server::start();
    let mut client = server.client();
    let mut last = 0;
    let ends = ["LOCK.RELEASE k me", "LOCK.BREAK k", "DEL k", "UNLINK k", "FLUSHALL", "FLUSHDB ASYNC", "RENAME k l"];
    for end in ends.iter().cycle().take(200) {
        let token = client.say("LOCK.ACQUIRE k me 60000").as_int();
        assert!(token > last && token < LIMIT, "{token} after {last}, before {end}");
        last = token;
        client.say(end);
        client.lift();
    }
    assert!(server.info("token_high") >= last as u64);
}

/// A crash leaves tokens ahead of the clock, above the ceiling that was in the state file: a node whose disk was lost after that
/// began at the clock, and fell back.
#[test]
fn a_node_whose_disk_was_lost_does_not_fall_back() {
    let short = &["max-ttl", "1000", "max-clock-skew", "200"];
    let mut server = Setup::new().aof().module_arguments(short).start();
    let mut last = 0;
    for round in 0..4 {
        // Refused while it is guarded, and until what it needs is on the disk.
        wait_until("it grants", || match server.client().say("LOCK.ACQUIRE k me 1000") {
            Reply::Int(token) => {
                assert!(token > last, "{token} after {last}, round {round}");
                last = token;
                true
            }
            _ => false,
        });
        server.client().say("LOCK.RELEASE k me");
        server.kill();
        if round == 2 {
            for entry in fs::read_dir(server.dir()).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
            }
        }
        server.start_again();
    }
}

#[test]
fn stay_above_those_of_an_earlier_life_without_any_data() {
    // Released keys are in no file: only the clock keeps their tokens behind.
    let mut server = Server::start();
    let mut last = 0;
    for _ in 0..3 {
        let mut client = server.client();
        for _ in 0..100 {
            let token = client.say("LOCK.ACQUIRE k me 60000").as_int();
            assert!(token > last, "{token} after {last}");
            last = token;
            client.say("LOCK.RELEASE k me");
        }
        drop(client);
        server.kill();
        server.start_again();
        server.lift();
    }
}

#[test]
fn stay_above_those_of_loaded_locks() {
    // Without a state file: what was loaded is all that the second life knows.
    for setup in [Setup::new().aof(), Setup::new().option("save", "3600 1")] {
        let mut server = setup.module_arguments(&["state-file", "", "max-clock-skew", "60000"]).start();
        // The first life starts a minute ahead, as the second does not.
        let token = server.client().say("LOCK.ACQUIRE k me 60000").as_int();
        server.shutdown("");
        server.start_again_with(|setup| setup.module_arguments(&["state-file", "", "max-clock-skew", "0"]));
        server.lift();
        let mut client = server.client();
        assert_eq!(client.say("LOCK.BREAK k"), int(token));
        assert!(client.say("LOCK.ACQUIRE k me 60000").as_int() > token);
    }
}
