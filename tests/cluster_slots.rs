//! A slot of a cluster that comes to a node without its locks, or loses them, is guarded. A slot that comes with its
//! locks is not.

use crate::cluster::{begin_move, end_move};
use crate::harness::{
    Client, Frozen, Member, Reply, Setup, asking, cluster, error, guarded_ms, int, joined, migrate_slots, not_here,
    null, queues, text, wait_until, waits,
};

/// The slot of `k`.
const SLOT: i64 = 7629;

/// A key of another slot.
const ELSEWHERE: &str = "foo";

/// A key of the first slot.
const OF_SLOT_0: &str = "06S";

fn guarded_slots(member: &Member) -> u64 {
    member.server.info("guarded_slots")
}

/// Assigns the slot to `to`, in the view of `at`.
fn assign(at: &Member, to: &Member) {
    assert_eq!(at.client().say(&format!("CLUSTER SETSLOT {SLOT} NODE {}", to.id)), text("OK"));
}

/// Sends a line once, as the target of a redirection by ASK.
fn asked_once(client: &mut Client, line: &str) -> Reply {
    client.say("ASKING");
    client.say(line)
}

/// Acquires a lock at the target of a move, with the command `line`, and returns its token.
fn granted_at_target(client: &mut Client, line: &str) -> i64 {
    let mut reply = Reply::Null;
    // A request that waited for the disk is redirected to the source, because ASKING was valid only when it arrived.
    wait_until("the target grants the lock", || {
        reply = asked_once(client, line);
        !["NOTYET", "MOVED", "GUARDED"].iter().any(|code| reply.is_error(code))
    });
    reply.as_int()
}

/// Returns three masters and a token. The third has no slots. The second, which had the slot of `k`, died while `k` was
/// held with that token.
fn one_died() -> ([Member; 3], i64) {
    let mut members = joined(["0 5460 10923 16383", "5461 10922", ""]);
    let token = members[1].client().insist("LOCK.ACQUIRE k me 60000").as_int();
    members[1].server.kill();
    (members, token)
}

/// Assigns the slot to the last member, with the command `by`.
fn given(members: &[Member; 3], by: &str) {
    let [first, _, to] = members;
    match by {
        "SETSLOT" => [to, first].iter().for_each(|at| assign(at, to)),
        _ => {
            for at in [to, first] {
                at.client().say(&format!("CLUSTER DELSLOTS {SLOT}"));
            }
            assert_eq!(to.client().say(&format!("CLUSTER ADDSLOTS {SLOT}")), text("OK"));
        }
    }
}

#[test]
fn a_slot_that_came_without_its_locks_is_guarded_alone() {
    for by in ["SETSLOT", "ADDSLOTS"] {
        let (members, token) = one_died();
        let to = &members[2];
        let mut client = to.client();
        given(&members, by);
        // The guard is armed already for the very next command. Its length counts from the start of that command, a
        // moment before the check, and is rounded up.
        let left = guarded_ms(client.say("LOCK.ACQUIRE k you 60000"));
        assert!((30_000..=62_801).contains(&left), "{by}: {left}");
        for line in ["LOCK.WAIT k you 1000", "LOCK.ACQUIRE k you 60000 WAIT 1000", "LOCK.ACQUIRE {k}2 you 60000"] {
            assert!(error(client.say(line)).contains("may be missing"), "{by}: {line}");
        }
        // The node as a whole serves, and so do its other slots.
        assert_eq!(client.say("LOCK.NODE").field("state"), text("serving"));
        assert_eq!((client.say("LOCK.GUARD"), guarded_slots(to)), (int(0), 1));
        // The lock looks free, so clients ask about its slot.
        assert_eq!(client.say("LOCK.INFO k"), null());
        let of_slot = client.say("LOCK.NODE KEY k");
        assert_eq!((of_slot.field("state"), of_slot.field("guard_reason")), (text("guarded"), text("slot")));
        assert!((30_000..=62_801).contains(&of_slot.field("guard_ms").as_int()), "{of_slot:?}");
        let elsewhere = members[0].client().say(&format!("LOCK.NODE KEY {ELSEWHERE}"));
        assert_eq!(elsewhere.field("state"), text("serving"));
        assert!(members[0].client().insist(&format!("LOCK.ACQUIRE {ELSEWHERE} me 60000")).as_int() > 0);
        assert_eq!(guarded_slots(&members[0]), 0);
        // A client that waits long enough gets the lock when the guard ends, here because an operator lifts it.
        let mut waiter = waits(&to.server, "LOCK.ACQUIRE k you 60000 WAIT 600000").0;
        assert_eq!(client.say("LOCK.GUARD LIFT"), int(0));
        assert!(waiter.hear().as_list()[0].as_int() > token, "{by}");
        assert_eq!(guarded_slots(to), 0);
        assert!(to.server.log().contains("came to this node without their locks"), "{}", to.server.log());
    }
}

