//! Nodes that are down while a command waits for a lock, or leads.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::ChildStderr;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::fixture::{Nodes, Running, palisade_at, read, run, wait_dead};
use crate::harness::{Frozen, Setup, wait_until};

/// Kills two of three nodes, which lose their data.
fn take_away(nodes: &mut Nodes) {
    nodes.servers[1..].iter_mut().for_each(crate::harness::Server::kill);
}

/// Starts the two nodes again.
fn bring_back(nodes: &mut Nodes) {
    for server in &mut nodes.servers[1..] {
        server.start_again();
        server.lift();
    }
}

/// Returns the lines that a program prints on standard error.
fn says(running: &mut Running) -> impl Iterator<Item = String> + use<> {
    let stderr: ChildStderr = running.0.stderr.take().unwrap();
    BufReader::new(stderr).lines().map(Result::unwrap)
}

#[test]
fn a_majority_that_is_away_at_the_start_is_waited_for() {
    let mut nodes = Nodes::start(3);
    take_away(&mut nodes);
    let lines = [
        "exec --wait 1h a -- echo done",
        "exec b -- echo done",
        "lock --wait 1h c",
        "acquire --wait 1h d --owner me",
        "elect e -- echo done",
    ];
    let mut waiting: Vec<Running> = lines.iter().map(|line| Running::start(nodes.palisade(line))).collect();
    for (line, running) in lines.iter().zip(&mut waiting) {
        let said = says(running).next().unwrap_or_default();
        assert!(
            said.starts_with("palisade: waits for nodes: 1 of 3 nodes can be asked, and 2 are needed"),
            "{line}: {said}"
        );
    }
    bring_back(&mut nodes);
    for (line, running) in lines.iter().zip(waiting) {
        if line.starts_with("lock") {
            wait_until("it is held", || nodes.holding("c") == 3);
            running.terminate();
            continue;
        }
        let ended = running.end();
        assert!(ended.code() == Some(0) && !ended.out().is_empty(), "{line}: {ended:?}");
    }
}

/// A guarded majority is waited for, and named: without a word, a service would seem to hang.
#[test]
fn a_guarded_majority_is_named() {
    let nodes = Nodes::start(3);
    nodes.say("LOCK.GUARD ARM 50000");
    let lines = ["exec a -- true", "lock c", "acquire --wait 1h d --owner me", "elect e -- true", "watch f"];
    let mut waiting: Vec<Running> = lines.iter().map(|line| Running::start(nodes.palisade(line))).collect();
    for (line, running) in lines.iter().zip(&mut waiting) {
        let said = says(running).next().unwrap_or_default();
        let expected = "palisade: waits for nodes: 0 of 3 nodes grant, and 2 are needed: ";
        assert!(said.starts_with(expected) && said.contains("guarded for "), "{line}: {said}");
    }
    waiting.into_iter().for_each(Running::terminate);
}

/// The program waits for the nodes until its limit, and then names those that do not answer.
#[test]
fn they_are_waited_for_as_long_as_was_said() {
    let mut nodes = Nodes::start(3);
    take_away(&mut nodes);
    for line in ["exec --wait 1s k -- true", "acquire --wait 1s k --owner me", "lock --wait 1s k"] {
        let began = Instant::now();
        let ended = run(nodes.palisade(line));
        ended.assert_refused_after(196, "2 of 3 nodes cannot be asked, and 2 are needed");
        assert!(began.elapsed() >= Duration::from_secs(1), "{line}: {ended:?}");
    }
    // A command that does not wait fails at once, with one line.
    for line in ["exec --no-wait k -- true", "acquire k --owner me", "try k"] {
        run(nodes.palisade(line)).assert_refused(196, "1 of 3 nodes can be asked, and 2 are needed");
    }
}

/// One of three nodes is frozen, so the holder is unknown at the end of the wait, and the error says that. `acquire`
/// used to claim that several clients wanted the lock.
#[test]
fn a_holder_that_is_not_known_in_time() {
    let nodes = Nodes::start(3);
    let _holder = nodes.holder("--ttl 60s --note backup k");
    let _frozen = Frozen::new(&nodes.servers[0]);
    let ended = run(nodes.palisade("acquire --wait 1s k --owner me"));
    assert_eq!(ended.code(), Some(195), "{ended:?}");
    assert!(ended.err().contains("it is held"), "{ended:?}");
}

/// Three of five nodes freeze during a wait for a lock. The commands end at the limit, and name no earlier holder as
/// the current one, as they used to.
#[test]
fn a_majority_that_freezes_during_a_wait() {
    const WAIT: Duration = Duration::from_secs(3);
    let nodes = Nodes::start(5);
    let holder = nodes.holder("--note backup k");
    let lines = ["exec --wait 3s k -- true", "lock --wait 3s k", "acquire --wait 3s k --owner me"];
    let waiting = lines.map(|line| (line, Running::start(nodes.palisade(line)), Instant::now()));
    wait_until("all of them wait", || nodes.servers.iter().all(|server| server.info("waiters") == 3));
    let frozen: Vec<_> = nodes.servers[..3].iter().map(Frozen::new).collect();
    for (line, running, began) in waiting {
        let ended = running.end();
        ended.assert_refused(196, "3 of 5 nodes cannot be asked, and 3 are needed");
        assert!(!ended.err().contains("held by backup"), "{line}: {ended:?}");
        // A program is late by a tenth of a second at most. The rest of the limit is for a busy machine, on which three
        // programs end at the same moment.
        let late = began.elapsed().saturating_sub(WAIT);
        assert!(late < Duration::from_millis(800), "{line}: {late:?} after its time");
    }
    drop(frozen);
    holder.terminate();
    // No request is left in a queue after the end.
    nodes.wait_idle();
}

