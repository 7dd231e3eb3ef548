//! Holders without a heartbeat that are killed: the next client gets the lock within the ttl.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Client, Setup, int, wait_until};
use crate::page::{INHERITED, KEEPALIVE, Page};
use crate::running::shell;
use crate::{Holder, Recipe, build, limit_to_the_rules_of_an_application, name_and_version, writes_pages};

/// The lock of every holder.
const KEY: &str = "orders:import";
const TTL: Duration = Duration::from_millis(2_000);

/// The time beyond the ttl that a busy machine may need.
const SLACK: Duration = Duration::from_secs(3);

/// Runs a holder until it has had the lock for longer than its ttl, and kills it as `kill -9` does, right after a
/// renewal. Measures when the next client has the lock. Checks that the holder sent nothing between the grant and the
/// kill.
pub fn frees_the_lock_within_its_ttl(recipe: &Recipe) {
    build(recipe.holder.build);
    let server = Setup::new().replication().start();
    let mut operator = server.client();
    limit_to_the_rules_of_an_application(&mut operator);
    // The holder logs in, as a user that may do everything.
    let logged_in = || {
        let mut client = server.client();
        client.say("AUTH operator x");
        client
    };
    let (mut monitor, mut next) = (logged_in(), logged_in());
    monitor.say("MONITOR");

    let mut holder = Running::start(&recipe.holder, server.port());
    let token = holder.token();
    wait_until("it is held for longer than its ttl", || {
        let info = operator.say(&format!("LOCK.INFO {KEY}"));
        assert_eq!(info.field("token"), int(token), "the lock has been lost");
        info.field("held").as_int() > TTL.as_millis() as i64 + 500
    });
    assert!(operator.info_field("lock_renewals") >= 3);
    let connection = connection_of_the_holder(&mut operator);
    let socket = socket(connection, server.port());
    // Only the holder's process may have the socket: another one would keep the lock.
    assert_eq!(processes_with(&socket), [holder.process()], "not the holder's process alone has its connection");
    let inherited = if is_inherited(holder.process(), &socket) { "yes" } else { "no" };

    next.ask(&format!("LOCK.ACQUIRE {KEY} next 60000 WAIT 60000"));
    wait_until("the next one waits", || operator.info_field("lock_waiters") == 1);
    // Right after a renewal the lease lasts longest.
    let renewals = operator.info_field("lock_renewals");
    wait_until("it is prolonged once more", || operator.info_field("lock_renewals") > renewals);
    let killed = Instant::now();
    kill_process(holder.process(), Signal::KILL).unwrap();
    let granted = next.hear();
    let took = killed.elapsed();

    assert!(granted.as_list()[0].as_int() > token, "{granted:?}");
    assert!(took < TTL + SLACK, "granted after {took:?}");
    assert_eq!((operator.info_field("lock_expiries"), operator.info_field("lock_keepalives")), (1, 0));
    let said = said_over(connection, &mut monitor, &mut operator);
    let last = said.last().expect("it has asked for the lock");
    assert!(last.contains("\"LOCK.ACQUIRE\""), "it sent something while it worked: {said:#?}");

    let (server, took) = (name_and_version(&mut operator), took.as_millis());
    println!("{}: {took} ms from kill -9 to the next grant, on {server}; inherited: {inherited}", recipe.client);
    if writes_pages() {
        Page::change(KEEPALIVE, |page| page.took(recipe.client, &server, took, inherited));
    } else {
        let said = Page::read(KEEPALIVE).row(recipe.client).expect("a row")[INHERITED].clone();
        assert_eq!(inherited, said, "docs/keepalive.md says something else: make client-pages");
    }
}

/// A running holder, which is killed when this is dropped.
struct Running(Child);

impl Running {
    fn start(holder: &Holder, port: u16) -> Self {
        // The shell is replaced by the holder, so that the kill reaches the holder.
        Self(shell(&format!("exec {}", holder.run), port).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn process(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Returns the token that the holder prints once it has the lock.
    fn token(&mut self) -> i64 {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().expect("not asked for twice")).read_line(&mut line).unwrap();
        let token = line.trim().strip_prefix("token: ").and_then(|token| token.parse().ok());
        token.unwrap_or_else(|| panic!("no token, but {line:?}. If the client is missing: make setup-clients"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the client's port of the holder's connection, the only one that is not over the Unix socket.
fn connection_of_the_holder(operator: &mut Client) -> u16 {
    let list = operator.say("CLIENT LIST").as_text();
    let address = |line: &str| line.split(' ').find_map(|field| Some(field.strip_prefix("addr=")?.to_owned()));
    let ports = list.lines().filter_map(|line| address(line)?.rsplit_once(':')?.1.parse().ok());
    let ports: Vec<u16> = ports.filter(|port| *port > 0).collect();
    assert_eq!(ports.len(), 1, "not one connection: {list}");
    ports[0]
}

/// Returns the socket of a connection between two ports of this machine, as /proc names it.
fn socket(from: u16, to: u16) -> String {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let inode = tables.iter().flat_map(|table| table.lines().skip(1)).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
        ((port(fields[1]), port(fields[2])) == (Some(from), Some(to))).then(|| fields[9].to_owned())
    });
    format!("socket:[{}]", inode.expect("an open connection"))
}

/// Returns the processes that have a socket.
fn processes_with(socket: &str) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let processes = numbers.filter_map(Pid::from_raw);
    processes.filter(|process| descriptor(*process, socket).is_some()).collect()
}

/// Returns the descriptor of a socket in a process.
fn descriptor(process: Pid, socket: &str) -> Option<String> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).ok()?.flatten();
    let mut with_socket =
        descriptors.filter(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == socket));
    with_socket.next()?.file_name().into_string().ok()
}

/// Returns true if programs that the process starts inherit this socket, because it is not closed on exec.
fn is_inherited(process: Pid, socket: &str) -> bool {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let descriptor = descriptor(process, socket).expect("it has the socket");
    let info = fs::read_to_string(format!("/proc/{}/fdinfo/{descriptor}", process.as_raw_nonzero())).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
    u32::from_str_radix(flags.trim(), 8).unwrap() & CLOSE_ON_EXEC == 0
}

/// Returns the commands on a connection that MONITOR has shown so far.
fn said_over(port: u16, monitor: &mut Client, operator: &mut Client) -> Vec<String> {
    const END: &str = "all-seen";
    operator.say(&format!("ECHO {END}"));
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|line: &String| line.contains(END)) {
        seen.push(monitor.hear().as_text());
    }
    seen.retain(|line| line.split(']').next().is_some_and(|from| from.ends_with(&format!(":{port}"))));
    seen
}
