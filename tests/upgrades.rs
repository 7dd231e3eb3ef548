//! Upgrades from earlier versions, and earlier versions beside this one.
//!
//! These tests need the modules of earlier versions, so they are ignored by default: `make test-upgrade` builds them and
//! runs all.

use crate::cluster::{begin_move, end_move};
use crate::harness::{
    Client, Earlier, Member, Server, Setup, assert_guarded, assert_remembers, earlier, error, follow_in_step,
    guarded_ms, in_step, int, joined_with, null, pass_first_tokens, text, wait_until,
};

/// The two ways in which a server's locks outlive it: whether a snapshot has them, its setup, and its end.
const ENDS: [(bool, fn(Setup) -> Setup, fn(&mut Server)); 2] = [
    (true, |setup| setup.option("save", "3600 1"), |server| server.shutdown("SAVE")),
    (false, Setup::aof, Server::kill),
];

/// Locks `k`, `deep` with three holds and a note, and a lock that is released. Returns the tokens of the first two.
fn fill(client: &mut Client) -> (i64, i64) {
    let plain = client.insist("LOCK.ACQUIRE k me 60000").as_int();
    let deep = client.insist("LOCK.ACQUIRE deep me 60000 NOTE n").as_int();
    assert_eq!(client.say("LOCK.REENTER deep me LEVEL 3"), int(3));
    assert!(client.insist("LOCK.ACQUIRE released me 60000").as_int() > 0);
    assert_eq!(client.say("LOCK.RELEASE released me"), int(0));
    (plain, deep)
}

/// Checks that the locks of [`fill`] are there, with their tokens and holds, and their leases still run.
fn assert_there(client: &mut Client, (plain, deep): (i64, i64)) {
    for (key, token, holds, note) in [("k", plain, 1, ""), ("deep", deep, 3, "n")] {
        let info = client.say(&format!("LOCK.INFO {key}"));
        assert_eq!((info.field("owner"), info.field("note")), (text("me"), text(note)), "{key}");
        assert_eq!((info.field("token"), info.field("holds")), (int(token), int(holds)), "{key}");
        assert!((1..=60_000).contains(&info.field("ttl").as_int()), "{key}: {info:?}");
    }
    assert_eq!(client.say("LOCK.INFO released"), null());
}

#[test]
#[ignore = "needs modules of earlier versions: make test-upgrade"]
fn a_restart_with_this_version_keeps_locks_and_tokens() {
    for version in earlier() {
        for (_, setup, end) in ENDS {
            let mut server = setup(Setup::new()).earlier(&version).start();
            let tokens = fill(&mut server.client());
            end(&mut server);
            server.start_again_with(Setup::present);
            let mut client = server.client();
            assert_there(&mut client, tokens);
            if version.is_the_first() {
                assert_guarded(&server, tokens.0);
            } else {
                assert_remembers(&server, tokens.0);
            }
            // The node is guarded only once: the next start of this version proves its own grants.
            let token = client.insist("LOCK.ACQUIRE again me 60000").as_int();
            end(&mut server);
            server.start_again();
            assert_eq!(server.client().insist("LOCK.EXTEND again me 60000"), int(token), "{}", version.name);
        }
    }
}

#[test]
#[ignore = "needs modules of earlier versions: make test-upgrade"]
fn a_downgrade_remembers_or_is_guarded_or_does_not_start() {
    for version in earlier() {
        for (is_snapshot, setup, end) in ENDS {
            let mut server = setup(Setup::new()).start();
            let mut client = server.client();
            let (token, _) = fill(&mut client);
            assert!(client.insist("LOCK.ACQUIRE shared me 60000 SHARED").as_int() > 0);
            end(&mut server);
            server.change(|setup| setup.earlier(&version));
            let started = server.try_start_again();
            match (version.is_the_first(), is_snapshot) {
                (true, true) => {
                    assert!(started.is_err(), "{}", server.log());
                    continue;
                }
                (true, false) => assert!(guarded_ms(server.client().say("LOCK.ACQUIRE k you 1000")) > 30_000),
                (false, _) => assert_remembers(&server, token),
            }
        }
    }
}

/// Returns a master and its replica in step, with these setups.
fn pair_of(master: Setup, replica: Setup) -> (Server, Server) {
    let master = master.replication().option("repl-diskless-sync-delay", "0").start();
    let replica = replica.replication().start();
    // Some locks come with the full synchronisation, others on the stream.
    assert!(master.client().insist("LOCK.ACQUIRE synced me 60000").as_int() > 0);
    follow_in_step(&replica, &master);
    wait_until("the replica was told of its master's leases", || {
        replica.client().say("INFO commandstats").as_text().to_lowercase().contains("lock.ceiling")
    });
    (master, replica)
}

/// Promotes the replica, whose master is dead.
fn promoted(mut master: Server, replica: &Server) -> Client {
    master.kill();
    let mut copy = replica.client();
    assert_eq!(copy.say("REPLICAOF NO ONE"), text("OK"));
    copy
}

