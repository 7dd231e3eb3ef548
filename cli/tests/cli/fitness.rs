//! Tests of `palisade doctor` on real clusters and behind real Sentinels, and of the permissions that users need there.

use crate::fixture::{palisade_at, run};
use crate::harness::{Member, Six, behind, text, wait_until, watched};
use crate::places::{MAX_TTL_MS, name, on, six, well};

/// Checks that `doctor` has this finding about `about`.
#[track_caller]
fn finds(out: &str, level: &str, about: &str, found: &str) {
    let is_it = |line: &str| line.starts_with(level) && line.contains(&format!("{about}: ")) && line.contains(found);
    assert!(out.lines().any(is_it), "{level} {about} {found}:\n{out}");
}

fn doctor(six: &Six) -> String {
    run(on(six, "doctor")).out()
}

fn set(member: &Member, name: &str, value: &str) {
    assert_eq!(member.client().say(&format!("CONFIG SET {name} {value}")), text("OK"));
}

#[test]
fn a_cluster_that_is_well_and_what_is_wrong_with_it() {
    let mut six = six();
    let all = format!("cluster of {}", six.seeds().join(", "));
    let out = doctor(&six);
    assert!(!out.contains("FAIL"), "{out}");
    finds(&out, "ok", &all, "its replica takes over some moments after 1m, and is guarded for 1m");
    for member in six.0.iter() {
        let says = if six.0[..3].iter().any(|master| master.id == member.id) { "serves" } else { "stands by" };
        let round_trip =
            out.lines().any(|line| line.contains(&name(&member.server)) && line.contains("its round trip is"));
        // On a busy machine, `doctor` may report the round trip instead.
        assert!(round_trip || out.contains(&format!("{}: {says}", name(&member.server))), "{out}");
    }
    finds(&out, "note", "all nodes", "while one of its masters is down");
    let plain = run(palisade_at(&format!("redis://{}", name(&six.0[0].server)), "doctor")).out();
    finds(&plain, "CHANGE", &name(&six.0[0].server), "it refuses locks of slots that it does not serve");
    assert!(plain.contains(&format!("give its address as redis+cluster://{}", name(&six.0[0].server))), "{plain}");

    set(&six.0[1], "cluster-require-full-coverage", "yes");
    set(&six.0[4], "cluster-node-timeout", "50000");
    set(&six.0[2], "min-replicas-to-write", "2");
    let (from, to) = (&six.0[0], &six.0[1]);
    let slot = from.client().say(&format!("CLUSTER KEYSLOT {}", six.key_of(0))).as_int();
    assert_eq!(from.client().say(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id)), text("OK"));
    // The user has fewer permissions on one replica than elsewhere.
    let line = well(on(&six, "acl application --user app --key *")).trim().replace("PASSWORD", "secret");
    six.0.iter().for_each(|member| assert_eq!(member.client().say(&line), text("OK")));
    six.0[5].client().say("ACL SETUSER app -lock.extend");
    let out = run(on(&six, "doctor --user app")).out();
    finds(&out, "CHANGE", &name(&six.0[1].server), "cluster-require-full-coverage is yes");
    finds(&out, "CHANGE", &all, "cluster-node-timeout differs: 50s, 1m");
    finds(&out, "FAIL", &name(&six.0[2].server), "1 replicas are in step, and min-replicas-to-write is 2");
    finds(&out, "CHANGE", &name(&six.0[0].server), &format!("moving slots was begun and is not done: {slot}"));
    finds(&out, "CHANGE", &name(&six.0[5].server), "app lacks lock.extend");
    assert_eq!(out.matches("app lacks").count(), 1, "{out}");

    from.client().say(&format!("CLUSTER DELSLOTS {slot}"));
    six.0[4].server.kill();
    let mut master = six.0[1].client();
    wait_until("its replica is gone", || master.say("INFO replication").as_text().contains("connected_slaves:0"));
    let out = run(palisade_at(&format!("redis+cluster://{}", name(&six.0[0].server)), "doctor")).out();
    finds(&out, "FAIL", &format!("cluster of {}", name(&six.0[0].server)), "1 slots have no master");
    finds(&out, "CHANGE", &name(&six.0[1].server), "no replica is attached");
}

