//! Access to nodes: addresses, TLS and credentials, read anew for each connection.
//!
//! Files and credentials change while a program runs: certificates are renewed, passwords rotated. Reading them for
//! each connection avoids a restart. An existing connection stays as it is, as it does on servers.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisError};

use crate::net::address::url_of;
#[cfg(feature = "tls")]
use crate::net::certificates::Tls;
use crate::net::line::{Lent, Target, TlsConfig, open};
use crate::net::stranger::{identify, identify_silent};
use crate::{Error, ErrorKind, Why};

/// A user and a password, read anew for each connection, since they may change. They override those in addresses.
///
/// ```
/// use palisade_client::{Client, Credentials};
///
/// # fn main() -> Result<(), palisade_client::Error> {
/// # fn secret_of_the_hour() -> Result<String, std::io::Error> { Ok("secret".to_owned()) }
/// let credentials = Credentials::from_fn(|| Ok(("app".to_owned(), secret_of_the_hour()?)));
/// let locks = Client::builder().node("redis://10.0.0.1").credentials(credentials).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Credentials(Source);

#[derive(Clone)]
enum Source {
    File(PathBuf),
    Call(Arc<Call>),
}

/// A function that returns a user and a password.
type Call = dyn Fn() -> Result<(String, String), Box<dyn std::error::Error + Send + Sync>> + Send + Sync;

/// The user that a server assumes by default.
const DEFAULT_USER: &str = "default";

impl Credentials {
    /// Reads the credentials from a file: a line `user:password`, or `password` alone for the user `default`. A
    /// password with a colon therefore needs its user before it. White space at the end of the line is ignored.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(path.into()))
    }

    /// Calls `ask` for a user and a password for each connection. `ask` may block, for up to a second together with
    /// connecting. If it fails, the connection fails with its error, and the next connection calls it again.
    pub fn from_fn(
        ask: impl Fn() -> Result<(String, String), Box<dyn std::error::Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        Self(Source::Call(Arc::new(ask)))
    }

    fn ask(&self) -> Result<(String, String), String> {
        match &self.0 {
            Source::Call(ask) => ask().map_err(|why| format!("there are no credentials: {why}")),
            Source::File(path) => {
                let bytes = std::fs::read(path)
                    .map_err(|why| format!("the credentials in {} cannot be read: {why}", path.display()))?;
                let text = String::from_utf8(bytes)
                    .map_err(|_| format!("the credentials in {} are no text", path.display()))?;
                let line = text.lines().next().unwrap_or_default().trim_end();
                let (user, password) = line.split_once(':').unwrap_or(("", line));
                let user = if user.is_empty() { DEFAULT_USER } else { user };
                if password.is_empty() {
                    return Err(format!("there is no password in {}: write user:password into it", path.display()));
                }
                Ok((user.to_owned(), password.to_owned()))
            }
        }
    }
}

impl fmt::Debug for Credentials {
    /// Shows no user and no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::File(path) => f.debug_tuple("Credentials").field(path).finish(),
            Source::Call(_) => f.write_str("Credentials(..)"),
        }
    }
}

/// The access options that all nodes of a client share.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The certificates: see [`Tls`].
    #[cfg(feature = "tls")]
    pub tls: Option<Tls>,
    /// The credentials: see [`Credentials`].
    pub credentials: Option<Credentials>,
    /// The credentials for Sentinels, which do not know the users of the servers that they watch.
    pub sentinel_credentials: Option<Credentials>,
}

impl Access {
    /// Reads all files, to report errors now.
    ///
    /// # Errors
    /// A file cannot be read, or has the wrong content. Credentials from a function are not requested.
    fn check(&self, info: &ConnectionInfo) -> Result<(), String> {
        if let Some(credentials @ Credentials(Source::File(_))) = &self.credentials {
            credentials.ask()?;
        }
        self.over_tls(info.clone()).map(drop)
    }

    fn client(&self, info: ConnectionInfo) -> Result<redis::Client, String> {
        self.over_tls(self.with_credentials(info)?)
    }

    fn with_credentials(&self, info: ConnectionInfo) -> Result<ConnectionInfo, String> {
        let Some(credentials) = &self.credentials else { return Ok(info) };
        let (user, password) = credentials.ask()?;
        let settings = info.redis_settings().clone().set_username(user).set_password(password);
        Ok(info.set_redis_settings(settings))
    }

    /// Returns the settings of a connection, and the TLS configuration if it uses TLS.
    fn prepared(&self, info: ConnectionInfo) -> Result<(ConnectionInfo, Option<TlsConfig>), String> {
        let info = self.with_credentials(info)?;
        #[cfg(feature = "tls")]
        if let ConnectionAddr::TcpTls { .. } = info.addr() {
            let config = self.tls.clone().unwrap_or_default().config()?;
            return Ok((info, Some(Arc::new(config))));
        }
        Ok((info, None))
    }

