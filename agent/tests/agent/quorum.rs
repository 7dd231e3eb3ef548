//! Tests an agent with several nodes, of which some fail, and whose clients disconnect.

use crate::fixture::{Nodes, Running, nowhere, packed};
use crate::harness::{Reply, Server, error, int, null, text, wait_until};

#[test]
fn without_nodes_there_is_no_lock_and_each_says_why() {
    let agent = Running::start(&nowhere(), |config| config);
    let mut me = agent.raw();
    for line in ["LOCK.ACQUIRE k me 1000", "LOCK.RELEASE k me", "LOCK.EXTEND k me 1000", "LOCK.INFO k", "LOCK.BREAK k"]
    {
        let said = me.say(line);
        assert!(said.starts_with("-NOQUORUM "), "{line}: {said}");
        // The error names other missing nodes too, up to the one without which there is no majority.
        assert!(said.matches("/nowhere/").count() >= 2 && said.contains("it cannot be reached"), "{said}");
        assert_eq!(said.lines().count(), 1);
    }
    assert!(me.say("LOCK.NODE").contains("unreachable"));
    // An invalid request is refused without asking any node.
    assert!(me.insist("LOCK.ACQUIRE k me 0").starts_with("-ERR ttl must be"));
}

#[test]
fn two_nodes_die_and_a_third() {
    let mut nodes = Nodes::start(5);
    let agent = nodes.agent();
    let mut me = agent.client();
    let token = me.say("LOCK.ACQUIRE k me 60000").as_int();
    wait_until("all nodes have it", || nodes.holding("k") == 5);
    nodes.0[0].kill();
    nodes.0[3].kill();
    // A node that has not answered yet counts only after it has, so this may take a moment.
    let mut extended = null();
    wait_until("three of five extend it", || {
        extended = me.say("LOCK.EXTEND k me 60000");
        !extended.is_error("NOQUORUM")
    });
    assert!(extended.as_int() >= token);
    assert!(me.say(&format!("LOCK.CHECK k {token}")).as_int() > 0);
    assert_eq!(me.say("LOCK.RELEASE k me"), int(0));
    let next = me.say("LOCK.ACQUIRE k you 60000").as_int();
    assert!(next > token);
    nodes.0[1].kill();
    let said = error(me.say("LOCK.EXTEND k you 60000"));
    assert!(said.starts_with("NOQUORUM "), "{said}");
    // INFO uses an answer of the nodes for a moment, so this may take a while.
    wait_until("they are counted", || {
        let info = me.say("INFO palisade").as_text();
        info.contains("nodes_serving:2\r\n") && info.contains("node_failed2:node=")
    });
}

#[test]
fn waiters_get_it_in_turn() {
    let nodes = Nodes::start(5);
    let agent = nodes.agent();
    let mut holder = agent.client();
    holder.say("LOCK.ACQUIRE k holder 60000");
    let mut waiting = vec![];
    for n in 0..3_u64 {
        let mut raw = agent.raw();
        raw.send(&packed(&format!("LOCK.ACQUIRE k w{n} 60000 WAIT 60000")));
        wait_until("it waits", || agent.info("waiting") == n + 1);
        waiting.push(raw);
    }
    assert_eq!(holder.say("LOCK.RELEASE k holder"), int(0));
    for (n, raw) in waiting.iter_mut().enumerate() {
        assert!(raw.hear().starts_with("*2\r\n:"));
        assert_eq!(holder.say("LOCK.INFO k").field("owner").as_text(), format!("w{n}"));
        assert_eq!(holder.say(&format!("LOCK.RELEASE k w{n}")), int(0));
    }
}

