//! Tokens of a key only grow.

use std::fs;

use crate::harness::{Client, Reply, Server, Setup, error, int, wait_until};

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

/// A proposal of a quorum client that is below the key's last token is not used.
#[test]
fn a_proposal_below_the_last_token_is_not_taken() {
    let server = Server::start();
    let mut client = server.client();
    let mut grant = |proposal: i64| {
        let token = client.say(&format!("LOCK.ACQUIRE k me 60000 FENCE {proposal}")).as_int();
        client.say("LOCK.RELEASE k me");
        token
    };
    let first = grant(1);
    assert!(first > 1);
    for (n, below) in [1, first - 1, first, first + 1].into_iter().enumerate() {
        assert_eq!(grant(below), first + 1 + n as i64, "{below}");
    }
}

/// After a crash tokens are ahead of the clock, above the ceiling in the state file. A node whose disk is then lost
/// starts above them. It used to start at the clock, below them.
#[test]
fn a_node_whose_disk_was_lost_does_not_fall_back() {
    let short = &["max-ttl", "1000", "max-clock-skew", "200"];
    let mut server = Setup::new().aof().module_arguments(short).start();
    let mut last = 0;
    for round in 0..4 {
        // Refused while the node is guarded, and until its state is on disk.
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
    // Released keys are in no file, so only the clock keeps new tokens above theirs.
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
    // Without a state file, the second incarnation knows only what was loaded.
    for setup in [Setup::new().aof(), Setup::new().option("save", "3600 1")] {
        let mut server = setup.module_arguments(&["state-file", "", "max-clock-skew", "60000"]).start();
        // The clock of the first incarnation is a minute ahead, that of the second is not.
        let token = server.client().say("LOCK.ACQUIRE k me 60000").as_int();
        server.shutdown("");
        server.start_again_with(|setup| setup.module_arguments(&["state-file", "", "max-clock-skew", "0"]));
        server.lift();
        let mut client = server.client();
        assert_eq!(client.say("LOCK.BREAK k"), int(token));
        assert!(client.say("LOCK.ACQUIRE k me 60000").as_int() > token);
    }
}

/// The farthest that LOCK.FENCE may raise a token above the node's clock, in microseconds: a year.
const YEAR_US: i64 = 365 * 86_400_000_000;

/// A holder may raise its lock's token. After a restart other keys start near the clock all the same. They used to
/// start at the raised token, so far ahead that no other node raised its tokens to it.
#[test]
fn a_raised_token_takes_no_other_key_along() {
    let mut server = Setup::new().aof().start();
    let mut client = server.client();
    let clock = |client: &mut Client| client.say("LOCK.NODE").field("clock_us").as_int();
    client.insist("LOCK.ACQUIRE app:1 evil 60000");
    let far = clock(&mut client) + YEAR_US - 60_000_000;
    assert_eq!(client.insist(&format!("LOCK.FENCE app:1 evil {far}")), int(far));
    // The request is answered with NOTYET, and never repeated.
    client.insist("LOCK.ACQUIRE app:2 evil 60000");
    assert!(error(client.say(&format!("LOCK.FENCE app:2 evil {far}"))).starts_with("NOTYET"));
    for end in ["SHUTDOWN", "kill"] {
        if end == "kill" {
            server.kill()
        } else {
            server.shutdown("")
        }
        server.start_again();
        let mut client = server.client();
        let token = client.insist("LOCK.ACQUIRE k me 1000").as_int();
        assert!(token < clock(&mut client) + 20_000_000, "{token} after {end}");
        client.say("LOCK.RELEASE k me");
    }
    let mut client = server.client();
    client.say("LOCK.RELEASE app:1 evil");
    assert!(client.insist("LOCK.ACQUIRE app:1 me 1000").as_int() > far, "its own order is kept");
    client.say("LOCK.RELEASE app:1 me");
    // The key's own order is kept even if nothing is left of its lock but the ceiling on disk.
    server.shutdown("");
    server.start_again();
    assert!(server.client().insist("LOCK.ACQUIRE app:1 me 1000").as_int() > far);
}

#[test]
fn a_token_is_raised_to_a_year_ahead_of_the_clock_at_most() {
    let server = Server::start();
    let mut client = server.client();
    client.insist("LOCK.ACQUIRE k me 60000");
    for token in [1 << 52, client.say("LOCK.NODE").field("clock_us").as_int() + YEAR_US + 60_000_000] {
        let refused = error(client.insist(&format!("LOCK.FENCE k me {token}")));
        assert!(refused.contains("too far ahead of this node's clock"), "{refused}");
    }
}

/// A node's tokens are far ahead because its wall clock showed a time a century from now. Locks cannot be acquired on
/// it together with other nodes, until an operator raises the floor of the others; no token falls.
#[test]
fn an_operator_brings_nodes_together_again() {
    const FAR: i64 = 1 << 52;
    let mut server = Setup::new().aof().start();
    let mut client = server.client();
    let before = client.insist("LOCK.ACQUIRE k me 60000").as_int();
    assert!(error(client.insist(&format!("LOCK.FENCE k me {}", FAR + 5))).starts_with("ERR token must be at most"));
    let floor = client.say("LOCK.FLOOR").as_int();
    assert!(floor < before);
    assert_eq!(client.say(&format!("LOCK.FLOOR RAISE {FAR}")), int(FAR));
    assert_eq!(client.say(&format!("LOCK.FLOOR RAISE {before}")), int(FAR), "it never falls");
    assert_eq!(client.insist(&format!("LOCK.FENCE k me {}", FAR + 5)), int(FAR + 5));
    let token = client.insist("LOCK.ACQUIRE other me 60000").as_int();
    assert!(token > FAR);
    server.kill();
    server.start_again();
    let mut client = server.client();
    assert!(client.say("LOCK.FLOOR").as_int() >= FAR);
    assert!(client.insist("LOCK.ACQUIRE third me 60000").as_int() > token);
    for (line, why) in [
        ("LOCK.FLOOR RAISE 9007199254740991", "ERR RAISE needs a token from 1 to 6755399441055744"),
        ("LOCK.FLOOR RAISE", "ERR option RAISE needs a value after it"),
        ("LOCK.FLOOR 5", "ERR unknown option: this command takes RAISE token"),
        ("LOCK.FLOOR RAISE 5 RAISE 6", "ERR option RAISE was given twice: give it once"),
        ("LOCK.FLOOR RAISE 5 6", "ERR unknown option: this command takes RAISE token"),
    ] {
        assert_eq!(error(client.say(line)), why);
    }
}
