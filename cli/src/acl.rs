//! `palisade acl`: prints the line that grants a user the permissions of its role, for the given servers.

use futures_util::future::join_all;
use palisade_client::Why;
use palisade_client::direct::Server;
use redis::{FromRedisValue, cmd};

use crate::exit::{End, Failure};
use crate::info::Info;
use crate::node_failure::{strange, words};
use crate::nodes::{Nodes, ServerAnswer};
use crate::roles::Role;
use crate::show::{out, print_message, printable};

/// The first versions of Redis and Valkey with a category `@lock` for a module.
const KNOWS_CATEGORIES: [(u32, u32); 2] = [(7, 4), (8, 0)];

/// The placeholder for the password. No password is generated here, since the shell's history would keep it.
const PASSWORD: &str = "PASSWORD";

/// Runs `palisade acl ROLE`: prints the line that creates a user of this role.
///
/// # Errors
/// The keys are missing; a name is invalid.
pub async fn run(
    nodes: Option<&Nodes>,
    role: Role,
    user: Option<&str>,
    keys: &[String],
    of_cluster: bool,
) -> Result<End, Failure> {
    let user = user.unwrap_or(role.name());
    if keys.is_empty() && role.needs_keys() {
        return Err(Failure::usage("which keys? Say --key 'orders:*'; it can be repeated"));
    }
    if let Some(wrong) = keys.iter().map(String::as_str).chain([user]).find(|word| !is_word(word)) {
        let text = format!(
            "{} has a space or a quote in it, or nothing: write that rule by hand",
            printable(wrong.as_bytes())
        );
        return Err(Failure::usage(text));
    }
    let knows_categories = match nodes {
        None => false,
        Some(nodes) => {
            let versions = join_all(nodes.servers().await.into_iter().map(|said| said.and_then(version))).await;
            for ServerAnswer { server, said, .. } in &versions {
                if let Err(failure) = said {
                    print_message(&format!("{server}: {}; the line is one that every version takes", words(failure)));
                }
            }
            versions.iter().all(|version| matches!(version.said, Ok(true)))
        }
    };
    let of_cluster = of_cluster || nodes.is_some_and(Nodes::has_cluster);
    out(&(role.line(user, PASSWORD, keys, of_cluster, knows_categories) + "\n"))?;
    Ok(End::OK)
}

/// Returns true if the word needs no quotes in a command line.
fn is_word(word: &str) -> bool {
    !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"' || c == '\'')
}

/// Returns true if a server has ACL categories for modules.
async fn version(server: Server) -> Result<bool, Why> {
    let mut link = server.reach().await?;
    let told = link.ask(cmd("INFO").arg("server")).await?;
    let told: String = FromRedisValue::from_redis_value(told).map_err(|why| strange("INFO", why))?;
    Ok(has_categories(&Info::of(&told)))
}

fn has_categories(server: &Info) -> bool {
    let [redis, valkey] = KNOWS_CATEGORIES;
    // Valkey also reports a version of Redis, with which it is compatible.
    let (version, least) = match server.word("valkey_version") {
        "" => (server.word("redis_version"), redis),
        version => (version, valkey),
    };
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_by_version() {
        let cases = [
            ("redis_version:7.0.15\r\n", false),
            ("redis_version:7.2.4\r\n", false),
            ("redis_version:7.4.0\r\n", true),
            ("redis_version:8.2.1\r\n", true),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n", true),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.9\r\n", false),
            ("", false),
        ];
        for (told, expected) in cases {
            assert_eq!(has_categories(&Info::of(told)), expected, "{told}");
        }
    }

    #[test]
    fn a_rule_is_one_word() {
        assert!(is_word("orders:*") && is_word("{a}:[0-9]"));
        assert!(!["", "a b", "a\nFLUSHALL", "a\"", "'"].iter().any(|word| is_word(word)));
    }
}
