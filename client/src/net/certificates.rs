//! Certificates and keys in PEM files. They are checked as they are read, so that an error names the file and its fault
//! before any connection.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redis::{ClientTlsConfig, ConnectionInfo, TlsCertificates};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, Error, InconsistentKeys, RootCertStore};

/// Certificates for `rediss://` addresses, as PEM files. Each connection reads them anew: renewal needs no restart.
///
/// ```no_run
/// use palisade_client::{Client, Tls};
///
/// # fn main() -> Result<(), palisade_client::Error> {
/// let tls = Tls::new().ca_file("/etc/palisade/ca.pem").client_certificate("/etc/palisade/app.pem", "/etc/palisade/app.key");
/// let locks = Client::builder().nodes(["rediss://10.0.0.1", "rediss://10.0.0.2", "rediss://10.0.0.3"]).tls(tls).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tls {
    ca: Option<PathBuf>,
    /// The client's certificate, then its key.
    own: Option<(PathBuf, PathBuf)>,
    pub(super) server_name: Option<String>,
}

impl Tls {
    /// Trusts the system's certificates, and presents none, as without [`Builder::tls`](crate::Builder::tls).
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificates in this file, and those that they have signed, in place of the system's.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(path.into());
        self
    }

    /// Presents this certificate (with its chain to the CA) to the nodes; its private key is in the second file. A
    /// server with `tls-auth-clients yes`, the default, requires one.
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.own = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the name that the certificates of all nodes must contain, in place of the host in their addresses. For
    /// nodes whose certificates do not contain their addresses.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Returns a client of redis-rs with these certificates.
    ///
    /// # Errors
    /// A file cannot be used.
    pub(super) fn client(&self, info: ConnectionInfo) -> Result<redis::Client, String> {
        let Files { ca, own } = self.read()?;
        ca.as_ref().map(authorities).transpose()?;
        own.as_ref().map(certified).transpose()?;
        let certificates = TlsCertificates {
            client_tls: own
                .map(|(certificate, key)| ClientTlsConfig { client_cert: certificate.pem, client_key: key.pem }),
            root_cert: ca.map(|ca| ca.pem),
        };
        redis::Client::build_with_tls(info, certificates).map_err(|why| why.to_string())
    }

    /// Returns the TLS configuration of the client's own connections.
    ///
    /// # Errors
    /// A file cannot be used.
    pub(super) fn config(&self) -> Result<ClientConfig, String> {
        let Files { ca, own } = self.read()?;
        let roots = ca.as_ref().map_or_else(of_the_system, authorities)?;
        let config = ClientConfig::builder().with_root_certificates(roots);
        Ok(match &own {
            Some(own) => config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified(own)?))),
            None => config.with_no_client_auth(),
        })
    }

    fn read(&self) -> Result<Files<'_>, String> {
        let ca = self.ca.as_deref().map(|path| PemFile::read("the CA certificates", path));
        let own = self.own.as_ref().map(|(certificate, key)| {
            Ok::<_, String>((
                PemFile::read("the client's certificate", certificate)?,
                PemFile::read("the client's key", key)?,
            ))
        });
        Ok(Files { ca: ca.transpose()?, own: own.transpose()? })
    }
}

/// The files of a [`Tls`].
struct Files<'a> {
    ca: Option<PemFile<'a>>,
    /// The client's certificate, then its key.
    own: Option<(PemFile<'a>, PemFile<'a>)>,
}

/// Returns the certificate authorities in this file.
fn authorities(ca: &PemFile<'_>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (n, certificate) in ca.certificates()?.into_iter().enumerate() {
        roots.add(certificate).map_err(|why| ca.invalid(n + 1, &why))?;
    }
    Ok(roots)
}

