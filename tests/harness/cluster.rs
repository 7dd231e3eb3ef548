//! Two masters of one cluster: the first serves every slot.

use super::{Client, Server, Setup, free_port, text, wait_until};

/// One of the masters.
pub struct Member {
    pub server: Server,
    bus_port: u16,
    pub id: String,
}

/// Two masters that know each other; the first serves all slots.
pub fn cluster() -> (Member, Member) {
    let (one, other) = (member(), member());
    one.server.client().say("CLUSTER ADDSLOTSRANGE 0 16383");
    let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", other.server.port(), other.bus_port);
    assert_eq!(one.server.client().say(&meet), text("OK"));
    for member in [&one, &other] {
        let mut client = member.server.client();
        wait_until("the cluster is there", || {
            let info = client.say("CLUSTER INFO").as_text();
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
        });
    }
    one.server.client().lift();
    let mut client = other.server.client();
    // No key is its own yet, so no lock tells when that is on the disk. Arming is answered when it is.
    client.say("LOCK.GUARD LIFT");
    client.say("LOCK.GUARD ARM 1");
    wait_until("the other serves", || client.say("LOCK.NODE").field("state") == text("serving"));
    wait_until("the other knows who serves", || client.say("GET x").is_error("MOVED"));
    (one, other)
}

fn member() -> Member {
    let bus_port = free_port();
    let setup = Setup::new().replication().option("cluster-enabled", "yes");
    let setup = setup.option("cluster-port", &bus_port.to_string()).option("cluster-node-timeout", "60000");
    let server = setup.option("cluster-require-full-coverage", "no").guarded().start();
    let id = server.client().say("CLUSTER MYID").as_text();
    Member { server, bus_port, id }
}

impl Member {
    pub fn client(&self) -> Client {
        self.server.client()
    }
}
