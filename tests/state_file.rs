//! The state that a node keeps across its incarnations: its identity, and a ceiling that all its tokens stay below.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{
    Client, Frozen, Reply, Server, Setup, StateFolder, assert_guarded, error, held, int, not_here, null, read,
    state_file, text, wait_until,
};

#[test]
fn a_state_file_that_cannot_be_read_proves_nothing_and_is_kept_aside() {
    let damage: [(&str, fn(&str) -> String, &str); 6] = [
        ("absent", |_| String::new(), ""),
        ("empty", |_| String::new(), "is damaged"),
        ("zeros, as a power cut leaves them", |text| "\0".repeat(text.len()), "is damaged"),
        ("cut short", |text| text[..text.len() / 2].to_owned(), "is damaged"),
        ("changed", |text| text.replace("incarnation 1", "incarnation 9"), "is damaged"),
        ("of the future", |text| text.replace("palisade-node 2", "palisade-node 9"), "is of version 9"),
    ];
    for (what, change, logged) in damage {
        let (mut server, token) = held(Setup::new().aof());
        let id = server.client().say("LOCK.NODE").field("id");
        server.kill();
        let path = state_file(&server);
        let text = read(path.clone());
        match change(&text) {
            _ if what == "absent" => fs::remove_file(&path).unwrap(),
            changed => fs::write(&path, changed).unwrap(),
        }
        server.start_again();
        assert!(server.log().contains(logged), "{what}: {}", server.log());
        assert_ne!(server.client().say("LOCK.NODE").field("id"), id, "{what}: a node without a memory is a new node");
        assert_guarded(&server, token);
        let aside = if what == "of the future" { ".other-version" } else { ".damaged" };
        let kept = PathBuf::from(format!("{}{aside}", path.display()));
        assert_eq!(kept.exists(), what != "absent", "{what}");
    }
}

#[test]
fn a_node_keeps_its_identity_and_counts_its_lives() {
    let (mut server, _) = held(Setup::new().aof());
    let id = server.client().say("LOCK.NODE").field("id");
    assert_eq!(id.as_text().len(), 32);
    for life in 2..5 {
        server.kill();
        server.start_again();
        let node = server.client().say("LOCK.NODE");
        assert_eq!((node.field("id"), node.field("incarnation")), (id.clone(), int(life)));
        assert_eq!((node.field("role"), node.field("protocol")), (text("master"), int(1)));
        assert_eq!(node.field("max_ttl"), int(60_000));
        assert!(node.field("clock_us").as_int() > 1 << 50);
    }
    assert_ne!(Server::start().client().say("LOCK.NODE").field("id"), id);
}

#[test]
fn two_servers_do_not_share_a_state_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shared.state");
    let arguments = ["state-file", path.to_str().unwrap()];
    let mut first = Setup::new().module_arguments(&arguments).start();
    let log = Setup::new().module_arguments(&arguments).refused();
    assert!(log.contains("another server uses the state file"), "{log}");
    assert!(first.client().say("LOCK.ACQUIRE k me 1000").as_int() > 0);
    first.kill();
    Setup::new().module_arguments(&arguments).start();
}

#[test]
fn a_disk_that_fails_refuses_grants_at_the_ceiling_and_resumes() {
    let folder = StateFolder::new();
    let server = folder.setup().start();
    let mut client = server.client();
    let token = client.say("LOCK.ACQUIRE k me 60000").as_int();
    // The folder disappears, so nothing can be written.
    folder.take_away();
    wait_until("the failure is noticed", || server.info("state_file_failing") == 1);
    assert!(server.log().contains("the state file cannot be written"));
    let mut last = token;
    wait_until("the ceiling is reached", || {
        client.say("LOCK.RELEASE k me");
        match client.say("LOCK.ACQUIRE k me 60000") {
            Reply::Error(text) => text.starts_with("NOTYET 10 "),
            reply => {
                assert!(reply.as_int() > last);
                last = reply.as_int();
                assert!(last as u64 <= server.info("token_ceiling"));
                false
            }
        }
    });
    assert_eq!(client.say("LOCK.RELEASE k me"), null());
    folder.bring_back();
    assert!(client.insist("LOCK.ACQUIRE k me 60000").as_int() > last);
    wait_until("the recovery is noticed", || server.info("state_file_failing") == 0);
    assert!(server.log().contains("the state file can be written again"));
}