/// A node shuts down while a slot is guarded. At its next start it cannot prove which locks are held in that slot, so
/// the whole node is guarded.
#[test]
fn the_guard_of_a_slot_outlasts_a_restart() {
    let (mut members, _) = one_died();
    given(&members, "SETSLOT");
    let to = &mut members[2];
    wait_until("it is noticed", || guarded_slots(to) == 1);
    to.server.shutdown("SAVE");
    to.server.start_again();
    let node = to.client().say("LOCK.NODE");
    assert!(node.field("guard_ms").as_int() > 20_000, "{node:?}");
    wait_until("the cluster is up", || to.client().say("CLUSTER INFO").as_text().contains("cluster_state:ok"));
    assert!(guarded_ms(to.client().say("LOCK.ACQUIRE k you 60000")) > 20_000);
}

/// A node is killed and restarts with its slots. Its AOF proves that it remembers every grant, so nothing is guarded.
#[test]
fn a_restart_that_proves_its_locks_serves_its_slots() {
    let (mut one, _other) = cluster_with_aof();
    let token = one.client().insist("LOCK.ACQUIRE k me 60000").as_int();
    one.server.kill();
    one.server.start_again();
    let mut client = one.client();
    wait_until("the cluster is up", || !client.say("LOCK.INFO k").is_error("CLUSTERDOWN"));
    assert_eq!((client.insist("LOCK.EXTEND k me 60000"), guarded_slots(&one)), (int(token), 0));
    assert!(client.insist("LOCK.ACQUIRE free me 60000").as_int() > 0);
}

fn cluster_with_aof() -> (Member, Member) {
    let members = crate::harness::joined_with(["0 16383", ""], Setup::aof);
    members.into()
}

/// Slots without held locks migrate, each within a millisecond, while leases end at the target. They are served once
/// their former owner has said that it forgot nothing, and tokens continue above those of that owner.
#[test]
fn slots_that_were_imported_are_served_and_their_tokens_go_on() {
    // Of two new nodes, the later one has the higher tokens.
    let [to, from] = joined(["0 0", "1 16383"]);
    for n in 0..20 {
        migrates_at_once(&from, &to, &format!("lock{n}"), n % 2 == 0);
    }
    wait_until("the former owner has answered", || guarded_slots(&to) == 0);
}

/// Migrates the slot of `key`, which nobody holds. It is acquired before the move and at its end, and also meanwhile if
/// `asked`.
fn migrates_at_once(from: &Member, to: &Member, key: &str, asked: bool) {
    let (mut here, mut there) = (from.client(), to.client());
    let slot = here.say(&format!("CLUSTER KEYSLOT {key}")).as_int();
    let acquire = format!("LOCK.ACQUIRE {key} me 60000");
    let token = here.insist(&acquire).as_int();
    assert_eq!(here.say(&format!("LOCK.RELEASE {key} me")), int(0));
    let short: Vec<_> = (1..20).map(|ms| format!("LOCK.ACQUIRE {{{OF_SLOT_0}}}{ms} me {ms}")).collect();
    there.pipeline(&short);
    assert_eq!(there.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id)), text("OK"));
    assert_eq!(here.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id)), text("OK"));
    // A lock that is free at the source is granted at the target from now on.
    if asked {
        assert!(here.say(&acquire).is_error("ASK"));
        assert!(granted_at_target(&mut there, &acquire) > token, "{key}");
    }
    for client in [&mut there, &mut here] {
        assert_eq!(client.say(&format!("CLUSTER SETSLOT {slot} NODE {}", to.id)), text("OK"));
    }
    if !asked {
        assert!(there.outlast_guard(&acquire).as_int() > token, "{key}");
    }
}

