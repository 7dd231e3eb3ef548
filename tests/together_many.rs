//! A lock with a hundred thousand holders. An operation on one of them takes as long as with two holders, and the end
//! of all does not delay other clients.

use std::time::Instant;

use palisade_core::Refusal;

use crate::harness::{
    Client, Reply, Server, Setup, beside_a_bystander, error, follow, in_step, int, null, owners, pass_first_tokens,
    past_its_first_tokens, text, token, wait_until, waits,
};

const HOLDERS: usize = 100_000;

/// Makes readers of `k` with the names r0, r1 and so on, whose leases all end in about `end_ms`.
fn readers(client: &mut Client, count: usize, end_ms: u128) {
    let started = Instant::now();
    for batch in (0..count).collect::<Vec<_>>().chunks(5_000) {
        let lines: Vec<_> = batch
            .iter()
            .map(|n| {
                let ms = end_ms.saturating_sub(started.elapsed().as_millis()).max(1);
                format!("LOCK.ACQUIRE k r{n} {ms} SHARED")
            })
            .collect();
        assert!(client.pipeline(&lines).iter().all(|reply| token(reply) > 0));
    }
    println!("{count} readers in {:?}", started.elapsed());
}

/// One reader stays, so that the end of each other one is a change of the lock, which is sent to the replica.
#[test]
fn a_hundred_thousand_leases_of_one_lock_end_at_once() {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let replica = Setup::new().replication().start();
    follow(&replica, &master);
    let mut me = master.client();
    me.say("LOCK.ACQUIRE k last 60000 SHARED");
    readers(&mut me, HOLDERS, 15_000);
    assert_eq!(me.say("LOCK.INFO k").field("holders"), int(HOLDERS as i64 + 1));
    assert_eq!((master.info("held"), master.info("deadlines")), (1, 1));
    let mut writer = waits(&master, "LOCK.ACQUIRE k w 60000 WAIT 60000").0;
    beside_a_bystander(&master, || wait_until("all leases end", || master.info("expiries") == HOLDERS as u64));
    let started = Instant::now();
    // WAIT covers this client's write, and so everything before it.
    me.say("SET after all");
    in_step(&mut me);
    println!("the replica was in step {:?} later", started.elapsed());
    assert_eq!(owners(&mut me, "k"), ["last"]);
    assert_eq!(owners(&mut replica.client(), "k"), ["last"]);
    assert_eq!(me.say("DEBUG DIGEST"), replica.client().say("DEBUG DIGEST"));
    me.say("LOCK.RELEASE k last");
    assert!(token(&writer.hear()) > 0);
    assert_eq!((master.info("held"), master.info("deadlines")), (1, 1));
}

/// If no reader stays, the lock ends as a whole.
#[test]
fn a_lock_whose_holders_all_end_ends_as_one() {
    let server = Server::start();
    let mut me = server.client();
    readers(&mut me, HOLDERS, 15_000);
    beside_a_bystander(&server, || wait_until("the lock ends", || server.info("held") == 0));
    assert_eq!((server.info("expiries"), server.info("deadlines")), (HOLDERS as u64, 0));
    assert_eq!((me.say("LOCK.INFO k"), me.say("EXISTS k")), (null(), int(0)));
    assert!(me.say("LOCK.ACQUIRE k w 1000").as_int() > 0);
}

/// The waiter gets the lock in the step that ends it for all the others. Freeing those is left to another thread.
#[test]
fn a_lock_of_many_holders_passes_as_a_whole() {
    const MANY: usize = 20_000;
    let mut server = Server::start();
    let mut me = server.client();
    for (ends_by, end_ms) in [("BREAK", 60_000), ("expiry", 8_000)] {
        readers(&mut me, MANY, end_ms);
        let mut writer = waits(&server, "LOCK.ACQUIRE k w 60000 WAIT 60000").0;
        if ends_by == "BREAK" {
            assert!(me.say("LOCK.BREAK k").as_int() > 0);
        }
        let granted = token(&writer.hear());
        assert_eq!(
            (owners(&mut me, "k"), me.say("LOCK.EXTEND k r0 1000")),
            (vec!["w".to_owned()], null()),
            "{ends_by}"
        );
        assert_eq!((server.info("held"), server.info("deadlines")), (1, 1), "{ends_by}");
        assert_eq!(me.insist("LOCK.EXTEND k w 60000"), int(granted));
        assert_eq!(me.say("LOCK.RELEASE k w"), int(0));
    }
    readers(&mut me, MANY, 60_000);
    let _writer = waits(&server, "LOCK.ACQUIRE k w 60000 WAIT 60000").0;
    assert!(me.say("LOCK.BREAK k").as_int() > 0);
    server.shutdown("NOSAVE");
    let log = server.log();
    assert!(log.contains("bye bye") && !log.contains("crashed"), "{log}");
}

