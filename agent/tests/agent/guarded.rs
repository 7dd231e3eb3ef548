//! Tests an agent whose nodes have mostly lost their data and are guarded: a lock that they do not show is not free.

use crate::fixture::Nodes;
use crate::harness::{error, null, wait_until};

#[test]
fn nobody_knows_whether_the_lock_is_free() {
    let mut nodes = Nodes::start(5);
    let (agent, other) = (nodes.agent(), nodes.agent());
    let (mut me, mut you) = (agent.client(), other.client());
    let token = me.say("LOCK.ACQUIRE k me 60000").as_int();
    wait_until("all nodes have it", || nodes.holding("k") == 5);
    for server in &mut nodes.0[..3] {
        server.kill();
        server.start_again();
    }
    assert_eq!(nodes.holding("k"), 2);
    for client in [&mut me, &mut you] {
        wait_until("all nodes are reached", || {
            let said = client.say("INFO palisade").as_text();
            said.contains("nodes_serving:2") && !said.contains("node_failed")
        });
        for line in [
            "LOCK.INFO k",
            "LOCK.INFO free",
            "LOCK.WATCH k 1",
            &format!("LOCK.WATCH k 1 TOKEN {token}"),
            &format!("LOCK.CHECK k {token}"),
        ] {
            let said = error(client.say(line));
            assert!(said.starts_with("NOQUORUM "), "{line}: {said}");
            assert!(said.contains("this node may have forgotten grants (restart)"), "{line}: {said}");
        }
        // Whether or not the agent knows of the guard already, it must not answer that the owner has lost the lock.
        let said = error(client.say("LOCK.EXTEND k me 60000"));
        assert!(said.starts_with("NOQUORUM "), "{said}");
        let said = error(client.say("LOCK.ACQUIRE k you 60000"));
        assert!(said.starts_with("GUARDED "), "{said}");
    }
    // When a majority is no longer guarded, the agent knows the answer.
    nodes.0[0].lift();
    assert_eq!(you.say("LOCK.INFO free"), null());
    for server in &nodes.0[1..3] {
        server.lift();
    }
    assert_eq!((you.say("LOCK.INFO k"), you.say("LOCK.EXTEND k me 60000")), (null(), null()));
}
