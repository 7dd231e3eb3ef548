//! Why a client and a server do not agree on TLS.

use std::fmt;

use redis::RedisError;

/// The reason why a client and a server do not agree on TLS. The cause is permanent: someone has to act.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFault {
    /// No authority that this client trusts has signed the server's certificate.
    Untrusted,
    /// The server's certificate is for other names.
    OtherName {
        /// The name that the certificate should have.
        wanted: String,
        /// The names that the certificate has.
        has: Vec<String>,
    },
    /// The server requires a client certificate, and the client has none.
    NoCertificate,
    /// The server does not accept the client's certificate.
    Refused,
    /// The server does not use TLS, although its address says so.
    Plain,
    /// The server uses TLS, although its address does not say so.
    Encrypted,
}

impl TlsFault {
    /// Returns the TLS fault in the error of a failed connection; `None` if the error is another one.
    #[cfg(feature = "tls")]
    pub(crate) fn of(error: &RedisError) -> Option<Self> {
        use rustls::AlertDescription::{BadCertificate, CertificateExpired, CertificateRevoked, UnknownCA};
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
        use rustls::{AlertDescription, Error};
        let other_name = |wanted: &str, has: &[String]| Self::OtherName {
            wanted: wanted.to_owned(),
            has: has.iter().map(|name| bare(name)).collect(),
        };
        Some(match of_rustls(error)? {
            Error::InvalidCertificate(UnknownIssuer) => Self::Untrusted,
            Error::InvalidCertificate(NotValidForName) => other_name("the host in its address", &[]),
            Error::InvalidCertificate(NotValidForNameContext { expected, presented }) => {
                other_name(&expected.to_str(), presented)
            }
            Error::AlertReceived(AlertDescription::CertificateRequired) => Self::NoCertificate,
            Error::AlertReceived(UnknownCA | BadCertificate | CertificateExpired | CertificateRevoked) => Self::Refused,
            _ => return None,
        })
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn of(_: &RedisError) -> Option<Self> {
        None
    }

    /// Returns advice: the option of the program `palisade`, and the method of this crate.
    #[doc(hidden)]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Untrusted => "give the certificate of its authority (--tls-ca, Tls::ca_file)",
            Self::OtherName { .. } => {
                "correct the address, or give the name that it has (--tls-server-name, Tls::server_name)"
            }
            Self::NoCertificate => {
                "give a certificate and its key (--tls-cert and --tls-key, Tls::client_certificate), or set tls-auth-clients no on the server"
            }
            Self::Refused => {
                "give one that an authority of the server signed (--tls-cert and --tls-key, Tls::client_certificate), or add that authority to the server's tls-ca-cert-file"
            }
            Self::Plain => "give its address as redis://, or the port that it has for TLS (tls-port)",
            Self::Encrypted => "give its address as rediss://",
        }
    }
}

/// Returns whether the error is about TLS: a certificate is missing or not accepted, or one side does not use TLS.
#[cfg(feature = "tls")]
pub(crate) fn is_of_tls(error: &RedisError) -> bool {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    matches!(of_rustls(error), Some(InvalidCertificate(_) | AlertReceived(_) | InvalidMessage(_)))
}

#[cfg(not(feature = "tls"))]
pub(crate) fn is_of_tls(_: &RedisError) -> bool {
    false
}

/// Returns the name in `IpAddress(127.0.0.1)` or `DnsName("localhost")`, the only form in which rustls reports it.
#[cfg(feature = "tls")]
fn bare(name: &str) -> String {
    let inner = ["IpAddress(", "DnsName("].iter().find_map(|kind| name.strip_prefix(kind)?.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_owned()
}

#[cfg(feature = "tls")]
fn of_rustls(error: &RedisError) -> Option<&rustls::Error> {
    use std::error::Error;
    use std::sync::Arc;

    // redis-rs wraps the errors of other crates like this.
    let inner = error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let io = inner.and_then(|inner| inner.downcast_ref::<std::io::Error>()).and_then(std::io::Error::get_ref);
    io.and_then(|io| io.downcast_ref::<rustls::Error>())
}

impl fmt::Display for TlsFault {
    /// Writes what is wrong, without advice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untrusted => {
                f.write_str("its certificate is not trusted: it is signed by no authority that is trusted here")
            }
            Self::OtherName { wanted, has } if has.is_empty() => write!(f, "its certificate is not for {wanted}"),
            Self::OtherName { wanted, has } => {
                write!(f, "its certificate is not for {wanted}, but for {}", has.join(", "))
            }
            Self::NoCertificate => f.write_str("it asks for a certificate of its clients, and was shown none"),
            Self::Refused => f.write_str("it does not accept the client's certificate: it is out of date, or signed by no authority that the server trusts"),
            Self::Plain => f.write_str("the server there speaks no TLS, and its address says that it does (rediss://)"),
            Self::Encrypted => f.write_str("the server there speaks TLS, and its address does not say so (redis://)"),
        }
    }
}
