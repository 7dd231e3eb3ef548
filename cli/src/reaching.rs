//! The settings for reaching the nodes: addresses, certificates, credentials. The watchdog receives them in its
//! environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Parser};
use palisade_client::Credentials;
use palisade_client::direct::Access;

use crate::addresses;
use crate::exit::Failure;

const NODES: &str = "PALISADE_NODES";
const CA: &str = "PALISADE_TLS_CA";
const CERTIFICATE: &str = "PALISADE_TLS_CERT";
const KEY: &str = "PALISADE_TLS_KEY";
const SERVER_NAME: &str = "PALISADE_TLS_SERVER_NAME";
const CREDENTIALS: &str = "PALISADE_CREDENTIALS";
const SENTINEL_CREDENTIALS: &str = "PALISADE_SENTINEL_CREDENTIALS";

/// The variables with the paths of the system's trusted certificates, used if no certificates are named.
const OF_THE_SYSTEM: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The addresses of the nodes, and the settings of connections.
#[derive(Args, Clone, Debug, Default)]
pub struct Reaching {
    /// The nodes, separated by commas: host:6379, redis://user:password@host:6379, rediss://…, unix:///path; a cluster:
    /// redis+cluster://host:6379,host:6379; the master that Sentinels name: redis+sentinel://host,host,host/name
    #[arg(long, global = true, env = NODES, hide_env_values = true, value_name = "ADDRESSES")]
    pub nodes: Vec<String>,
    /// Certificates that are trusted at rediss:// addresses, in place of the system's: a PEM file
    #[arg(long, global = true, env = CA, value_name = "FILE", help_heading = CONNECTING)]
    tls_ca: Option<PathBuf>,
    /// The certificate that is shown to nodes which ask for one: a PEM file
    #[arg(long, global = true, env = CERTIFICATE, value_name = "FILE", requires = "tls_key", help_heading = CONNECTING)]
    tls_cert: Option<PathBuf>,
    /// The private key of the client certificate: a PEM file
    #[arg(long, global = true, env = KEY, value_name = "FILE", requires = "tls_cert", help_heading = CONNECTING)]
    tls_key: Option<PathBuf>,
    /// The name that the certificates of all nodes have, where it is not the host in their addresses
    #[arg(long, global = true, env = SERVER_NAME, value_name = "NAME", help_heading = CONNECTING)]
    tls_server_name: Option<String>,
    /// A file with a line user:password (or the password alone), read anew for each connection
    #[arg(long, global = true, env = CREDENTIALS, value_name = "FILE", help_heading = CONNECTING)]
    credentials: Option<PathBuf>,
    /// The credentials for Sentinels, which have users of their own
    #[arg(long, global = true, env = SENTINEL_CREDENTIALS, value_name = "FILE", help_heading = CONNECTING)]
    sentinel_credentials: Option<PathBuf>,
}

/// The heading of these options in the help.
const CONNECTING: &str = "Connecting";

impl Reaching {
    /// Returns the same settings for this address alone.
    pub fn only(&self, address: &str) -> Self {
        Self { nodes: vec![address.to_owned()], ..self.clone() }
    }

    /// Returns the addresses, without blanks around them.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().flat_map(|list| addresses::split(list)).collect()
    }

    /// Returns certificates and credentials.
    ///
    /// # Errors
    /// This program was built without TLS, and certificates are named.
    pub fn access(&self) -> Result<Access, Failure> {
        #[cfg(feature = "tls")]
        let tls = self.tls();
        #[cfg(not(feature = "tls"))]
        if self.tls_ca.is_some() || self.tls_cert.is_some() || self.tls_server_name.is_some() {
            return Err(Failure::usage("this program was built without TLS: leave the certificates out"));
        }
        Ok(Access {
            #[cfg(feature = "tls")]
            tls,
            credentials: self.credentials.clone().map(Credentials::file),
            sentinel_credentials: self.sentinel_credentials.clone().map(Credentials::file),
        })
    }

    #[cfg(feature = "tls")]
    fn tls(&self) -> Option<palisade_client::Tls> {
        let mut tls = palisade_client::Tls::new();
        if let Some(path) = &self.tls_ca {
            tls = tls.ca_file(path);
        }
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            tls = tls.client_certificate(certificate, key);
        }
        if let Some(name) = &self.tls_server_name {
            tls = tls.server_name(name);
        }
        Some(tls)
    }

    /// Returns the environment that passes all settings to another process of this program, in whatever folder it runs.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let absolute = |path: &Path| std::path::absolute(path).ok().map(PathBuf::into_os_string);
        let named = [
            (CA, &self.tls_ca),
            (CERTIFICATE, &self.tls_cert),
            (KEY, &self.tls_key),
            (CREDENTIALS, &self.credentials),
            (SENTINEL_CREDENTIALS, &self.sentinel_credentials),
        ];
        let files = named.into_iter().filter_map(|(name, path)| Some((name, absolute(path.as_deref()?)?)));
        let of_the_system =
            OF_THE_SYSTEM.into_iter().filter_map(|name| Some((name, absolute(Path::new(&std::env::var_os(name)?))?)));
        let server_name = self.tls_server_name.clone().map(|name| (SERVER_NAME, name.into()));
        let nodes = (NODES, addresses::join(&self.addresses()).into());
        files.chain(of_the_system).chain(server_name).chain([nodes]).collect()
    }

    /// Reads the settings that [`Reaching::environment`] passed to this process.
    pub fn from_environment() -> Self {
        FromEnvironment::try_parse_from(std::env::args_os().take(1))
            .map_or_else(|_| Self::default(), |told| told.reaching)
    }
}

/// The arguments of a process that reads all of its settings from the environment.
#[derive(Debug, Parser)]
struct FromEnvironment {
    #[command(flatten)]
    reaching: Reaching,
}
