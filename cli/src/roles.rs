//! The permissions that each role needs, as rules for ACL SETUSER. No other table has them: docs/acl.md, docs/cli.md
//! and docs/monitoring.md show its lines, and a test compares them.

use clap::ValueEnum;

/// A permission, and a command that tests whether a user has it.
#[derive(Clone, Copy, Debug)]
pub struct Permission {
    /// The rule for ACL SETUSER, without the plus sign.
    pub rule: &'static str,
    /// The consequence for the user if the permission is missing, as a text for `palisade doctor`.
    pub purpose: &'static str,
    /// A command that needs the permission and changes nothing. If the command could change something, its arguments
    /// are wrong: the server checks the permission first.
    probe: &'static [&'static str],
}

/// The placeholder for the key in the command that tests a permission.
const KEY: &str = "<key>";

const fn may(rule: &'static str, purpose: &'static str, probe: &'static [&'static str]) -> Permission {
    Permission { rule, purpose, probe }
}

const HOLDING: &str = "locks cannot be taken and held";

/// The permissions of users that take locks, on one node or on several.
const APPLICATION: [Permission; 16] = [
    may("lock.acquire", HOLDING, &["LOCK.ACQUIRE", KEY, "", "0"]),
    may("lock.release", "locks cannot be given back: they end with their leases", &["LOCK.RELEASE", KEY, ""]),
    may("lock.extend", HOLDING, &["LOCK.EXTEND", KEY, "", "0"]),
    may("lock.reenter", "locks cannot be re-entered", &["LOCK.REENTER", KEY, ""]),
    may("lock.convert", "a writer cannot become a reader", &["LOCK.CONVERT", KEY, "", "SHARED"]),
    may("lock.note", "a leader cannot proclaim that it leads", &["LOCK.NOTE", KEY, "", ""]),
    may("lock.check", "a resource cannot check tokens, and losses are noticed late", &["LOCK.CHECK", KEY, "1"]),
    may("lock.wait", "locks of several nodes cannot be waited for", &["LOCK.WAIT", KEY, "", "0"]),
    may("lock.hear", "each wait blocks a connection of its own", &["LOCK.HEAR", "", "0"]),
    may(
        "lock.info",
        "who holds a lock cannot be told, and permits of several nodes are hard to get",
        &["LOCK.INFO", KEY],
    ),
    may("lock.watch", "locks and elections cannot be observed", &["LOCK.WATCH", KEY, "0"]),
    may("lock.node", "the node cannot be used by clients of several nodes", &["LOCK.NODE"]),
    may(
        "lock.members",
        "the node cannot be used by clients that follow changes of the set of nodes",
        &["LOCK.MEMBERS"],
    ),
    may(
        "lock.fence",
        "tokens cannot be raised, so some locks of several nodes are not granted",
        &["LOCK.FENCE", KEY, "", "0"],
    ),
    may("client|tracking", TOLD_LATE, &["CLIENT", "TRACKING", "OFF"]),
    may("client|caching", TOLD_LATE, &["CLIENT", "CACHING", "YES"]),
];

const TOLD_LATE: &str = "that a lock was taken away is noticed only when it is next extended";

/// The permissions that operators need beside those of an application.
const OPERATOR: [Permission; 8] = [
    may("lock.break", "`palisade break` is refused", &["LOCK.BREAK", KEY, "TOKEN", ""]),
    may("lock.guard", "`palisade guard` is refused", &["LOCK.GUARD"]),
    may("lock.setmembers", "`palisade members set` is refused", &["LOCK.SETMEMBERS", ""]),
    may("lock.log", "`palisade history` is refused, and `why` tells less", &["LOCK.LOG", "COUNT", "0"]),
    may("lock.top", "`palisade top` does not show contended keys", &["LOCK.TOP", "COUNT", "0"]),
    may("scan", "`palisade ls`, `top` and `deadlocks` are refused", &["SCAN", "0", "COUNT", "1"]),
    may("info", "`palisade nodes` and `top` are refused, and `doctor` checks less", &["INFO", "server"]),
    may("config|get", "`palisade doctor` does not see how the node is set up", &["CONFIG", "GET", "port"]),
];

