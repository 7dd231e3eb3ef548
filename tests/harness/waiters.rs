//! Clients that wait in a queue.

use super::{Client, Server, wait_until};

/// Returns a client that has sent `line` and waits in a queue, and its id.
pub fn waits(server: &Server, line: &str) -> (Client, i64) {
    let before = server.info("waiters");
    let mut client = server.client();
    let id = client.say("CLIENT ID").as_int();
    client.ask(line);
    wait_until(&format!("it waits: {line}"), || server.info("waiters") == before + 1);
    (client, id)
}

/// Returns a client that waits up to a minute to get k for `owner`, and its id.
pub fn queues(server: &Server, owner: &str) -> (Client, i64) {
    waits(server, &format!("LOCK.ACQUIRE k {owner} 60000 WAIT 60000"))
}
