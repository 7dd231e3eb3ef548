//! `lock.metrics-prefixes`: grants, refusals, waits and holds of locks by key prefix, in INFO.

use crate::harness::{Client, Reply, Server, Setup, error, in_step, int, null, pair, text, wait_until, waits};

const PARAMETER: &str = "lock.metrics-prefixes";

fn configured(client: &mut Client) -> String {
    client.say(&format!("CONFIG GET {PARAMETER}")).field(PARAMETER).as_text()
}

fn configure(client: &mut Client, value: &[u8]) -> Reply {
    client.send(&[b"CONFIG", b"SET", PARAMETER.as_bytes(), value])
}

/// Returns the rows of INFO lock_prefixes: the text before the figures, and the figures by name.
fn rows(client: &mut Client) -> Vec<(String, Vec<(String, u64)>)> {
    let info = client.say("INFO lock_prefixes").as_text();
    let lines = info.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &str| {
        let (name, list) = line.split_once(':').unwrap();
        let mut pairs: Vec<_> = list.split(',').map(|pair| pair.split_once('=').unwrap()).collect();
        let of = match pairs[0] {
            ("prefix", prefix) => {
                pairs.remove(0);
                assert!(name.strip_prefix("lock_prefix_").unwrap().parse::<u64>().is_ok(), "{line}");
                prefix.to_owned()
            }
            _ => {
                assert_eq!(name, "lock_prefix_other");
                "(other)".to_owned()
            }
        };
        (of, pairs.into_iter().map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect())
    };
    lines.map(row).collect()
}

/// Returns the numbers of grants, refusals, served waits, and ended grants for this prefix.
fn figures(client: &mut Client, of: &str) -> [u64; 4] {
    let rows = rows(client);
    let (_, figures) = rows.iter().find(|(prefix, _)| prefix == of).unwrap_or_else(|| panic!("{of}: {rows:?}"));
    ["grants", "contended", "waits", "ends"].map(|name| figures.iter().find(|(field, _)| field == name).unwrap().1)
}

fn take_and_release(client: &mut Client, key: &[u8]) {
    assert!(client.send(&[b"LOCK.ACQUIRE", key, b"me", b"60000"]).as_int() > 0);
    assert_eq!(client.send(&[b"LOCK.RELEASE", key, b"me"]), int(0));
}

#[test]
fn the_longest_prefix_counts_what_happens_to_its_locks() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!((configured(&mut client).as_str(), rows(&mut client).len()), ("", 0));
    take_and_release(&mut client, b"orders:1");
    assert_eq!(configure(&mut client, b"  orders:  orders:eu: invoices: "), text("OK"));
    assert_eq!(configured(&mut client), "invoices: orders: orders:eu:");
    for key in ["orders:1", "orders:eu:1", "orders:eu:2", "orders", "x"] {
        take_and_release(&mut client, key.as_bytes());
    }
    client.say("LOCK.ACQUIRE orders:1 me 60000");
    assert_eq!(client.say("LOCK.ACQUIRE orders:1 you 60000"), null());
    let (mut next, _) = waits(&server, "LOCK.ACQUIRE orders:1 next 60000 WAIT 60000");
    std::thread::sleep(std::time::Duration::from_millis(20));
    client.say("LOCK.RELEASE orders:1 me");
    assert!(next.hear().as_list()[0].as_int() > 0);
    let mut of = |prefix| figures(&mut client, prefix);
    assert_eq!(of("orders:"), [3, 1, 1, 2]);
    assert_eq!((of("orders:eu:"), of("invoices:"), of("(other)")), ([2, 0, 0, 2], [0; 4], [2, 0, 0, 2]));
    let rows = rows(&mut client);
    assert_eq!(
        rows.iter().map(|row| &row.0[..]).collect::<Vec<_>>(),
        ["invoices:", "orders:", "orders:eu:", "(other)"]
    );
    let orders = &rows[1].1;
    let names = "grants contended waits wait_p50_us wait_p99_us wait_max_us ends held_p50_us held_p99_us held_max_us";
    assert_eq!(orders.iter().map(|field| &field.0[..]).collect::<Vec<_>>().join(" "), names);
    let (waited, held) = (orders[5].1, orders[9].1);
    assert!(waited >= 19_800 && held >= 19_800, "{orders:?}");
    assert!(client.say("INFO lock").as_text().contains("lock_prefix_1:prefix=invoices:,grants=0,"));
    // Prefixes that stay listed keep their figures; those of removed ones are gone.
    configure(&mut client, b"orders: x");
    let mut of = |prefix| figures(&mut client, prefix);
    assert_eq!((of("orders:"), of("x"), of("(other)")), ([3, 1, 1, 2], [0; 4], [2, 0, 0, 2]));
    configure(&mut client, b"");
    assert!(!client.say("INFO lock").as_text().contains("lock_prefix"));
}

