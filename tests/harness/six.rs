//! A cluster of six: three masters with a replica each.

use super::{Member, Setup, has_heard, joined_with, text, wait_until};

/// The longest lease in these tests, in milliseconds: short, and so are the guards.
pub const MAX_TTL_MS: u64 = 2_000;

/// Three masters with a replica each.
pub struct Six(pub [Member; 6]);

impl Six {
    /// Starts a cluster in which a master is considered dead after `node_timeout_ms`.
    pub fn start(node_timeout_ms: u32) -> Self {
        // The setup is a plain function, which captures no variable, so there are two of them.
        let how: fn(Setup) -> Setup = match node_timeout_ms {
            60_000 => patient,
            _ => hasty,
        };
        let six = Self::start_with(how);
        for replica in six.replicas() {
            wait_until("it was told", || replica.server.info("outstanding_ttl_ms") <= 2 * MAX_TTL_MS);
        }
        six
    }

    /// As [`Six::start`], with this setup.
    pub fn start_with(how: fn(Setup) -> Setup) -> Self {
        let members = joined_with(["0 5460", "5461 10922", "10923 16383", "", "", ""], how);
        let six = Self(members);
        for (replica, master) in six.replicas().zip(six.masters()) {
            let mut client = replica.client();
            wait_until("it follows", || client.say(&format!("CLUSTER REPLICATE {}", master.id)) == text("OK"));
        }
        for (replica, master) in six.replicas().zip(six.masters()) {
            let mut client = master.client();
            wait_until("it is known", || client.say("INFO replication").as_text().contains("state=online"));
            // Without this the replica would be guarded for a day when it is promoted.
            has_heard(&replica.server);
        }
        for member in &six.0 {
            let mut client = member.client();
            // A master that does not know a replica yet refuses to vote for it, and is not asked again for minutes.
            let replicas = |nodes: String| nodes.lines().filter(|line| line.contains("slave")).count();
            wait_until("all know the replicas", || replicas(client.say("CLUSTER NODES").as_text()) == 3);
        }
        for master in six.masters() {
            let mut client = master.client();
            // A new server's tokens are ahead of its clock at first. As long as they are, no other node accepts a lock
            // with such a token by MIGRATE.
            wait_until("its tokens follow its clock", || {
                let time: Vec<u64> =
                    client.say("TIME").as_list().iter().map(|n| n.as_text().parse().unwrap()).collect();
                let highest = master.server.info("token_high").max(master.server.info("token_floor"));
                time[0] * 1_000_000 + time[1] > highest
            });
        }
        six
    }

    pub fn masters(&self) -> impl Iterator<Item = &Member> {
        self.0[..3].iter()
    }

    pub fn replicas(&self) -> impl Iterator<Item = &Member> {
        self.0[3..].iter()
    }

    /// Returns the addresses of two of the masters.
    pub fn seeds(&self) -> Vec<String> {
        self.masters().take(2).map(|member| format!("127.0.0.1:{}", member.server.port())).collect()
    }

    /// Returns the address of the cluster.
    pub fn address(&self) -> String {
        format!("redis+cluster://{}", self.seeds().join(","))
    }

    /// Returns a key that this master serves, of the three.
    pub fn key_of(&self, master: usize) -> String {
        let mut client = self.0[master].client();
        (0..).map(|n| format!("key{n}")).find(|key| !client.say(&format!("EXISTS {key}")).is_error("MOVED")).unwrap()
    }
}

fn common(setup: Setup) -> Setup {
    let max_ttl = MAX_TTL_MS.to_string();
    setup.module_arguments(&["max-ttl", &max_ttl, "max-clock-skew", "1000"]).option("repl-diskless-sync-delay", "0")
}

/// Returns the setup of each of the six servers. `cluster-node-timeout` has its long default, so a slow server does not
/// count as dead.
pub fn patient(setup: Setup) -> Setup {
    common(setup)
}

fn hasty(setup: Setup) -> Setup {
    common(setup).option("cluster-node-timeout", "3000").option("cluster-replica-validity-factor", "0")
}