#[test]
fn sentinels_that_are_well_and_what_is_wrong_with_them() {
    let (master, replica, sentinels) = watched(3, MAX_TTL_MS);
    let address = behind(&sentinels);
    let doctor = |address: &str| run(palisade_at(address, "doctor")).out();
    let (about, one) = ("sentinels of locks", format!("127.0.0.1:{}", sentinels[1].port()));
    for server in [&master, &replica] {
        server.client().say("CONFIG SET min-replicas-to-write 1");
        server.client().say("CONFIG SET min-replicas-max-lag 2");
    }
    let out = doctor(&address);
    assert!(!out.contains("FAIL"), "{out}");
    finds(&out, "ok", &name(&master), "its replica takes over some moments after 2s, and is guarded for 1m");
    finds(&out, "note", &name(&master), "with one down, it grants, extends and releases nothing");
    finds(&out, "ok", &one, "may do what the role sentinel needs");

    let first = format!("redis+sentinel://127.0.0.1:{}/locks", sentinels[0].port());
    finds(&doctor(&first), "note", about, "there are 3, and the address names 1");
    let dead = address.replace("redis+sentinel://", "redis+sentinel://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3,");
    let out = doctor(&dead);
    finds(&out, "FAIL", about, "3 of 6 can be asked");
    finds(&out, "CHANGE", "127.0.0.1:2", "cannot be asked");

    replica.client().say("CONFIG SET lock.restart-guard auto");
    master.client().say("CONFIG SET min-replicas-max-lag 10");
    assert_eq!(sentinels[1].say("SENTINEL SET locks quorum 7"), text("OK"));
    assert_eq!(sentinels[2].say("SENTINEL SET locks down-after-milliseconds 3000"), text("OK"));
    let out = doctor(&address);
    finds(&out, "CHANGE", &name(&replica), "lock.restart-guard is auto");
    finds(&out, "CHANGE", &name(&master), "min-replicas-max-lag is 10s, and it may be replaced after 2s");
    finds(&out, "FAIL", &one, "its quorum is 7, of 3 Sentinels");
    finds(&out, "CHANGE", about, "the quorum differs");
    finds(&out, "CHANGE", about, "down-after-milliseconds differs");
    master.client().say("CONFIG SET min-replicas-to-write 0");
    finds(&doctor(&address), "CHANGE", &name(&master), "min-replicas-to-write is 0");
    sentinels[2].say("SENTINEL REMOVE locks");
    sentinels[2].say(&format!("SENTINEL MONITOR locks 127.0.0.1 {} 2", replica.port()));
    finds(&doctor(&address), "FAIL", about, "they name different masters");
}