/// Three of five nodes are frozen when a command begins, and answer again before its time is over. The time to connect
/// counts as part of the wait. It used not to, and a wait could take twice its limit.
#[test]
fn what_the_first_connection_takes_is_part_of_the_wait() {
    const WAIT: Duration = Duration::from_secs(4);
    let nodes = Nodes::start(5);
    let _holder = nodes.holder("--ttl 60s k");
    let frozen: Vec<_> = nodes.servers[..3].iter().map(Frozen::new).collect();
    let began = Instant::now();
    let waiting = Running::start(nodes.palisade("lock --wait 4s k"));
    std::thread::sleep(Duration::from_secs(3));
    drop(frozen);
    // Before the end it may print that it waits for nodes.
    waiting.end().assert_refused_after(195, "held by");
    let late = began.elapsed().saturating_sub(WAIT);
    assert!(late < Duration::from_millis(1_500), "{late:?} after its time");
}

/// The servers answer that they are loading their data, and the program waits until they are ready.
#[test]
fn a_node_that_loads_its_data_is_waited_for() {
    let loading = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut asked = [0; 1_024];
                    while let Ok(count @ 1..) = stream.read(&mut asked) {
                        // Each request is one array, which begins with `*`.
                        let requests = asked[..count].iter().filter(|byte| **byte == b'*').count();
                        let said = b"-LOADING Redis is loading the dataset in memory\r\n".repeat(requests);
                        if stream.write_all(&said).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    };
    let addresses = format!("{},{}", loading(), loading());
    let began = Instant::now();
    let ended = run(palisade_at(&addresses, "exec --wait 1s k -- true"));
    ended.assert_refused_after(196, "LOADING");
    assert!(began.elapsed() >= Duration::from_secs(1), "{ended:?}");
}

/// A permanent failure ends the wait at once.
#[test]
fn what_lasts_ends_the_wait() {
    let nodes = Nodes::start(1);
    let socket = nodes.servers[0].address();
    let bare = Setup::new().module_later().start();
    let no_module = bare.address();
    nodes.say("ACL SETUSER weak on >sesame ~* +ping +select");
    for (addresses, ttl, text) in [
        (&no_module, "10s", "no lock module"),
        (&format!("{socket}?db=99"), "10s", "DB index is out of range"),
        (&format!("{socket}?user=weak&pass=sesame"), "10s", "NOPERM"),
        (&format!("{socket}?user=weak&pass=wrong"), "10s", "WRONGPASS"),
        (&socket, "61s", "ERR ttl must be"),
    ] {
        for line in
            ["exec --wait 1h --ttl T k -- true", "acquire --wait 1h --ttl T k --owner me", "elect --ttl T e -- true"]
        {
            let ended = run(palisade_at(addresses, &line.replace('T', ttl)));
            ended.assert_refused(193, text);
        }
    }
}

/// A candidate campaigns again after an outage longer than its lease. The outage used to end it for good.
#[test]
fn a_candidate_outlasts_an_outage() {
    let mut nodes = Nodes::start(3);
    let mut command = nodes.palisade("elect --ttl 2s --grace 300ms e -- sh -c");
    command.arg("echo $PALISADE_TERM >> terms; echo $$ > pid; exec sleep 1000");
    let mut leader = Running::start(command);
    let mut said = says(&mut leader);
    let terms = |nodes: &Nodes| read(&nodes.file("terms")).lines().count();
    for outage in 1..=2 {
        wait_until("it leads", || terms(&nodes) == outage);
        let pid = nodes.wait_file("pid");
        take_away(&mut nodes);
        wait_dead(&pid);
        assert!(said.any(|line| line.starts_with("palisade: waits for nodes: ")), "it says why it does not lead");
        bring_back(&mut nodes);
    }
    wait_until("it leads", || terms(&nodes) == 3);
    leader.terminate();
}

/// A release that too few nodes confirm is reported. The program used to end with the status of its command, without a
/// message about the lock.
#[test]
fn a_release_that_nobody_confirms_is_told() {
    let mut nodes = Nodes::start(3);
    let waits = "echo > begun; until [ -e go ]; do sleep 0.05; done; exit 7";
    let command = Running::start(nodes.exec("--ttl 1m a", waits));
    let mut lock = nodes.palisade("lock --ttl 1m b");
    lock.stdout(File::create(nodes.file("token")).unwrap());
    let lock = Running::start(lock);
    nodes.wait_file("begun");
    nodes.wait_file("token");
    nodes.servers.iter_mut().for_each(crate::harness::Server::kill);
    std::fs::write(nodes.file("go"), "").unwrap();
    lock.signal(Signal::SIGTERM);
    for (key, running, status) in [("a", command, 7), ("b", lock, 143)] {
        let ended = running.end();
        assert_eq!(ended.code(), Some(status), "{ended:?}");
        let said =
            format!("palisade: {key} may stay locked until its lease ends: too few nodes confirmed the release (");
        assert!(ended.err().contains(&said), "{ended:?}");
    }
}
