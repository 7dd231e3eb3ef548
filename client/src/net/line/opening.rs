//! Opens a connection. Socket and TLS are opened here; redis-rs performs the handshake over them, and then returns the
//! connection.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::select_ok;
use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, RedisError, RedisResult};
use socket2::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::stream::Stream;

/// A connection that is lent to redis-rs.
#[derive(Clone)]
pub struct Lent(Arc<Mutex<Option<Raw>>>);

enum Raw {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// The TLS configuration.
#[cfg(feature = "tls")]
pub type TlsConfig = Arc<rustls::ClientConfig>;
/// The TLS configuration of a build without TLS: there is none.
#[cfg(not(feature = "tls"))]
pub type TlsConfig = std::convert::Infallible;

/// The server to connect to, and how.
pub struct Target<'a> {
    /// The address of the server.
    pub address: &'a ConnectionAddr,
    /// The host to look up, if `address` has the common name of all certificates instead.
    pub elsewhere: Option<&'a str>,
    /// Settings of the socket.
    pub tcp: &'a TcpSettings,
    /// The TLS configuration, if TLS is used.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "there is none"))]
    pub tls: Option<TlsConfig>,
}

/// Connects to the target, by the first of the host's addresses that answers.
///
/// # Errors
/// Those of redis-rs.
pub async fn open(target: &Target<'_>) -> RedisResult<Lent> {
    let raw = match target.address {
        ConnectionAddr::Tcp(host, port) => Raw::Tcp(target.tcp_stream(host, *port).await?),
        #[cfg(feature = "tls")]
        ConnectionAddr::TcpTls { host, port, .. } => {
            use rustls::pki_types::ServerName;
            let config = target.tls.clone().ok_or_else(unsupported)?;
            let name = ServerName::try_from(host.as_str())?.to_owned();
            let stream = target.tcp_stream(host, *port).await?;
            Raw::Tls(Box::new(tokio_rustls::TlsConnector::from(config).connect(name, stream).await?))
        }
        ConnectionAddr::Unix(path) => Raw::Unix(UnixStream::connect(path).await?),
        _ => return Err(unsupported()),
    };
    Ok(Lent(Arc::new(Mutex::new(Some(raw)))))
}

fn unsupported() -> RedisError {
    (redis::ErrorKind::InvalidClientConfig, "an address of this kind cannot be connected to").into()
}

impl Target<'_> {
    async fn tcp_stream(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let host = self.elsewhere.unwrap_or(host).trim_start_matches('[').trim_end_matches(']');
        let connections: Vec<_> = lookup_host((host, port)).await?.map(|at| Box::pin(TcpStream::connect(at))).collect();
        if connections.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
        }
        let stream = select_ok(connections).await?.0;
        stream.set_nodelay(self.tcp.nodelay())?;
        let socket = Socket::from(stream.into_std()?);
        if let Some(keepalive) = self.tcp.keepalive() {
            socket.set_tcp_keepalive(keepalive)?;
        }
        TcpStream::from_std(socket.into())
    }
}

impl Lent {
    /// Takes the connection back from redis-rs, which can no longer use it.
    ///
    /// # Errors
    /// It was taken back before.
    pub fn take(&self) -> io::Result<Stream> {
        let raw = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(match raw.ok_or_else(gone)? {
            Raw::Tcp(stream) => Stream::new(stream.into_std()?.into()),
            Raw::Unix(stream) => Stream::new(stream.into_std()?.into()),
            #[cfg(feature = "tls")]
            Raw::Tls(stream) => {
                let (stream, tls) = stream.into_inner();
                Stream::over_tls(stream.into_std()?.into(), tls)
            }
        })
    }

    fn with<R>(&self, act: impl FnOnce(Pin<&mut (dyn Duplex + Unpin)>) -> Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Raw::Tcp(stream)) => act(Pin::new(stream)),
            Some(Raw::Unix(stream)) => act(Pin::new(stream)),
            #[cfg(feature = "tls")]
            Some(Raw::Tls(stream)) => act(Pin::new(&mut **stream)),
            None => Poll::Ready(Err(gone())),
        }
    }
}

/// A stream that can be read and written, whatever is below it.
trait Duplex: AsyncRead + AsyncWrite {}

impl<T: AsyncRead + AsyncWrite> Duplex for T {}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection is used elsewhere")
}

impl AsyncRead for Lent {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Lent {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(context))
    }
}
