//! Answers to a listener: many requests wait over one connection, each in the same place as if it blocked a connection
//! of its own.

use crate::harness::{Client, Reply, Server, Setup, cluster, error, int, null, pair, queues, text, wait_until, waits};

const NAME: &str = "drawn-at-random-1";

/// Returns a listener's connection, on which no LOCK.HEAR waits, and the connection's id.
fn listener(server: &Server) -> (Client, i64) {
    let mut client = server.client();
    let id = client.say("CLIENT ID").as_int();
    assert_eq!(client.say(&format!("LOCK.HEAR {NAME} 0")), Reply::List(vec![]));
    (client, id)
}

/// Begins to wait for news, for a minute.
fn asks(listener: &mut Client) {
    listener.ask(&format!("LOCK.HEAR {NAME} 60000"));
}

/// Returns the answers in a reply to LOCK.HEAR (its news), each with its key and owner.
#[track_caller]
fn news(reply: &Reply) -> Vec<(String, String, Reply)> {
    let one = |news: &Reply| match &news.as_list()[..] {
        [key, owner, told] => (key.as_text(), owner.as_text(), told.clone()),
        other => panic!("no news: {other:?}"),
    };
    reply.as_list().iter().map(one).collect()
}

fn told(key: &str, owner: &str, told: Reply) -> (String, String, Reply) {
    (key.to_owned(), owner.to_owned(), told)
}

/// Returns the next `count` answers that the listener receives.
fn hears(listener: &mut Client, count: usize) -> Vec<(String, String, Reply)> {
    let mut all = vec![];
    while all.len() < count {
        asks(listener);
        all.extend(news(&listener.hear()));
    }
    all
}

/// Sends a LOCK.WAIT with a listener.
#[track_caller]
fn wait(client: &mut Client, key: &str, owner: &str, rest: &str) {
    let line = format!("LOCK.WAIT {key} {owner} 60000 HEARD {NAME}{rest}");
    assert_eq!(client.say(&line), text("WAITING"), "{line}");
}

/// Makes `me` hold the lock `k`, and returns the holder's client.
fn held(server: &Server) -> Client {
    let mut me = server.client();
    assert!(me.say("LOCK.ACQUIRE k me 60000").as_int() > 0);
    me
}

/// Regression: only the server's cron noticed that the lock could pass to the next request, once the connection of a
/// listener with a request before it had closed. Here the cron runs once a second.
#[test]
fn the_next_request_is_served_at_once_if_a_listener_before_it_is_gone() {
    let server = Server::start();
    let mut me = server.client();
    me.say("CONFIG SET hz 1");
    me.say("LOCK.ACQUIRE k me 60000 LIMIT 2");
    for _ in 0..8 {
        let (mut ear, _) = listener(&server);
        wait(&mut me, "k", "writer", "");
        asks(&mut ear);
        let (mut next, _) = waits(&server, "LOCK.ACQUIRE k next 60000 LIMIT 2 WAIT 500");
        drop(ear);
        assert!(matches!(next.hear(), Reply::List(list) if list.len() == 3));
        me.say("LOCK.RELEASE k next");
    }
}

#[test]
fn many_wait_over_one_connection_and_another_hears_of_them() {
    for resp3 in [false, true] {
        let server = Server::start();
        let mut me = held(&server);
        let (mut ear, _) = listener(&server);
        let mut asker = if resp3 { server.client_resp3() } else { server.client() };
        asks(&mut ear);
        // An answer that needs no wait is returned at once.
        assert_eq!(asker.say(&format!("LOCK.WAIT free a 60000 HEARD {NAME}")), int(1));
        assert_eq!(asker.say(&format!("LOCK.WAIT k me 60000 HEARD {NAME}")), int(1));
        assert!(asker.say(&format!("LOCK.WAIT k me 60000 SHARED HEARD {NAME}")).is_error("OWNED"));
        for key in ["k", "l", "m"] {
            me.say(&format!("LOCK.ACQUIRE {key} me 60000"));
            wait(&mut asker, key, "a", " NOTE why BEHIND 3");
        }
        assert_eq!((server.info("waiters"), server.info("waiters_heard"), server.info("listeners")), (3, 3, 1));
        let info = me.say("LOCK.INFO k");
        assert_eq!((info.field("waiters"), info.field("waiters_behind")), (int(1), int(3)));
        me.say("LOCK.RELEASE l me");
        assert_eq!(news(&ear.hear()), [told("l", "a", int(1))]);
        // The lock is reserved, as after any other turn.
        assert_eq!(me.say("LOCK.ACQUIRE l me 60000"), null());
        // News is kept if it arrives while the listener does not wait for it.
        me.say("LOCK.RELEASE m me");
        me.say("LOCK.RELEASE k me");
        asks(&mut ear);
        assert_eq!(news(&ear.hear()), [told("m", "a", int(1)), told("k", "a", int(1))]);
        assert_eq!((server.info("waiters"), server.info("turns")), (0, 3));
        assert_eq!(ear.say("PING"), text("PONG"), "nothing else was sent");
    }
}