/// The answer comes once the node serves, so a command right behind LIFT is served.
#[test]
fn lift_is_answered_when_the_node_serves() {
    let folder = StateFolder::new();
    let server = folder.setup().start();
    let mut client = server.client();
    let lines = ["LOCK.GUARD ARM 60000", "LOCK.GUARD LIFT", "LOCK.EXTEND nothing nobody 1"].map(str::to_owned);
    for _ in 0..20 {
        assert_eq!(client.pipeline(&lines), [int(60_000), int(0), null()]);
    }
    folder.take_away();
    for line in ["LOCK.GUARD ARM 60000", "LOCK.GUARD LIFT"] {
        assert!(error(client.say(line)).starts_with("NOTYET "), "{line}");
    }
    assert!(error(client.say("LOCK.EXTEND nothing nobody 1")).starts_with("NOTYET "), "it promises nothing meanwhile");
    folder.bring_back();
    assert_eq!(client.say("LOCK.GUARD LIFT"), int(0));
    assert_eq!(client.say("LOCK.EXTEND nothing nobody 1"), null());
}

/// An operator's script lifts a guard many times. A LIFT that changes nothing is neither written nor logged, so it
/// works while the disk fails.
#[test]
fn a_lift_that_changes_nothing_needs_no_disk() {
    let folder = StateFolder::new();
    let server = folder.setup().start();
    let mut client = server.client();
    let lifts = ["LOCK.GUARD LIFT"; 10].map(str::to_owned);
    let lifted = || server.log().matches("an operator lifted the guard").count();
    let before = lifted();
    client.say("LOCK.GUARD ARM 60000");
    assert_eq!(client.pipeline(&lifts), vec![int(0); 10]);
    assert_eq!(lifted(), before + 1);
    folder.take_away();
    assert_eq!(client.pipeline(&lifts), vec![int(0); 10]);
    assert_eq!(client.say("LOCK.EXTEND nothing nobody 1"), null());
    assert_eq!(lifted(), before + 1);
}

/// An operator's script arms the guard many times. An ARM is written only if the file has an earlier end, so that
/// hundreds of them do not each wait for the disk.
#[test]
fn an_arm_that_the_disk_has_already_needs_no_disk() {
    let folder = StateFolder::new();
    let mut server = folder.setup().start();
    let mut client = server.client();
    let arms = |ms: u32| vec![format!("LOCK.GUARD ARM {ms}"); 500];
    let left = |replies: Vec<Reply>| replies.iter().map(Reply::as_int).min().unwrap();
    let begun = Instant::now();
    assert!(left(client.pipeline(&arms(120_000))) > 119_000);
    let written = server.log().matches("this node may have forgotten grants (operator)").count();
    assert!(written <= 2 + begun.elapsed().as_secs() as usize, "{written} writes of 500");
    folder.take_away();
    let ends = Instant::now() + Duration::from_millis(left(client.pipeline(&arms(1_000))) as u64);
    folder.bring_back();
    server.kill();
    server.start_again();
    assert!(server.client().say("LOCK.GUARD").as_int() as u128 >= (ends - Instant::now()).as_millis());
}

/// Uses up the ceiling: the key's next token is above it, for any client, as after a proposal or with a clock that is
/// ahead.
fn use_up_the_ceiling(client: &mut Client) {
    client.insist("LOCK.ACQUIRE k me 60000").as_int();
    let ceiling = client.info_field("lock_token_ceiling");
    let lines = [format!("LOCK.FENCE k me {ceiling}"), "LOCK.RELEASE k me".to_owned()];
    assert_eq!(client.pipeline(&lines), [int(ceiling as i64), int(0)]);
}

#[test]
fn an_acquire_waits_out_a_write_to_the_disk() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let mut waited = [false; 2];
    wait_until("both kinds have waited for the disk", || {
        for (form, waited) in ["", " WAIT 0"].into_iter().zip(&mut waited) {
            use_up_the_ceiling(&mut client);
            let before = server.info("hand_overs");
            let reply = client.say(&format!("LOCK.ACQUIRE k me 60000{form}"));
            let token = if form.is_empty() { reply.as_int() } else { reply.as_list()[0].as_int() };
            assert_eq!(other.say("LOCK.INFO k").field("token"), int(token));
            *waited |= server.info("hand_overs") > before;
            client.say("LOCK.RELEASE k me");
        }
        waited == [true; 2]
    });
}

