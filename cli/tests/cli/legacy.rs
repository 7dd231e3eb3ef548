//! `palisade doctor --legacy`: old locks, while programs move from another library.

use crate::fixture::{Nodes, run};
use crate::harness::{Setup, text};

#[test]
fn old_locks_are_found_until_they_have_ended() {
    let mut nodes = Nodes::start(0);
    nodes.servers = vec![Setup::new().aof().start()];
    let mut node = nodes.servers[0].client();
    let doctor = || run(nodes.palisade("doctor --legacy orders:*"));

    // A new lock with a matching name does not count as an old one.
    assert!(node.say("LOCK.ACQUIRE orders:1 me 60000").as_int() > 0);
    assert_eq!(node.say("SET invoices:1 token NX PX 60000"), text("OK"));
    let out = doctor().out();
    assert!(out.contains("no old lock matches orders:*"), "{out}");

    assert_eq!(node.say("SET orders:2 token NX PX 3600000"), text("OK"));
    assert_eq!(node.say("SET orders:3 token NX PX 60000"), text("OK"));
    assert_eq!(node.say("HSET orders:4 thread 1").as_int(), 1);
    let ended = doctor();
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    let out = ended.out();
    assert!(
        out.contains("CHANGE") && out.contains("3 old locks match orders:*, as orders:4; the last ends in 59m"),
        "{out}"
    );
    assert!(out.contains(", and 1 have no end") && out.contains("look again after that time"), "{out}");

    node.say("DEL orders:2 orders:3 orders:4");
    assert!(doctor().out().contains("no old lock matches orders:*"));
}