/// The token of a held lock was raised far above the clocks. MIGRATE takes the lock along.
#[test]
fn a_held_lock_far_above_the_clocks_goes_along_with_its_slot() {
    let [from, to] = joined(["0 16383", ""]);
    let mut here = from.client();
    let token = here.insist("LOCK.ACQUIRE k me 60000").as_int() + 3_600_000_000;
    assert_eq!(here.insist(&format!("LOCK.FENCE k me {token}")), int(token));
    let migrate = format!("MIGRATE 127.0.0.1 {} k 0 60000", to.server.port());
    begin_move(&from, &to);
    wait_until("the target expects such a token", || here.say(&migrate) == text("OK"));
    end_move(&from, &to, &to);
    let mut there = to.client();
    assert_eq!(there.say("LOCK.INFO k").field("token"), int(token));
    assert_eq!(there.say("LOCK.RELEASE k me"), int(0));
    assert!(granted_at_target(&mut there, "LOCK.ACQUIRE k you 60000") > token);
}

/// A client has raised the token of a lock far above the clocks. The slot moves to another master, which continues above
/// that token, also while the slot is imported.
#[test]
fn tokens_far_above_the_clocks_go_along_with_their_slot() {
    for way in ["in one step", "key by key", "while it is imported"] {
        let [from, to] = joined(["0 16383", ""]);
        let (mut here, mut there) = (from.client(), to.client());
        let token = here.insist("LOCK.ACQUIRE k me 60000").as_int() + 3_600_000_000;
        assert_eq!(here.insist(&format!("LOCK.FENCE k me {token}")), int(token), "{way}");
        assert_eq!(here.say("LOCK.RELEASE k me"), int(0));
        if way == "in one step" {
            if !migrate_slots(&from, &[SLOT], &to) {
                continue;
            }
        } else {
            begin_move(&from, &to);
            if way == "key by key" {
                end_move(&from, &to, &to);
            }
        }
        let next = granted_at_target(&mut there, "LOCK.ACQUIRE k you 60000");
        assert!(next > token, "{way}: {next} after {token}");
    }
}

/// A move key by key is given up after the target has granted a lock of the slot, which the source does not know.
#[test]
fn a_slot_that_is_not_moved_away_to_the_end_is_guarded() {
    let [from, to] = joined(["0 16383", ""]);
    let (mut here, mut there) = (from.client(), to.client());
    here.insist("LOCK.ACQUIRE {k}own me 60000");
    begin_move(&from, &to);
    assert!(here.say("LOCK.ACQUIRE k me 60000").is_error("ASK"));
    let token = granted_at_target(&mut there, "LOCK.ACQUIRE k me 2000 KEEPALIVE 600000");
    for client in [&mut there, &mut here] {
        assert_eq!(client.say(&format!("CLUSTER SETSLOT {SLOT} STABLE")), text("OK"));
    }
    let left = guarded_ms(here.say("LOCK.ACQUIRE k you 60000"));
    assert!((30_000..=62_801).contains(&left), "{left}");
    assert!(here.insist("LOCK.EXTEND {k}own me 60000").as_int() > 0, "what was held here goes on");
    assert_eq!(guarded_slots(&from), 1);
    here.say("LOCK.GUARD LIFT");
    assert!(here.insist("LOCK.ACQUIRE k you 60000").as_int() > token);
    wait_until("the target no longer extends its lease", || to.server.info("expiries") == 1);
    wait_until("nor remembers it", || to.server.info("keepalives") == 0);
}

