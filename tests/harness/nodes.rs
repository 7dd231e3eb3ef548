//! Several servers, as the nodes of a client.

use super::{Reply, Server, int};

/// Servers, each of them a node.
pub struct Nodes(pub Vec<Server>);

impl Nodes {
    /// Returns the nodes' addresses, as a client takes them.
    pub fn addresses(&self) -> Vec<String> {
        self.0.iter().map(Server::address).collect()
    }

    /// Sends a command to each node, and returns the answers.
    pub fn say(&self, line: &str) -> Vec<Reply> {
        self.0.iter().map(|server| server.client().say(line)).collect()
    }

    /// Returns the number of nodes on which `key` is locked.
    pub fn holding(&self, key: &str) -> usize {
        self.say(&format!("EXISTS {key}")).iter().filter(|reply| **reply == int(1)).count()
    }
}