/// An operation on one holder takes as long beside a hundred thousand others as beside one.
#[test]
fn one_of_a_hundred_thousand_is_as_quick_as_one_of_two() {
    let server = Server::start();
    let mut me = server.client();
    let mut times = vec![];
    for holders in [2, HOLDERS] {
        readers(&mut me, holders, 60_000);
        let lines: Vec<_> = (0..2_000)
            .flat_map(|n| [format!("LOCK.ACQUIRE k x{n} 60000 SHARED"), format!("LOCK.RELEASE k x{n}")])
            .collect();
        let started = Instant::now();
        let replies = me.pipeline(&lines);
        times.push(started.elapsed());
        assert!(replies.chunks(2).all(|pair| token(&pair[0]) > 0 && pair[1] == int(0)));
        assert_eq!(me.say("LOCK.INFO k").field("holders"), int(holders as i64));
        me.say("LOCK.BREAK k");
    }
    println!("2 000 pairs beside 2 and beside {HOLDERS} holders: {times:?}");
    assert_eq!((server.info("held"), server.info("deadlines"), server.info("breaks")), (0, 0, 2));
}

/// Makes `count` readers that share one token. Returns the token.
fn readers_with_one_token(me: &mut Client, count: usize) -> i64 {
    let shared = me.say("LOCK.ACQUIRE k r 60000 SHARED").as_int();
    for batch in (1..count).collect::<Vec<_>>().chunks(5_000) {
        let lines: Vec<_> = batch.iter().map(|n| format!("LOCK.ACQUIRE k r{n} 60000 SHARED FENCE {shared}")).collect();
        assert!(me.pipeline(&lines).iter().all(|reply| token(reply) == shared));
    }
    shared
}

/// The lock is renamed between two slices: its other grants stay, and the operator is informed.
#[test]
fn a_break_whose_lock_is_renamed_in_the_middle_says_so() {
    let server = past_its_first_tokens();
    let mut me = server.client();
    let shared = readers_with_one_token(&mut me, 20_000);
    let mut operator = server.client();
    operator.ask(&format!("LOCK.BREAK k TOKEN {shared}"));
    assert_eq!(me.say("RENAME k other"), text("OK"));
    let told = operator.hear();
    assert!(matches!(&told, Reply::Error(text) if text.starts_with("ERR the lock was moved")), "{told:?}");
    assert!(me.say("LOCK.INFO other").field("holders").as_int() > 0);
    assert_eq!(me.say(&format!("LOCK.BREAK other TOKEN {shared}")), int(shared));
    assert_eq!(server.info("held"), 0);
}

/// Readers may all propose one token. An operator who breaks it waits until all grants with it have ended, while other
/// clients are served.
#[test]
fn a_token_that_a_hundred_thousand_readers_share_is_broken_in_slices() {
    let server = past_its_first_tokens();
    let mut me = server.client();
    let shared = readers_with_one_token(&mut me, HOLDERS);
    let mut operator = server.client();
    operator.ask(&format!("LOCK.BREAK k TOKEN {shared}"));
    let mut left = HOLDERS as i64;
    let mut looks_between = 0;
    while left > 0 {
        let info = me.say("LOCK.INFO k");
        left = if info == null() { 0 } else { info.field("holders").as_int() };
        looks_between += usize::from(0 < left && left < HOLDERS as i64);
    }
    assert!(looks_between > 0, "all ended at once");
    assert_eq!(operator.hear(), int(shared));
    assert_eq!((server.info("held"), server.info("deadlines"), server.info("breaks")), (0, 0, 1));
}