#[test]
fn who_hangs_up_leaves_every_queue() {
    let nodes = Nodes::start(5);
    let agent = nodes.agent();
    let mut holder = agent.client();
    holder.say("LOCK.ACQUIRE k holder 60000");
    let mut raw = agent.raw();
    raw.send(&packed("LOCK.ACQUIRE k gone 60000 WAIT 60000"));
    wait_until("it waits", || agent.info("waiting") == 1 && nodes.waiters() == 5);
    // Here the client has also sent more behind the command than the agent reads ahead.
    let mut other = agent.raw();
    other.send(&packed("LOCK.ACQUIRE k gone-too 60000 WAIT 60000"));
    wait_until("it waits too", || agent.info("waiting") == 2);
    other.set_nonblocking();
    let behind = packed(&format!("ECHO {}", "x".repeat(10_000)));
    while other.try_send(&behind) {}
    drop((raw, other));
    wait_until("both have left", || nodes.waiters() == 0);
    assert_eq!(agent.info("blocked_clients"), 0);
    assert_eq!(holder.say("LOCK.RELEASE k holder"), int(0));
    assert_eq!(holder.say("LOCK.INFO k"), null());
}

/// A client sends RELEASE and disconnects before the answer. The lock is released all the same.
#[test]
fn what_is_given_back_is_given_back_without_a_witness() {
    let nodes = Nodes::start(5);
    let agent = nodes.agent();
    let mut operator = agent.client();
    for n in 0..20 {
        let key = format!("k{n}");
        let mut raw = agent.raw();
        assert!(raw.insist(&format!("LOCK.ACQUIRE {key} me 60000")).starts_with(':'));
        raw.send(&packed(&format!("LOCK.EXTEND {key} me 60000")));
        raw.send(&packed(&format!("LOCK.RELEASE {key} me")));
        drop(raw);
        wait_until("it is free", || operator.say(&format!("LOCK.INFO {key}")) == null());
    }
}

#[test]
fn a_kept_lease_ends_with_its_connection() {
    let nodes = Nodes::start(5);
    let agent = nodes.agent();
    let mut operator = agent.client();
    let mut raw = agent.raw();
    assert!(raw.insist("LOCK.ACQUIRE k me 1000 KEEPALIVE 60000").starts_with(':'));
    // Twice the length of the lease has passed, and the lock is still held.
    assert_eq!(operator.say("LOCK.ACQUIRE k you 60000 WAIT 2000"), null());
    drop(raw);
    assert!(operator.say("LOCK.ACQUIRE k you 60000 WAIT 60000").as_list()[0].as_int() > 0);
}

#[test]
fn who_watches_is_told() {
    let nodes = Nodes::start(5);
    let agent = nodes.agent();
    let (mut me, mut watching) = (agent.client(), agent.client());
    watching.ask("LOCK.WATCH k 60000");
    wait_until("it watches", || agent.info("blocked_clients") == 1);
    let token = me.say("LOCK.ACQUIRE k me 60000 NOTE a");
    let told = watching.hear();
    assert_eq!((told.field("owner").as_text(), told.field("note").as_text()), ("me".to_owned(), "a".to_owned()));
    watching.ask(&format!("LOCK.WATCH k 60000 TOKEN {}", token.as_int()));
    wait_until("it watches", || agent.info("blocked_clients") == 1);
    me.say("LOCK.RELEASE k me");
    assert_eq!(watching.hear().field("token"), int(0));
}

/// A holder watches its own lock over a second connection. When the lock is broken, it is answered at once, although
/// its lease lasts for a minute.
#[test]
fn a_holder_hears_that_its_lock_was_taken_away() {
    let nodes = Nodes::start(5);
    let agent = nodes.agent();
    let (mut me, mut watching) = (agent.client(), agent.client());
    let token = me.say("LOCK.ACQUIRE k me 60000 KEEPALIVE 3600000").as_int();
    wait_until("all nodes have it", || nodes.holding("k") == 5);
    watching.ask(&format!("LOCK.WATCH k 86400000 TOKEN {token}"));
    wait_until("it watches", || agent.info("blocked_clients") == 1);
    // The lock is not broken through the agent, and only on a majority of the nodes.
    for server in &nodes.0[..3] {
        assert!(server.client().say("LOCK.BREAK k").as_int() > 0);
    }
    assert_eq!(watching.hear().field("token"), int(0));
}