#[test]
fn an_acquire_that_waits_for_the_disk_in_vain_is_told_so() {
    let folder = StateFolder::new();
    let server = folder.setup().start();
    let (mut client, mut other) = (server.client(), server.client());
    folder.take_away();
    wait_until("the failure is noticed", || server.info("state_file_failing") == 1);
    use_up_the_ceiling(&mut client);
    // A client that cannot be blocked, or one that asks several nodes and repeats by itself, is answered at once.
    let next = client.info_field("lock_token_ceiling") + 1;
    for line in [
        &format!("LOCK.ACQUIRE k me 60000 FENCE {next}"),
        "EVAL return(redis.call('LOCK.ACQUIRE',KEYS[1],'me',60000)) 1 k",
    ] {
        assert!(error(client.say(line)).starts_with("NOTYET "), "{line}");
    }
    assert_eq!(server.info("waiters_most"), 0);
    assert!(error(client.say("LOCK.ACQUIRE k me 60000")).starts_with("NOTYET "));
    assert_eq!((server.info("waiters_most"), server.info("waiters"), server.info("wait_timeouts")), (1, 0, 0));
    // Another request is ahead in the queue, so the answer is Null, not NOTYET.
    let waiter = crate::harness::waits(&server, "LOCK.ACQUIRE k first 60000 WAIT 60000");
    assert_eq!(other.say("LOCK.ACQUIRE k me 60000"), null());
    folder.bring_back();
    let mut waiter = waiter.0;
    assert!(waiter.hear().as_list()[0].as_int() as u64 >= next);
}

#[test]
fn proposals_of_a_quorum_client() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.insist("LOCK.ACQUIRE k me 60000").as_int();
    // A new node's first tokens are ahead of its clock by the skew: no proposal exceeds them before that time has
    // passed.
    wait_until("the clock is past the first token", || client.say("LOCK.NODE").field("clock_us").as_int() > first);
    let clock = client.say("LOCK.NODE").field("clock_us").as_int();
    let mut again = |proposal: i64| {
        client.say("LOCK.RELEASE k me");
        client.insist(&format!("LOCK.ACQUIRE k me 60000 FENCE {proposal}")).as_int()
    };
    let proposed = clock + 500_000;
    assert_eq!(again(proposed), proposed, "taken");
    assert_eq!(again(proposed), proposed + 1, "equal to the last: one more");
    assert_eq!(again(first), proposed + 2, "lower: one more");
    assert_eq!(again(clock + 3_600_000_000), proposed + 3, "an hour ahead: ignored");
    assert_eq!(again((1 << 53) - 1), proposed + 4);
    let held = proposed + 4;
    // The second round of a quorum acquire: the token is raised, never lowered, and bounded.
    assert_eq!(client.say(&format!("LOCK.FENCE k me {held}")), int(held));
    assert_eq!(client.say("LOCK.FENCE k me 1"), int(held), "lower is no error");
    assert_eq!(client.say(&format!("LOCK.FENCE k you {}", held + 5)), null());
    assert_eq!(client.say(&format!("LOCK.FENCE k me {}", held + 5)), int(held + 5));
    assert_eq!(client.say("LOCK.INFO k").field("token"), int(held + 5));
    let far = held + 7_200_000_000;
    assert_eq!(client.insist(&format!("LOCK.FENCE k me {far}")), int(far), "hours ahead: after a write to the disk");
    assert!(error(client.say("LOCK.FENCE k me 4503599627370497")).starts_with("ERR token must be at most"));
    client.say("LOCK.RELEASE k me");
    assert!(client.insist("LOCK.ACQUIRE k you 60000").as_int() > far);
}

#[test]
fn a_clock_set_back_between_two_lives_brings_no_token_back() {
    for back in [3_600, 86_400] {
        let mut server = Setup::new().wall_clock().start();
        server.wall_clock().set(0);
        let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
        server.kill();
        server.wall_clock().set(-back);
        server.start_again();
        server.lift();
        let mut client = server.client();
        assert!(client.insist("LOCK.ACQUIRE k me 60000").as_int() > token, "{back}");
    }
}

#[test]
fn paused_writes_stop_neither_the_ceiling_nor_the_server() {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let replica = Setup::new().replication().start();
    let mut client = master.client();
    replica.client().say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    wait_until("the replica is known", || client.say("INFO replication").as_text().contains("connected_slaves:1"));
    for n in 0..100 {
        client.insist(&format!("LOCK.ACQUIRE k{n} me {}", 10 * n + 1));
    }
    client.say("CLIENT PAUSE 100000 WRITE");
    let first = master.info("token_ceiling");
    wait_until("the ceiling moves on", || master.info("token_ceiling") > first);
    let second = master.info("token_ceiling");
    wait_until("and again, past the time at which replicas are told", || master.info("token_ceiling") > second);
    client.say("CLIENT UNPAUSE");
    wait_until("what had ended is gone", || client.say("DBSIZE") == int(0));
    wait_until("on the replica too", || replica.client().say("DBSIZE") == int(0));
}

