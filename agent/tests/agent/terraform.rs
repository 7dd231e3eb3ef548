//! Tests Terraform's state locks over HTTP, as the documentation of its HTTP backend has the protocol.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use palisade_agent::limits::{BODY_BYTES_MAX, HTTP_TIME};
use palisade_agent::{Config, Http, Password};
use tempfile::TempDir;

use crate::fixture::{Nodes, Running, nowhere};
use crate::harness::{Server, Setup, grants, int, null, patience, wait_until};

/// An answer: its status, and its body.
type Answer = (u16, String);

/// Returns a lock info of the run with this ID, as Terraform sends it.
fn info(id: &str) -> String {
    format!(
        "{{\"ID\":\"{id}\",\"Operation\":\"OperationTypeApply\",\"Info\":\"\",\"Who\":\"{id}@web-1\",\"Version\":\"1.11.4\",\
         \"Created\":\"2026-11-27T10:00:00.5Z\",\"Path\":\"\"}}"
    )
}

/// Changes the configuration of an agent so that it serves Terraform, with its file in this folder.
fn serves(folder: &TempDir) -> impl FnOnce(Config) -> Config {
    let http = Http { address: ([127, 0, 0, 1], 0).into(), credentials: None, locks: folder.path().join("locks") };
    |config| Config { http: Some(http), ..config }
}

/// Starts an agent that serves Terraform, and returns the folder of its file too.
fn started(nodes: &Nodes) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (nodes.agent_with(serves(&folder)), folder)
}

/// Sends the bytes of a request, and returns the answer.
fn exchange(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(patience())).unwrap();
    stream.write_all(request).unwrap();
    hear(stream)
}