/// The AOF of readers that share a token is loaded. Each of its entries changes the index of the shared token, which
/// used to be searched from its beginning.
#[test]
fn a_token_that_many_readers_share_is_there_after_a_restart() {
    const READERS: usize = 20_000;
    // The system keeps what a killed server has written, so the AOF need not be synced.
    let setup = Setup::new().aof().option("appendfsync", "no");
    let mut server = setup.module_arguments(&["max-clock-skew", "0"]).start();
    let mut me = server.client();
    pass_first_tokens(&mut me, "first");
    let shared = readers_with_one_token(&mut me, READERS);
    server.kill();
    server.start_again();
    server.lift();
    let mut me = server.client();
    assert_eq!(me.say("LOCK.INFO k").field("holders"), int(READERS as i64));
    assert_eq!(me.say(&format!("LOCK.BREAK k TOKEN {shared}")), int(shared));
    assert_eq!((server.info("held"), server.info("deadlines")), (0, 0));
}

/// An operator who is unblocked during a BREAK gets an error that says so, and the break goes on. The answer used to be
/// Null, which means that there is no such grant.
#[test]
fn an_operator_who_is_unblocked_is_told_that_the_break_goes_on() {
    let server = past_its_first_tokens();
    let mut me = server.client();
    let shared = readers_with_one_token(&mut me, 20_000);
    let mut operator = server.client();
    let id = operator.say("CLIENT ID").as_int();
    operator.ask(&format!("LOCK.BREAK k TOKEN {shared}"));
    wait_until("it is unblocked before its end", || me.say(&format!("CLIENT UNBLOCK {id}")) == int(1));
    let told = operator.hear();
    assert!(
        matches!(&told, Reply::Error(text) if text.starts_with("UNBLOCKED this client waits no longer")),
        "{told:?}"
    );
    wait_until("all have ended", || server.info("held") == 0);
}

/// MULTI and scripts stop all other clients until they have ended. So in them a BREAK is refused if more grants have
/// the token than one slice ends (64).
#[test]
fn a_transaction_or_a_script_breaks_a_token_of_few_grants_only() {
    let server = past_its_first_tokens();
    let mut me = server.client();
    let shared = me.say("LOCK.ACQUIRE k r0 60000 SHARED").as_int();
    for n in 1..=64 {
        assert_eq!(me.say(&format!("LOCK.ACQUIRE k r{n} 60000 SHARED FENCE {shared}")), int(shared));
    }
    let mut in_transaction = || {
        me.say("MULTI");
        me.say(&format!("LOCK.BREAK k TOKEN {shared}"));
        (me.say("EXEC").as_list().remove(0), me.say("LOCK.INFO k"))
    };
    let refused = Refusal::BreaksTooMany.to_string();
    let (told, info) = in_transaction();
    assert_eq!((error(told), info.field("holders")), (refused.clone(), int(65)));
    let mut other = server.client();
    let script = "return redis.pcall('LOCK.BREAK', KEYS[1], 'TOKEN', ARGV[1])";
    let told = other.send(&[b"EVAL", script.as_bytes(), b"1", b"k", shared.to_string().as_bytes()]);
    assert_eq!((error(told), server.info("breaks")), (refused, 0));
    other.say("LOCK.RELEASE k r7");
    assert_eq!(in_transaction(), (int(shared), null()));
}

/// The operator's connection ends during a BREAK in slices, and the server uses the id of its blocked client for the next
/// client that waits. That client must not get the answer of the BREAK: it would take the token for a grant.
#[test]
fn a_waiting_client_does_not_get_the_answer_of_a_break_whose_operator_has_gone() {
    let server = past_its_first_tokens();
    let mut me = server.client();
    let shared = readers_with_one_token(&mut me, HOLDERS);
    me.say("LOCK.ACQUIRE other holder 60000");
    let mut operator = server.client();
    let id = operator.say("CLIENT ID").as_int();
    // The server may use the memory of the operator's blocked client for any of them.
    let mut waiters: Vec<_> = (0..100).map(|_| server.client()).collect();
    operator.ask(&format!("LOCK.BREAK k TOKEN {shared}"));
    wait_until("the break is under way", || server.info("breaks") == 1);
    assert_eq!(me.say(&format!("CLIENT KILL ID {id}")), int(1));
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.ask(&format!("LOCK.ACQUIRE other w{n} 60000 WAIT 5000"));
    }
    wait_until("they wait", || server.info("waiters") == 100);
    assert!(me.say("LOCK.INFO k").field("holders").as_int() > 0, "the break is still under way");
    wait_until("the break is done", || me.say("LOCK.INFO k") == null());
    let told: Vec<_> = waiters.iter_mut().map(Client::hear).collect();
    assert_eq!(owners(&mut me, "other"), ["holder"]);
    assert!(told.iter().all(|told| *told == null()), "the token {shared} was broken: {told:?}");
}
