//! Questions about many locks, over connections that stay open.

use futures_util::future::join_all;
use redis::{Cmd, Value};

use crate::nodes::{Nodes, Said};
use crate::server::{Link, Server};

/// Servers of the nodes, each with a connection.
pub struct Open<'a> {
    nodes: &'a Nodes,
    servers: Vec<(Server, Link)>,
}

impl<'a> Open<'a> {
    /// These, of these nodes.
    pub fn new(nodes: &'a Nodes, servers: impl IntoIterator<Item = (Server, Link)>) -> Self {
        Self { nodes, servers: servers.into_iter().collect() }
    }

    /// What the nodes answer to `question` about each of `keys`, by key: of each node the server that it is to be asked of.
    pub async fn ask(&mut self, keys: &[&[u8]], question: impl Fn(&[u8]) -> Cmd) -> Vec<Vec<Said<Value>>> {
        let (nodes, question) = (self.nodes, &question);
        let asked = self.servers.iter_mut().map(async |(server, link)| {
            let own: Vec<usize> = (0..keys.len()).filter(|&n| server.serves(keys[n])).collect();
            let commands: Vec<Cmd> = own.iter().map(|&n| question(keys[n])).collect();
            let replies = link.ask_many(&commands).await.unwrap_or_default();
            let mut said = vec![];
            for ((n, command), reply) in own.into_iter().zip(&commands).zip(replies) {
                said.push((
                    n,
                    match reply {
                        // Its slot went elsewhere meanwhile.
                        Err(why) if server.redirected(&why).is_some() => {
                            let again = nodes.list[server.number - 1].ask_about(keys[n], command).await;
                            again.map(|reply| reply.value)
                        }
                        reply => Said::of(server, reply),
                    },
                ));
            }
            said
        });
        let mut by_key: Vec<Vec<Said<Value>>> = keys.iter().map(|_| vec![]).collect();
        join_all(asked).await.into_iter().flatten().for_each(|(n, said)| by_key[n].push(said));
        by_key
    }
}