/// Reads an answer, and with it the end of the connection.
fn hear(mut stream: TcpStream) -> Answer {
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {said:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Returns the bytes of a request.
fn request(method: &str, target: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {length}\r\n\r\n{body}").into()
}

fn ask(agent: &Running, method: &str, target: &str, body: &str) -> Answer {
    exchange(agent.http(), &request(method, target, "", body))
}

/// The run with this ID takes the lock of `/shop`.
fn lock(agent: &Running, id: &str) -> Answer {
    ask(agent, "LOCK", "/shop", &info(id))
}

/// The run with this ID unlocks `/shop`. Returns the status.
fn unlock(agent: &Running, id: &str) -> u16 {
    ask(agent, "UNLOCK", "/shop", &info(id)).0
}

const TAKEN: (u16, &str) = (200, "");

fn is(answer: &Answer, expected: (u16, &str)) -> bool {
    (answer.0, &*answer.1) == expected
}

#[test]
fn the_protocol_as_documented() {
    let nodes = Nodes::start(3);
    let (agent, _folder) = started(&nodes);
    assert!(is(&lock(&agent, "ann"), TAKEN));
    let shown = agent.client().say("LOCK.INFO terraform:shop");
    assert_eq!((shown.field("owner").as_text(), shown.field("note").as_text()), ("ann".to_owned(), info("ann")));
    assert!(is(&lock(&agent, "bob"), (423, &info("ann"))), "the body is the lock info of the holder");
    assert!(is(&lock(&agent, "ann"), TAKEN), "a request that is sent again");
    assert!(is(&ask(&agent, "LOCK", "/other", &info("bob")), TAKEN), "each path is a lock of its own");
    assert_eq!(unlock(&agent, "bob"), 409);
    assert!(is(&lock(&agent, "bob"), (423, &info("ann"))), "another's UNLOCK changes nothing");
    assert_eq!(unlock(&agent, "ann"), 200);
    assert_eq!(agent.client().say("LOCK.INFO terraform:shop"), null());
    assert_eq!(unlock(&agent, "ann"), 409, "it holds nothing any more");
    assert!(is(&lock(&agent, "bob"), TAKEN));
    assert_eq!(ask(&agent, "DELETE", "/shop", &info("bob")).0, 200, "for proxies that pass no other method");
    assert!(is(&ask(&agent, "PUT", "/shop", &info("ann")), TAKEN));
}

/// A client other than Terraform holds the lock. It is shown as a lock info too, because Terraform understands nothing
/// else.
#[test]
fn a_holder_that_is_no_terraform() {
    let nodes = Nodes::start(3);
    let (agent, _folder) = started(&nodes);
    agent.client().say("LOCK.ACQUIRE terraform:shop me 60000 NOTE by-hand");
    assert!(is(&lock(&agent, "ann"), (423, r#"{"ID":"me","Info":"by-hand"}"#)));
}

#[test]
fn one_of_many_at_once_gets_it() {
    let nodes = Nodes::start(3);
    let (agent, _folder) = started(&nodes);
    const MANY: usize = 200;
    let mut open = vec![];
    for n in 0..MANY {
        let mut stream = TcpStream::connect(agent.http()).unwrap();
        stream.set_read_timeout(Some(patience())).unwrap();
        stream.write_all(&request("LOCK", "/shop", "", &info(&format!("run-{n}")))).unwrap();
        open.push(stream);
    }
    let answers: Vec<Answer> = open.into_iter().map(hear).collect();
    let winner = answers.iter().position(|answer| is(answer, TAKEN)).unwrap();
    let of_winner = info(&format!("run-{winner}"));
    let refused = answers.iter().filter(|answer| is(answer, (423, &of_winner))).count();
    assert_eq!(refused, MANY - 1, "{answers:?}");
}

/// `terraform force-unlock` sends no body, `tofu force-unlock` a lock info with the ID alone.
#[test]
fn a_lock_is_ended_by_force() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(vec![]);
    let nodes = Nodes::start(3);
    let folder = tempfile::tempdir().unwrap();
    let tell = |line: &str| TOLD.lock().unwrap().push(line.to_owned());
    let agent = nodes.agent_with(|config| Config { tell, ..serves(&folder)(config) });
    assert!(is(&lock(&agent, "ann"), TAKEN));
    assert_eq!(ask(&agent, "UNLOCK", "/shop", r#"{"ID":"ann"}"#).0, 200);
    assert!(is(&lock(&agent, "bob"), TAKEN));
    // A lock that the nodes do not break is kept.
    let permit = |rule: &str| {
        nodes.0.iter().for_each(|node| drop(node.client().say(&format!("ACL SETUSER default {rule}"))));
    };
    permit("-lock.break");
    assert_eq!(ask(&agent, "UNLOCK", "/shop", "").0, 503);
    assert!(fs_text(folder.path()).contains("bob"), "it is still extended");
    permit("+lock.break");
    assert_eq!(ask(&agent, "UNLOCK", "/shop", "").0, 200);
    assert!(TOLD.lock().unwrap().iter().any(|line| line.contains("unlocked by force") && line.contains("bob@web-1")));
    assert_eq!(ask(&agent, "UNLOCK", "/shop", "").0, 409, "nobody holds it");
    assert_eq!(unlock(&agent, "bob"), 409);
    assert_eq!(fs_text(folder.path()), "{}");
    assert!(is(&lock(&agent, "ann"), TAKEN));
}

/// Returns the content of the file of locks in a folder.
fn fs_text(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("locks")).unwrap()
}

/// The locks outlast their leases, and the loss of one is noticed. Then its UNLOCK says so.
#[test]
fn locks_are_extended_until_they_are_lost() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(vec![]);
    const LEASE_MS: i64 = 3_000;
    let start = || Setup::new().module_arguments(&["max-ttl", "3000"]).start();
    let nodes = Nodes((0..3).map(|_| start()).collect());
    let folder = tempfile::tempdir().unwrap();
    let tell = |line: &str| TOLD.lock().unwrap().push(line.to_owned());
    let agent = nodes.agent_with(|config| Config { tell, ..serves(&folder)(config) });
    assert!(is(&lock(&agent, "ann"), TAKEN));
    let mut me = agent.client();
    wait_until("it outlasts two leases", || me.say("LOCK.INFO terraform:shop").field("held").as_int() > 2 * LEASE_MS);
    assert_eq!(fs_text(folder.path()), r#"{"terraform:shop":"ann"}"#);
    nodes.say("LOCK.BREAK terraform:shop");
    wait_until("the loss is told", || {
        TOLD.lock().unwrap().iter().any(|line| line.starts_with("terraform:shop is lost"))
    });
    assert_eq!(fs_text(folder.path()), "{}");
    assert_eq!(unlock(&agent, "ann"), 409);
}

/// Three of five nodes die: nothing is granted, and nothing that was begun stays. When they are back, all works again.
#[test]
fn without_a_majority() {
    let mut nodes = Nodes::start(5);
    let (agent, _folder) = started(&nodes);
    assert!(is(&lock(&agent, "ann"), TAKEN));
    wait_until("all nodes have it", || nodes.holding("terraform:shop") == 5);
    nodes.0[..3].iter_mut().for_each(Server::kill);
    for (method, target) in [("LOCK", "/other"), ("UNLOCK", "/shop"), ("UNLOCK", "/other")] {
        let (status, text) = ask(&agent, method, target, &info("ann"));
        assert!(status == 503 && text.starts_with("NOQUORUM "), "{method} {target}: {status} {text}");
    }
    let left = || nodes.0[3..].iter().map(|server| server.info("held")).sum::<u64>();
    wait_until("nothing is left of what was begun", || left() == 0);
    nodes.0[..3].iter_mut().for_each(Server::start_again);
    nodes.0[..3].iter().for_each(Server::lift);
    wait_until("it grants again", || is(&ask(&agent, "LOCK", "/other", &info("bob")), TAKEN));
    assert_eq!(ask(&agent, "UNLOCK", "/other", &info("bob")).0, 200);
    assert_eq!(ask(&agent, "UNLOCK", "/shop", &info("ann")).0, 409, "it was released");
}

#[test]
fn garbage_is_refused_with_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Running::start(&nowhere(), serves(&folder));
    let long = format!("/{}", "x".repeat(513));
    let too_much = info(&"x".repeat(BODY_BYTES_MAX));
    let name = info(&"x".repeat(240));
    for (method, target, body, status, words) in [
        ("LOCK", "/shop", "", 400, "no lock info"),
        ("LOCK", "/shop", "{", 400, "no lock info"),
        ("LOCK", "/shop", "[1]", 400, "no lock info"),
        ("LOCK", "/shop", r#"{"ID":7}"#, 400, "no lock info"),
        ("LOCK", "/shop", r#"{"ID":""}"#, 400, "no lock info"),
        ("UNLOCK", "/shop", r#"{"Who":"ann"}"#, 400, "no lock info"),
        ("LOCK", "/shop", &name, 400, "owner must be 1 to 239 bytes long"),
        ("LOCK", "/shop", &too_much, 413, "up to 1024 bytes, as the note of a lock: shorten Info"),
        ("LOCK", "/", "{}", 400, "the path names the lock"),
        ("LOCK", "/shop?ID=1", "{}", 400, "leave out what follows the ?"),
        ("LOCK", &long, "{}", 414, "up to 512 bytes"),
        ("GET", "/shop", "", 405, "`address` of a state is elsewhere"),
        ("POST", "/shop", "{}", 405, "LOCK and UNLOCK only"),
    ] {
        let (got, text) = ask(&agent, method, target, body);
        assert!(
            got == status && text.contains(words) && text.ends_with('\n'),
            "{method} {target} {body}: {got} {text}"
        );
    }
    for bytes in [&b"\0\0\0\0\r\n\r\n"[..], b"*1\r\n$4\r\nPING\r\n", b"LOCK\r\n\r\n"] {
        let mut stream = TcpStream::connect(agent.http()).unwrap();
        stream.write_all(bytes).unwrap();
        drop(stream);
    }
    // A client that sends far too much, and reads only then, reads the answer all the same.
    assert_eq!(exchange(agent.http(), &request("LOCK", "/shop", "", &"x".repeat(1_000_000))).0, 413);
    assert_eq!(ask(&agent, "GET", "/shop", "").0, 405);
}

/// Clients send headers, and then a byte of the body each second. They keep nobody out, and are cut off.
#[test]
fn slow_clients_are_cut_off() {
    let nodes = Nodes::start(3);
    let (agent, _folder) = started(&nodes);
    let slow = || {
        let mut stream = TcpStream::connect(agent.http()).unwrap();
        stream.write_all(b"LOCK /shop HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{").unwrap();
        stream
    };
    let mut open: Vec<TcpStream> = (0..200).map(|_| slow()).collect();
    assert!(is(&lock(&agent, "ann"), TAKEN));
    let mut last = open.pop().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut sent = Duration::ZERO;
    loop {
        let _ = last.write_all(b" ");
        match last.read(&mut [0; 1_000]) {
            Err(why) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&why.kind()) => {
                sent += Duration::from_secs(1)
            }
            _ => break,
        }
        assert!(sent < HTTP_TIME + patience(), "it is still served");
    }
}

#[test]
fn credentials_are_needed_where_they_are_set() {
    let nodes = Nodes::start(3);
    let folder = tempfile::tempdir().unwrap();
    let agent = nodes.agent_with(|config| {
        let mut config = serves(&folder)(config);
        config.http.as_mut().unwrap().credentials = Some(Password::new(b"ann:secret\n").unwrap());
        config
    });
    // The second has the same user and another password, the third is no base64.
    for (headers, status) in [
        ("", 401),
        ("Authorization: Basic YW5uOnNlY3JlVA==\r\n", 403),
        ("Authorization: Basic ann:secret\r\n", 403),
        ("Authorization: Bearer YW5uOnNlY3JldA==\r\n", 403),
        ("Authorization: Basic YW5uOnNlY3JldA==\r\n", 200),
    ] {
        let (got, text) = exchange(agent.http(), &request("LOCK", "/shop", headers, &info("ann")));
        assert_eq!(got, status, "{headers}: {text}");
    }
}

/// Another agent with the same file continues the locks of one that has ended, and an UNLOCK sent to it succeeds.
#[test]
fn the_next_agent_continues() {
    let nodes = Nodes::start(3);
    let (agent, folder) = started(&nodes);
    assert!(is(&lock(&agent, "ann"), TAKEN));
    agent.end().unwrap();
    let age = |field: &str| grants(&mut nodes.0[0].client(), "terraform:shop")[0].field(field).as_int();
    wait_until("the lease is some time old", || age("extended") > 500);
    let agent = nodes.agent_with(serves(&folder));
    wait_until("the next agent extends it", || age("extended") < age("held") - 500);
    assert!(is(&lock(&agent, "bob"), (423, &info("ann"))));
    assert!(is(&lock(&agent, "ann"), TAKEN));
    assert_eq!(unlock(&agent, "ann"), 200);
    assert_eq!(nodes.say("EXISTS terraform:shop"), [int(0), int(0), int(0)]);
}

/// A request that the nodes are still answering when the agent ends is answered.
#[test]
fn an_end_waits_for_what_was_asked() {
    let nodes = Nodes::start(3);
    let (mut agent, _folder) = started(&nodes);
    let silent = TcpStream::connect(agent.http()).unwrap();
    let address = agent.http();
    let asked: Vec<_> = (0..20)
        .map(|n| thread::spawn(move || exchange(address, &request("LOCK", &format!("/{n}"), "", &info("ann")))))
        .collect();
    wait_until("some are answered", || nodes.0[0].info("held") > 0);
    agent.begin_end();
    let answers: Vec<thread::Result<Answer>> = asked.into_iter().map(thread::JoinHandle::join).collect();
    agent.end().unwrap();
    // Those that came too late were not accepted, and hold nothing.
    let taken = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|answer| is(answer, TAKEN))).count();
    wait_until("no lock is held but those", || nodes.0.iter().all(|server| server.info("held") == taken as u64));
    drop(silent);
}
