//! In a cluster, a lock is granted by the node that serves its slot, and waiters are redirected there.

use crate::harness::{
    Client, Member, Reply, Setup, asking, cluster, error, guarded_ms, in_step, int, joined, joined_with, migrate_slots,
    not_here, null, queues, text, wait_until,
};

/// The slot of `k`.
const SLOT: i64 = 7629;

/// Starts to migrate the slot from `source` to `target`.
pub fn begin_move(source: &Member, target: &Member) {
    target.client().say(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", source.id));
    source.client().say(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", target.id));
}

/// Ends the move of the slot, and assigns it to `to`.
pub fn end_move(source: &Member, target: &Member, to: &Member) {
    for member in [target, source] {
        assert_eq!(member.client().say(&format!("CLUSTER SETSLOT {SLOT} NODE {}", to.id)), text("OK"));
    }
}

fn migrate(source: &Member, target: &Member) {
    let line = format!("MIGRATE 127.0.0.1 {} k 0 60000", target.server.port());
    assert_eq!(source.client().say(&line), text("OK"));
}

#[test]
fn hand_overs_in_a_cluster_that_stands_still() {
    let (one, _other) = cluster();
    let mut me = one.client();
    assert_eq!(me.say("CLUSTER KEYSLOT k"), int(SLOT));
    let mut last = me.say("LOCK.ACQUIRE k o0 60000").as_int();
    let causes = ["LOCK.RELEASE k o0", "DEL k", "LOCK.BREAK k", "PEXPIRE k 1"];
    for (n, cause) in causes.iter().enumerate() {
        let mut next = queues(&one.server, &format!("o{}", n + 1)).0;
        me.say(cause);
        let token = next.hear().as_list()[0].as_int();
        assert!(token > last, "{cause}");
        last = token;
    }
    let mut turn = one.client();
    turn.ask("LOCK.WAIT k turn 60000");
    wait_until("it waits", || one.server.info("waiters") == 1);
    me.say("LOCK.RELEASE k o4");
    assert_eq!(turn.hear(), int(1));
}

#[test]
fn a_lock_that_migrates_away_takes_its_waiters_along() {
    let (one, other) = cluster();
    let mut me = one.client();
    let token = me.say("LOCK.ACQUIRE k me 60000").as_int();
    let mut waiters = [queues(&one.server, "a").0, queues(&one.server, "b").0];
    begin_move(&one, &other);
    assert_eq!(one.server.info("waiters"), 2);
    migrate(&one, &other);
    for waiter in &mut waiters {
        assert!(waiter.hear().is_error("TRYAGAIN"), "its slot is on its way");
    }
    // The lock keeps others out at its new place, and the source has not granted it a second time.
    assert!(me.say("EXISTS k").is_error("ASK"));
    let mut there = other.client();
    there.say("ASKING");
    assert_eq!(there.say("LOCK.INFO k").field("token"), int(token));
    assert_eq!(asking(&mut there, "LOCK.ACQUIRE k thief 1000"), null());
    end_move(&one, &other, &other);
    assert!(error(me.say("LOCK.ACQUIRE k me 1000")).contains(&format!("{}", other.server.port())));
    assert_eq!(there.say("LOCK.RELEASE k me"), int(0));
    assert!(there.outlast_guard("LOCK.ACQUIRE k next 60000").as_int() > token);
    assert_eq!((one.server.info("held"), one.server.info("waiters")), (0, 0));
}

#[test]
fn a_lock_that_gets_free_while_its_slot_moves_is_handed_over_by_nobody() {
    for cause in ["LOCK.RELEASE k me", "DEL k", "LOCK.BREAK k"] {
        let (one, other) = cluster();
        let mut me = one.client();
        me.say("LOCK.ACQUIRE k me 60000");
        let mut waiter = queues(&one.server, "a").0;
        begin_move(&one, &other);
        me.say(cause);
        assert!(waiter.hear().is_error("TRYAGAIN"), "{cause}");
        assert!(me.say("LOCK.ACQUIRE k me 1000").is_error("ASK"), "{cause}");
        assert_eq!(one.server.info("waiters"), 0);
    }
}

#[test]
fn waiters_of_a_slot_that_is_gone_are_redirected() {
    let (one, other) = cluster();
    // The clients wait for a free key of a guarded node, where no event notifies them when the slot leaves.
    one.client().say("LOCK.GUARD ARM 3000");
    let mut waiter = queues(&one.server, "a").0;
    begin_move(&one, &other);
    end_move(&one, &other, &other);
    let expected = format!("MOVED {SLOT} 127.0.0.1:{}", other.server.port());
    assert_eq!(error(waiter.hear()), expected);
}

#[test]
fn a_lock_that_expires_while_its_slot_moves() {
    let (one, other) = cluster();
    let mut me = one.client();
    me.say("LOCK.ACQUIRE k me 2000");
    let mut waiter = queues(&one.server, "a").0;
    begin_move(&one, &other);
    assert!(waiter.hear().is_error("TRYAGAIN"));
    assert_eq!(one.server.info("held"), 0);
}

/// A cluster that is down accepts no writes, though it may be readable. A lock that a client cannot acquire then is not
/// handed over to a waiter, either.
#[test]
fn a_cluster_that_is_down_hands_nothing_over() {
    let (one, _other) = cluster();
    let mut me = one.client();
    me.say("CONFIG SET cluster-allow-reads-when-down yes");
    me.say("CONFIG SET cluster-require-full-coverage yes");
    me.say("LOCK.ACQUIRE k me 2000");
    let mut waiter = queues(&one.server, "a").0;
    me.say("CLUSTER DELSLOTS 1");
    wait_until("the cluster is down", || me.say("LOCK.ACQUIRE k x 1").is_error("CLUSTERDOWN"));
    assert!(waiter.hear().is_error("CLUSTERDOWN"));
    assert_eq!((one.server.info("hand_overs"), one.server.info("waiters")), (0, 0));
}

/// A slot moves away and comes back between two checks of the cluster. Tokens continue above those issued meanwhile on
/// the other master.
#[test]
fn a_slot_that_moves_away_and_back_at_once() {
    let (one, other) = cluster();
    // A master that gave away its last slot would become a replica, so each keeps another one.
    for member in [&one, &other] {
        member.client().say("CONFIG SET cluster-allow-replica-migration no");
    }
    let mut last = 0;
    for round in 0..24 {
        for (from, to) in [(&one, &other), (&other, &one)] {
            if !migrate_slots(from, &[SLOT], to) {
                return;
            }
            let mut there = to.client();
            let mut token = 0;
            wait_until("the slot has moved", || match there.say("LOCK.ACQUIRE k me 60000") {
                Reply::Int(granted) => {
                    token = granted;
                    true
                }
                moving => {
                    let codes = ["MOVED", "NOTYET", "CLUSTERDOWN", "GUARDED"];
                    assert!(codes.iter().any(|code| moving.is_error(code)), "{moving:?}");
                    false
                }
            });
            assert!(token > last, "{token} after {last}, move {round}");
            last = token;
            assert_eq!(there.say("LOCK.RELEASE k me"), int(0));
        }
    }
}

/// On servers that move slots in one step, held locks move along and their waiters are redirected.
#[test]
fn a_slot_that_moves_in_one_step() {
    let (one, other) = cluster();
    let mut me = one.client();
    let token = me.say("LOCK.ACQUIRE k me 60000 NOTE n").as_int();
    let mut waiter = queues(&one.server, "a").0;
    if !migrate_slots(&one, &[SLOT], &other) {
        return;
    }
    let expected = format!("MOVED {SLOT} 127.0.0.1:{}", other.server.port());
    assert_eq!(error(waiter.hear()), expected);
    let mut there = other.client();
    let info = there.say("LOCK.INFO k");
    assert_eq!((info.field("owner"), info.field("token"), info.field("note")), (text("me"), int(token), text("n")));
    // The new master grants nothing until the old one has said how the move ended.
    assert_eq!(there.outlast_guard("LOCK.ACQUIRE k thief 1000"), null());
    assert_eq!(there.say("LOCK.RELEASE k me"), int(0));
    assert!(there.outlast_guard("LOCK.ACQUIRE k next 60000").as_int() > token);
    wait_until("the source has none of it", || (one.server.info("held"), one.server.info("waiters")) == (0, 0));
}

/// A cluster has several databases. Then Valkey 9.1 loses writes of slots that move in one step, so they are guarded.
#[test]
fn a_slot_that_moves_in_one_step_out_of_several_databases_is_guarded() {
    let can = !Setup::new().start().client().say("CONFIG GET cluster-databases").as_list().is_empty();
    if !can {
        return not_here("clusters of this server have one database");
    }
    let [one, other] = joined_with(["0 16383", ""], |setup| setup.option("cluster-databases", "2"));
    one.client().insist("LOCK.ACQUIRE k me 60000");
    assert!(migrate_slots(&one, &[SLOT], &other));
    let mut there = other.client();
    wait_until("the slot is guarded", || {
        let reply = there.say("LOCK.ACQUIRE k thief 1000");
        reply.is_error("GUARDED") && guarded_ms(reply) > 20_000
    });
    assert_eq!(there.say("LOCK.RELEASE k me"), int(0));
}

/// The AOF has the migration by which the slot came. To load it again says nothing about the slot's locks.
#[test]
fn a_restart_guards_no_slot_that_came_in_one_step() {
    let [one, mut other] = joined_with(["0 16383", ""], Setup::aof);
    if !migrate_slots(&one, &[SLOT], &other) {
        return;
    }
    wait_until("the slot has moved", || !other.client().say("LOCK.ACQUIRE k me 60000 RETRY").is_error("MOVED"));
    let token = other.client().outlast_guard("LOCK.ACQUIRE k me 60000 RETRY").as_int();
    other.server.kill();
    other.server.start_again();
    let mut there = other.client();
    wait_until("it serves", || !there.say("GET k").is_error("CLUSTERDOWN"));
    assert_eq!((other.server.info("guarded_slots"), other.server.info("guard_ms")), (0, 0));
    assert_eq!(there.say("LOCK.INFO k").field("token"), int(token));
}

/// The server gives up an export if it has to send replicas a command without a slot, such as the one with the
/// ceilings. So replicas get no ceiling during an export, and get one afterwards.
#[test]
fn replicas_are_told_nothing_while_slots_leave_in_one_step_and_again_afterwards() {
    let [one, other, replica] = joined(["0 16383", "", ""]);
    let (mut me, mut copy) = (one.client(), replica.client());
    me.say("CONFIG SET cluster-allow-replica-migration no");
    wait_until("it follows", || copy.say(&format!("CLUSTER REPLICATE {}", one.id)) == text("OK"));
    let mut told = || {
        let stats = copy.say("INFO commandstats").as_text().to_lowercase();
        let calls = stats.split_once("cmdstat_lock.ceiling:calls=").map(|(_, calls)| calls.split(',').next().unwrap());
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    wait_until("the replica is told", || told() > 0);
    let token = me.insist("LOCK.ACQUIRE k me 60000").as_int();
    for n in 0..30 {
        me.say(&format!("SET {{k}}{n} v"));
    }
    // With the lock in it, a snapshot takes more than three seconds: longer than the interval at which ceilings are
    // sent.
    assert_eq!(me.say("CONFIG SET rdb-key-save-delay 100000"), text("OK"));
    let mut states = |slots: &[i64]| {
        let state = |job: &Reply| (job.field("state").as_text(), job.field("message").as_text());
        let jobs: Vec<_> = me.say("CLUSTER GETSLOTMIGRATIONS").as_list()[..slots.len()].iter().map(state).collect();
        jobs
    };
    for (slots, end) in [(&[SLOT][..], "cancelled"), (&[1, SLOT, 2], "success")] {
        if !migrate_slots(&one, slots, &other) {
            return;
        }
        // Everything that was sent before has arrived now.
        let mut writer = one.client();
        writer.say("SET elsewhere v");
        in_step(&mut writer);
        let before = told();
        if end == "cancelled" {
            assert_eq!(writer.say("CLUSTER CANCELSLOTMIGRATIONS"), text("OK"));
        }
        wait_until("the migrations end", || {
            let (now, states) = (told(), states(slots));
            assert!(states.iter().all(|(state, _)| state != "failed"), "{states:?}");
            let have_ended = states.iter().all(|(state, _)| state == end);
            assert!(have_ended || now == before, "the replica is told meanwhile: {states:?}");
            have_ended
        });
        wait_until("the replica is told again", || told() > before);
    }
    assert_eq!(other.client().insist("LOCK.EXTEND k me 60000"), int(token));
}

/// Moves the slot of `k` in one step, with a snapshot that takes some seconds. Meanwhile calls `keep` again and again, with
/// a client of the first master. Returns the second master, and how the move ended; `None` if this server cannot do that.
fn moved_slowly(one: &Member, other: &Member, mut keep: impl FnMut(&mut Client)) -> Option<(String, String)> {
    let mut me = one.client();
    for n in 0..30 {
        me.say(&format!("SET {{k}}{n} v"));
    }
    assert_eq!(me.say("CONFIG SET rdb-key-save-delay 100000"), text("OK"));
    if !migrate_slots(one, &[SLOT], other) {
        return None;
    }
    let mut end = None;
    wait_until("the migration ends", || {
        keep(&mut me);
        let job = &one.client().say("CLUSTER GETSLOTMIGRATIONS").as_list()[0];
        let state = job.field("state").as_text();
        end = ["success", "failed", "cancelled"].contains(&&*state).then(|| (state, job.field("message").as_text()));
        end.is_some()
    });
    end
}

/// The leases in the snapshot end at the target before it receives that they were extended. The slot moves all the same.
#[test]
fn a_slot_leaves_in_one_step_while_readers_extend_short_leases() {
    let (one, other) = cluster();
    let locks: Vec<_> = (0..10).map(|n| format!("{{k}}lock{n}")).collect();
    let both = |client: &mut Client, command: &str, mode: &str| {
        for lock in &locks {
            for owner in ["a", "b"] {
                client.say(&format!("LOCK.{command} {lock} {owner} 1000{mode}"));
            }
        }
    };
    one.client().insist("LOCK.ACQUIRE k me 60000");
    both(&mut one.client(), "ACQUIRE", " SHARED");
    let Some((state, message)) = moved_slowly(&one, &other, |client| both(client, "EXTEND", "")) else { return };
    assert_eq!(state, "success", "{message}: {}", other.server.log());
}

/// The times of gates with KEEP end in the snapshot, before the target receives that further tokens have passed. The gates
/// remember all tokens.
#[test]
fn gates_remember_all_tokens_when_their_slot_leaves_in_one_step() {
    let (one, other) = cluster();
    let gates: Vec<_> = (0..10).map(|n| format!("{{k}}gate{n}")).collect();
    let mut client = one.client();
    for gate in &gates {
        assert_eq!(client.say(&format!("LOCK.GATE {gate} 100 PERMIT 1 KEEP 2500")), int(1));
    }
    let (mut token, mut passed) = (100, std::time::Instant::now());
    let keep = |client: &mut Client| {
        token += 1;
        passed = std::time::Instant::now();
        gates.iter().for_each(|gate| drop(client.say(&format!("LOCK.GATE {gate} {token} PERMIT 2 KEEP 2500"))));
    };
    let Some((state, message)) = moved_slowly(&one, &other, keep) else { return };
    assert_eq!(state, "success", "{message}");
    let mut there = other.client();
    let late: Vec<_> = gates.iter().map(|gate| there.say(&format!("LOCK.GATE {gate} 99 PERMIT 1 KEEP 2500"))).collect();
    assert!(passed.elapsed() < std::time::Duration::from_millis(2_500), "this machine is too slow for the test");
    assert!(late.iter().all(|reply| reply.is_error("FENCED")), "late tokens pass: {late:?}");
}