/// Returns the module's argument for a state file at `path`.
fn on(path: &Path) -> Setup {
    Setup::new().module_arguments(&["state-file", path.to_str().unwrap()])
}

/// Runs a program of the system. Returns true if it succeeded.
fn run(line: &str) -> bool {
    let mut words = line.split(' ');
    Command::new(words.next().unwrap()).args(words).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn what_is_no_regular_file_is_refused_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("folder")).unwrap();
    assert!(run(&format!("mkfifo {}", path("pipe").display())));
    let _socket = UnixListener::bind(path("socket")).unwrap();
    let mut cases = vec![("folder", "it is a folder"), ("pipe", "it is a pipe"), ("socket", "it is a socket")];
    // A device like /dev/null, which root could replace by renaming a file over it.
    if run(&format!("mknod {} c 1 3", path("device").display())) {
        cases.push(("device", "it is a device"));
    } else {
        not_here("who runs the tests may make no device");
    }
    for (name, expected) in cases {
        let kind = fs::symlink_metadata(path(name)).unwrap().file_type();
        let log = on(&path(name)).refused();
        assert!(log.contains(expected), "{name}: {log}");
        assert_eq!(fs::symlink_metadata(path(name)).unwrap().file_type(), kind, "{name}");
    }
    // A folder, a pipe or a broken link in place of the lock file is refused too.
    fs::create_dir(path("a.lock")).unwrap();
    assert!(run(&format!("mkfifo {}", path("b.lock").display())));
    symlink(path("nowhere"), path("c.lock")).unwrap();
    for name in ["a", "b", "c"] {
        let log = on(&path(name)).refused();
        assert!(log.contains("the lock file") && log.contains("cannot be made"), "{name}: {log}");
    }
    assert!(!path("nowhere").exists());
}

#[test]
fn a_file_that_is_not_ours_is_refused_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("letter.txt");
    fs::write(&path, "Dear Sir").unwrap();
    let log = on(&path).refused();
    assert!(log.contains("is not a state file of this module"), "{log}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "Dear Sir");
    // A foreign file is not replaced if it appears while the server runs, either.
    let path = dir.path().join("node.state");
    let server = on(&path).start();
    fs::write(dir.path().join("other"), "Dear Sir").unwrap();
    fs::rename(dir.path().join("other"), &path).unwrap();
    wait_until("it is noticed", || server.info("state_file_failing") == 1);
    assert!(server.log().contains("is not a state file of this module"), "{}", server.log());
    assert_eq!(fs::read_to_string(&path).unwrap(), "Dear Sir");
    fs::remove_file(&path).unwrap();
    wait_until("it is written again", || path.exists() && read(path.clone()).starts_with("palisade-node "));
}

#[test]
fn a_link_stays_and_what_it_points_to_is_replaced() {
    for dangles in [true, false] {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (link, target) = (near.path().join("node.state"), far.path().join("kept.state"));
        symlink(&target, &link).unwrap();
        if !dangles {
            on(&target).start().shutdown("");
        }
        let server = on(&link).start();
        wait_until("it is written", || target.exists() && read(target.clone()).starts_with("palisade-node "));
        let lives = if dangles { 1 } else { 2 };
        assert_eq!(server.client().say("LOCK.NODE").field("incarnation"), int(lives));
        assert_eq!(fs::read_link(&link).unwrap(), target);
        assert_eq!(fs::read_dir(near.path()).unwrap().count(), 1, "all else is beside the file itself");
        let log = on(&target).refused();
        assert!(log.contains("another server uses the state file"), "{log}");
    }
}

#[test]
fn what_lies_beside_the_state_file_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = |suffix: &str| dir.path().join(format!("node.state{suffix}"));
    fs::write(dir.path().join("victim"), "Dear Sir").unwrap();
    symlink(dir.path().join("victim"), path(".new")).unwrap();
    fs::write(path(".damaged"), "kept from an earlier time").unwrap();
    fs::write(path(""), "palisade-node 1\nand then nothing").unwrap();
    let server = on(&path("")).start();
    wait_until("it is written", || server.client().insist("LOCK.ACQUIRE k me 1000").as_int() > 0);
    assert_eq!(fs::read_to_string(dir.path().join("victim")).unwrap(), "Dear Sir");
    assert!(fs::symlink_metadata(path(".new")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(path(".damaged")).unwrap(), "kept from an earlier time");
    assert_eq!(fs::read_to_string(path(".damaged-2")).unwrap(), "palisade-node 1\nand then nothing");
    assert!(server.log().contains("node.state.damaged-2"), "{}", server.log());
}

