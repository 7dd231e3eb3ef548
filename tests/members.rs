//! A node's knowledge of its quorum's set of nodes: LOCK.MEMBERS and LOCK.SETMEMBERS.

use std::fs;

use sha2::{Digest, Sha256};

use crate::harness::{
    Client, Reply, SHORT, Server, Setup, StateFolder, error, int, null, state_file, text, wait_until,
};

const BALLOT: &str = "00000000000000000000000000000007";

/// Returns a list with the node itself and others.
fn list(id: &str, others: &[u8]) -> String {
    let others = others.iter().map(|n| format!(",{n:032x}@10.0.0.{n}:6379"));
    format!("{id}@10.0.0.1:6379{}", others.collect::<String>())
}

fn id(server: &Server) -> String {
    server.client().say("LOCK.NODE").field("id").as_text()
}

fn decide(server: &Server, version: u64, list: &str) -> Reply {
    server.client().insist(&format!("LOCK.SETMEMBERS {version} DECIDED MEMBERS {list}"))
}

fn version(client: &mut Client) -> i64 {
    client.say("LOCK.MEMBERS").field("version").as_int()
}

/// Waits until the server closes the connection, which answers nothing any longer.
fn assert_ended(mut client: Client) {
    wait_until("the connection ends", || client.try_say("PING").is_none());
}

#[test]
fn connections_of_clients_with_an_older_version_end() {
    let server = Server::start();
    let one = list(&id(&server), &[2, 3]);
    let mut foreign = server.client();
    let [mut nobody, mut ahead] = [server.client(), server.client()];
    assert_eq!(nobody.say("LOCK.MEMBERS JOIN 0").field("version"), int(0));
    assert_eq!(ahead.say("LOCK.MEMBERS JOIN 1").field("version"), int(0), "the node is told later");
    assert!(nobody.say("LOCK.ACQUIRE k me 5000").as_int() > 0);
    let mut waiting = server.client();
    waiting.say("LOCK.MEMBERS JOIN 0");
    waiting.ask("LOCK.WAIT k you 60000");
    wait_until("it waits", || server.client().say("LOCK.INFO k").field("waiters") == int(1));

    assert_eq!(decide(&server, 1, &one), int(1));
    assert_ended(nobody);
    wait_until("it left the queue", || foreign.say("LOCK.INFO k").field("waiters") == int(0));
    assert_eq!(ahead.say("LOCK.MEMBERS").field("members"), text(&one));
    assert_eq!(version(&mut foreign), 1, "who never joined is let alone");
    assert_eq!(decide(&server, 1, &one), int(0), "it is no news");
    assert_eq!(version(&mut ahead), 1);

    // Commands after a JOIN with an old version are not performed.
    let mut late = server.client();
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    assert!(late.try_pipeline(&[words("LOCK.MEMBERS JOIN 0"), words("LOCK.ACQUIRE other me 5000")]).is_none());
    assert_eq!(foreign.say("LOCK.INFO other"), null());
    let mut late = server.client();
    assert_eq!(late.say("LOCK.MEMBERS JOIN 0").field("members"), text(&one), "it is told which");
    assert_ended(late);
}

/// JOIN is refused in a MULTI: if it closed the connection, locks that later commands of the MULTI take would be left
/// behind.
#[test]
fn nobody_joins_within_a_transaction() {
    let server = Server::start();
    let one = list(&id(&server), &[2, 3]);
    assert_eq!(decide(&server, 1, &one), int(1));
    let mut client = server.client();
    for version in [0, 1] {
        client.say("MULTI");
        client.say(&format!("LOCK.MEMBERS JOIN {version}"));
        client.say(&format!("LOCK.ACQUIRE k{version} me 60000"));
        let replies = client.say("EXEC").as_list();
        assert!(matches!(&replies[0], Reply::Error(text) if text.starts_with("ERR JOIN is about the connection")));
        assert!(replies[1].as_int() > 0, "its client is told of it");
    }
}

