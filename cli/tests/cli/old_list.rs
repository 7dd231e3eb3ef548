//! The set of nodes has changed since `--nodes` was written: commands about locks ask the nodes of the set.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fixture::{Ended, Running, palisade_at, run};
use crate::harness::{Server, Setup, int, state_file, wait_until};

fn start(count: usize) -> Vec<Server> {
    (0..count).map(|_| Setup::new().replication().module_arguments(&["max-ttl", "86400000"]).start()).collect()
}

/// Returns the addresses of some of the servers, each after `before`, such as a user.
fn list(servers: &[Server], places: &[usize], before: &str) -> String {
    places.iter().map(|&place| format!("{before}127.0.0.1:{}", servers[place].port())).collect::<Vec<_>>().join(",")
}

/// Returns the program, whose list has only these of the servers.
fn on(servers: &[Server], places: &[usize], line: &str) -> Command {
    palisade_at(&list(servers, places, ""), line)
}

/// Founds the set with these servers, in this order.
#[track_caller]
fn found(servers: &[Server], places: &[usize]) {
    let members = list(servers, places, "").replace(',', " ");
    well(on(servers, places, &format!("members set {members} --yes")));
}

#[track_caller]
fn well(command: Command) -> Ended {
    let ended = run(command);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    ended
}

/// Sends a command to these servers.
fn say(servers: &[Server], places: &[usize], line: &str) {
    places.iter().for_each(|&place| drop(servers[place].client().say(line)));
}

fn holding(servers: &[Server], key: &str) -> usize {
    servers.iter().filter(|server| server.client().say(&format!("EXISTS {key}")) == int(1)).count()
}

/// The list has three of five nodes. A majority of the five holds a lock, of which the list has one node.
#[test]
fn a_lock_that_a_majority_of_the_set_holds_is_shown_and_broken() {
    let servers = start(5);
    found(&servers, &[0, 1, 2, 3, 4]);
    say(&servers, &[2, 3, 4], "LOCK.ACQUIRE k me 60000 NOTE web-1");
    let mut waiters: Vec<_> = servers[2..].iter().map(Server::client).collect();
    waiters.iter_mut().for_each(|waiter| waiter.ask("LOCK.ACQUIRE k other 60000 WAIT 600000 NOTE web-2"));
    wait_until("it waits", || servers[2..].iter().all(|server| server.info("waiters") == 1));
    let old = [0, 1, 2];
    let info = well(on(&servers, &old, "info k")).out();
    assert!(info.starts_with("k is held by web-1 for ") && info.contains("3 of 5\n"), "{info}");
    let json = |line: &str| run(on(&servers, &old, &format!("{line} --json"))).json();
    let why = json("why k");
    assert_eq!((&why["state"], &why["grants"][0]["nodes"]), (&"held".into(), &3.into()), "{why}");
    for lock in [json("ls")[0].clone(), json("top --once")["locks"][0].clone()] {
        assert_eq!((&lock["is_held"], &lock["nodes"]), (&true.into(), &3.into()), "{lock}");
    }
    assert_eq!(json("top --once")["nodes"].as_array().map(Vec::len), Some(5));
    let history = json("history k");
    assert_eq!((&history[0]["ended"], &history[0]["nodes"]), (&"held".into(), &3.into()), "{history}");
    let deadlocks = json("deadlocks");
    assert_eq!((&deadlocks["locks"], &deadlocks["parties"]), (&1.into(), &2.into()), "{deadlocks}");
    run(on(&servers, &old, "try k")).assert_refused(194, "k is held by web-1");

    drop(waiters);
    wait_until("nobody waits", || servers.iter().all(|server| server.info("waiters") == 0));
    let broken = well(on(&servers, &old, "break --yes k")).out();
    assert!(broken.starts_with("k: broken on 3 of 5 nodes, token "), "{broken}");
    assert_eq!(holding(&servers, "k"), 0);
    say(&servers, &[2, 3, 4], "LOCK.ACQUIRE k me 60000");
    let token = json("info k")["token"].clone();
    let broken = well(on(&servers, &old, &format!("break --yes k --token {token}"))).out();
    assert_eq!((broken, holding(&servers, "k")), (format!("k: broken on 3 of 5 nodes, token {token}\n"), 0));
}

