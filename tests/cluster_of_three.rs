//! Three masters: each lock is granted by one of them, waiters follow a moving slot, a replica takes over.

use std::time::{Duration, Instant};

use crate::harness::{
    Client, Frozen, Member, Reply, Server, Setup, error, guarded_ms, int, joined, joined_with, null, pass_first_tokens,
    text, wait_until, waits,
};

/// The slot of `k`, of the second master.
const SLOT: i64 = 7629;

fn three() -> [Member; 3] {
    joined(["0 5460", "5461 10922", "10923 16383"])
}

/// Sends the line to the member that the redirection `reply` names.
fn say_where_redirected<'a>(members: &'a [Member], reply: Reply, line: &str) -> (&'a Member, Client, Reply) {
    let reply = error(reply);
    let address = reply.split(' ').nth(2).unwrap_or_else(|| panic!("no redirection: {reply}"));
    let port = address.rsplit(':').next().unwrap();
    let member = members.iter().find(|member| member.server.port().to_string() == port).unwrap();
    let mut client = member.client();
    let reply = client.say(line);
    (member, client, reply)
}

#[test]
fn each_lock_is_granted_by_one_master_alone() {
    let members = three();
    let mut grants = [0; 3];
    for n in 0..60 {
        let line = format!("LOCK.ACQUIRE lock{n} me 60000");
        let mut granted = vec![];
        for (m, member) in members.iter().enumerate() {
            match member.client().insist(&line) {
                Reply::Int(_) => granted.push(m),
                reply => {
                    let (owner, _, _) = say_where_redirected(&members, reply, "PING");
                    assert!(owner.id != member.id);
                }
            }
        }
        assert_eq!(granted.len(), 1, "lock{n}");
        grants[granted[0]] += 1;
    }
    assert!(grants.iter().all(|&count| count > 0), "{grants:?}");
    for (member, count) in members.iter().zip(grants) {
        assert_eq!(member.server.info("held"), count);
    }
}