#[test]
fn the_next_version_waits_for_leases_and_for_nobody_else() {
    let promise = |version: u64| format!("LOCK.SETMEMBERS {version} PROMISE {BALLOT}");
    let two_versions = |server: &Server| {
        let (mut client, id) = (server.client(), id(server));
        assert_eq!(decide(server, 1, &list(&id, &[2, 3])), int(1));
        assert_eq!(client.insist(&promise(2)).field("accepted"), null(), "the first has the nodes that there were");
        assert_eq!(decide(server, 2, &list(&id, &[2, 3, 4])), int(1));
        (client, id)
    };
    // Leases are a minute long, because a busy machine may need more than a moment between two lines.
    let server = Server::start();
    let (mut client, _) = two_versions(&server);
    let refused = error(client.insist(&promise(3)));
    assert!(refused.starts_with("UNSETTLED "), "{refused}");
    assert!(client.say("LOCK.MEMBERS").field("unsettled_ms").as_int() > 0);
    let server = Setup::new().module_arguments(&SHORT).start();
    let (mut client, id) = two_versions(&server);
    wait_until("leases of 300 ms have ended", || !client.say(&promise(3)).is_error("UNSETTLED"));
    assert_eq!(client.say("LOCK.MEMBERS").field("unsettled_ms"), int(0));
    let apart = format!("LOCK.SETMEMBERS 3 ACCEPT {BALLOT} MEMBERS {} FLOOR 1", list(&id, &[2]));
    assert!(
        error(client.say(&apart)).starts_with("ERR MEMBERS must be the nodes of the set with one more or one less")
    );
    assert!(client.say(&promise(4)).is_error("OLDMEMBERS"));
    let elsewhere = "00000000000000000000000000000002@a:1";
    assert_eq!(decide(&server, 7, elsewhere), int(1), "it missed some");
    assert!(client.say(&promise(8)).is_error("NOTMEMBER"));
    assert!(error(client.say(&format!("LOCK.SETMEMBERS 6 DECIDED MEMBERS {elsewhere}"))).starts_with("OLDMEMBERS 7 "));
    let other = "00000000000000000000000000000003@a:1";
    assert!(client.say(&format!("LOCK.SETMEMBERS 7 DECIDED MEMBERS {other}")).is_error("OLDMEMBERS"));
}

#[test]
fn who_accepts_a_version_issues_larger_tokens_than_clients_of_the_one_before_had() {
    let server = Server::start();
    let mut client = server.client();
    let token = client.insist("LOCK.ACQUIRE k me 5000").as_int();
    let floor = client.insist(&format!("LOCK.SETMEMBERS 1 PROMISE {BALLOT}")).field("floor").as_int();
    assert!(floor >= token);
    let far = floor + 60_000_000;
    let accept = format!("LOCK.SETMEMBERS 1 ACCEPT {BALLOT} MEMBERS {} FLOOR {far}", list(&id(&server), &[]));
    assert_eq!(client.insist(&accept), text("OK"));
    assert!(client.insist("LOCK.ACQUIRE other me 5000").as_int() > far);
}

/// If the node is killed right after each answer, it still knows what it answered.
#[test]
fn what_was_answered_survives_a_crash() {
    let mut server = Setup::new().aof().module_arguments(&SHORT).start();
    let id = id(&server);
    let (smaller, larger) = ("00000000000000000000000000000006", "00000000000000000000000000000008");
    let list = list(&id, &[2, 3]);
    let promise = |ballot: &str| format!("LOCK.SETMEMBERS 1 PROMISE {ballot}");
    server.client().insist(&promise(BALLOT));
    server.kill();
    server.start_again();
    assert!(server.client().insist(&promise(smaller)).is_error("OUTBID"));
    server.client().insist(&format!("LOCK.SETMEMBERS 1 ACCEPT {BALLOT} MEMBERS {list} FLOOR 1"));
    server.kill();
    server.start_again();
    let promised = server.client().insist(&promise(larger));
    assert_eq!((promised.field("accepted"), promised.field("members")), (text(BALLOT), text(&list)));
    decide(&server, 1, &list);
    server.kill();
    server.start_again();
    assert_eq!(server.client().say("LOCK.MEMBERS").field("members"), text(&list));
    let mut older = server.client();
    assert_eq!(older.say("LOCK.MEMBERS JOIN 0").field("version"), int(1));
    assert_ended(older);
    decide(&server, 2, &format!("{list},{:032x}@10.0.0.4:6379", 4));
    server.shutdown("NOSAVE");
    server.start_again();
    let members = server.client().say("LOCK.MEMBERS");
    assert_eq!(members.field("version"), int(2));
    wait_until("leases from before the restart have ended", || {
        !server.client().say(&format!("LOCK.SETMEMBERS 3 PROMISE {BALLOT}")).is_error("UNSETTLED")
    });
}