/// The permissions of the exporter for Prometheus.
const MONITORING: [Permission; 8] = [
    may("eval", "the exporter's script is refused", &["EVAL", "return 1", "0"]),
    may("evalsha", "the exporter's script is refused", &["EVALSHA", "0000000000000000000000000000000000000000", "0"]),
    may("info", "the exporter is refused", &["INFO", "server"]),
    may("config|get", "the exporter does not see settings", &["CONFIG", "GET", "port"]),
    may("slowlog", "the exporter does not see slow commands", &["SLOWLOG", "LEN"]),
    may("latency", "the exporter does not see latencies", &["LATENCY", "LATEST"]),
    may("client|setname", "the exporter logs an error at each scrape", &["CLIENT", "SETNAME", "palisade-doctor"]),
    may("ping", "the exporter does not see whether the node answers", &["PING"]),
];

/// The permission of users that write data behind a gate.
const WRITER: Permission = may("lock.gate", "nothing can be written behind a gate", &["LOCK.GATE", KEY, "0"]);

/// The further permissions of clients of a cluster, on each of its servers.
const CLUSTER: [Permission; 3] = [
    may("cluster|info", "the masters of the cluster are not found", &["CLUSTER", "INFO"]),
    may("cluster|slots", "the masters of the cluster are not found", &["CLUSTER", "SLOTS"]),
    may("asking", "a lock whose slot is on its way to another master is refused", &["ASKING"]),
];

/// The further permission of an operator of a cluster.
const CLUSTER_OPERATOR: Permission =
    may("cluster|nodes", "`palisade doctor` does not see how the cluster is", &["CLUSTER", "NODES"]);

/// The permissions on Sentinels: clients use the first two, `palisade doctor` the last one too.
const SENTINEL: [Permission; 3] = [
    may(
        "sentinel|get-master-addr-by-name",
        "the master is not found",
        &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "palisade-doctor"],
    ),
    may("sentinel|master", NEWEST, &["SENTINEL", "MASTER", "palisade-doctor"]),
    may(
        "sentinel|ckquorum",
        "`palisade doctor` does not see whether Sentinels can agree",
        &["SENTINEL", "CKQUORUM", "palisade-doctor"],
    ),
];

const NEWEST: &str = "of Sentinels that name different masters, clients may believe the one that was cut off";

/// The permissions of an application that a watcher needs too.
const LOOKING: [&str; 5] = ["lock.info", "lock.watch", "lock.check", "lock.node", "lock.members"];

/// A user's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Takes locks, on one node or on several; leads, and observes who leads
    Application,
    /// Looks at locks and elections, and takes nothing
    Watcher,
    /// Reads and writes data behind a gate only (docs/fencing.md)
    Writer,
    /// Runs every command of palisade
    Operator,
    /// Is scraped by Prometheus' exporter (docs/monitoring.md)
    Monitoring,
    /// Asks Sentinels where the master is: a user of theirs, not of the servers that they watch
    Sentinel,
}

impl Role {
    /// Returns all permissions that the role needs: on a server, or on each server of a cluster.
    pub fn permissions(self, of_cluster: bool) -> Vec<Permission> {
        let looks = |permission: &Permission| LOOKING.contains(&permission.rule);
        let everywhere: Vec<Permission> = match self {
            Self::Application => APPLICATION.to_vec(),
            Self::Watcher => APPLICATION.into_iter().filter(looks).collect(),
            Self::Operator => APPLICATION.into_iter().chain(OPERATOR).collect(),
            Self::Monitoring => MONITORING.to_vec(),
            Self::Sentinel => SENTINEL.to_vec(),
            Self::Writer => vec![WRITER],
        };
        let of_cluster = match self {
            _ if !of_cluster => vec![],
            Self::Application | Self::Watcher | Self::Writer => CLUSTER.to_vec(),
            Self::Operator => CLUSTER.into_iter().chain([CLUSTER_OPERATOR]).collect(),
            Self::Monitoring | Self::Sentinel => vec![],
        };
        everywhere.into_iter().chain(of_cluster).collect()
    }