/// Requests with a listener and requests that block are in one queue, by ticket and arrival.
#[test]
fn the_order_is_that_of_the_queue() {
    let server = Server::start();
    let mut me = held(&server);
    let (mut ear, _) = listener(&server);
    let mut asker = server.client();
    wait(&mut asker, "k", "second", " TICKET 20");
    let (mut third, _) = waits(&server, "LOCK.WAIT k third 60000 TICKET 30");
    wait(&mut asker, "k", "first", " TICKET 10");
    wait(&mut asker, "k", "fourth", " TICKET 30");
    let (mut fifth, _) = queues(&server, "fifth");
    asks(&mut ear);
    let mut take = |owner: &str, before: &str| {
        me.say(&format!("LOCK.RELEASE k {before}"));
        me.say(&format!("LOCK.ACQUIRE k {owner} 60000"));
    };
    take("first", "me");
    assert_eq!(news(&ear.hear()), [told("k", "first", int(1))]);
    asks(&mut ear);
    take("second", "first");
    assert_eq!(news(&ear.hear()), [told("k", "second", int(1))]);
    take("third", "second");
    assert_eq!(third.hear(), int(1));
    asks(&mut ear);
    take("fourth", "third");
    assert_eq!(news(&ear.hear()), [told("k", "fourth", int(1))]);
    take("x", "fourth");
    assert_eq!(fifth.hear().as_list().len(), 2);
}

/// When the listener's connection ends, its requests leave the queue, as those of a blocked client do.
#[test]
fn when_the_listener_ends_its_requests_leave() {
    for how in ["closed, asking", "closed, idle", "killed, asking", "killed, idle", "renamed"] {
        let server = Server::start();
        let mut me = held(&server);
        let (mut ear, id) = listener(&server);
        let mut asker = server.client();
        for n in 0..300 {
            wait(&mut asker, "k", &format!("o{n}"), "");
        }
        let mut next = queues(&server, "next").0;
        if how.ends_with("asking") {
            asks(&mut ear);
            wait_until("it asks", || server.client().info_field("blocked_clients") == 2);
        }
        match how.split(',').next() {
            Some("closed") => drop(ear),
            Some("killed") => assert_eq!(me.say(&format!("CLIENT KILL ID {id}")), int(1)),
            _ => assert_eq!(ear.say("LOCK.HEAR another-name-of-its-own 0"), Reply::List(vec![])),
        }
        wait_until("they leave", || server.info("waiters") == 1);
        assert!(asker.say(&format!("LOCK.WAIT k a 60000 HEARD {NAME}")).is_error("NOLISTENER"), "{how}");
        assert_eq!((server.info("waiters_heard"), server.info("listeners")), (0, (how == "renamed").into()), "{how}");
        me.say("LOCK.RELEASE k me");
        assert_eq!(next.hear().as_list().len(), 2, "{how}");
        assert_eq!(server.info("turns"), 0, "{how}");
    }
}

