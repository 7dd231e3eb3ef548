//! Checks whether a cluster, or servers behind Sentinels, announce TLS ports if clients use TLS.

use std::collections::HashMap;

use futures_util::future::join_all;
use palisade_client::direct::Server;
use redis::{FromRedisValue, cmd};

use super::finding::Finding;
use super::finding::Level::Fail;
use super::patient::Patient;
use crate::nodes::Node;

/// The advice if a cluster or a server announces the wrong port.
const ADVICE: &str =
    "tls-cluster yes and tls-replication yes in the redis.conf of all its servers, and restart them one by one";

/// Checks the TLS ports that the known members of a cluster announce.
pub async fn check(node: &Node, members: &[&Patient]) -> Vec<Finding> {
    let silent: Vec<&str> =
        members.iter().filter(|member| member.view.error.is_some()).map(|member| &*member.view.node).collect();
    let named = node.place.named(node.number);
    if silent.is_empty() || !named.iter().all(Server::is_encrypted) {
        return vec![];
    }
    let plain = join_all(named.into_iter().map(plain_port)).await;
    let plain: Vec<u16> = plain.into_iter().flatten().collect();
    let named: Vec<&str> = silent.into_iter().filter(|name| is_one_of(name, &plain)).collect();
    if named.is_empty() {
        return vec![];
    }
    let text = format!("to clients with TLS it announces ports without TLS: {}", named.join(", "));
    vec![Finding::new(Fail, &node.name, text, ADVICE)]
}

/// Returns a finding if a server that Sentinels watch has clients with TLS, but announces its port without TLS.
/// Sentinels name to clients the port that the server, as a replica, announces to its master.
pub fn to_sentinels(server: &Patient) -> Option<Finding> {
    (server.setting("tls-replication") == "no").then(|| {
        let text = "tls-replication is no: as a replica it announces its port without TLS, and when it takes over Sentinels name that one to all clients";
        Finding::new(Fail, &server.view.node, text, "tls-replication yes in redis.conf, on all servers and Sentinels of it, and restart them one by one")
    })
}

/// Returns true if a server's name, `host:port`, ends with one of these ports.
fn is_one_of(name: &str, ports: &[u16]) -> bool {
    let port = name.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.is_some_and(|port| ports.contains(&port))
}

/// Returns this server's port without TLS; 0 if it has none, `None` if it does not answer.
async fn plain_port(server: Server) -> Option<u16> {
    let mut link = server.reach().await.ok()?;
    let reply = link.ask(cmd("CONFIG").arg("GET").arg("port")).await.ok()?;
    HashMap::<String, String>::from_redis_value(reply).ok()?.get("port")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_server_that_sentinels_would_name_by_its_plain_port() {
        let server = |value: &str| {
            let settings = [("tls-replication".to_owned(), value.to_owned())];
            Patient { settings: Some(settings.into()), ..Patient::default() }
        };
        let finding = to_sentinels(&server("no")).unwrap();
        assert!(finding.level == Level::Fail && finding.found.contains("port without TLS"), "{finding:?}");
        assert!(to_sentinels(&server("yes")).is_none());
        // A server without TLS has no such setting, and some servers do not report theirs.
        assert!(to_sentinels(&Patient::default()).is_none());
    }
}
