//! The bus of a cluster: a proxy in front of each server's bus port. With it a server can be cut off from all other
//! servers while clients still reach it.
//!
//! Each server connects from an address of its own, so a proxy knows which two servers a connection joins.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The last byte of the address from which the first server connects. The other servers' addresses follow.
const FIRST: u8 = 20;

/// Returns the address from which the server of this number connects.
pub fn address_of(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, FIRST + node as u8)
}

/// The proxies. They end when this value is dropped.
#[derive(Debug)]
pub struct Bus {
    /// The port of each server's proxy.
    ports: Vec<u16>,
    /// The servers that are cut off.
    cut: watch::Sender<Vec<bool>>,
    _proxies: JoinSet<()>,
}

impl Bus {
    /// Starts the proxies in front of servers that listen on these ports.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub async fn before(listen_on: &[u16]) -> io::Result<Self> {
        let (cut, _) = watch::channel(vec![false; listen_on.len()]);
        let (mut ports, mut proxies) = (vec![], JoinSet::new());
        for (node, &behind) in listen_on.iter().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            ports.push(listener.local_addr()?.port());
            let cut = cut.clone();
            proxies.spawn(async move {
                let mut connections = JoinSet::new();
                while let Ok((stream, from)) = listener.accept().await {
                    let IpAddr::V4(from) = from.ip() else { continue };
                    let from = usize::from(from.octets()[3].wrapping_sub(FIRST));
                    connections.spawn(carry(stream, behind, cut.subscribe(), [from, node]));
                    while connections.try_join_next().is_some() {}
                }
            });
        }
        Ok(Self { ports, cut, _proxies: proxies })
    }

    /// Returns the port at which the other servers reach the bus of this server.
    pub fn port(&self, node: usize) -> u16 {
        self.ports[node]
    }

    /// Cuts a server off from the other servers, or reconnects it.
    pub fn cut(&self, node: usize, is_cut: bool) {
        self.cut.send_modify(|all| all[node] = is_cut);
    }
}

/// Carries a connection between two servers, until one of them is cut off.
async fn carry(mut stream: TcpStream, behind: u16, mut cut: watch::Receiver<Vec<bool>>, ends: [usize; 2]) {
    let is_cut = |all: &Vec<bool>| ends.iter().any(|&end| all.get(end).copied().unwrap_or(false));
    if is_cut(&cut.borrow()) {
        return;
    }
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, behind)).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut stream, &mut server) => {}
        _ = cut.wait_for(is_cut) => {}
    }
}