/// An operator ends the wait of the listener's connection, but not the waits of its requests.
#[test]
fn an_unblocked_listener_goes_on() {
    let server = Server::start();
    let mut me = held(&server);
    let (mut ear, id) = listener(&server);
    let mut asker = server.client();
    wait(&mut asker, "k", "a", "");
    for how in ["TIMEOUT", "ERROR"] {
        asks(&mut ear);
        wait_until("it asks", || server.client().info_field("blocked_clients") == 1);
        assert_eq!(me.say(&format!("CLIENT UNBLOCK {id} {how}")), int(1));
        match how {
            "TIMEOUT" => assert_eq!(ear.hear(), Reply::List(vec![])),
            _ => assert!(ear.hear().is_error("UNBLOCKED")),
        }
    }
    // RESET resets the connection, but not its listener: the requests stay in their queues.
    assert_eq!(ear.say("RESET"), text("RESET"));
    me.say("LOCK.RELEASE k me");
    asks(&mut ear);
    assert_eq!(news(&ear.hear()), [told("k", "a", int(1))]);
}

#[test]
fn each_is_told_when_its_time_is_up_and_the_listener_too() {
    let server = Server::start();
    let _me = held(&server);
    let (mut ear, _) = listener(&server);
    let mut asker = server.client();
    assert_eq!(asker.say(&format!("LOCK.WAIT k a 50 HEARD {NAME}")), text("WAITING"));
    asks(&mut ear);
    assert_eq!(news(&ear.hear()), [told("k", "a", int(0))]);
    assert_eq!(ear.say(&format!("LOCK.HEAR {NAME} 50")), Reply::List(vec![]));
    assert_eq!((server.info("waiters"), server.info("wait_timeouts")), (0, 1));
}

/// A request over a listener ends with a RELEASE of its owner, as every request does. Repeated with its ticket, it
/// keeps its place.
#[test]
fn a_request_is_taken_back_by_a_release_of_its_owner() {
    let server = Server::start();
    let mut me = held(&server);
    let (mut ear, _) = listener(&server);
    let mut asker = server.client();
    wait(&mut asker, "k", "a", " TICKET 1");
    wait(&mut asker, "k", "b", " TICKET 2");
    assert_eq!(asker.say("LOCK.RELEASE k a"), null());
    asks(&mut ear);
    assert_eq!(news(&ear.hear()), [told("k", "a", int(0))]);
    // A LOCK.WAIT of zero length ends it too, without an effect on a grant or a reservation of the owner.
    assert_eq!(asker.say(&format!("LOCK.WAIT k a 0 HEARD {NAME}")), int(0));
    assert_eq!(server.info("waiters"), 1, "it had none any more");
    wait(&mut asker, "k", "a", " TICKET 1");
    assert_eq!(asker.say(&format!("LOCK.WAIT k a 0 HEARD {NAME}")), int(0));
    asks(&mut ear);
    assert_eq!(news(&ear.hear()), [told("k", "a", int(0))]);
    assert!(asker.say(&format!("LOCK.WAIT k b 0 HEARD {}", "x".repeat(16))).is_error("NOLISTENER"));
    assert_eq!(asker.say("LOCK.WAIT k b 0"), int(0), "without a listener it is only asked");
    for line in ["LOCK.WAIT k me 0", "LOCK.WAIT free a 0"] {
        assert_eq!(asker.say(&format!("{line} HEARD {NAME}")), int(0));
    }
    assert_eq!(server.info("waiters"), 1);
    assert!(me.say("LOCK.ACQUIRE free me 60000").as_int() > 0, "it is not kept for who stopped");
    wait(&mut asker, "k", "a", " TICKET 1");
    wait(&mut asker, "k", "a", " TICKET 1");
    me.say("LOCK.RELEASE k me");
    assert_eq!(hears(&mut ear, 2), [told("k", "a", int(1)), told("k", "a", int(1))], "as often as it asked");
    assert_eq!(server.info("waiters"), 1);
    assert_eq!(asker.say(&format!("LOCK.WAIT k a 0 HEARD {NAME}")), int(0));
}

