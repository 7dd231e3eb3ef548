//! Where the servers of a node of the list are: at an address, as a cluster says, or as Sentinels say.

use std::sync::Arc;

use redis::ConnectionInfo;
use redis::cluster_routing::Slot;

use crate::net::access::{Access, Way};
use crate::net::address::Address;
use crate::net::cluster::{Redirection, Shard, View, cluster_name, view_of};
use crate::net::sentinels::Sentinels;
use crate::{Error, Why};

/// How a node of the list is reached. Programs that look at single servers ask it for them.
#[derive(Debug)]
pub enum Place {
    /// One server.
    Server(Way),
    /// A cluster, by some of its servers.
    Cluster(Vec<Way>),
    /// The master that Sentinels name.
    Sentinel(Sentinels),
}

/// A server that locks are asked of.
#[derive(Clone, Debug)]
pub struct Master {
    /// How it is reached.
    pub way: Way,
    /// Of a cluster, the slots that it serves, first and last of each range; else `None`: it serves all keys.
    pub slots: Option<Vec<(u16, u16)>>,
}

impl Place {
    /// What is at `address`, the one with this number in the list. Its connections are made with what `set` makes of their settings.
    ///
    /// # Errors
    /// `Configuration`: it is no address of a server, or what `access` names cannot be read.
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

    /// The same of an address as [`Builder::node`](crate::Builder::node) takes it.
    ///
    /// # Errors
    /// As [`Place::of`].
    pub fn parse(number: usize, address: &str, access: &Arc<Access>) -> Result<Self, Error> {
        let address = Address::parse(address).map_err(|why| Error::address(number, &why))?;
        Self::of(number, &address, access, |info| info)
    }

    /// Its address or addresses, without passwords.
    pub fn name(&self) -> String {
        match self {
            Self::Server(way) => way.name().to_owned(),
            Self::Cluster(seeds) => cluster_name(seeds),
            Self::Sentinel(sentinels) => sentinels.name().to_owned(),
        }
    }

    /// The servers that locks are asked of, as is known now.
    ///
    /// # Errors
    /// Why nobody tells.
    pub async fn masters(&self) -> Result<Vec<Master>, Why> {
        let alone = |way: Way| vec![Master { way, slots: None }];
        match self {
            Self::Server(way) => Ok(alone(way.clone())),
            Self::Sentinel(sentinels) => sentinels.master().await.map(alone),
            Self::Cluster(seeds) => {
                let view = view_of(seeds).await?;
                Ok(masters(&view, &seeds[0]))
            }
        }
    }
}

fn masters(view: &View, like: &Way) -> Vec<Master> {
    let mut masters: Vec<Master> = vec![];
    for Shard { first, last, servers } in &view.shards {
        let Some(place) = servers.first() else { continue };
        let way = like.to(&place.host, place.port);
        let known = masters.iter_mut().find(|master| master.way.name() == way.name());
        match known.and_then(|master| master.slots.as_mut()) {
            Some(slots) => slots.push((*first, *last)),
            None => masters.push(Master { way, slots: Some(vec![(*first, *last)]) }),
        }
    }
    masters
}

impl Master {
    /// Whether it is the one to ask about `key`.
    pub fn serves(&self, key: &[u8]) -> bool {
        let slot = Slot::for_key(key);
        let Some(slots) = &self.slots else { return true };
        slots.iter().any(|&(first, last)| (first..=last).any(|number| Slot::new(number) == Some(slot)))
    }

    /// Where to ask instead, if it answered with this error; and whether only this once (ASKING).
    pub fn redirected(&self, why: &Why) -> Option<(Self, bool)> {
        let (place, once) = match Redirection::of(why, self.way.host().unwrap_or_default())? {
            Redirection::Moved(place) => (place, false),
            Redirection::Ask(place) => (place, true),
            Redirection::TryAgain => return None,
        };
        Some((Self { way: self.way.to(&place.host, place.port), slots: None }, once))
    }
}
