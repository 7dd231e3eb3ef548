//! Builds a client: its nodes, and how it reaches them.

use std::fmt;

use crate::net::access::{Access, Credentials};
use crate::net::address::Address;
#[cfg(feature = "tls")]
use crate::net::certificates::Tls;
use crate::net::nodes::Nodes;
use crate::{Client, Error, ErrorKind, Options};

/// Builds a [`Client`].
#[derive(Clone, Default)]
pub struct Builder {
    /// The parsed addresses of the nodes, each valid or with the reason why it is not.
    addresses: Vec<Result<Address, String>>,
    access: Access,
    defaults: Options,
}

impl Builder {
    /// Adds a node, by its URL (`redis://user:password@host:6379`, `unix:///path`, or `rediss://…` with the feature
    /// `tls`) or as `host:port`. A cluster is `redis+cluster://host:port,host:port`, a master behind Sentinels
    /// `redis+sentinel://host:port,host:port/name`; both exist with `rediss` too. See [`Builder::cluster`] and
    /// [`Builder::sentinel`].
    ///
    /// ```
    /// # fn main() -> Result<(), palisade_client::Error> {
    /// let one = palisade_client::Client::builder().node("redis://user:password@10.0.0.1:6379").build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn node(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(Address::parse(&address.into()));
        self
    }

    /// Adds a cluster, by some of its servers; the client discovers the others. Each lock lives on the master that
    /// serves its slot, also after the slot moves. The user and the password of the first address apply to all servers.
    ///
    /// One cluster is the usual case. Several independent clusters are the nodes of a quorum: a lock is then acquired
    /// on a majority of them.
    ///
    /// ```
    /// # fn main() -> Result<(), palisade_client::Error> {
    /// let locks = palisade_client::Client::builder().cluster(["redis://10.0.0.1:7000", "redis://10.0.0.2:7000"]).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cluster<A: AsRef<str>>(mut self, seeds: impl IntoIterator<Item = A>) -> Self {
        self.addresses.push(Address::of_cluster(seeds));
        self
    }

    /// Adds the master that Sentinels call `name`, by the Sentinels' addresses: `host:26379`, or a URL with their own
    /// user and password. Of different answers, the one of the newest fail-over counts. The client follows a
    /// fail-over.
    ///
    /// The connection to the master uses TLS if the first Sentinel's does, and [`Builder::credentials`]. For anything
    /// else pass a URL to [`Builder::node`]:
    /// `rediss+sentinel://user:password@host:26379,host:26379/name?sentinelTls=no`, with `sentinelUsername` and
    /// `sentinelPassword` for the Sentinels.
    ///
    /// ```
    /// # fn main() -> Result<(), palisade_client::Error> {
    /// let sentinels = ["10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"];
    /// let locks = palisade_client::Client::builder().sentinel("locks", sentinels).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sentinel<A: AsRef<str>>(mut self, name: &str, sentinels: impl IntoIterator<Item = A>) -> Self {
        self.addresses.push(Address::of_master(name, sentinels));
        self
    }

    /// Adds several nodes.
    ///
    /// ```
    /// # fn main() -> Result<(), palisade_client::Error> {
    /// let three = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// let locks = palisade_client::Client::builder().nodes(three).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn nodes<A: Into<String>>(self, addresses: impl IntoIterator<Item = A>) -> Self {
        addresses.into_iter().fold(self, Self::node)
    }

    /// Sets the certificates for `rediss://` addresses, if the system's are not right or the nodes ask for a client
    /// certificate.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.access.tls = Some(tls);
        self
    }

    /// Sets the user and the password for all nodes, in place of those in their addresses. Sentinels have [their
    /// own](Self::sentinel_credentials).
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.access.credentials = Some(credentials);
        self
    }

    /// Sets the user and the password for all Sentinels.
    pub fn sentinel_credentials(mut self, credentials: Credentials) -> Self {
        self.access.sentinel_credentials = Some(credentials);
        self
    }

    /// Sets the TLS configuration, the credentials for nodes and those for Sentinels at once, for several clients that
    /// share them.
    #[doc(hidden)]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets the default options of the client's locks.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use palisade_client::{Client, Options};
    /// # fn main() -> Result<(), palisade_client::Error> {
    /// let defaults = Options::new().ttl(Duration::from_secs(30)).note("the nightly job");
    /// let locks = Client::builder().node("redis://10.0.0.1").defaults(defaults).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn defaults(mut self, options: Options) -> Self {
        self.defaults = options;
        self
    }

    /// Builds the client. At its first use it starts a thread, which connects to the nodes in the background.
    ///
    /// ```
    /// use palisade_client::{Client, ErrorKind};
    ///
    /// let error = Client::builder().node("http://10.0.0.1").build().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Configuration);
    /// ```
    ///
    /// # Errors
    /// `Configuration`: an address is missing, invalid or repeated, or a file of certificates or credentials cannot be
    /// read. `BadArgument`: the defaults are out of bounds.
    pub fn build(self) -> Result<Client, Error> {
        self.defaults.checked()?;
        if self.addresses.is_empty() {
            return Err(Error::new(
                ErrorKind::Configuration,
                "give the address of one node at least, better of three or five",
            ));
        }
        let numbered = self.addresses.into_iter().enumerate();
        let named = numbered.map(|(n, address)| address.map_err(|why| Error::address(n + 1, &why)));
        let addresses = named.collect::<Result<Vec<_>, _>>()?;
        let nodes = Nodes::new(&addresses, self.access)?;
        for (n, node) in nodes.list.iter().enumerate() {
            if nodes.list[..n].iter().any(|other| other.name() == node.name()) {
                return Err(Error::new(
                    ErrorKind::Configuration,
                    format!("{} is given twice: give each node once", node.name()),
                ));
            }
        }
        Ok(Client::of(nodes, self.defaults))
    }
}

impl fmt::Debug for Builder {
    /// Shows only the number of addresses, since they contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("nodes", &self.addresses.len()).field("defaults", &self.defaults).finish()
    }
}

impl Client {
    /// Starts building a client.
    ///
    /// ```
    /// # fn main() -> Result<(), palisade_client::Error> {
    /// let locks = palisade_client::Client::builder().node("redis://10.0.0.1").build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Creates a client of these nodes, with the defaults of [`Options`].
    ///
    /// ```
    /// # fn main() -> Result<(), palisade_client::Error> {
    /// let locks = palisade_client::Client::new(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Builder::build`].
    pub fn new<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, Error> {
        Self::builder().nodes(addresses).build()
    }
}