/// If a request is refused after it was queued, the listener receives the refusal as a result, with the error's text.
#[test]
fn refusals_that_come_later_are_news() {
    let server = Setup::new().module_arguments(&["max-waiters", "1"]).start();
    let mut me = held(&server);
    let (mut ear, _) = listener(&server);
    let mut asker = server.client();
    let line = format!("LOCK.WAIT k a 50000 HEARD {NAME}");
    assert_eq!(asker.say(&line), text("WAITING"));
    assert!(asker.say(&line).is_error("QUEUEFULL"));
    me.say("LOCK.GUARD ARM 55000");
    me.say("LOCK.RELEASE k me");
    asks(&mut ear);
    let reply = news(&ear.hear());
    assert!(reply[0].2.as_text().starts_with("GUARDED 5"), "{reply:?}");
    assert!(asker.insist(&line).is_error("GUARDED"));
    me.say("LOCK.GUARD LIFT");
    me.say("LOCK.ACQUIRE k me 60000");
    assert_eq!(asker.say(&line), text("WAITING"));
    me.say("SET k x");
    asks(&mut ear);
    assert!(news(&ear.hear())[0].2.as_text().starts_with("WRONGTYPE "));
    me.say("DEL k");
    me.say("LOCK.ACQUIRE k me 60000");
    assert_eq!(asker.say(&line), text("WAITING"));
    assert!(error(me.say("LOCK.PANIC")).starts_with("LOCKPANIC"));
    me.say("LOCK.RELEASE k me");
    asks(&mut ear);
    assert!(news(&ear.hear())[0].2.as_text().starts_with("LOCKPANIC "));
}

#[test]
fn what_cannot_be_heard_is_refused_and_changes_nothing() {
    let server = Server::start();
    let mut me = held(&server);
    let line = format!("LOCK.WAIT k a 60000 HEARD {NAME}");
    assert!(me.say(&line).is_error("NOLISTENER"), "nobody listens yet");
    let (mut ear, _) = listener(&server);
    assert!(error(me.say(&format!("LOCK.HEAR {NAME} 0"))).starts_with("ERR another connection listens"));
    for name in ["short", &"x".repeat(65)] {
        assert!(error(me.say(&format!("LOCK.HEAR {name} 0"))).contains("16 to 64 bytes"));
        assert!(error(me.say(&format!("LOCK.WAIT k a 0 HEARD {name}"))).contains("16 to 64 bytes"));
    }
    assert!(error(me.say(&format!("LOCK.HEAR {NAME} -1"))).starts_with("ERR the time to wait"));
    // Another user's listener does not exist for this user.
    me.say("ACL SETUSER app on nopass ~* +lock.wait +lock.hear");
    let mut app = server.client();
    app.say("AUTH app x");
    assert!(app.say(&line).is_error("NOLISTENER"));
    assert!(error(app.say(&format!("LOCK.HEAR {NAME} 0"))).starts_with("ERR another connection listens"));
    // A script has no connection, and in a transaction nothing can wait.
    assert!(
        error(me.say(&format!("EVAL return{{redis.call('LOCK.HEAR','{NAME}','0')}} 0"))).contains("outside of scripts")
    );
    assert_eq!(
        me.say(&format!("EVAL return{{redis.call('LOCK.WAIT','k','a','60000','HEARD','{NAME}')}} 0")),
        Reply::List(vec![int(0)])
    );
    let mut lines = ["MULTI", &line, "EXEC"].map(str::to_owned).to_vec();
    assert_eq!(me.pipeline(&lines)[2], Reply::List(vec![int(0)]));
    lines[1] = format!("LOCK.HEAR {NAME} 60000");
    assert_eq!(ear.pipeline(&lines)[2], Reply::List(vec![Reply::List(vec![])]));
    assert_eq!((server.info("waiters"), server.info("listeners")), (0, 1));
}

/// A lock that a user may no longer request is not granted to it, whichever connection sent the request.
#[test]
fn who_lost_the_permission_is_passed_over() {
    let server = Server::start();
    let mut operator = held(&server);
    operator.say("ACL SETUSER app on nopass ~k +lock.hear +lock.wait");
    let (mut ear, mut asker) = (server.client(), server.client());
    for client in [&mut ear, &mut asker] {
        assert_eq!(client.say("AUTH app x"), text("OK"));
    }
    assert_eq!(ear.say(&format!("LOCK.HEAR {NAME} 0")), Reply::List(vec![]));
    wait(&mut asker, "k", "a", "");
    wait(&mut asker, "k", "b", "");
    let (mut next, _) = queues(&server, "next");
    assert_eq!(operator.say("ACL SETUSER app -lock.wait"), text("OK"));
    operator.say("LOCK.RELEASE k me");
    assert_eq!(next.hear().as_list().len(), 2);
    let reply = hears(&mut ear, 2);
    assert!(reply.iter().all(|(.., told)| told.as_text().starts_with("NOPERM ")), "{reply:?}");
    assert_eq!((server.info("turns"), server.info("waiters")), (0, 0));
}