/// Clients with an older version of the set could be granted a lock between the node's answer and the moment from which
/// it waits for their leases. So they are disconnected first, also if the disk fails.
#[test]
fn connections_end_also_where_the_disk_fails() {
    let folder = StateFolder::new();
    let server = folder.setup().start();
    let list = list(&id(&server), &[2, 3]);
    let mut older = server.client();
    assert_eq!(older.say("LOCK.MEMBERS JOIN 0").field("version"), int(0));
    assert!(older.insist("LOCK.ACQUIRE k me 5000").as_int() > 0);
    folder.take_away();
    let mut client = server.client();
    let decided = format!("LOCK.SETMEMBERS 1 DECIDED MEMBERS {list}");
    assert!(client.say(&decided).is_error("NOTYET"));
    assert_ended(older);
    folder.bring_back();
    assert_eq!(client.insist(&decided), int(0), "it was told before");
    assert_eq!(version(&mut client), 1);
}

/// Without its state file the server is another node, which has no vote, whatever it knew before.
#[test]
fn a_node_that_lost_its_state_file_is_no_member() {
    let mut server = Setup::new().aof().start();
    let before = id(&server);
    decide(&server, 1, &list(&before, &[2, 3]));
    server.kill();
    fs::remove_file(state_file(&server)).unwrap();
    server.start_again();
    server.lift();
    let mut client = server.client();
    assert_eq!(version(&mut client), 0);
    assert_ne!(id(&server), before);
    decide(&server, 1, &list(&before, &[2, 3]));
    let promise = client.insist(&format!("LOCK.SETMEMBERS 2 PROMISE {BALLOT}"));
    assert!(promise.is_error("NOTMEMBER"), "{promise:?}");
}

/// No client can send a version above the largest. A node whose state file has a larger one, from an earlier module,
/// starts with the largest.
#[test]
fn versions_are_those_that_clients_can_name() {
    const LARGEST: u64 = (1 << 53) - 1;
    let mut server = Setup::new().aof().module_arguments(&SHORT).start();
    let members = list(&id(&server), &[2, 3]);
    let too_large = error(decide(&server, LARGEST + 1, &members));
    assert_eq!(too_large, "ERR version must be an integer from 0 to 9007199254740991");
    assert_eq!(decide(&server, LARGEST, &members), int(1));
    let joins = |server: &Server| {
        let mut client = server.client();
        let told = version(&mut client);
        client.say(&format!("LOCK.MEMBERS JOIN {told}"));
        assert_eq!((told, client.say("PING")), (LARGEST as i64, text("PONG")), "the connection stays");
    };
    joins(&server);
    let next = format!("LOCK.SETMEMBERS {LARGEST} PROMISE {BALLOT}");
    assert!(server.client().say(&next).is_error("OLDMEMBERS"), "there is no next one");
    server.shutdown("NOSAVE");
    let path = state_file(&server);
    let state =
        fs::read_to_string(&path).unwrap().replace(&format!("members {LARGEST} "), "members 18446744073709551615 ");
    let body = &state[..state.find("check ").unwrap()];
    let check: String = Sha256::digest(body.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    fs::write(&path, format!("{body}check {check}\n")).unwrap();
    server.start_again();
    joins(&server);
    assert_eq!(server.client().say("LOCK.MEMBERS").field("members"), text(&members));
}

#[test]
fn requests_that_are_none_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let form = "ERR LOCK.SETMEMBERS takes";
    let members = list(&id(&server), &[]);
    for (line, answer) in [
        ("LOCK.SETMEMBERS 1", form),
        ("LOCK.SETMEMBERS 1 DECIDED", form),
        (&format!("LOCK.SETMEMBERS 1 PROMISE {BALLOT} ACCEPT {BALLOT}"), form),
        (&format!("LOCK.SETMEMBERS 1 ACCEPT {BALLOT} MEMBERS {members}"), form),
        (&format!("LOCK.SETMEMBERS 1 DECIDED MEMBERS {members} FLOOR 5"), form),
        ("LOCK.SETMEMBERS 1 DECIDED MEMBERS a:1", "ERR MEMBERS must be 1 to 31 nodes"),
        ("LOCK.SETMEMBERS x DECIDED", "ERR version"),
        ("LOCK.SETMEMBERS 1 PROMISE +0000000000000000000000000000007", "ERR the ballot"),
        ("EVAL return(redis.call('LOCK.MEMBERS','JOIN','1')) 0", "ERR JOIN is about the connection"),
        (&format!("LOCK.SETMEMBERS 0 DECIDED MEMBERS {members}"), "OLDMEMBERS 0"),
    ] {
        let said = error(client.say(line));
        assert!(said.contains(answer), "{line}: {said}");
    }
    assert_eq!(version(&mut client), 0);
    let state = fs::read_to_string(state_file(&server)).unwrap_or_default();
    assert!(!state.contains("members"), "{state}");
}
