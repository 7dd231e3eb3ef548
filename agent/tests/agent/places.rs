//! Tests an agent one of whose nodes is a cluster, or a master that Sentinels watch. Its master dies, and a replica
//! takes over.

use crate::fixture::Running;
use crate::harness::{MAX_TTL_MS, Setup, Six, behind, int, null, text, wait_until, watched};

/// Starts an agent of these nodes, and waits until all of them grant locks.
fn agent(nodes: &[String]) -> Running {
    let agent = Running::start(nodes, |config| config);
    let mut me = agent.client();
    wait_until("all nodes serve", || me.say("LOCK.NODE").field("serving") == int(nodes.len() as i64));
    agent
}

#[test]
fn a_cluster_is_one_node_and_each_lock_is_at_its_master() {
    let six = Six::start_with(|setup: Setup| setup.module_arguments(&["max-clock-skew", "1000"]));
    let agent = agent(&[six.address()]);
    let (mut me, mut other) = (agent.client(), agent.client());
    for master in 0..3 {
        let (key, server) = (six.key_of(master), &six.0[master].server);
        let token = me.say(&format!("LOCK.ACQUIRE {key} me 60000 NOTE ann")).as_int();
        assert_eq!(server.info("held"), 1);
        assert_eq!(me.say(&format!("LOCK.EXTEND {key} me 60000")), int(token));
        assert!(me.say(&format!("LOCK.CHECK {key} {token}")).as_int() > 0);
        assert_eq!(me.say(&format!("LOCK.INFO {key}")).field("note"), text("ann"));
        assert_eq!(other.say(&format!("LOCK.ACQUIRE {key} you 60000")), null());
        other.ask(&format!("LOCK.ACQUIRE {key} you 60000 WAIT 60000"));
        wait_until("it waits", || server.info("waiters") == 1);
        assert_eq!(me.say(&format!("LOCK.RELEASE {key} me")), int(0));
        let next = other.hear().as_list()[0].as_int();
        assert!(next > token);
        assert_eq!(me.say(&format!("LOCK.BREAK {key}")), int(next));
        assert_eq!(server.info("held"), 0);
    }
    let node = me.say("LOCK.NODE");
    assert_eq!((node.field("nodes"), node.field("max_ttl")), (int(1), int(60_000)));
}

/// A master of a cluster dies. The waiter gets the lock from its replica, and locks on other masters are not affected.
#[test]
fn a_master_of_a_cluster_dies_beneath_it() {
    let mut six = Six::start(3_000);
    let agent = agent(&[six.address()]);
    let (mut me, mut other) = (agent.client(), agent.client());
    let (lost, kept) = (six.key_of(1), six.key_of(2));
    let token = me.outlast_outage(&format!("LOCK.ACQUIRE {lost} me {MAX_TTL_MS} RETRY")).as_int();
    other.ask(&format!("LOCK.ACQUIRE {lost} you {MAX_TTL_MS} WAIT 600000"));
    wait_until("it waits", || agent.info("blocked_clients") == 1);
    six.0[1].server.kill();
    assert!(me.outlast_outage(&format!("LOCK.ACQUIRE {kept} me {MAX_TTL_MS} RETRY")).as_int() > 0);
    wait_until("the agent tells that one is down", || me.say("INFO palisade").as_text().contains("nodes_serving:0"));
    let mut answer = other.hear();
    if answer.is_error("NOQUORUM") || answer.is_error("GUARDED") {
        // The replica that took over may be guarded at first, so this asks again.
        answer = other.outlast_outage(&format!("LOCK.ACQUIRE {lost} you {MAX_TTL_MS} WAIT 600000 RETRY"));
    }
    assert!(answer.as_list()[0].as_int() > token);
    assert_eq!(six.0[4].client().say("ROLE").as_list()[0], text("master"));
    wait_until("all serve again", || me.say("LOCK.NODE").field("serving") == int(1));
}

/// Sentinel makes a replica the master. The agent follows it, and tokens still grow.
#[test]
fn a_master_behind_sentinels_is_replaced_beneath_it() {
    let (_one, other, sentinels) = watched(1, MAX_TTL_MS);
    let agent = agent(&[behind(&sentinels)]);
    let (mut me, mut waiting) = (agent.client(), agent.client());
    let token = me.outlast_outage(&format!("LOCK.ACQUIRE k me {MAX_TTL_MS} RETRY")).as_int();
    wait_until("it knows how long leases may run", || other.info("outstanding_ttl_ms") <= MAX_TTL_MS);
    sentinels[0].fail_over();
    sentinels[0].wait_for_master(&other);
    let line = format!("LOCK.ACQUIRE k you {MAX_TTL_MS} WAIT 600000 RETRY");
    let next = waiting.outlast_outage(&line).as_list()[0].as_int();
    assert!(next > token);
    assert_eq!(other.client().say("LOCK.INFO k").field("token"), int(next));
}

/// The nodes of the quorum are a cluster, a master that Sentinels watch, and a server. Any one of them may be down.
#[test]
fn all_kinds_are_nodes_of_one_quorum() {
    let six = Six::start_with(|setup: Setup| setup.module_arguments(&["max-clock-skew", "1000"]));
    let (mut master, _replica, sentinels) = watched(1, 60_000);
    let alone = Setup::new().start();
    let agent = agent(&[six.address(), behind(&sentinels), alone.address()]);
    let mut me = agent.client();
    let token = me.outlast_outage("LOCK.ACQUIRE k me 60000 RETRY").as_int();
    wait_until("all have it", || {
        let held: u64 = six.masters().map(|member| member.server.info("held")).sum();
        (held, master.info("held"), alone.info("held")) == (1, 1, 1)
    });
    master.kill();
    assert!(me.outlast_outage("LOCK.EXTEND k me 60000").as_int() >= token);
    assert_eq!(me.say("LOCK.RELEASE k me"), int(0));
    assert_eq!(alone.info("held"), 0);
}