#[test]
fn a_demoted_master_tells_listeners_and_grants_nothing() {
    let (server, replica) = pair();
    let mut me = held(&server);
    let (mut ear, _) = listener(&server);
    let mut asker = server.client();
    for n in 0..150 {
        wait(&mut asker, "k", &format!("o{n}"), "");
    }
    let port = replica.port();
    replica.client().say("REPLICAOF NO ONE");
    me.say(&format!("REPLICAOF 127.0.0.1 {port}"));
    wait_until("they leave", || (server.info("waiters"), server.info("waiters_heard")) == (0, 0));
    assert!(error(asker.say(&format!("LOCK.WAIT k a 1 HEARD {NAME}"))).starts_with("READONLY"));
    let reply = hears(&mut ear, 150);
    assert!(reply.iter().all(|(.., told)| told.as_text().starts_with("UNBLOCKED ")), "{reply:?}");
    assert_eq!(server.info("turns"), 0);
    // A replica accepts listeners, which get news once it is promoted.
    assert_eq!(ear.say(&format!("LOCK.HEAR {NAME} 20")), Reply::List(vec![]));
    me.say("REPLICAOF NO ONE");
    me.lift();
    me.insist("LOCK.ACQUIRE l me 60000");
    wait(&mut asker, "l", "a", "");
    me.say("LOCK.RELEASE l me");
    asks(&mut ear);
    assert_eq!(news(&ear.hear()), [told("l", "a", int(1))]);
}

/// A listener that waits for news while the master becomes a replica is answered, by the server or with the news.
#[test]
fn a_listener_that_asks_is_not_forgotten_by_a_demotion() {
    let (server, replica) = pair();
    let mut me = held(&server);
    let (mut ear, _) = listener(&server);
    let mut asker = server.client();
    wait(&mut asker, "k", "a", "");
    asks(&mut ear);
    wait_until("it asks", || server.client().info_field("blocked_clients") == 1);
    me.say(&format!("REPLICAOF 127.0.0.1 {}", replica.port()));
    match ear.hear() {
        // The server itself ends all waits, and closes the connections afterwards.
        Reply::Error(text) => assert!(text.starts_with("UNBLOCKED"), "{text}"),
        reply => assert!(news(&reply)[0].2.as_text().starts_with("UNBLOCKED "), "{reply:?}"),
    }
    assert_eq!((server.info("waiters"), server.info("waiters_heard")), (0, 0));
}