/// A slot is moved key by key, and its source dies. Until its replica is promoted, nobody knows who grants its locks.
#[test]
fn a_target_does_not_vouch_for_locks_of_a_slot_whose_source_died() {
    let mut members = joined(["0 8191", "8192 12287", "12288 16383"]);
    begin_move(&members[0], &members[1]);
    let mut there = members[1].client();
    let token = granted_at_target(&mut there, "LOCK.ACQUIRE k me 60000");
    assert_eq!(asking(&mut there, "LOCK.EXTEND k me 60000"), int(token));
    members[0].server.kill();
    for member in &members[1..] {
        member.client().say("CONFIG SET cluster-node-timeout 1000");
    }
    let retry = "LOCK.ACQUIRE k me 60000 RETRY";
    for line in ["LOCK.EXTEND k me 60000", "LOCK.REENTER k me", retry, &format!("LOCK.CHECK k {token}")] {
        wait_until(line, || asked_once(&mut there, line).is_error("GUARDED"));
    }
}

/// The master of a slot, which stores no data, is killed while `k` is held. It restarts guarded, and the slot moves
/// away. The guard goes along with the slot, to one node and from there to a third.
#[test]
fn the_guard_of_a_master_goes_along_with_its_slots() {
    for in_one_step in [false, true] {
        // A master that gave away its last slot would become a replica, so each has another one.
        let mut members = joined(["0 16381", "16382 16382", "16383 16383"]);
        members[0].client().insist("LOCK.ACQUIRE k me 60000");
        members[0].server.kill();
        members[0].server.start_again();
        for (from, to) in [(0, 1), (1, 2)] {
            let (from, to) = (&members[from], &members[to]);
            let mut client = from.client();
            wait_until("the cluster is up", || client.say("CLUSTER INFO").as_text().contains("cluster_state:ok"));
            if !in_one_step {
                assert_eq!(to.client().say(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", from.id)), text("OK"));
                assert_eq!(client.say(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", to.id)), text("OK"));
                assert!(client.say("LOCK.ACQUIRE k you 60000").is_error("ASK"));
                let mut there = to.client();
                there.say("ASKING");
                assert!(guarded_ms(there.say("LOCK.ACQUIRE k you 60000")) > 0, "while it is imported");
                [to, from].iter().for_each(|at| assign(at, to));
            } else if !migrate_slots(from, &[SLOT], to) {
                return;
            }
            let mut there = to.client();
            let mut left = 0;
            wait_until("the guard has come", || {
                let reply = there.say("LOCK.ACQUIRE k you 60000");
                assert!(["GUARDED", "MOVED", "NOTYET"].iter().any(|code| reply.is_error(code)), "{reply:?}");
                left = if reply.is_error("GUARDED") { guarded_ms(reply) } else { 0 };
                left > 10
            });
            // Each move adds a hundredth, by which clocks may drift.
            assert!((20_000..=64_000).contains(&left), "{left}");
            assert!(to.server.log().contains("may have forgotten locks"), "{}", to.server.log());
            assert_eq!(there.say("LOCK.NODE").field("state"), text("serving"), "the other slots of the node");
        }
        assert_eq!(members[2].client().say("LOCK.GUARD LIFT"), int(0));
        assert!(members[2].client().insist("LOCK.ACQUIRE k you 60000").as_int() > 0);
    }
}

/// A guarded master does not vouch for the grants that it remembers: their owners may have lost them since. Nor do those
/// to which their slot then moves in one step, one after the other.
#[test]
fn grants_of_a_guarded_master_are_vouched_for_by_no_other() {
    let members = joined(["0 16381", "16382 16382", "16383 16383"]);
    let token = members[0].client().insist("LOCK.ACQUIRE k me 60000").as_int();
    assert_eq!(members[0].client().say("LOCK.GUARD ARM 60000"), int(60_000));
    for (from, to) in [(0, 1), (1, 2)] {
        if !migrate_slots(&members[from], &[SLOT], &members[to]) {
            return;
        }
        let mut there = members[to].client();
        wait_until("the slot has come", || !there.say("LOCK.INFO k").is_error("MOVED"));
        let (retry, convert) = ("LOCK.ACQUIRE k me 60000 RETRY", "LOCK.CONVERT k me SHARED");
        let (check, gate) = (format!("LOCK.CHECK k {token}"), format!("LOCK.GATE k {token} HELD"));
        for line in ["LOCK.EXTEND k me 60000", "LOCK.REENTER k me", "LOCK.NOTE k me n", retry, convert, &check, &gate] {
            assert!(there.say(line).is_error("GUARDED"), "{line} at {to}");
        }
        wait_until("the guard has come", || guarded_ms(there.say("LOCK.EXTEND k me 60000")) > 10);
    }
    let mut there = members[2].client();
    assert_eq!(there.say("LOCK.GUARD LIFT"), int(0));
    assert_eq!(there.say("LOCK.EXTEND k me 60000"), int(token));
}

/// A move of one slot was given up, so its master guards it. That guard goes along with this slot, but with no other.
#[test]
fn the_guard_of_a_slot_goes_along_with_that_slot_alone() {
    let [from, to] = joined(["0 16382", "16383 16383"]);
    begin_move(&from, &to);
    for at in [&to, &from] {
        assert_eq!(at.client().say(&format!("CLUSTER SETSLOT {SLOT} STABLE")), text("OK"));
    }
    assert!(guarded_ms(from.client().say("LOCK.ACQUIRE k you 60000")) > 30_000);
    for (key, asked) in [(ELSEWHERE, true), ("other", false)] {
        migrates_at_once(&from, &to, key, asked);
    }
    begin_move(&from, &to);
    end_move(&from, &to, &to);
    let mut there = to.client();
    wait_until("its guard has come", || guarded_ms(there.say("LOCK.ACQUIRE k you 60000")) > 30_000);
    assert_eq!(guarded_slots(&to), 1);
}

/// SETSLOT NODE comes to the target before all locks have: after a MIGRATE that failed, or without SETSLOT MIGRATING at the
/// source. Its server deletes the locks that are left, so the slot is guarded.
#[test]
fn a_slot_that_is_taken_before_its_last_lock_has_come_is_guarded() {
    for is_offered in [true, false] {
        let [from, to] = joined(["0 16382", "16383 16383"]);
        from.client().insist("LOCK.ACQUIRE k me 60000");
        if is_offered {
            begin_move(&from, &to);
        } else {
            assert_eq!(to.client().say(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", from.id)), text("OK"));
        }
        assign(&to, &to);
        let mut there = to.client();
        wait_until("the guard has come", || guarded_ms(there.say("LOCK.ACQUIRE k you 60000")) > 30_000);
        wait_until("the source has heard of it", || from.client().say("LOCK.INFO k").is_error("MOVED"));
        assert_eq!((guarded_slots(&to), there.say("EXISTS k")), (1, int(0)));
        assert!(to.server.log().contains("or still has some"), "{}", to.server.log());
        assert_eq!(there.say("LOCK.GUARD LIFT"), int(0));
        assert!(there.insist("LOCK.ACQUIRE k you 60000").as_int() > 0);
    }
}

/// The former owner of a slot stops before it can say what it forgot. The slot is guarded for the longest lease, even
/// if it says so later: it may have ended in between.
#[test]
fn a_slot_whose_former_owner_is_silent_is_guarded() {
    let (from, to) = cluster();
    let mut there = to.client();
    assert_eq!(there.say(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", from.id)), text("OK"));
    let frozen = Frozen::new(&from.server);
    assign(&to, &to);
    assert_eq!(guarded_ms(there.say("LOCK.ACQUIRE k you 60000")), 10);
    wait_until("the log says so", || to.server.log().contains("does not say whether it has forgotten locks"));
    drop(frozen);
    let mut old = from.client();
    wait_until("it is back", || old.say("LOCK.ACQUIRE k you 60000").is_error("MOVED"));
    assert!(guarded_ms(there.say("LOCK.ACQUIRE k you 60000")) > 20_000);
    assert_eq!((guarded_slots(&to), there.say("LOCK.GUARD LIFT")), (1, int(0)));
    assert!(there.outlast_guard("LOCK.ACQUIRE k you 60000").as_int() > 0);
}

/// The import of a slot is given up, and the slot is assigned to the node afterwards. The slot is guarded.
#[test]
fn a_slot_whose_import_was_given_up_is_guarded() {
    let (from, to) = cluster();
    let mut there = to.client();
    from.client().insist("LOCK.ACQUIRE k me 60000");
    assert_eq!(there.say(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", from.id)), text("OK"));
    assert_eq!(there.say(&format!("CLUSTER SETSLOT {SLOT} STABLE")), text("OK"));
    assign(&to, &to);
    assert!(guarded_ms(there.say("LOCK.ACQUIRE k you 60000")) > 30_000);
}

/// A CLUSTER command that fails, or does not exist, changes nothing.
#[test]
fn what_is_said_of_slots_by_the_way_changes_nothing() {
    let (one, _other) = cluster();
    let mut client = one.client();
    for line in ["CLUSTER SETSLOT", "CLUSTER SETSLOT 1 NODE nobody", "CLUSTER", "cluster setslot 99999 STABLE"] {
        assert!(client.say(line).is_error("ERR"), "{line}");
    }
    let lines: Vec<String> = (0..1_000).map(|_| "CLUSTER SETSLOT x y z".to_owned()).collect();
    assert!(client.pipeline(&lines).iter().all(|reply| reply.is_error("ERR")));
    assert!(client.insist("LOCK.ACQUIRE k me 60000").as_int() > 0);
    assert_eq!(guarded_slots(&one), 0);
}

/// Returns true if the server can empty a slot.
fn can_flush_slots(client: &mut Client) -> bool {
    let can =
        !matches!(client.say("CLUSTER FLUSHSLOT 1"), Reply::Error(text) if text.to_lowercase().contains("unknown"));
    if !can {
        not_here("this server does not empty single slots");
    }
    can
}

#[test]
fn a_slot_that_was_emptied_is_guarded_until_its_last_lock_would_have_ended() {
    let (one, _other) = cluster();
    let mut client = one.client();
    if !can_flush_slots(&mut client) {
        return;
    }
    for how in ["SYNC", "ASYNC"] {
        let handed_over = one.server.info("hand_overs");
        let token = client.insist("LOCK.ACQUIRE k me 60000").as_int();
        client.insist("LOCK.ACQUIRE {k}short me 1000");
        client.insist(&format!("LOCK.ACQUIRE {ELSEWHERE} me 60000"));
        let mut waiter = queues(&one.server, "you").0;
        // Both commands are sent in the same batch.
        let lines = [format!("CLUSTER FLUSHSLOT {SLOT} {how}"), "LOCK.ACQUIRE k thief 60000".to_owned()];
        let replies = client.pipeline(&lines);
        assert_eq!(replies[0], text("OK"), "{how}");
        let left = guarded_ms(replies[1].clone());
        assert!((30_000..=60_000).contains(&left), "{how}: {left}");
        assert!(guarded_ms(client.say("LOCK.ACQUIRE {k}short me 1000")) > 30_000, "the slot as a whole");
        assert_eq!((one.server.info("hand_overs"), guarded_slots(&one)), (handed_over, 1));
        // Other slots are not affected.
        assert_eq!(client.say(&format!("LOCK.RELEASE {ELSEWHERE} me")), int(0));
        assert!(client.insist(&format!("LOCK.ACQUIRE {ELSEWHERE} you 60000")).as_int() > token);
        assert_eq!(client.say(&format!("LOCK.RELEASE {ELSEWHERE} you")), int(0));
        assert_eq!(client.say("LOCK.GUARD LIFT"), int(0));
        drop(waiter.hear());
        client.say("LOCK.BREAK k");
        wait_until("nobody waits", || one.server.info("waiters") == 0);
        client.say("CONFIG RESETSTAT");
    }
}

/// A lock whose key is deleted by hand is free at once, as outside a cluster: the operator is responsible.
#[test]
fn a_key_that_is_deleted_guards_nothing() {
    let (one, _other) = cluster();
    let mut client = one.client();
    can_flush_slots(&mut client);
    client.insist("LOCK.ACQUIRE k me 60000");
    let mut waiter = queues(&one.server, "you").0;
    let lines = ["DEL k", "LOCK.ACQUIRE k thief 60000"].map(str::to_owned);
    assert_eq!(client.pipeline(&lines), [int(1), null()], "who waits is before who asks");
    assert!(waiter.hear().as_list()[0].as_int() > 0);
    client.say("UNLINK k");
    assert!(client.insist("LOCK.ACQUIRE k next 60000").as_int() > 0);
    assert_eq!(guarded_slots(&one), 0);
}