/// The members that the list lacks are asked as the first node of the list is: with its user and password.
#[test]
fn a_member_that_the_list_lacks_is_asked_by_the_user_of_the_list() {
    let servers = start(3);
    found(&servers, &[0, 1, 2]);
    say(&servers, &[1, 2], "LOCK.ACQUIRE k me 60000 NOTE web-1");
    say(&servers, &[0, 1, 2], "ACL SETUSER operator on >secret ~* +@all");
    say(&servers, &[0, 1, 2], "ACL SETUSER default -lock.info -lock.members");
    let info = well(palisade_at(&list(&servers, &[0], "redis://operator:secret@"), "info k")).out();
    assert!(info.starts_with("k is held by web-1 for ") && info.contains("2 of 3\n"), "{info}");
}

/// Without permission to ask for the set, the program asks the nodes of the list.
#[test]
fn where_nobody_tells_the_set_the_list_is_asked() {
    let servers = start(3);
    found(&servers, &[0, 1, 2]);
    say(&servers, &[0, 1], "LOCK.ACQUIRE k me 60000 NOTE web-1");
    say(&servers, &[0, 1, 2], "ACL SETUSER default -lock.members");
    let info = well(on(&servers, &[0, 1], "info k")).out();
    assert!(info.starts_with("k is held by web-1 for ") && info.contains("2 of 2\n"), "{info}");
}

/// A member lost its state file, so another server answers at its address. What that one grants counts for nobody.
#[test]
fn another_server_at_the_address_of_a_member_has_no_vote() {
    let mut servers = start(3);
    found(&servers, &[0, 1, 2]);
    servers[2].kill();
    fs::remove_file(state_file(&servers[2])).unwrap();
    servers[2].start_again();
    servers[2].lift();
    say(&servers, &[1, 2], "LOCK.ACQUIRE k me 60000");
    let ended = run(on(&servers, &[0], "info k"));
    ended.assert_refused_after(196, "another server is there than the member of the set");
    assert!(ended.out().contains("1 of 3: no majority"), "{ended:?}");
    let broken = run(on(&servers, &[0], "break --yes k")).out();
    assert!(broken.starts_with("k: broken on 1 of 3 nodes"), "{broken}");
    assert_eq!(holding(&servers, "k"), 1);
}

/// `guard` takes the numbers of the list. So `top` gives no member the number that another node has there.
#[test]
fn the_numbers_of_nodes_are_those_of_the_list() {
    let servers = start(4);
    found(&servers, &[3, 1, 0]);
    let old = [0, 1, 2];
    let page = run(on(&servers, &old, "top --once --json")).json();
    let row = |view: &Value| (view["number"].as_u64().unwrap(), view["node"].as_str().unwrap().to_owned());
    let rows: Vec<_> = page["nodes"].as_array().unwrap().iter().map(row).collect();
    let expected = [(4, 3), (2, 1), (1, 0)].map(|(number, place)| (number, list(&servers, &[place], "")));
    assert_eq!(rows, expected);
    run(on(&servers, &old, "guard 4")).assert_refused(193, "4 is none of the nodes");
}

/// The program is killed. Its watchdog releases the lock on all nodes of the set, of which the list has one.
#[test]
fn the_lock_of_a_program_that_was_killed_is_given_back_on_all_members() {
    let servers = start(3);
    found(&servers, &[0, 1, 2]);
    let folder = tempfile::tempdir().unwrap();
    let mut command = on(&servers, &[0], "exec --ttl 1day k -- sh -c");
    command.arg("echo > runs; sleep 1000").current_dir(folder.path());
    let running = Running::start(command);
    wait_until("all have it, and the command runs", || {
        holding(&servers, "k") == 3 && folder.path().join("runs").exists()
    });
    running.signal(Signal::SIGKILL);
    wait_until("the lock is given back", || holding(&servers, "k") == 0);
}
