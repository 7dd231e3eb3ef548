//! Tests of what happens to waiting clients and to locks when the agent ends.

use crate::fixture::{Nodes, packed};
use crate::harness::wait_until;

#[test]
fn who_waits_is_sent_away_and_locks_are_left() {
    let nodes = Nodes::start(3);
    let mut agent = nodes.agent();
    let (mut holder, mut waiting, mut watching) = (agent.raw(), agent.raw(), agent.raw());
    assert!(holder.insist("LOCK.ACQUIRE k holder 60000").starts_with(':'));
    waiting.send(&packed("LOCK.ACQUIRE k me 60000 WAIT 60000"));
    waiting.send(&packed("PING"));
    watching.send(&packed("LOCK.WATCH other 60000"));
    wait_until("they wait", || agent.info("blocked_clients") == 2);
    let socket = agent.socket();
    agent.begin_end();
    let said = waiting.rest();
    assert!(said.lines().count() == 2 && said.lines().all(|line| line.starts_with("-CLOSING ")), "{said}");
    assert!(watching.rest().starts_with("-CLOSING "));
    assert_eq!(holder.rest(), "");
    assert_eq!(agent.end(), Ok(()));
    assert!(!socket.exists());
    assert_eq!((nodes.holding("k"), nodes.waiters()), (3, 0));
}
