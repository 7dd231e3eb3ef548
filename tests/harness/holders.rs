//! Queries about the holders of a lock.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{Client, Reply, Server, Setup, wait_until};

/// Returns the grants of `key` as LOCK.INFO shows them, oldest first.
pub fn grants(client: &mut Client, key: &str) -> Vec<Reply> {
    match client.say(&format!("LOCK.INFO {key} HOLDERS 1000")) {
        Reply::Null => vec![],
        info => info.field("grants").as_list(),
    }
}

/// Returns the owners of the grants of `key`.
pub fn owners(client: &mut Client, key: &str) -> Vec<String> {
    grants(client, key).iter().map(|grant| grant.field("owner").as_text()).collect()
}

/// Returns the owners of the grants of `key`, with their permit numbers.
pub fn permits(client: &mut Client, key: &str) -> Vec<(String, i64)> {
    let of = |grant: &Reply| (grant.field("owner").as_text(), grant.field("permit").as_int());
    grants(client, key).iter().map(of).collect()
}

/// Returns the permit number in the answer to an ACQUIRE with LIMIT.
#[track_caller]
pub fn number(reply: &Reply) -> i64 {
    match reply {
        Reply::List(list) if list.len() == 3 => list[2].as_int(),
        other => panic!("a permit was expected, not {other:?}"),
    }
}

/// Returns the token in the answer to an ACQUIRE.
#[track_caller]
pub fn token(reply: &Reply) -> i64 {
    match reply {
        Reply::List(list) => list[0].as_int(),
        other => other.as_int(),
    }
}

/// Sets a flag when it is dropped, even if a test fails, so that threads that check the flag end.
pub struct SetAtTheEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Returns a server whose clock has passed its first tokens, which are ahead of the clock on a new node. So it accepts
/// proposals up to its clock.
pub fn past_its_first_tokens() -> Server {
    let server = Setup::new().module_arguments(&["max-clock-skew", "0"]).start();
    pass_first_tokens(&mut server.client(), "first");
    server
}

/// Waits until the clock of this client's node has passed the tokens that the node issued; no other node's clock may be
/// ahead of it. Takes a lock with this name for that.
pub fn pass_first_tokens(client: &mut Client, name: &str) {
    let first = client.insist(&format!("LOCK.ACQUIRE {name} me 60000")).as_int();
    wait_until("the clock is past the first token", || client.say("LOCK.NODE").field("clock_us").as_int() > first);
    client.say(&format!("LOCK.RELEASE {name} me"));
}
