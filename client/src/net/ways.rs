//! The addresses of a set's members, with the settings to connect to them (*ways*). Settings such as TLS are those of
//! the nodes that the user of this client named.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use palisade_quorum::{Member, is_address};

use crate::net::access::{Access, Way};
use crate::net::address::Address;
use crate::net::endpoint::{Endpoint, way};
use crate::net::node::Whereabouts;
use crate::{Error, ErrorKind};

/// The nodes that the user has named, at the start and later.
///
/// An address in the set is `host:port` or `unix:///path`. Users, passwords, the database and TLS are settings of each
/// client.
#[derive(Debug)]
pub struct Ways {
    /// The nodes that the user has named; `None` if one of them is not a single server.
    own: Option<Mutex<Vec<Arc<Way>>>>,
    /// The addresses of the nodes that the client began with.
    first: Vec<String>,
    access: Arc<Access>,
}

/// The error for a set with a cluster or a master behind Sentinels, which cannot change.
pub const NO_SERVER: &str = "a cluster, or a master that Sentinels name, is no member of a set that changes: a member is one server, by the id in its state file. \
                             Give nodes by the addresses of their servers, or change the set by hand (docs/operations.md)";

impl Ways {
    /// Creates the ways to these nodes.
    pub fn of(list: &[Endpoint], access: Arc<Access>) -> Self {
        let way = |endpoint: &Endpoint| match endpoint {
            Endpoint::One(node) => node.way().cloned(),
            Endpoint::Cluster(_) => None,
        };
        let own: Option<Vec<_>> = list.iter().map(way).collect();
        let first = own.iter().flatten().map(|way| way.address()).collect();
        Self { own: own.map(Mutex::new), first, access }
    }

    fn own(&self) -> Option<MutexGuard<'_, Vec<Arc<Way>>>> {
        Some(self.own.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether each node is a single server. Only then can the set change, because a cluster or a master behind
    /// Sentinels is no member.
    pub fn can_change(&self) -> bool {
        self.own.is_some()
    }

    /// Returns the way to the server at this address of a set; `None` if the address is invalid.
    pub fn to_address(&self, address: &str) -> Option<Arc<Way>> {
        let own = self.own()?;
        let known = own.iter().find(|way| way.address() == address).cloned();
        known.or_else(|| Some(Arc::new(own.first()?.to_address(address)?)))
    }

    /// Returns the location of a member's server.
    pub fn to(&self, member: &Member) -> Whereabouts {
        let nowhere = |why: &str| Whereabouts::Nowhere(member.address.clone(), why.to_owned());
        match (member.id, self.to_address(&member.address)) {
            (None, _) => nowhere(
                "nobody could ask who it is when the set was written down: remove it from the set, and add it anew",
            ),
            (_, None) => nowhere("its address in the set is of no use here"),
            (_, Some(way)) => Whereabouts::At(way),
        }
    }

    /// Replaces the nodes that the user has named by `addresses`, and returns the ways to them.
    ///
    /// # Errors
    /// `Configuration`: an address is invalid, is not that of a single server, or has other settings than the others.
    pub fn name(&self, addresses: &[String]) -> Result<Vec<Arc<Way>>, Error> {
        let wrong = |n: usize, why: &str| Error::address(n + 1, why);
        let Some(mut own) = self.own() else { return Err(Error::new(ErrorKind::Configuration, NO_SERVER)) };
        let named = addresses.iter().enumerate().map(|(n, address)| {
            let Address::Server(url) = Address::parse(address).map_err(|why| wrong(n, &why))? else {
                return Err(wrong(n, NO_SERVER));
            };
            let way = way(n + 1, &url, &self.access)?;
            if own.first().is_some_and(|first| first.is_encrypted() != way.is_encrypted()) {
                return Err(wrong(n, "either all nodes of a set are reached over TLS (rediss://) or none"));
            }
            match is_address(&way.address()) {
                true => Ok(Arc::new(way)),
                false => Err(wrong(n, "an address in a set has at most 255 bytes, without spaces and commas")),
            }
        });
        let named: Vec<_> = named.collect::<Result<_, _>>()?;
        if named.is_empty() {
            return Err(Error::new(ErrorKind::Configuration, "a set has one node at least, better three or five"));
        }
        for (n, way) in named.iter().enumerate() {
            if named[..n].iter().any(|other| other.address() == way.address()) {
                return Err(wrong(n, "it is given twice: give each node once"));
            }
            own.retain(|known| known.address() != way.address());
        }
        own.extend(named.iter().cloned());
        Ok(named)
    }

    /// Returns the addresses of the nodes that the client began with.
    pub fn first(&self) -> &[String] {
        &self.first
    }
}