/// Even if somebody removes the lock file of the state file, a second server must not start as the same node.
#[test]
fn a_second_server_is_refused_also_without_the_lock_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.state");
    let lock = dir.path().join("node.state.lock");
    let first = on(&path).start();
    for round in 0..3 {
        fs::remove_file(&lock).unwrap();
        let log = on(&path).refused();
        assert!(log.contains("another server uses the state file"), "{round}: {log}");
        // In two of the rounds the lock file of the refused server stays. In the other it is removed, and created
        // again.
        if round == 1 {
            fs::remove_file(&lock).unwrap();
        }
        let ceiling = first.info("token_ceiling");
        wait_until("the state is written", || first.info("token_ceiling") > ceiling);
        wait_until("the lock file is there", || lock.exists());
        assert_eq!(first.info("state_file_failing"), 0);
    }
    assert!(first.client().insist("LOCK.ACQUIRE k me 1000").as_int() > 0);
}

/// Both files were removed, and a second server has created its own: the first one must not overwrite files that belong
/// to another server now.
#[test]
fn a_server_whose_state_file_was_taken_promises_nothing_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.state");
    let first = on(&path).start();
    let mut client = first.client();
    client.insist("LOCK.ACQUIRE k me 60000");
    // While the first server is frozen, it cannot write its file again, which would make the second one refuse to
    // start.
    let frozen = Frozen::new(&first);
    fs::remove_file(dir.path().join("node.state.lock")).unwrap();
    fs::remove_file(&path).unwrap();
    let mut second = on(&path).start();
    drop(frozen);
    let id = second.client().say("LOCK.NODE").field("id").as_text();
    wait_until("it is noticed", || client.say("LOCK.EXTEND k me 60000").is_error("NOTYET"));
    for line in ["LOCK.ACQUIRE other me 60000", "LOCK.REENTER k me", "LOCK.FENCE k me 9"] {
        assert!(client.say(line).is_error("NOTYET"), "{line}");
    }
    wait_until("it is told", || first.info("state_file_failing") == 1);
    assert_eq!(first.log().matches("Nothing is promised here from now on").count(), 1, "{}", first.log());
    assert_eq!(client.say("LOCK.RELEASE k me"), int(0));
    assert!(read(path.clone()).contains(&id), "the file is the second one's");
    // The first server grants nothing even after the second has ended: it does not know which tokens that one issued.
    second.kill();
    let mut tries = 0;
    wait_until("it has tried again", || {
        tries += 1;
        // (A request with FENCE is answered at once.)
        assert!(client.say("LOCK.ACQUIRE other me 60000 FENCE 1").is_error("NOTYET"));
        tries > 300
    });
    assert!(read(path).contains(&id));
}

/// The stamp of the last incarnation cannot be replaced: nothing is granted, and the log says so once, not at every
/// attempt.
#[test]
fn a_stamp_that_cannot_be_put_is_told_of_once() {
    let (mut server, _) = held(Setup::new().aof());
    server.kill();
    let stamp = server.dir().join("lock-data.life");
    fs::remove_file(&stamp).unwrap();
    fs::create_dir(&stamp).unwrap();
    fs::write(stamp.join("inside"), "so that it is not removed").unwrap();
    server.start_again();
    let ceiling = server.info("token_ceiling");
    wait_until("it has tried again", || server.info("token_ceiling") > ceiling);
    let mut client = server.client();
    // (A request with FENCE is answered at once.)
    assert!(client.say("LOCK.ACQUIRE other me 60000 FENCE 1").is_error("GUARDED"));
    assert!(client.say("LOCK.GUARD LIFT").is_error("NOTYET"));
    assert!(client.say("LOCK.ACQUIRE other me 60000 FENCE 1").is_error("NOTYET"));
    let told = |what: &str| server.log().matches(what).count();
    assert_eq!(told("nothing is granted until it can be replaced"), 1, "{}", server.log());
    fs::remove_dir_all(&stamp).unwrap();
    assert!(client.insist("LOCK.ACQUIRE other me 60000 FENCE 1").as_int() > 0);
    assert_eq!(told("nothing is granted until it can be replaced"), 1, "{}", server.log());
    assert_eq!(told("the stamp of another incarnation beside the data is gone"), 1, "{}", server.log());
    assert!(read(stamp).starts_with("palisade-data 1"));
}