    fn over_tls(&self, info: ConnectionInfo) -> Result<redis::Client, String> {
        #[cfg(feature = "tls")]
        if let (Some(tls), ConnectionAddr::TcpTls { .. }) = (&self.tls, info.addr()) {
            return tls.client(info);
        }
        redis::Client::open(info).map_err(|why| why.to_string())
    }
}

/// A way to a server: its address, with the settings to connect to it.
#[derive(Clone, Debug)]
pub struct Way {
    name: String,
    /// The host to connect to, if all certificates have a common name, which `info` then has in place of the host.
    #[cfg(feature = "tls")]
    elsewhere: Option<String>,
    info: ConnectionInfo,
    access: Arc<Access>,
}

/// The future that drives a connection of redis-rs.
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Prefix of the address of a Unix socket.
const UNIX: &str = "unix://";

/// Returns a server's address, as people read it.
pub fn name_of(host: &str, port: u16) -> String {
    format!("{host}:{port}")
}

impl Way {
    /// Creates the way to `address`, in a form that [`url_of`] accepts; `number` is its number in the list, for errors.
    ///
    /// # Errors
    /// `Configuration`: the address is invalid, or a file that `access` names cannot be read.
    pub fn new(number: usize, address: &str, access: &Arc<Access>) -> Result<Self, Error> {
        let wrong = |why: String| Error::address(number, &why);
        let info = url_of(address).into_connection_info().map_err(|why| {
            wrong(format!("not an address ({why}); it must be like host:6379, [::1]:6379, redis://user:password@host:6379 or unix:///path"))
        })?;
        let name = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => name_of(host, *port),
            ConnectionAddr::Unix(path) => path.display().to_string(),
            other => other.to_string(),
        };
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info.set_redis_settings(settings);
        // Opening a client refuses addresses that this build cannot connect to.
        redis::Client::open(info.clone()).map_err(|why| wrong(why.to_string()))?;
        #[cfg(feature = "tls")]
        let (info, elsewhere) = match (info.addr(), access.tls.as_ref().and_then(|tls| tls.server_name.clone())) {
            (ConnectionAddr::TcpTls { host, port, insecure, .. }, Some(server)) => {
                let (elsewhere, port, insecure) = (host.clone(), *port, *insecure);
                let addr = ConnectionAddr::TcpTls { host: server, port, insecure, tls_params: None };
                (info.set_addr(addr), Some(elsewhere))
            }
            _ => (info, None),
        };
        access.check(&info).map_err(|why| Error::new(ErrorKind::Configuration, why))?;
        Ok(Self {
            name,
            #[cfg(feature = "tls")]
            elsewhere,
            info,
            access: Arc::clone(access),
        })
    }

    /// Returns the address, without passwords.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a [`Way`] to the server at this host and port, with the same settings.
    pub fn to(&self, host: &str, port: u16) -> Self {
        let mut way = self.clone();
        way.name = name_of(host, port);
        let addr = match self.info.addr() {
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host: server, insecure, .. } if self.elsewhere.is_some() => {
                way.elsewhere = Some(host.to_owned());
                ConnectionAddr::TcpTls { host: server.clone(), port, insecure: *insecure, tls_params: None }
            }
            ConnectionAddr::TcpTls { insecure, .. } => {
                ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: *insecure, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        way.info = self.info.clone().set_addr(addr);
        way
    }

    /// Returns the server's address in a set of nodes: `host:port`, or `unix:///path`.
    pub fn address(&self) -> String {
        let port = match self.info.addr() {
            ConnectionAddr::Tcp(_, port) | ConnectionAddr::TcpTls { port, .. } => *port,
            ConnectionAddr::Unix(path) => return format!("{UNIX}{}", path.display()),
            _ => return self.name.clone(),
        };
        let host = self.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        if host.contains(':') { format!("[{host}]:{port}") } else { name_of(host, port) }
    }

    /// Returns a [`Way`] to the member of a set with this address, with the same settings; `None` if it is invalid.
    pub fn to_address(&self, address: &str) -> Option<Self> {
        if let Some(path) = address.strip_prefix(UNIX) {
            let mut way = self.clone();
            way.name = path.to_owned();
            way.info = self.info.clone().set_addr(ConnectionAddr::Unix(path.into()));
            return Some(way);
        }
        let (host, port) = address.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(self.to(host, port.parse().ok()?)).filter(|_| !host.is_empty())
    }

    /// Returns whether connections use TLS.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// Returns the server's host; `None` for a socket on this host.
    pub fn host(&self) -> Option<&str> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
                Some(self.elsewhere().unwrap_or(host))
            }
            _ => None,
        }
    }

    /// Returns this way to a server, with changed settings of its connections.
    pub fn with(mut self, set: impl FnOnce(ConnectionInfo) -> ConnectionInfo) -> Self {
        self.info = set(self.info);
        self
    }

    /// Opens a connection that the client will read and write itself. Until [`Lent::take`] redis-rs uses the
    /// connection, and the caller must poll the returned driver.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub async fn open(&self) -> Result<(MultiplexedConnection, Driver, Lent), Why> {
        let (info, access) = (self.info.clone(), Arc::clone(&self.access));
        let prepared = tokio::task::spawn_blocking(move || access.prepared(info)).await;
        let (info, tls) = prepared.unwrap_or_else(|why| Err(why.to_string())).map_err(Why::Unfit)?;
        let target = Target { address: info.addr(), elsewhere: self.elsewhere(), tcp: info.tcp_settings(), tls };
        let opened = async {
            let lent = open(&target).await?;
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let made = MultiplexedConnection::new_with_config(info.redis_settings(), lent.clone(), config).await;
            made.map(|(connection, driver)| (connection, Box::pin(driver) as Driver, lent))
        };
        self.unless_silent(opened).await
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub async fn connect(&self, config: AsyncConnectionConfig) -> Result<MultiplexedConnection, Why> {
        let (info, access) = (self.info.clone(), Arc::clone(&self.access));
        // Files may be on slow storage, and a function for credentials may take time, so this runs on another thread.
        let made = tokio::task::spawn_blocking(move || access.client(info)).await;
        let client = made.unwrap_or_else(|why| Err(why.to_string())).map_err(Why::Unfit)?;
        #[cfg(feature = "tls")]
        let config = match &self.elsewhere {
            Some(host) => config.set_dns_resolver(Elsewhere(host.clone())),
            None => config,
        };
        self.unless_silent(client.get_multiplexed_async_connection_with_config(&config)).await
    }

    /// Returns the connection that `made` opens, or why there is none. Where the error does not tell, a plain probe
    /// may show what the server is.
    async fn unless_silent<T>(&self, made: impl Future<Output = Result<T, RedisError>>) -> Result<T, Why> {
        let (address, elsewhere) = (self.info.addr(), self.elsewhere());
        let error = tokio::select! {
            biased;
            made = made => match made {
                Ok(made) => return Ok(made),
                Err(error) => error,
            },
            why = identify_silent(address, elsewhere) => return Err(why),
        };
        let why = Why::unconnected(&error);
        // The connection broke, or the answer is no Redis reply: a plain probe may show why.
        let is_told = matches!(why, Why::Tls(_)) || error.code().is_some();
        if is_told || error.is_connection_refusal() || error.is_timeout() {
            return Err(why);
        }
        Err(identify(address, elsewhere).await.unwrap_or(why))
    }

    /// Returns the host to connect to, if the certificate names another one.
    fn elsewhere(&self) -> Option<&str> {
        #[cfg(feature = "tls")]
        return self.elsewhere.as_deref();
        #[cfg(not(feature = "tls"))]
        return None;
    }
}