#[test]
fn garbage_is_refused_and_changes_nothing() {
    let server = Setup::new().module_arguments(&["metrics-prefixes", "a: b:"]).start();
    let mut client = server.client();
    take_and_release(&mut client, b"a:1");
    let (long, many) = ("x".repeat(129), (0..33).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
    for wrong in ["%", "a%", "a %2", "%zz", "a a", "a %61", &long, &many] {
        let why = error(configure(&mut client, wrong.as_bytes()));
        assert!(why.contains("at most 32 of 1 to 128 bytes"), "{why}");
    }
    // One invalid value changes nothing, not even the other parameter.
    error(client.say("CONFIG SET lock.metrics-prefixes c: lock.max-waiters no"));
    error(client.say("CONFIG SET lock.max-waiters 5 lock.metrics-prefixes %"));
    assert_eq!(client.say("CONFIG GET lock.max-waiters").field("lock.max-waiters"), text("65536"));
    assert_eq!((configured(&mut client).as_str(), figures(&mut client, "a:")), ("a: b:", [1, 0, 0, 1]));
    let log = Setup::new().module_arguments(&["metrics-prefixes", "50%"]).refused();
    assert!(log.contains("its argument `metrics-prefixes` needs prefixes of keys"), "{log}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("redis.conf");
    std::fs::write(&file, "lock.metrics-prefixes a a\n").unwrap();
    let log = Setup::new().config(&file).refused();
    assert!(log.contains("at most 32 of 1 to 128 bytes"), "{log}");
}

/// A prefix may contain spaces, NULs, line ends, commas and bytes that are not text; INFO shows each escaped, in one
/// line.
#[test]
fn a_prefix_is_any_bytes_and_info_stays_one_line_a_prefix() {
    let server = Server::start();
    let mut client = server.client();
    let listed = "%00%FF %0D%0Alock_x:1%2C%3D%25 a%20b caf%C3%A9";
    for value in [listed.as_bytes(), b"caf\xC3\xA9 a%20b \0\xFF \r\nlock_x:1,=%25"] {
        assert_eq!(configure(&mut client, value), text("OK"));
        assert_eq!(configured(&mut client), listed);
        for key in [&b"\0\xFF1"[..], b"\r\nlock_x:1,=%1", b"a b1", b"caf\xC3\xA91"] {
            take_and_release(&mut client, key);
        }
    }
    for prefix in listed.split(' ') {
        assert_eq!(figures(&mut client, prefix), [2, 0, 0, 2], "{prefix}");
    }
    assert_eq!(figures(&mut client, "(other)"), [0; 4]);
}

#[test]
fn it_is_rewritten_and_read_again_and_figures_begin_anew() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("redis.conf");
    std::fs::write(&file, "lock.metrics-prefixes orders: invoices:\n").unwrap();
    let mut server = Setup::new().aof().config(&file).start();
    let mut client = server.client();
    assert_eq!(configured(&mut client), "invoices: orders:");
    configure(&mut client, b"orders: \0%20\xFF%25");
    take_and_release(&mut client, b"orders:1");
    take_and_release(&mut client, b"\0 \xFF%");
    client.say("LOCK.ACQUIRE orders:2 me 60000");
    assert_eq!((client.say("CONFIG REWRITE"), figures(&mut client, "orders:")), (text("OK"), [2, 0, 0, 1]));
    server.kill();
    // The written configuration file also works when the module is loaded.
    server.start_again_with(Setup::module_later);
    let mut client = server.client();
    wait_until("it has loaded", || !server.client().say("PING").is_error("LOADING"));
    assert_eq!(configured(&mut client), "%00%20%FF%25 orders:");
    // Replayed commands are not counted again.
    assert_eq!((figures(&mut client, "orders:"), figures(&mut client, "%00%20%FF%25")), ([0; 4], [0; 4]));
    client.lift();
    take_and_release(&mut client, b"\0 \xFF%x");
    assert_eq!(figures(&mut client, "%00%20%FF%25"), [1, 0, 0, 1]);
    configure(&mut client, b"");
    client.say("CONFIG REWRITE");
    server.kill();
    server.start_again();
    assert_eq!(configured(&mut server.client()), "");
}

/// `lock.metrics-prefixes` is set while a thousand requests wait. They are not affected, and every grant is counted
/// under the prefixes listed at its time.
#[test]
fn it_can_be_set_while_a_thousand_wait() {
    let server = Setup::new().option("maxclients", "2000").start();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k first 60000");
    let mut all: Vec<Client> = (0..1_000).map(|_| server.client()).collect();
    for (n, waiting) in all.iter_mut().enumerate() {
        waiting.ask(&format!("LOCK.ACQUIRE k o{n} 60000 WAIT 600000"));
    }
    wait_until("they wait", || server.info("waiters") == 1_000);
    assert_eq!(configure(&mut client, b"j k l"), text("OK"));
    assert_eq!(server.info("waiters"), 1_000);
    client.say("LOCK.RELEASE k first");
    for n in 0..1_000 {
        if n % 100 == 50 {
            configure(&mut client, if n % 200 == 50 { b"k" } else { b"k ka kb" });
        }
        // The requests came over many connections, in any order.
        let holder = client.say("LOCK.INFO k").field("owner").as_text();
        assert_eq!(client.say(&format!("LOCK.RELEASE k {holder}")), int(0));
    }
    assert!(all.iter_mut().all(|waiting| waiting.hear().as_list()[0].as_int() > 0));
    assert_eq!(figures(&mut client, "k"), [1_000, 0, 1_000, 1_001]);
    assert_eq!(server.info("grants"), 1_001);
}

#[test]
fn grants_in_transactions_and_scripts_count_once_and_replicas_count_none() {
    let (master, replica) = pair();
    for server in [&master, &replica] {
        configure(&mut server.client(), b"k");
    }
    let mut client = master.client();
    client.say("MULTI");
    client.say("LOCK.ACQUIRE k1 me 60000");
    client.say("LOCK.ACQUIRE k1 you 60000");
    client.say("LOCK.RELEASE k1 me");
    client.say("EXEC");
    let script = "redis.call('LOCK.ACQUIRE', KEYS[1], 'me', '60000') return redis.call('LOCK.RELEASE', KEYS[1], 'me')";
    assert_eq!(client.send(&[b"EVAL", script.as_bytes(), b"1", b"k2"]), int(0));
    assert_eq!(figures(&mut client, "k"), [2, 1, 0, 2]);
    in_step(&mut client);
    assert_eq!(figures(&mut replica.client(), "k"), [0; 4]);
}