/// Returns the certificate authorities that the system trusts.
fn of_the_system() -> Result<RootCertStore, String> {
    let system = rustls_native_certs::load_native_certs();
    if let Some(why) = system.errors.into_iter().next() {
        return Err(format!("the system's certificates cannot be read: {why}"));
    }
    let mut roots = RootCertStore::empty();
    for certificate in system.certs {
        roots.add(certificate).map_err(|why| format!("the system's certificates cannot be used: {why}"))?;
    }
    Ok(roots)
}

/// Returns the client's certificate with its key.
fn certified((certificate, key): &(PemFile<'_>, PemFile<'_>)) -> Result<CertifiedKey, String> {
    let chain = certificate.certificates()?;
    let private = ring::default_provider().key_provider.load_private_key(key.private_key()?);
    let own = CertifiedKey::new(chain, private.map_err(|why| key.useless(why))?);
    match own.keys_match() {
        // For some kinds of keys this cannot be checked, because the key does not contain its public part.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(own),
        Err(Error::InconsistentKeys(_)) => {
            Err(key.useless(format_args!("it is not the key of the certificate in {}", certificate.path.display())))
        }
        Err(why) => Err(certificate.invalid(1, &why)),
    }
}

/// A PEM file, as it was read.
struct PemFile<'a> {
    what: &'static str,
    path: &'a Path,
    pem: Vec<u8>,
}

impl<'a> PemFile<'a> {
    fn read(what: &'static str, path: &'a Path) -> Result<Self, String> {
        let pem = std::fs::read(path).map_err(|why| format!("{what} in {} cannot be read: {why}", path.display()))?;
        Ok(Self { what, path, pem })
    }

    fn useless(&self, fault: impl fmt::Display) -> String {
        format!("{} in {} cannot be used: {fault}", self.what, self.path.display())
    }

    fn invalid(&self, number: usize, why: &Error) -> String {
        self.useless(format_args!("certificate {number} is invalid: {why}"))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        self.all("certificate")
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, String> {
        Ok(self.all(KEY)?.swap_remove(0))
    }

    /// Returns all items of one kind, at least one; `wanted` is their name in errors.
    fn all<T: PemObject>(&self, wanted: &str) -> Result<Vec<T>, String> {
        let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(&self.pem).collect::<Result<Vec<_>, _>>();
        let fault = match sections {
            Ok(sections) => {
                let other = sections.first().map(|(kind, _)| name_of(*kind));
                let found: Vec<T> = sections.into_iter().filter_map(|(kind, der)| T::from_pem(kind, der)).collect();
                match other {
                    _ if !found.is_empty() => return Ok(found),
                    _ if self.pem.trim_ascii().is_empty() => "the file is empty".to_owned(),
                    Some(other) => format!("it contains {other}, and no {wanted}"),
                    None => format!("it contains no {wanted} in PEM (-----BEGIN {}-----)", wanted.to_uppercase()),
                }
            }
            Err(why) => damage(&why).to_owned(),
        };
        let is_encrypted = || self.pem.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED);
        Err(self.useless(if wanted == KEY && is_encrypted() { DECRYPT.to_owned() } else { fault }))
    }
}

fn name_of(kind: SectionKind) -> &'static str {
    match kind {
        SectionKind::Certificate => "a certificate",
        SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => "a private key",
        SectionKind::PublicKey => "a public key",
        _ => "something else",
    }
}

/// Describes the damage of a file, without showing bytes of it, which may be secret.
fn damage(why: &pem::Error) -> &'static str {
    match why {
        pem::Error::MissingSectionEnd { .. } => "it is cut short: a line -----END ...----- is missing",
        pem::Error::Base64Decode(_) => "it is damaged: what is between its lines BEGIN and END is not base64",
        _ => "it is damaged: it is not PEM",
    }
}

/// The name of a private key in errors.
const KEY: &str = "private key";

/// A word in every PEM file with an encrypted key, and the error for such a file.
const ENCRYPTED: &[u8] = b"ENCRYPTED";
const DECRYPT: &str = "its key is encrypted with a password: write it without one (openssl pkey)";