/// Resolves every name to this host, so that connections can name the host of the certificate.
#[cfg(feature = "tls")]
struct Elsewhere(String);

#[cfg(feature = "tls")]
impl redis::io::AsyncDNSResolver for Elsewhere {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _name: &'b str,
        port: u16,
    ) -> redis::RedisFuture<'a, Box<dyn Iterator<Item = std::net::SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let host = self.0.trim_start_matches('[').trim_end_matches(']');
            let found = tokio::net::lookup_host((host, port)).await?;
            Ok(Box::new(found.collect::<Vec<_>>().into_iter()) as Box<_>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_password_with_or_without_a_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        let credentials = Credentials::file(&path);
        assert!(credentials.ask().unwrap_err().contains("cannot be read"));
        for (text, expected) in [
            ("app:secret\n", ("app", "secret")),
            ("secret", ("default", "secret")),
            ("app:with:colons \r\nsecond line", ("app", "with:colons")),
            (":secret", ("default", "secret")),
        ] {
            std::fs::write(&path, text).unwrap();
            let (user, password) = credentials.ask().unwrap();
            assert_eq!((user.as_str(), password.as_str()), expected);
        }
        for text in ["", "\nsecret", "app:"] {
            std::fs::write(&path, text).unwrap();
            let why = credentials.ask().unwrap_err();
            assert!(why.contains("there is no password in") && !why.contains("secret"), "{why}");
        }
    }

    #[test]
    #[expect(clippy::field_reassign_with_default, reason = "without TLS there is no other field")]
    fn credentials_are_not_shown() {
        let credentials = Credentials::from_fn(|| Ok(("user".to_owned(), "secret".to_owned())));
        let mut access = Access::default();
        access.credentials = Some(credentials);
        let access = Arc::new(access);
        let way = Way::new(1, "redis://other:hidden@host", &access).unwrap();
        let shown = format!("{access:?} {way:?}");
        assert!(!shown.contains("secret") && !shown.contains("hidden"), "{shown}");
    }
}