/// A slot is migrated as operators do it: the keys by MIGRATE, the slot by SETSLOT on every master. Waiters follow the
/// lock, and are served at its new master.
#[test]
fn waiters_follow_a_held_lock_and_are_served_where_it_went() {
    let members = three();
    let [_, source, target] = &members;
    let mut me = source.client();
    let token = me.insist("LOCK.ACQUIRE k me 60000 NOTE n").as_int();
    let lines = ["LOCK.ACQUIRE k a 60000 WAIT 60000", "LOCK.WAIT k b 60000"];
    let mut waiters: Vec<Client> = vec![];
    for line in lines {
        let mut waiter = source.client();
        waiter.ask(line);
        waiters.push(waiter);
        wait_until("it waits", || source.server.info("waiters") == waiters.len() as u64);
    }
    target.client().say(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", source.id));
    me.say(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", target.id));
    assert_eq!(me.say(&format!("MIGRATE 127.0.0.1 {} k 0 60000", target.server.port())), text("OK"));
    for waiter in &mut waiters {
        assert!(waiter.hear().is_error("TRYAGAIN"));
    }
    for member in [target, source, &members[0]] {
        assert_eq!(member.client().say(&format!("CLUSTER SETSLOT {SLOT} NODE {}", target.id)), text("OK"));
    }
    // The waiters repeat their requests, are redirected, and join the queue there.
    let mut there: Vec<Client> = vec![];
    for (waiter, line) in waiters.iter_mut().zip(lines) {
        let moved = error(waiter.say(line));
        assert!(moved.starts_with(&format!("MOVED {SLOT} ")), "{moved}");
        let mut client = target.client();
        client.ask(line);
        there.push(client);
        wait_until("it waits there", || target.server.info("waiters") == there.len() as u64);
    }
    let (_, mut holder, reply) = say_where_redirected(&members, me.say("LOCK.INFO k"), "LOCK.INFO k");
    assert_eq!((reply.field("token"), reply.field("note"), reply.field("waiters")), (int(token), text("n"), int(2)));
    assert_eq!(holder.say("LOCK.RELEASE k me"), int(0));
    assert!(there[0].hear().as_list()[0].as_int() > token);
    assert_eq!(holder.say("LOCK.RELEASE k a"), int(0));
    assert_eq!(there[1].hear(), int(1));
    assert_eq!((source.server.info("held"), source.server.info("waiters")), (0, 0));
}

/// Locks of the other masters are unaffected while one is frozen.
#[test]
fn a_master_that_is_away_concerns_its_own_locks_alone() {
    let members = three();
    let mut first = members[0].client();
    let token = members[1].client().insist("LOCK.ACQUIRE k me 60000").as_int();
    let frozen = Frozen::new(&members[1].server);
    let mut granted = 0;
    for n in 0..30 {
        if let Reply::Int(_) = first.insist(&format!("LOCK.ACQUIRE lock{n} me 60000")) {
            granted += 1;
        }
    }
    assert!(granted > 0);
    drop(frozen);
    assert_eq!(members[1].client().say("LOCK.EXTEND k me 60000"), int(token));
}

/// A replica takes over by command: its master stops writes, sends the rest of its stream, and becomes a replica. The
/// new master is guarded.
#[test]
fn a_replica_takes_over_and_is_guarded() {
    let members = joined(["0 5460", "5461 10922", "10923 16383", ""]);
    let [_, old, _, replica] = &members;
    let mut copy = replica.client();
    wait_until("it follows", || copy.say(&format!("CLUSTER REPLICATE {}", old.id)) == text("OK"));
    let mut me = old.client();
    wait_until("the replica is known", || me.say("INFO replication").as_text().contains("connected_slaves:1"));
    let token = me.insist("LOCK.ACQUIRE k me 60000").as_int();
    assert_eq!(me.say("WAIT 1 60000"), int(1));
    // These are more waiters than can be answered in one pass.
    let queues = |n| waits(&old.server, &format!("LOCK.ACQUIRE k owner{n} 60000 WAIT 60000")).0;
    let waiters: Vec<_> = (0..150).map(queues).collect();
    take_over(&mut copy);
    for mut waiter in waiters {
        let told = error(waiter.hear());
        assert!(["UNBLOCKED", "MOVED", "TRYAGAIN"].contains(&told.split(' ').next().unwrap()), "{told}");
        if told.contains("ask its master") {
            let most = old.server.info("answers_most");
            assert!((1..=50).contains(&most), "it is the module that sends them away, in slices: {most}");
        }
    }
    assert_eq!((old.server.info("waiters"), old.server.info("hand_overs")), (0, 0));
    assert!(guarded_ms(copy.say("LOCK.ACQUIRE k you 1000")) > 30_000);
    assert_eq!(copy.say("LOCK.NODE").field("guard_reason"), text("promotion"));
    assert_eq!(copy.say("LOCK.INFO k").field("token"), int(token));
    assert_eq!(replica.server.info("guarded_slots"), 0, "the slots that it took over need no guard beside");
    wait_until("the old master follows", || me.say("ROLE").as_list()[0] == text("slave"));
    assert!(me.say("LOCK.ACQUIRE k you 1000").is_error("MOVED"));
    assert_eq!(copy.say("LOCK.RELEASE k me"), int(0));
    replica.client().say("LOCK.GUARD LIFT");
    assert!(copy.insist("LOCK.ACQUIRE k you 1000").as_int() > token);
    assert_eq!(copy.insist("LOCK.RELEASE k nobody"), null());
}

/// A master becomes a replica in the middle of a BREAK of many grants. The operator gets an answer, although not every
/// server ends its clients' waits by itself.
#[test]
fn a_master_that_steps_down_answers_a_break_that_is_under_way() {
    const HOLDERS: i64 = 50_000;
    let no_skew = |setup: Setup| setup.module_arguments(&["max-clock-skew", "0"]);
    let members = joined_with(["0 5460", "5461 10922", "10923 16383", ""], no_skew);
    let [_, old, _, replica] = &members;
    let mut copy = replica.client();
    wait_until("it follows", || copy.say(&format!("CLUSTER REPLICATE {}", old.id)) == text("OK"));
    let mut me = old.client();
    wait_until("the replica is known", || me.say("INFO replication").as_text().contains("connected_slaves:1"));
    pass_first_tokens(&mut me, "k");
    let shared = me.insist("LOCK.ACQUIRE k r 60000 SHARED").as_int();
    let lines: Vec<_> = (1..HOLDERS).map(|n| format!("LOCK.ACQUIRE k r{n} 60000 SHARED FENCE {shared}")).collect();
    assert!(me.pipeline(&lines).iter().all(|reply| *reply == int(shared)));
    let mut operator = old.client();
    // After a stop the server reads its input in order: BREAK begins, and no slice of it is done while writes are
    // paused.
    let frozen = Frozen::new(&old.server);
    operator.ask(&format!("LOCK.BREAK k TOKEN {shared}"));
    me.ask("CLIENT PAUSE 600000 WRITE");
    drop(frozen);
    assert_eq!(me.hear(), text("OK"));
    assert_ne!(me.say("LOCK.INFO k"), null(), "it is under way");
    take_over(&mut copy);
    let told = error(operator.hear());
    assert!(["READONLY", "UNBLOCKED"].contains(&told.split(' ').next().unwrap()), "{told}");
    wait_until("the old master follows", || me.say("ROLE").as_list()[0] == text("slave"));
}

/// Makes this replica take over. The server gives up a fail-over after 5 s, which may be too short on a busy machine,
/// so it is repeated.
fn take_over(replica: &mut Client) {
    let mut asked: Option<Instant> = None;
    wait_until("it took over", || {
        if asked.is_none_or(|asked| asked.elapsed() > Duration::from_secs(6))
            && replica.say("CLUSTER FAILOVER") == text("OK")
        {
            asked = Some(Instant::now());
        }
        replica.say("ROLE").as_list()[0] == text("master")
    });
}

/// A node without a port names its state file after its socket; one with a port, after the port, even in a cluster.
#[test]
fn state_files_are_named_after_where_the_server_listens() {
    let alone = Server::start();
    assert!(alone.dir().join("lock-node-socket.state").exists(), "port 0, no TLS: the socket");
    let with_port = Setup::new().replication().start();
    assert!(with_port.dir().join(format!("lock-node-{}.state", with_port.port())).exists());
    let members = three();
    for member in &members {
        assert!(member.server.dir().join(format!("lock-node-{}.state", member.server.port())).exists());
    }
}
