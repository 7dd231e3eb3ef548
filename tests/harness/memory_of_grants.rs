//! Checks of a restarted node and a lock that it had granted: it remembers the lock, or is guarded.

use std::fs;
use std::path::PathBuf;

use super::{Reply, Server, Setup, error, int, text};

/// Settings with leases short enough for a test to wait for a guard: 300 ms × 1.01 + 100 ms.
pub const SHORT: [&str; 4] = ["max-ttl", "300", "max-clock-skew", "100"];

/// Returns the milliseconds in a GUARDED error.
#[track_caller]
pub fn guarded_ms(reply: Reply) -> u64 {
    let error = error(reply);
    let ms = error.strip_prefix("GUARDED ").and_then(|rest| rest.split(' ').next());
    ms.unwrap_or_else(|| panic!("{error}")).parse().unwrap()
}

/// Returns the path of a server's state file.
pub fn state_file(server: &Server) -> PathBuf {
    let name = if server.port() == 0 { "socket".to_owned() } else { server.port().to_string() };
    server.dir().join(format!("lock-node-{name}.state"))
}

/// Reads an existing file as text.
pub fn read(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Locks `k` for "me" on a node that serves, and that forgets it only if the test makes it forget.
pub fn held(setup: Setup) -> (Server, i64) {
    let server = setup.start();
    let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
    (server, token)
}

/// Checks that the node remembers the lock that it granted with `token`, and that all owners can continue.
pub fn assert_remembers(server: &Server, token: i64) {
    let mut client = server.client();
    assert_eq!(client.say("LOCK.EXTEND k me 60000"), int(token), "the holder goes on");
    assert!(client.insist("LOCK.ACQUIRE other me 1000").as_int() > 0, "nobody waits");
    assert_eq!(client.say("LOCK.RELEASE other me"), int(0));
    assert_eq!(client.say("LOCK.INFO k").field("suspect"), int(0));
    assert_eq!(client.say("LOCK.NODE").field("state"), text("serving"));
}

/// Checks that the node is guarded because it may have forgotten that grant, and that its tokens are larger afterwards.
pub fn assert_guarded(server: &Server, token: i64) {
    let mut client = server.client();
    assert!(guarded_ms(client.say("LOCK.ACQUIRE k you 1000")) > 30_000);
    assert!(guarded_ms(client.say("LOCK.ACQUIRE other me 1000")) > 30_000);
    if client.say("EXISTS k") == int(1) {
        assert!(guarded_ms(client.say("LOCK.EXTEND k me 60000")) > 1_000);
        assert_eq!(client.say("LOCK.INFO k").field("suspect"), int(1));
        assert_eq!(client.say("LOCK.RELEASE k me"), int(0));
    }
    server.lift();
    assert!(client.insist("LOCK.ACQUIRE k you 1000").as_int() > token);
}

/// Waits long enough to notice whether a restart has started a lease over.
pub fn let_leases_run() {
    std::thread::sleep(std::time::Duration::from_millis(600));
}
