//! The agent's sockets, and the connections that they accept: Unix sockets, TCP, and sockets from systemd.

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bytes::BytesMut;
use listenfd::ListenFd;
use rustix::fs::{Mode, fchmod};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, listen, recv, shutdown,
    socket_with,
};
use tokio::io::{Interest, Ready};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::limits::{GONE_AFTER, PROBE_AFTER, PROBE_EVERY, READ_BYTES};

/// The most connections that the system keeps until they are accepted. It may allow fewer.
const BACKLOG: i32 = 1_024;

thread_local! {
    /// The buffer into which all connections of a thread read, so that a silent connection needs no buffer of its own.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// An address at which to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// An address of this machine, with a port.
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
        if path.starts_with('/') {
            return Ok(Self::Unix(path.into()));
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            format!("{text} is no place to listen: say unix:///run/palisade/agent.sock, 127.0.0.1:6390 or [::1]:6390")
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// A socket at which the agent accepts connections.
#[derive(Debug)]
pub struct Listener {
    /// The socket's address, as people read it.
    pub name: String,
    socket: Socket,
    /// The socket's file and its identity. The file is removed at the end if it is still the same one.
    made: Option<(PathBuf, FileId)>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A file's identity, whatever its name: the device and the number on it.
type FileId = (u64, u64);

impl Listener {
    /// Listens at `address`. The file of a Unix socket gets the mode `mode`.
    ///
    /// # Errors
    ///
    /// The agent cannot listen there.
    pub async fn bind(address: &Address, mode: u32) -> Result<Self, String> {
        let name = address.to_string();
        let failed = |why: io::Error| format!("{name} cannot be listened on: {why}");
        let (socket, made) = match address {
            Address::Unix(path) => {
                clear(path)?;
                let socket = bind_unix(path, mode).map_err(failed)?;
                let file = file_id(path).map(|id| (path.clone(), id));
                (Socket::Unix(socket), file)
            }
            Address::Tcp(address) => (Socket::Tcp(TcpListener::bind(address).await.map_err(failed)?), None),
        };
        // With port 0 the system chooses a port, so the actual one is read.
        let name = match &socket {
            Socket::Tcp(socket) => socket.local_addr().map_or(name, |address| address.to_string()),
            Socket::Unix(_) => name,
        };
        Ok(Self { name, socket, made })
    }

    /// Returns the sockets that systemd opened for this process; none without systemd.
    ///
    /// # Errors
    ///
    /// One of them is not a socket that listens.
    pub fn inherited() -> Result<Vec<Self>, String> {
        let mut handed = ListenFd::from_env();
        let failed = |why: io::Error| format!("a socket that was handed over is no use: {why}");
        (0..handed.len()).map(|n| Self::of_handed(&mut handed, n).map_err(failed)).collect()
    }

    fn of_handed(handed: &mut ListenFd, n: usize) -> io::Result<Self> {
        if let Ok(Some(socket)) = handed.take_unix_listener(n) {
            socket.set_nonblocking(true)?;
            let name = socket.local_addr()?.as_pathname().map(|path| Address::Unix(path.into()).to_string());
            let socket = Socket::Unix(UnixListener::from_std(socket)?);
            return Ok(Self { name: name.unwrap_or_else(|| "a socket without a name".to_owned()), socket, made: None });
        }
        let socket = handed.take_tcp_listener(n)?.ok_or_else(|| io::Error::other("it was taken before"))?;
        socket.set_nonblocking(true)?;
        let socket = TcpListener::from_std(socket)?;
        Ok(Self { name: socket.local_addr()?.to_string(), socket: Socket::Tcp(socket), made: None })
    }

    /// Returns true if only programs on this machine can reach the socket.
    pub fn is_local(&self) -> bool {
        match &self.socket {
            Socket::Unix(_) => true,
            Socket::Tcp(socket) => socket.local_addr().is_ok_and(|address| address.ip().is_loopback()),
        }
    }

    /// Accepts the next connection. Returns it with the client's address.
    ///
    /// # Errors
    /// The connection is gone, or there are too many.
    pub async fn accept(&self) -> io::Result<(Stream, String)> {
        match &self.socket {
            Socket::Unix(socket) => {
                let (stream, _) = socket.accept().await?;
                let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
                Ok((Stream::Unix(stream), peer.map_or("unix".to_owned(), |pid| format!("pid:{pid}"))))
            }
            Socket::Tcp(socket) => {
                let (stream, peer) = socket.accept().await?;
                // Without this the system may hold small replies back, and clients wait for them.
                stream.set_nodelay(true)?;
                probe(&stream)?;
                Ok((Stream::Tcp(stream), peer.to_string()))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, id)) = &self.made
            && file_id(path) == Some(*id)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Makes the system end the connection when the client's machine has vanished. Probes alone are not enough: none is
/// sent while an answer is not acknowledged.
fn probe(stream: &TcpStream) -> io::Result<()> {
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, PROBE_AFTER)?;
    set_tcp_keepintvl(stream, PROBE_EVERY)?;
    Ok(set_tcp_user_timeout(stream, GONE_AFTER.as_millis() as u32)?)
}

/// Creates a socket whose file has this mode. The mode is set before the file exists, so that nobody else can connect
/// in between.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::from_raw_mode(mode))?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // The umask of the process may have taken away more than wanted, so the mode is set once more.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// Removes an old socket at `path`, if no process listens at it.
fn clear(path: &Path) -> Result<(), String> {
    let name = path.display();
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(format!("an agent listens on {name} already: end it first, or choose another place")),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
        Err(why) if why.kind() == ErrorKind::ConnectionRefused => {
            if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
                return fs::remove_file(path)
                    .map_err(|why| format!("{name}, which nobody listens on, cannot be removed: {why}"));
            }
            Err(format!("{name} is there and is no socket: choose another place"))
        }
        Err(why) => Err(format!("{name} cannot be listened on: {why}")),
    }
}

fn file_id(path: &Path) -> Option<FileId> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// A connection of a client.
#[derive(Debug)]
pub enum Stream {
    /// A connection over a socket in the file system.
    Unix(UnixStream),
    /// A connection over TCP.
    Tcp(TcpStream),
}

impl Stream {
    /// Waits until there may be input to read.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.readable().await,
            Self::Tcp(stream) => stream.readable().await,
        }
    }

    /// Waits until bytes can be written.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.writable().await,
            Self::Tcp(stream) => stream.writable().await,
        }
    }

    /// Reads the bytes that have arrived to the end of `bytes`. Returns their number. Returns 0 at the end of the input.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: no bytes have arrived yet. Any other: the connection is gone.
    pub fn try_read(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut count = 0;
            let mut read = |from: BorrowedFd<'_>| {
                count = retry_on_intr(|| recv(from, &mut scratch[..], RecvFlags::empty()))?.0;
                // A read that leaves room has read everything. So the socket counts as not readable until its next
                // event.
                if (1..READ_BYTES).contains(&count) { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
            };
            let is_open = match self {
                Self::Unix(stream) => stream.try_io(Interest::READABLE, || read(stream.as_fd())),
                Self::Tcp(stream) => stream.try_io(Interest::READABLE, || read(stream.as_fd())),
            };
            bytes.extend_from_slice(&scratch[..count]);
            if count == 0 { is_open.map(|()| 0) } else { Ok(count) }
        })
    }

    /// Writes as many bytes as the system takes now. Returns their number.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: there is no room now. Any other: the connection has ended.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tcp(stream) => stream.try_write(bytes),
        }
    }

    /// Closes the connection for writing, so that the client sees the end of the answers.
    pub fn end_writing(&self) {
        // If this fails, the client has already disconnected.
        let _ = match self {
            Self::Unix(stream) => shutdown(stream, Shutdown::Write),
            Self::Tcp(stream) => shutdown(stream, Shutdown::Write),
        };
    }

    /// Waits for input or for its end. Returns true if the client has disconnected, even if some of its input is
    /// unread.
    pub async fn has_hung_up(&self) -> bool {
        let ready = match self {
            Self::Unix(stream) => stream.ready(Interest::READABLE).await,
            Self::Tcp(stream) => stream.ready(Interest::READABLE).await,
        };
        ready.map_or(true, Ready::is_read_closed)
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{socket_keepalive, tcp_keepidle, tcp_keepintvl, tcp_user_timeout};

    use super::*;

    /// Regression: the machine of a client over TCP vanished, and the client's lease with KEEPALIVE and its place in
    /// queues stayed forever. Now the agent notices it.
    #[tokio::test]
    async fn a_client_over_tcp_that_vanishes_is_noticed() {
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), 0).await.unwrap();
        let (_client, accepted) = tokio::join!(TcpStream::connect(&listener.name), listener.accept());
        let Ok((Stream::Tcp(stream), _)) = accepted else { panic!("no connection over TCP") };
        assert!(socket_keepalive(&stream).unwrap());
        assert_eq!((tcp_keepidle(&stream), tcp_keepintvl(&stream)), (Ok(PROBE_AFTER), Ok(PROBE_EVERY)));
        assert_eq!(tcp_user_timeout(&stream).map(u128::from), Ok(GONE_AFTER.as_millis()));
    }

    #[test]
    fn places_to_listen() {
        for text in ["unix:///run/a.sock", "unix:/run/a.sock", "/run/a.sock"] {
            assert_eq!(text.parse(), Ok(Address::Unix("/run/a.sock".into())));
        }
        for text in ["127.0.0.1:6390", "[::1]:6390"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "run/a.sock", "unix://run/a.sock", "localhost", "6390", "redis://127.0.0.1:6390", "10.0.0.1"] {
            assert!(text.parse::<Address>().unwrap_err().contains("is no place to listen"), "{text}");
        }
    }
}
