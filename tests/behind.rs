//! Information for people in a waiting request: its note, and the number of callers behind it in its client.

use crate::harness::{Reply, Server, error, int, text, waits};

/// Returns the owner, the note and the number of callers behind each waiter for k, and the sum of these numbers.
fn shown(server: &Server) -> (Vec<(String, String, i64)>, i64) {
    let info = server.client().say("LOCK.INFO k WAITERS 10");
    let entry = |waiter: &Reply| {
        let [owner, note] = ["owner", "note"].map(|name| waiter.field(name).as_text());
        (owner, note, waiter.field("behind").as_int())
    };
    (info.field("queue").as_list().iter().map(entry).collect(), info.field("waiters_behind").as_int())
}

fn row(owner: &str, note: &str, behind: i64) -> (String, String, i64) {
    (owner.to_owned(), note.to_owned(), behind)
}

#[test]
fn who_waits_says_for_whom_and_the_last_word_of_an_owner_counts() {
    let server = Server::start();
    let mut client = server.client();
    let features = client.say("LOCK.NODE").field("features").as_text();
    assert!(features.split(' ').any(|feature| feature == "behind"), "{features}");
    client.say("LOCK.ACQUIRE k holder 60000");
    let _one = waits(&server, "LOCK.ACQUIRE k one 60000 WAIT 60000 BEHIND 400 NOTE deploy");
    let _two = waits(&server, "LOCK.WAIT k two 60000 TICKET 7 NOTE web-3 BEHIND 2");
    // The second request has a ticket, which places it behind the first request, which has none.
    assert_eq!(shown(&server), (vec![row("one", "deploy", 400), row("two", "web-3", 2)], 402));
    let (again, _) = waits(&server, "LOCK.WAIT k two 60000 TICKET 7 NOTE web-4 BEHIND 5");
    let two = row("two", "web-4", 5);
    assert_eq!(shown(&server), (vec![row("one", "deploy", 400), two.clone(), two.clone()], 405));
    drop(again);
    crate::harness::wait_until("it left", || server.info("waiters") == 2);
    assert_eq!(shown(&server), (vec![row("one", "deploy", 400), two], 405));
    assert_eq!(client.say("LOCK.INFO k").field("waiters_behind"), int(405));
    client.say("LOCK.RELEASE k holder");
    assert_eq!(client.say("LOCK.INFO k").field("note"), text("deploy"));
    assert_eq!(client.say("LOCK.INFO k").field("waiters_behind"), int(5));
    assert_eq!(error(client.say("LOCK.ACQUIRE k x 1000 BEHIND 1")), "ERR BEHIND is for WAIT: give both");
}
