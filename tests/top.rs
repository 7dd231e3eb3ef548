//! LOCK.TOP: the most contended keys.

use crate::harness::{Client, Reply, Server, int, null, text};

/// Returns the key, count and error of each row.
fn rows(top: &Reply, kind: &str) -> Vec<(String, i64, i64)> {
    let row = |row: &Reply| (row.field("key").as_text(), row.field("count").as_int(), row.field("error").as_int());
    top.field(kind).as_list().iter().map(row).collect()
}

fn contend(client: &mut Client, key: &str, refused: usize, waited: usize) {
    assert!(client.say(&format!("LOCK.ACQUIRE {key} me 60000")).as_int() > 0);
    for _ in 0..refused {
        assert_eq!(client.say(&format!("LOCK.ACQUIRE {key} you 60000")), null());
    }
    for _ in 0..waited {
        assert_eq!(client.say(&format!("LOCK.ACQUIRE {key} you 60000 WAIT 1")), null());
    }
    assert_eq!(client.say(&format!("LOCK.RELEASE {key} me")), int(0));
}

#[test]
fn the_keys_that_are_waited_for_and_refused_most_come_first() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!((client.say("LOCK.TOP").field("waits"), client.say("LOCK.TOP").field("refusals")), (int(0), int(0)));
    contend(&mut client, "quiet", 0, 0);
    contend(&mut client, "refused", 3, 1);
    contend(&mut client, "waited", 1, 2);
    let top = client.say("LOCK.TOP");
    let row = |key: &str, count| (key.to_owned(), count, 0);
    assert_eq!((top.field("waits"), top.field("refusals")), (int(3), int(4)));
    assert_eq!(rows(&top, "waited"), [row("waited", 2), row("refused", 1)]);
    assert_eq!(rows(&top, "refused"), [row("refused", 3), row("waited", 1)]);
    assert_eq!(rows(&client.say("LOCK.TOP COUNT 1"), "refused"), [row("refused", 3)]);
    assert_eq!(client.say("LOCK.TOP RESET COUNT 1").field("waits"), int(3), "it answers, and then forgets");
    let after = client.say("LOCK.TOP");
    assert_eq!((after.field("waits"), rows(&after, "refused")), (int(0), vec![]));
    let features = client.say("LOCK.NODE").field("features");
    assert_eq!(features, text("log behind top hear members"));
}

/// The table has a bounded size, however many keys there are. A frequent key is found among thousands that occur once.
#[test]
fn a_busy_key_is_found_among_many() {
    let server = Server::start();
    let mut client = server.client();
    let lines: Vec<String> = (0..2_000)
        .flat_map(|n| {
            let busy = if n % 20 == 0 { Some("LOCK.ACQUIRE busy you 60000".to_owned()) } else { None };
            [format!("LOCK.ACQUIRE k{n} me 60000"), format!("LOCK.ACQUIRE k{n} you 60000")].into_iter().chain(busy)
        })
        .collect();
    client.say("LOCK.ACQUIRE busy me 60000");
    client.pipeline(&lines);
    let top = client.say("LOCK.TOP COUNT 10000");
    let rows = rows(&top, "refused");
    assert_eq!((top.field("refusals"), rows.len()), (int(2_100), 256));
    let (key, count, error) = &rows[0];
    assert_eq!(key, "busy");
    assert!(*count >= 100 && count - error <= 100 && *error <= 2_100 / 256, "{count} {error}");
}
