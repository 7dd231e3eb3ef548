//! Checks whether a user has the permissions of its role; if not, the finding has the line that grants them.

use futures_util::future::join_all;
use palisade_client::direct::{Place, Server, ServerLink};
use redis::{FromRedisValue, cmd};

use super::around;
use super::finding::Finding;
use super::finding::Level::{Change, Ok as Fine};
use super::verdict::{ANY_KEY, RightsSubject, Verdict, unknown, verdict};
use crate::nodes::{Node, Nodes};
use crate::roles::{Permission, Role};
use crate::show::printable;

/// Checks the user on each of these servers, and on each Sentinel that can be reached.
pub async fn check(nodes: &Nodes, servers: Vec<Server>, whose: &RightsSubject<'_>) -> Vec<Finding> {
    let role = whose.role.unwrap_or(Role::Application);
    // Servers and Sentinels have different users.
    let sentinels: Vec<Server> = match (role, whose.user) {
        (Role::Sentinel, _) | (_, None) => nodes.list.iter().flat_map(Node::sentinels).collect(),
        (_, Some(_)) => vec![],
    };
    let servers = if role == Role::Sentinel { vec![] } else { servers };
    let at_servers = servers.iter().map(|server| (server, role));
    let all = at_servers.chain(sentinels.iter().map(|server| (server, Role::Sentinel)));
    let found = join_all(all.map(|(server, role)| {
        let of_cluster = matches!(*nodes.list[server.number - 1].place, Place::Cluster(_));
        check_one(server, role, of_cluster, whose)
    }));
    found.await.into_iter().flatten().collect()
}

async fn check_one(node: &Server, role: Role, of_cluster: bool, whose: &RightsSubject<'_>) -> Vec<Finding> {
    // Another check reports a missing connection.
    let Ok(mut link) = node.reach().await else { return vec![] };
    let mut lacking = vec![];
    for permission in role.permissions(of_cluster) {
        match verdict(&mut link, &permission.probe(whose.key.unwrap_or(ANY_KEY)), whose.user).await {
            Ok(Verdict::Granted) => {}
            Ok(verdict) => lacking.push((permission, verdict)),
            Err(failure) => {
                let text = format!("what {} may do cannot be checked: {failure}", shown(whose, "its user"));
                let advice = "run doctor as that user, or as one with +acl|dryrun (Redis 7.0)";
                return vec![Finding::new(unknown(whose), node.name(), text, advice)];
            }
        }
    }
    let name = match whose.user {
        Some(user) => Some(user.to_owned()),
        // This is asked only if needed, because it may be refused, and servers log refusals.
        None if lacking.is_empty() && role != Role::Writer => None,
        None => own_name(&mut link).await,
    };
    let mut findings = vec![rights_finding(node, role, name.as_deref(), &lacking, whose)];
    if role == Role::Writer {
        findings.push(around::check(node, &mut link, name.as_deref(), whose).await);
    }
    findings
}

fn rights_finding(
    node: &Server,
    role: Role,
    name: Option<&str>,
    lacking: &[(Permission, Verdict)],
    whose: &RightsSubject<'_>,
) -> Finding {
    let name = name.map(|name| printable(name.as_bytes()));
    let (user, role_name) = (name.as_deref().unwrap_or("its user"), role.name());
    let denied: Vec<_> = lacking.iter().filter(|(_, verdict)| *verdict == Verdict::Denied).map(|(p, _)| p).collect();
    let key = whose.key.filter(|_| lacking.iter().any(|(_, verdict)| *verdict == Verdict::NotThisKey));
    if denied.is_empty() && key.is_none() {
        let keys = if whose.key.is_none() && role.permissions(false).iter().any(Permission::is_of_key) {
            "; which keys was not looked at (--key)"
        } else {
            ""
        };
        return Finding::new(Fine, node.name(), format!("{user} may do what the role {role_name} needs{keys}"), "");
    }
    let mut purposes: Vec<&str> = denied.iter().map(|permission| permission.purpose).collect();
    purposes.dedup();
    let mut lacks: Vec<String> = denied.iter().map(|permission| permission.rule.to_owned()).collect();
    let mut rules: Vec<String> = denied.iter().map(|permission| format!("+{}", permission.rule)).collect();
    if let Some(key) = key {
        let key = printable(key);
        lacks.push(format!("the key {key}"));
        purposes.push("it may not use that key");
        rules.insert(0, role.key_rule(&key));
    }
    let text = format!("{user} lacks {}, which the role {role_name} needs: {}", lacks.join(", "), purposes.join("; "));
    Finding::new(
        Change,
        node.name(),
        text,
        format!("ACL SETUSER {} {}", name.as_deref().unwrap_or("NAME"), rules.join(" ")),
    )
}

fn shown(whose: &RightsSubject<'_>, nobody: &str) -> String {
    whose.user.map_or(nobody.to_owned(), |user| printable(user.as_bytes()))
}

/// Returns the name of the user of this connection.
async fn own_name(link: &mut ServerLink) -> Option<String> {
    String::from_redis_value(link.ask(cmd("ACL").arg("WHOAMI")).await.ok()?).ok()
}
