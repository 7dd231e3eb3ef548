//! Clusters that replicate what they store to three members, on this machine: etcd's and ZooKeeper's.

use std::time::Duration;

use super::etcd::Etcd;
use super::turns::Done;
use super::zookeeper::ZooKeeper;

/// A cluster, with its name in tables.
pub enum Cluster {
    Etcd(&'static str, Etcd),
    ZooKeeper(&'static str, ZooKeeper),
}

impl Cluster {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Etcd(name, _) | Self::ZooKeeper(name, _) => name,
        }
    }

    /// Returns the ports on which the nodes serve clients.
    pub fn ports(&self) -> Vec<u16> {
        match self {
            Self::Etcd(_, etcd) => etcd.ports(),
            Self::ZooKeeper(_, zookeeper) => zookeeper.ports(),
        }
    }

    /// Returns the CPU time of all nodes so far.
    pub fn cpu(&self) -> Duration {
        match self {
            Self::Etcd(_, etcd) => etcd.cpu(),
            Self::ZooKeeper(_, zookeeper) => zookeeper.cpu(),
        }
    }

    /// Freezes a node that does not lead, or continues all nodes.
    pub async fn freeze_follower(&self, frozen: bool) {
        match self {
            Self::Etcd(_, etcd) => etcd.freeze_follower(frozen).await,
            Self::ZooKeeper(_, zookeeper) => zookeeper.freeze_follower(frozen).await,
        }
    }

    /// Returns the counters of all nodes so far.
    pub async fn done(&self) -> Done {
        match self {
            Self::Etcd(_, etcd) => etcd.done().await,
            Self::ZooKeeper(_, zookeeper) => zookeeper.done().await,
        }
    }
}