#[test]
fn a_slot_that_moves_sends_them_away() {
    const SLOT: i64 = 7629;
    let (one, other) = cluster();
    let mut me = held(&one.server);
    let (mut ear, _) = listener(&one.server);
    let mut asker = one.client();
    for n in 0..120 {
        wait(&mut asker, "k", &format!("o{n}"), "");
    }
    other.client().say(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", one.id));
    me.say(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", other.id));
    me.say("LOCK.RELEASE k me");
    let reply = hears(&mut ear, 120);
    assert!(reply.iter().all(|(.., told)| told.as_text().starts_with("TRYAGAIN")), "{reply:?}");
    assert_eq!((one.server.info("waiters"), one.server.info("turns")), (0, 0));
    // A listener's name is known only on its own node.
    assert!(error(asker.say(&format!("LOCK.WAIT k a 1 HEARD {NAME}"))).starts_with("ASK"));
    for member in [&other, &one] {
        assert_eq!(member.client().say(&format!("CLUSTER SETSLOT {SLOT} NODE {}", other.id)), text("OK"));
    }
    assert!(other.client().say(&format!("LOCK.WAIT k a 1 HEARD {NAME}")).is_error("NOLISTENER"));
}

/// While writes are paused, no request gets a turn; right after, the first waiter does.
#[test]
fn a_pause_of_writes_is_waited_for() {
    let server = Server::start();
    let mut me = held(&server);
    me.say("LOCK.ACQUIRE short me 100");
    let (mut ear, _) = listener(&server);
    let mut asker = server.client();
    wait(&mut asker, "short", "a", "");
    asks(&mut ear);
    me.say("CLIENT PAUSE 600 WRITE");
    assert_eq!(news(&ear.hear()), [told("short", "a", int(1))]);
    assert_eq!(me.say("EXISTS short"), int(0));
}

/// Ten thousand requests wait over one connection. Each takes less than 1500 bytes, and is answered in order.
#[test]
fn ten_thousand_over_one_connection() {
    const COUNT: u64 = 10_000;
    let server = Setup::new().module_arguments(&["handoff-window", "1"]).start();
    let mut me = held(&server);
    let (mut ear, _) = listener(&server);
    let mut asker = server.client();
    let before = me.info_field("used_memory");
    let lines: Vec<_> =
        (0..COUNT).map(|n| format!("LOCK.WAIT k an-owner-of-20-bytes{n:05} 600000 TICKET {n} HEARD {NAME}")).collect();
    for slice in lines.chunks(500) {
        assert!(asker.pipeline(slice).iter().all(|reply| *reply == text("WAITING")));
    }
    assert_eq!((server.info("waiters"), server.info("waiters_heard")), (COUNT, COUNT));
    let each = (me.info_field("used_memory") - before) / COUNT;
    println!("{each} bytes each");
    assert!(each < 1_500, "{each} bytes each");
    // The lock is offered to one waiter after another. Each of them gives up its turn at once.
    let mut owner = "me".to_owned();
    let mut next = 0;
    me.say("CONFIG SET lock.handoff-window 60000");
    while next < COUNT {
        me.say(&format!("LOCK.RELEASE k {owner}"));
        asks(&mut ear);
        for (_, told, number) in news(&ear.hear()) {
            assert_eq!((told.clone(), number), (format!("an-owner-of-20-bytes{next:05}"), int(1)));
            owner = told;
            next += 1;
        }
    }
    assert_eq!((server.info("waiters"), server.info("waiters_heard")), (0, 0));
    let left = me.info_field("used_memory");
    // The same number of requests at once, each for its own key: every request is answered exactly once.
    for slice in (0..COUNT).collect::<Vec<_>>().chunks(500) {
        let lines: Vec<_> = slice.iter().map(|n| format!("LOCK.ACQUIRE k{n} me 60000")).collect();
        assert!(me.pipeline(&lines).iter().all(|reply| reply.as_int() > 0));
        let lines: Vec<_> = slice.iter().map(|n| format!("LOCK.WAIT k{n} o{n} 600000 HEARD {NAME}")).collect();
        assert!(asker.pipeline(&lines).iter().all(|reply| *reply == text("WAITING")));
    }
    for slice in (0..COUNT).collect::<Vec<_>>().chunks(500) {
        me.pipeline(&slice.iter().map(|n| format!("LOCK.RELEASE k{n} me")).collect::<Vec<_>>());
    }
    let all = hears(&mut ear, COUNT as usize);
    let expected: Vec<_> = (0..COUNT).map(|n| told(&format!("k{n}"), &format!("o{n}"), int(1))).collect();
    assert!(all == expected, "in the order of their releases");
    // The memory of reservations is freed with the keys.
    me.say("CONFIG SET lock.handoff-window 1");
    me.say("FLUSHALL");
    wait_until("memory is given back", || {
        me.lift();
        me.info_field("used_memory") < left + 500_000
    });
}

#[test]
fn shutdown_with_listeners_ends_cleanly() {
    let mut server = Setup::new().aof().start();
    let _me = held(&server);
    let (mut ear, _) = listener(&server);
    let mut asker = server.client();
    wait(&mut asker, "k", "a", "");
    asks(&mut ear);
    server.shutdown("");
    assert!(error(ear.hear()).starts_with("no code"), "the connection is closed");
    server.start_again();
    assert_eq!((server.info("waiters"), server.info("listeners")), (0, 0));
    assert!(server.client().insist(&format!("LOCK.WAIT k a 1 HEARD {NAME}")).is_error("NOLISTENER"));
}
