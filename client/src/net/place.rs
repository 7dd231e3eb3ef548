//! The location of a node's servers: a fixed address, a cluster, or a master behind Sentinels.

use std::sync::Arc;

use redis::ConnectionInfo;

use crate::net::access::{Access, Way};
use crate::net::address::Address;
use crate::net::cluster::map::{Shard, View};
use crate::net::cluster::{cluster_name, view_of};
use crate::net::node::Whereabouts;
use crate::net::sentinels::Sentinels;
use crate::net::server::Server;
use crate::{Error, Why};

/// The addresses by which a node of the list is reached, for programs that inspect single servers.
#[derive(Debug)]
pub enum Place {
    /// One server.
    Server(Way),
    /// A cluster, by some of its servers.
    Cluster(Vec<Way>),
    /// The master that Sentinels name.
    Sentinel(Sentinels),
    /// No server: the set has a member with this name, which cannot be asked for the given reason.
    Nowhere(String, String),
}

impl From<Whereabouts> for Place {
    fn from(whereabouts: Whereabouts) -> Self {
        match whereabouts {
            Whereabouts::At(way) => Self::Server(Arc::unwrap_or_clone(way)),
            Whereabouts::Named(sentinels) => Self::Sentinel(*sentinels),
            Whereabouts::Nowhere(name, why) => Self::Nowhere(name, why),
        }
    }
}

impl Place {
    /// Creates the place of `address`, which is number `number` in the list. `set` adjusts the settings of its
    /// connections.
    ///
    /// # Errors
    /// `Configuration`: the address is invalid, or a file that `access` names cannot be read.
    pub fn of(
        number: usize,
        address: &Address,
        access: &Arc<Access>,
        set: impl Fn(ConnectionInfo) -> ConnectionInfo,
    ) -> Result<Self, Error> {
        let way = |url: &String, access: &Arc<Access>| Ok::<_, Error>(Way::new(number, url, access)?.with(&set));
        Ok(match address {
            Address::Server(url) => Self::Server(way(url, access)?),
            Address::Cluster(seeds) => {
                Self::Cluster(seeds.iter().map(|url| way(url, access)).collect::<Result<_, _>>()?)
            }
            Address::Sentinel(watched) => {
                let mut own = Access::clone(access);
                own.credentials = own.sentinel_credentials.take();
                let own = Arc::new(own);
                let ways = watched.sentinels.iter().map(|url| way(url, &own)).collect::<Result<_, _>>()?;
                Self::Sentinel(Sentinels::new(watched.name.clone(), ways, way(&watched.like, access)?))
            }
        })
    }

    /// Creates the place of an address in the forms of [`Builder::node`](crate::Builder::node).
    ///
    /// # Errors
    /// Those of [`Place::of`].
    pub fn parse(number: usize, address: &str, access: &Arc<Access>) -> Result<Self, Error> {
        let address = Address::parse(address).map_err(|why| Error::address(number, &why))?;
        Self::of(number, &address, access, |info| info)
    }

    /// Returns the node's address or addresses, without passwords.
    pub fn name(&self) -> String {
        match self {
            Self::Server(way) => way.name().to_owned(),
            Self::Cluster(seeds) => cluster_name(seeds),
            Self::Sentinel(sentinels) => sentinels.name().to_owned(),
            Self::Nowhere(name, _) => name.clone(),
        }
    }

    /// Returns the servers that serve locks now; `number` is the node's number in the list.
    ///
    /// # Errors
    /// The reason why no server answers.
    pub async fn masters(&self, number: usize) -> Result<Vec<Server>, Why> {
        match self {
            Self::Server(way) => Ok(vec![Server::new(number, way.clone())]),
            Self::Sentinel(sentinels) => Ok(vec![Server::new(number, sentinels.master().await?)]),
            Self::Nowhere(_, why) => Err(Why::Unfit(why.clone())),
            Self::Cluster(seeds) => Ok(masters(&view_of(seeds).await?, &Server::new(number, seeds[0].clone()))),
        }
    }

    /// Returns the server that serves `key`; `number` is the node's number in the list.
    ///
    /// # Errors
    /// The reason why no server answers.
    pub async fn master_of(&self, number: usize, key: &[u8]) -> Result<Server, Why> {
        let master = self.masters(number).await?.into_iter().find(|master| master.has_slot_of(key));
        master.ok_or_else(|| Why::Unreachable("no master serves the slot of this key".to_owned()))
    }

    /// Returns the servers that the address names: some of a cluster, or the Sentinels of a master.
    pub fn named(&self, number: usize) -> Vec<Server> {
        let ways: Vec<&Way> = match self {
            Self::Server(way) => vec![way],
            Self::Cluster(seeds) => seeds.iter().collect(),
            Self::Sentinel(sentinels) => sentinels.ways().collect(),
            Self::Nowhere(..) => vec![],
        };
        ways.into_iter().map(|way| Server::new(number, way.clone())).collect()
    }
}

fn masters(view: &View, like: &Server) -> Vec<Server> {
    let mut masters: Vec<Server> = vec![];
    for Shard { first, last, servers } in &view.shards {
        let Some(place) = servers.first() else { continue };
        let master = like.to(&place.host, place.port);
        let known = masters.iter_mut().find(|known| known.name() == master.name());
        match known.and_then(|known| known.slots.as_mut()) {
            Some(slots) => slots.push((*first, *last)),
            None => masters.push(Server { slots: Some(vec![(*first, *last)]), ..master }),
        }
    }
    masters
}