/// Regression: a reader that watched its own grant was not answered when it was broken, unless it was the oldest.
#[test]
fn one_of_several_readers_hears_that_its_grant_was_taken_away() {
    let nodes = Nodes::start(3);
    let agent = nodes.agent();
    let (mut me, mut watching) = (agent.client(), agent.client());
    let tokens = ["a", "b", "c"].map(|owner| me.say(&format!("LOCK.ACQUIRE k {owner} 60000 SHARED")).as_int());
    wait_until("all nodes have them", || {
        nodes.0.iter().all(|node| node.client().say("LOCK.INFO k").field("holders") == int(3))
    });
    watching.ask(&format!("LOCK.WATCH k 86400000 TOKEN {}", tokens[1]));
    wait_until("it watches", || agent.info("blocked_clients") == 1);
    nodes.0[..2].iter().for_each(|server| break_on(server, "b"));
    assert_eq!(watching.hear().field("holders"), int(2));
}

/// Ends the grant of this owner on a node.
fn break_on(server: &Server, owner: &str) {
    let info = server.client().say("LOCK.INFO k HOLDERS 1000");
    let grants = info.field("grants").as_list();
    let own = grants.iter().find(|grant| grant.field("owner").as_text().starts_with(owner)).unwrap();
    assert!(server.client().say(&format!("LOCK.BREAK k TOKEN {}", own.field("token").as_int())).as_int() > 0);
}

/// Regression: a reader that was alone when it began to watch was not answered when its grant was broken, if nodes had
/// granted the lock to the others in different order.
#[test]
fn a_reader_that_others_joined_hears_that_its_grant_was_taken_away() {
    let nodes = Nodes::start(3);
    let agent = nodes.agent();
    let (mut me, mut watching) = (agent.client(), agent.client());
    let token = me.say("LOCK.ACQUIRE k me 60000 SHARED").as_int();
    wait_until("all nodes have it", || nodes.holding("k") == 3);
    watching.ask(&format!("LOCK.WATCH k 86400000 TOKEN {token}"));
    wait_until("all nodes are watched", || nodes.0.iter().all(|node| node.info("watchers") == 1));
    for (first, server) in nodes.0.iter().enumerate() {
        for n in 0..3 {
            server.client().say(&format!("LOCK.ACQUIRE k other{} 60000 SHARED", (first + n) % 3));
        }
    }
    nodes.0.iter().for_each(|server| break_on(server, "me"));
    assert_eq!(watching.hear().field("holders"), int(3));
}

/// Regression: nodes list 1000 holders. The agent answered that the others hold nothing, and released nothing.
#[test]
fn a_holder_that_nodes_do_not_list_is_not_taken_for_one_that_holds_nothing() {
    let nodes = Nodes::start(3);
    let agent = nodes.agent();
    let mut me = agent.client();
    let oldest = me.say("LOCK.ACQUIRE k oldest 60000 SHARED").as_int();
    wait_until("all nodes have it", || nodes.holding("k") == 3);
    for server in &nodes.0 {
        let mut client = server.client();
        for n in 0..1_000_u64 {
            assert!(client.say(&format!("LOCK.ACQUIRE k o{n}#{n:016x} 60000 SHARED")).as_int() > 0);
        }
    }
    assert_eq!(me.say("LOCK.INFO k").field("holders"), int(1_001));
    assert!(me.say(&format!("LOCK.CHECK k {oldest}")).as_int() > 0);
    for request in [
        "LOCK.CHECK k 9000000000000000",
        "LOCK.WATCH k 100 TOKEN 9000000000000000",
        "LOCK.BREAK k TOKEN 9000000000000000",
        "LOCK.EXTEND k o999 60000",
        "LOCK.RELEASE k o999 LEVEL 1",
        "LOCK.ACQUIRE k o999 60000 SHARED RETRY",
    ] {
        let said = error(me.say(request));
        assert!(said.starts_with("NOQUORUM the lock has more than 1000 holders"), "{request}: {said}");
    }
    assert_eq!(me.say("LOCK.RELEASE k oldest"), int(0));
    assert_eq!(me.say("LOCK.RELEASE k o999 LEVEL 1"), int(0));
}