    /// Returns the role's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Watcher => "watcher",
            Self::Writer => "writer",
            Self::Operator => "operator",
            Self::Monitoring => "monitoring",
            Self::Sentinel => "sentinel",
        }
    }

    /// Returns the default key patterns. There are none for an application or a writer, whose keys have to be named.
    fn patterns(self) -> &'static [&'static str] {
        match self {
            Self::Watcher | Self::Operator => &["*"],
            Self::Application | Self::Writer | Self::Monitoring | Self::Sentinel => &[],
        }
    }

    /// Returns true if the keys have to be named.
    pub fn needs_keys(self) -> bool {
        matches!(self, Self::Application | Self::Writer)
    }

    /// Returns the rule for keys with this pattern: a watcher may only read.
    pub fn key_rule(self, pattern: &str) -> String {
        let kind = if self == Self::Watcher { "%R~" } else { "~" };
        format!("{kind}{pattern}")
    }

    /// Returns the line that creates a user of this role, for the servers of a cluster or for others. If the servers
    /// have ACL categories for modules, the line uses them if that makes it shorter.
    pub fn line(
        self,
        user: &str,
        password: &str,
        patterns: &[String],
        of_cluster: bool,
        knows_categories: bool,
    ) -> String {
        let given = patterns.iter().map(String::as_str);
        let patterns: Vec<_> = if patterns.is_empty() { self.patterns().to_vec() } else { given.collect() };
        let patterns = if matches!(self, Self::Monitoring | Self::Sentinel) { vec![] } else { patterns };
        let keys = patterns.into_iter().map(|pattern| self.key_rule(pattern));
        let in_category = |permission: &Permission| permission.rule.starts_with("lock.");
        let category: &[&str] = match self {
            Self::Application if knows_categories => &["+@lock", "-@dangerous"],
            Self::Operator if knows_categories => &["+@lock"],
            // Without this, an earlier rule for the user could permit a way around the gate.
            Self::Writer => &["-@all"],
            _ => &[],
        };
        let named = self
            .permissions(of_cluster)
            .into_iter()
            .filter(|permission| !category.contains(&"+@lock") || !in_category(permission));
        let rules = category.iter().map(|rule| (*rule).to_owned()).chain(named.map(|named| format!("+{}", named.rule)));
        let words: Vec<String> = keys.chain(rules).collect();
        format!("ACL SETUSER {user} on >{password} {}", words.join(" "))
    }
}

impl Permission {
    /// Returns the command that tests the permission, for this key.
    pub fn probe(&self, key: &[u8]) -> redis::Cmd {
        let mut command = redis::Cmd::new();
        for word in self.probe {
            if *word == KEY {
                command.arg(key)
            } else {
                command.arg(word)
            };
        }
        command
    }

    /// Returns true if the command that tests the permission is about a key.
    pub fn is_of_key(&self) -> bool {
        self.probe.contains(&KEY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that names fewer permissions than a client needs misleads its reader, so the three pages have to agree
    /// with the table.
    #[test]
    fn the_pages_show_the_lines_of_the_table() {
        let page =
            |name: &str| std::fs::read_to_string(format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let orders = ["orders:*".to_owned()];
        for (name, line) in [
            ("acl.md", Role::Application.line("app", "secret", &orders, false, false)),
            ("acl.md", Role::Application.line("app", "secret", &orders, false, true)),
            ("acl.md", Role::Application.line("app", "secret", &orders, true, true)),
            ("acl.md", Role::Watcher.line("watcher", "secret", &[], false, false)),
            ("acl.md", Role::Writer.line("writer", "secret", &["invoice:*".to_owned()], false, false)),
            ("acl.md", Role::Sentinel.line("watcher", "secret", &[], false, false)),
            ("cli.md", Role::Operator.line("operator", "secret", &[], false, false)),
            ("monitoring.md", Role::Monitoring.line("exporter", "secret", &[], false, false)),
        ] {
            assert!(page(name).lines().any(|shown| shown == line), "{name} should have:\n{line}");
        }
        let [alone, all] = [false, true].map(|of_cluster| Role::Operator.permissions(of_cluster));
        let more: Vec<_> = all[alone.len()..].iter().map(|permission| format!("+{}", permission.rule)).collect();
        let line = format!("On a cluster add `{}`.", more.join(" "));
        assert!(page("cli.md").lines().any(|shown| shown == line), "cli.md should have:\n{line}");
    }

    /// A new command of the module is added to the permissions of a role, or to this list of exceptions.
    #[test]
    fn every_command_is_somebodys() {
        let table = include_str!("../../docs/commands/README.md");
        // One is for an operator who changes tokens by hand, the other for everybody.
        let nobodys = ["lock.floor", "lock.help"];
        let named = table.lines().filter_map(|line| line.strip_prefix("| [LOCK.")?.split(']').next());
        let named: Vec<String> = named.map(|name| format!("lock.{}", name.to_lowercase())).collect();
        assert!(named.len() > 15, "{named:?}");
        let all: Vec<_> = Role::Operator.permissions(false).into_iter().chain([WRITER]).collect();
        for command in named {
            let is_known = all.iter().any(|permission| permission.rule == command) || nobodys.contains(&&*command);
            assert!(is_known, "{command} is in no role");
        }
    }
}