/// The line that `palisade acl` prints for a cluster is sufficient, also for a slot that is migrating, and each of its
/// permissions is needed.
#[test]
fn a_user_of_a_cluster() {
    let six = six();
    let line = well(on(&six, "acl application --user app --key *"));
    assert_eq!(line, {
        let mut command = palisade_at("", "acl application --user app --key * --cluster");
        command.env("PALISADE_NODES", six.seeds()[0].clone());
        well(command)
    });
    let line = line.trim().replace("PASSWORD", "secret");
    let tell = |line: &str| six.0.iter().for_each(|member| assert_eq!(member.client().say(line), text("OK"), "{line}"));
    tell(&line);
    let as_app = |line: &str| palisade_at(&six.address().replace("://", "://app:secret@"), line);
    let key = six.key_of(0);
    let (from, to) = (&six.0[0], &six.0[1]);
    let slot = from.client().say(&format!("CLUSTER KEYSLOT {key}")).as_int();
    assert_eq!(to.client().say(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id)), text("OK"));
    assert_eq!(from.client().say(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id)), text("OK"));
    let take = |owner: &str| as_app(&format!("acquire {key} --owner {owner} --ttl 1m --wait 5s"));
    well(take("one"));
    assert_eq!(to.server.info("held"), 1, "it was followed to where its slot goes");
    well(as_app(&format!("release {key} --owner one")));
    let lacks = |out: &str, rule: &str| {
        finds(out, "CHANGE", &name(&six.0[0].server), &format!("app lacks {rule}, which the role application needs"));
        finds(out, "CHANGE", &name(&six.0[5].server), &format!("app lacks {rule}, which the role application needs"));
    };
    for rule in ["cluster|info", "cluster|slots", "asking"] {
        tell(&format!("ACL SETUSER app -{rule}"));
        lacks(&run(on(&six, "doctor --user app")).out(), rule);
        let refused = run(take("two"));
        assert!([Some(193), Some(195), Some(196)].contains(&refused.code()), "{rule}: {refused:?}");
        assert!(rule == "asking" || refused.err().contains("allow +cluster|info +cluster|slots"), "{refused:?}");
        tell(&format!("ACL SETUSER app +{rule}"));
    }
    tell("ACL SETUSER app -cluster|slots");
    let own = run(as_app("doctor")).out();
    assert!(own.contains("NOPERM") && own.contains("allow +cluster|info +cluster|slots"), "{own}");
    tell("ACL SETUSER app +cluster|slots");
    let line = well(on(&six, "acl operator --user app")).trim().replace("PASSWORD", "secret");
    tell(&line);
    tell("ACL SETUSER app -cluster|nodes");
    let out = run(as_app("doctor --role operator")).out();
    finds(&out, "CHANGE", &name(&six.0[1].server), "lacks cluster|nodes, which the role operator needs");
    finds(&out, "note", &format!("cluster of {}", six.seeds().join(", ")), "none of its servers tells how it is");
}

/// The line that `palisade acl` prints for a user of Sentinels is sufficient, and `doctor` names each missing
/// permission.
#[test]
fn a_user_of_sentinels() {
    let (_master, _replica, sentinels) = watched(1, MAX_TTL_MS);
    let line = well(palisade_at("", "acl sentinel --user watch")).trim().replace("PASSWORD", "secret");
    assert_eq!(sentinels[0].say(&line), text("OK"));
    let address = format!("{}?sentinelUsername=watch&sentinelPassword=secret", behind(&sentinels));
    let doctor = || run(palisade_at(&address, "doctor")).out();
    let one = format!("127.0.0.1:{}", sentinels[0].port());
    finds(&doctor(), "ok", &one, "its user may do what the role sentinel needs");
    well(palisade_at(&address, "acquire k --owner me --ttl 1m"));
    for rule in line.split(' ').filter_map(|word| word.strip_prefix('+')) {
        assert_eq!(sentinels[0].say(&format!("ACL SETUSER watch -{rule}")), text("OK"));
        finds(&doctor(), "CHANGE", &one, &format!("lacks {rule}, which the role sentinel needs"));
        let of_other = run(palisade_at(&behind(&sentinels), "doctor --role sentinel --user watch")).out();
        finds(&of_other, "CHANGE", &one, &format!("watch lacks {rule}, which the role sentinel needs"));
        assert_eq!(sentinels[0].say(&format!("ACL SETUSER watch +{rule}")), text("OK"));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "watch:secret\n").unwrap();
    assert_eq!(sentinels[0].say("ACL SETUSER default off"), text("OK"));
    let mut nodes = palisade_at(&behind(&sentinels), "nodes");
    nodes.arg("--sentinel-credentials").arg(file.path());
    well(nodes);
    let out = run(palisade_at(&behind(&sentinels), "doctor")).out();
    finds(&out, "CHANGE", &one, "NOAUTH");
}