/// Checks that a promoted replica is guarded for its master's leases, and then respects the locks of [`fill`].
fn assert_promoted_well(replica: &Server, copy: &mut Client, tokens: (i64, i64)) {
    assert!(guarded_ms(copy.say("LOCK.ACQUIRE k you 10")) > 50_000);
    assert_eq!(copy.say("LOCK.NODE").field("guard_reason"), text("promotion"));
    replica.lift();
    assert_there(copy, tokens);
    assert_eq!(copy.insist("LOCK.ACQUIRE synced you 10"), null());
    assert_eq!(copy.say("LOCK.ACQUIRE k you 10"), null());
    assert_eq!(copy.say("LOCK.EXTEND k me 60000"), int(tokens.0));
    assert_eq!(copy.say("LOCK.RELEASE k me"), int(0));
    assert!(copy.insist("LOCK.ACQUIRE k you 10000").as_int() > tokens.1);
}

#[test]
#[ignore = "needs modules of earlier versions: make test-upgrade"]
fn a_replica_of_this_version_takes_over_from_an_earlier_master() {
    for version in earlier() {
        let (master, replica) = pair_of(Setup::new().earlier(&version), Setup::new());
        let mut client = master.client();
        let tokens = fill(&mut client);
        in_step(&mut client);
        assert_there(&mut replica.client(), tokens);
        let mut copy = promoted(master, &replica);
        assert_promoted_well(&replica, &mut copy, tokens);
    }
}

#[test]
#[ignore = "needs modules of earlier versions: make test-upgrade"]
fn a_replica_of_an_earlier_version_grants_nothing_that_its_master_may_have_granted() {
    for version in earlier() {
        let (master, replica) = pair_of(Setup::new(), Setup::new().earlier(&version));
        let mut client = master.client();
        let tokens = fill(&mut client);
        in_step(&mut client);
        let mut copy = promoted(master, &replica);
        if version.is_the_first() {
            // It has not understood every lock: only its guard keeps others out.
            assert!(replica.log().contains("version 3 where this module reads version 1"), "{}", replica.log());
            assert!(guarded_ms(copy.say("LOCK.ACQUIRE k you 10")) > 50_000);
        } else {
            assert_promoted_well(&replica, &mut copy, tokens);
        }
    }
}

/// Returns two masters of a cluster, the first with all slots: one of the earlier version, and one of this.
fn mixed_cluster(version: &Earlier, earlier_is_first: bool) -> [Member; 2] {
    let mut members = joined_with(["0 16383", ""], |setup| setup.earlier(version).aof());
    let upgraded = &mut members[usize::from(earlier_is_first)].server;
    upgraded.kill();
    upgraded.start_again_with(Setup::present);
    for member in &members {
        let mut client = member.client();
        wait_until("the cluster is there again", || {
            let nodes = client.say("CLUSTER NODES").as_text();
            let linked = nodes.lines().filter(|line| line.contains(" connected")).count() == 2;
            linked && client.say("CLUSTER INFO").as_text().contains("cluster_state:ok")
        });
        client.lift();
    }
    members
}

#[test]
#[ignore = "needs modules of earlier versions: make test-upgrade"]
fn a_lock_moves_between_versions_of_one_cluster() {
    for version in earlier() {
        for earlier_is_first in [true, false] {
            let [source, target] = &mixed_cluster(&version, earlier_is_first);
            let (mut me, mut there) = (source.client(), target.client());
            pass_first_tokens(&mut me, "first");
            let token = me.insist("LOCK.ACQUIRE k me 60000").as_int();
            begin_move(source, target);
            let migrated = format!("MIGRATE 127.0.0.1 {} k 0 60000", target.server.port());
            assert_eq!(me.say(&migrated), text("OK"), "{}", version.name);
            end_move(source, target, target);
            assert!(error(me.say("LOCK.ACQUIRE k me 1000")).starts_with("MOVED "));
            assert_eq!(there.say("LOCK.INFO k").field("token"), int(token));
            if earlier_is_first {
                // The earlier master does not say whether it has forgotten locks.
                assert!(there.insist("LOCK.ACQUIRE k thief 1000").is_error("GUARDED"));
                there.lift();
            }
            assert_eq!(there.insist("LOCK.ACQUIRE k thief 1000"), null());
            assert_eq!(there.say("LOCK.RELEASE k me"), int(0));
            assert!(there.insist("LOCK.ACQUIRE k next 1000").as_int() > token);
        }
    }
}

/// A node that does not know locks with several holders refuses them, and the source keeps them.
#[test]
#[ignore = "needs modules of earlier versions: make test-upgrade"]
fn a_lock_that_the_target_does_not_know_stays_where_it_is() {
    for version in earlier() {
        let [source, target] = &mixed_cluster(&version, false);
        let mut me = source.client();
        pass_first_tokens(&mut me, "first");
        let token = me.insist("LOCK.ACQUIRE k me 60000 SHARED").as_int();
        begin_move(source, target);
        let migrated = me.say(&format!("MIGRATE 127.0.0.1 {} k 0 60000", target.server.port()));
        if version.is_the_first() {
            assert!(error(migrated).contains("Target instance replied with error"));
            assert_eq!(me.say("LOCK.EXTEND k me 60000"), int(token));
            assert_eq!(me.say("LOCK.ACQUIRE k you 60000"), null());
        } else {
            assert_eq!(migrated, text("OK"));
        }
    }
}