/// Regression: a BREAK through the agent also forgot the owner that was granted the lock because of it, before all
/// nodes had answered. That owner could take a second permit.
#[test]
fn a_break_does_not_forget_the_next_holder() {
    let nodes = Nodes::start(3);
    let agent = nodes.agent();
    let (mut me, mut next) = (agent.client(), agent.client());
    for owner in ["a", "b"] {
        assert!(me.say(&format!("LOCK.ACQUIRE k {owner} 60000 LIMIT 2")).as_list()[0].as_int() > 0);
    }
    next.ask("LOCK.ACQUIRE k next 60000 LIMIT 2 WAIT 60000");
    wait_until("it waits everywhere", || nodes.0.iter().all(|node| node.info("waiters") == 1));
    // The other two grant the lock while this one's answer to the BREAK is still to come.
    assert_eq!(nodes.0[2].client().say("CLIENT PAUSE 500 ALL"), text("OK"));
    me.say("LOCK.BREAK k");
    assert!(next.hear().as_list()[0].as_int() > 0);
    assert!(next.say("LOCK.ACQUIRE k next 60000 LIMIT 2").is_error("OWNED"));
}

/// Regression: an owner that had lost the lock got the answer that it held the lock until now. Two of five nodes still
/// had its grant, and another owner had the other three, one of which does not answer. Now the answer is NOQUORUM:
/// nobody knows.
#[test]
fn a_minority_and_a_silent_node_are_no_release() {
    let mut nodes = Nodes::start(5);
    let (agent, other) = (nodes.agent(), nodes.agent());
    let mut me = agent.client();
    assert!(me.say("LOCK.ACQUIRE k ann 60000").as_int() > 0);
    wait_until("all nodes have it", || nodes.holding("k") == 5);
    for server in &nodes.0[2..] {
        let mut bob = server.client();
        assert!(bob.say("LOCK.BREAK k").as_int() > 0 && bob.say("LOCK.ACQUIRE k bob 60000").as_int() > 0);
    }
    nodes.0[4].kill();
    let holding = |nodes: &Nodes| nodes.0[..4].iter().map(|server| server.info("held")).collect::<Vec<_>>();
    // Without a majority the agent does not know how many holds the owner has.
    let said = error(other.client().say("LOCK.RELEASE k ann"));
    assert!(said.starts_with("NOQUORUM too few") && said.contains("so nothing was released"), "{said}");
    assert_eq!(holding(&nodes), [1; 4]);
    let said = error(me.say("LOCK.RELEASE k ann LEVEL 1"));
    assert!(said.starts_with("NOQUORUM the release was sent, and too few nodes tell"), "{said}");
    // The two nodes that had ann's grant have released it, so no majority has it.
    assert_eq!(holding(&nodes), [0, 0, 1, 1]);
    assert_eq!(me.say("LOCK.RELEASE k ann LEVEL 1"), null());
}

/// An owner uses two agents at the same time, as docs/agent.md allows. It gets an exclusive lock once. It gets a shared
/// lock or a permit from each agent, unless it asks the second with RETRY.
#[test]
fn two_agents_at_once_share_a_lock_once_each() {
    let nodes = Nodes::start(3);
    let (one, other) = (nodes.agent(), nodes.agent());
    let (mut me, mut also) = (one.client(), other.client());
    let holders = |key: &str| nodes.0[0].client().say(&format!("LOCK.INFO {key}")).field("holders").as_int();
    assert!(me.say("LOCK.ACQUIRE k ann 60000").as_int() > 0);
    assert!(also.say("LOCK.ACQUIRE k ann 60000").is_error("OWNED"));
    for (key, mode) in [("s", "SHARED"), ("p", "LIMIT 2")] {
        let acquire = format!("LOCK.ACQUIRE {key} ann 60000 {mode}");
        let granted = |reply: Reply| !matches!(reply, Reply::Null | Reply::Error(_));
        assert!(granted(me.say(&acquire)) && granted(also.say(&acquire)), "{mode}");
        wait_until("each has its own", || holders(key) == 2);
        assert_eq!(also.say(&format!("LOCK.RELEASE {key} ann")), int(0));
        wait_until("the other one is left", || holders(key) == 1);
        assert!(me.say(&format!("LOCK.EXTEND {key} ann 60000")).as_int() > 0);
        // With RETRY the second agent answers with the grant that the owner got through the first.
        assert!(granted(also.say(&format!("{acquire} RETRY"))) && holders(key) == 1, "{mode}");
        assert_eq!(also.say(&format!("LOCK.RELEASE {key} ann")), int(0));
        wait_until("it is free", || nodes.holding(key) == 0);
    }
}
