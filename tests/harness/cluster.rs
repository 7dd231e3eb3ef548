//! Masters of one cluster.

use super::{Client, Reply, Server, Setup, free_port, not_here, text, wait_until};

/// A server of a cluster, with its id in that cluster.
pub struct Member {
    pub server: Server,
    bus_port: u16,
    pub id: String,
}

/// Returns two masters that know each other; the first serves all slots.
pub fn cluster() -> (Member, Member) {
    let [one, other] = joined(["0 16383", ""]);
    wait_until("the other knows who serves", || other.client().say("GET x").is_error("MOVED"));
    (one, other)
}

/// Returns members that know each other and serve, each with its ranges of slots (first and last alternately; empty for
/// none).
pub fn joined<const COUNT: usize>(slots: [&str; COUNT]) -> [Member; COUNT] {
    joined_with(slots, |setup| setup)
}

/// As [`joined`], with this setup.
pub fn joined_with<const COUNT: usize>(slots: [&str; COUNT], how: impl Fn(Setup) -> Setup) -> [Member; COUNT] {
    let members = slots.map(|_| member(&how));
    let first = &members[0];
    for (member, slots) in members.iter().zip(slots) {
        if !slots.is_empty() {
            assert_eq!(member.client().say(&format!("CLUSTER ADDSLOTSRANGE {slots}")), text("OK"));
        }
        if member.id != first.id {
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", member.server.port(), member.bus_port);
            assert_eq!(first.client().say(&meet), text("OK"));
        }
    }
    for member in &members {
        let mut client = member.client();
        let expected = ["cluster_state:ok", "cluster_slots_assigned:16384", &format!("cluster_known_nodes:{COUNT}")];
        wait_until("the cluster is there", || {
            let info = client.say("CLUSTER INFO").as_text();
            expected.iter().all(|line| info.contains(line))
        });
        // A member may have no key of its own slots, so no lock can show that its state is on disk. LOCK.GUARD is
        // answered once it is.
        client.say("LOCK.GUARD LIFT");
        client.say("LOCK.GUARD ARM 1");
        wait_until("it serves", || client.say("LOCK.NODE").field("state") == text("serving"));
    }
    members
}

/// Repeats a line, as the target of a redirection by ASK, until the slot's source has said what it forgot.
pub fn asking(client: &mut Client, line: &str) -> Reply {
    let mut reply = Reply::Null;
    wait_until(line, || {
        client.say("ASKING");
        reply = client.say(line);
        !matches!(&reply, Reply::Error(text) if text.starts_with("GUARDED 10 "))
    });
    reply
}

/// Makes `from` begin to migrate these slots. Each slot has a job of its own, which moves the slot and its keys in one
/// step. Returns `false` if this server cannot do that.
pub fn migrate_slots(from: &Member, slots: &[i64], to: &Member) -> bool {
    let jobs: String = slots.iter().map(|slot| format!(" SLOTSRANGE {slot} {slot} NODE {}", to.id)).collect();
    match from.client().say(&format!("CLUSTER MIGRATESLOTS{jobs}")) {
        Reply::Error(text) => {
            assert!(text.to_lowercase().contains("unknown subcommand"), "{text}");
            not_here("this server does not move slots in one step");
            false
        }
        reply => {
            assert_eq!(reply, super::text("OK"));
            true
        }
    }
}

fn member(how: impl Fn(Setup) -> Setup) -> Member {
    let bus_port = free_port();
    let setup = Setup::new().replication().option("cluster-enabled", "yes");
    let setup = setup.option("cluster-port", &bus_port.to_string()).option("cluster-node-timeout", "60000");
    let server = how(setup.option("cluster-require-full-coverage", "no")).guarded().start();
    let id = server.client().say("CLUSTER MYID").as_text();
    Member { server, bus_port, id }
}

impl Member {
    pub fn client(&self) -> Client {
        self.server.client()
    }
}
