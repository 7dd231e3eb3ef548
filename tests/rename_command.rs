//! Servers that hide commands with `rename-command`.

use std::path::PathBuf;

use crate::harness::{Server, Setup, free_port, guarded_ms, int, null, queues, text, wait_until};

/// Returns a server with these commands renamed, which only a configuration file can do.
fn renamed(lines: &[&str]) -> (Setup, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("redis.conf");
    let lines: String = lines.iter().map(|line| format!("rename-command {line}\n")).collect();
    std::fs::write(&path, lines).unwrap();
    (Setup::new().config(&path), dir)
}

/// With DEL hidden, a release would reach neither AOF nor replica, and the lock would be held again after a restart. So
/// the module does not load.
#[test]
fn without_del_the_module_is_not_loaded() {
    for rule in ["DEL hidden-del", "DEL \"\""] {
        let (setup, _dir) = renamed(&[rule]);
        let log = setup.aof().refused();
        assert!(log.contains("the lock module was not loaded: rename-command hides DEL, and replicas"), "{log}");
    }
}

/// With UNLINK or CLUSTER hidden, a hand-over would take each key for one that is migrating to another node. So the
/// module does not load in a cluster.
#[test]
fn in_a_cluster_neither_unlink_nor_cluster_can_be_hidden() {
    for (rule, name) in [("UNLINK hidden-unlink", "UNLINK"), ("CLUSTER hidden-cluster", "CLUSTER")] {
        let (setup, _dir) = renamed(&[rule]);
        // The default port of the cluster's bus would be in the range that systems assign on their own.
        let setup = setup.replication().option("cluster-port", &free_port().to_string());
        let log = setup.option("cluster-enabled", "yes").refused();
        assert!(log.contains(&format!("rename-command hides {name}, and ")), "{log}");
    }
}

#[test]
fn other_commands_can_be_hidden() {
    let hidden = ["UNLINK x-unlink", "CLUSTER x-cluster", "FLUSHALL x-flushall", "KEYS \"\"", "EXISTS x-exists"];
    let (setup, _dir) = renamed(&hidden);
    let mut server = setup.aof().start();
    let mut client = server.client();
    let token = client.insist("LOCK.ACQUIRE k me 60000").as_int();
    let mut next = queues(&server, "next").0;
    assert_eq!(client.say("LOCK.RELEASE k me"), int(0));
    let newer = next.hear().as_list()[0].as_int();
    assert!(newer > token);
    client.say("LOCK.ACQUIRE gone me 60000");
    assert_eq!(client.say("LOCK.RELEASE gone me"), int(0));
    drop((client, next));
    server.kill();
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.say("LOCK.EXTEND k next 60000"), int(newer), "it remembers every grant");
    assert_eq!(client.say("LOCK.INFO gone"), null());
    // The server reports the flush of this lock, whatever the command's name.
    client.say("x-flushall");
    assert!(guarded_ms(client.say("LOCK.ACQUIRE k you 1000")) > 0);
}

#[test]
fn without_config_the_node_works_and_proves_nothing() {
    let (setup, _dir) = renamed(&["CONFIG x-config"]);
    let mut server = setup.aof().start();
    assert!(server.log().contains("rename-command hides CONFIG"), "{}", server.log());
    let mut client = server.client();
    let token = client.insist("LOCK.ACQUIRE k me 60000").as_int();
    let mut next = queues(&server, "next").0;
    client.say("LOCK.RELEASE k me");
    assert!(next.hear().as_list()[0].as_int() > token);
    drop((client, next));
    server.kill();
    server.start_again();
    assert!(guarded_ms(server.client().say("LOCK.ACQUIRE other me 1000")) > 0);
}

/// Modules are loaded after `rename-command` applies, so their commands cannot be renamed, and a server that is to
/// rename one does not start.
#[test]
fn the_modules_own_commands_cannot_be_renamed() {
    let (setup, _dir) = renamed(&["LOCK.BREAK \"\""]);
    setup.refused();
}

/// A command that cannot be renamed can be forbidden.
#[test]
fn acl_rules_forbid_what_rename_command_cannot() {
    let server = Server::start();
    let mut operator = server.client();
    assert_eq!(operator.say("ACL SETUSER default -lock.break -lock.guard"), text("OK"));
    assert!(operator.say("LOCK.BREAK k").is_error("NOPERM"));
    assert!(operator.say("LOCK.ACQUIRE k me 1000").as_int() > 0);
    wait_until("the lease ends", || operator.say("LOCK.INFO k") == null());
}
