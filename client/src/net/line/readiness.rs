//! Waits for a socket on the runtime of the waiting task.

use std::io;

use socket2::{Domain, Socket};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// Another handle of a socket, registered with one runtime. It is only for waiting: nothing is read or written over it.
#[derive(Debug)]
pub enum Readiness {
    /// Over a network.
    Tcp(TcpStream),
    /// On this host.
    Unix(UnixStream),
}

impl Readiness {
    /// Registers `socket` with the runtime of this task.
    pub(super) fn of(socket: Socket) -> io::Result<Self> {
        match socket.domain()? {
            Domain::UNIX => UnixStream::from_std(socket.into()).map(Self::Unix),
            _ => TcpStream::from_std(socket.into()).map(Self::Tcp),
        }
    }

    /// Waits until new bytes may have arrived since this method last returned.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.readable().await?,
            Self::Unix(socket) => socket.readable().await?,
        }
        self.forget(Interest::READABLE);
        Ok(())
    }

    /// Waits until the system may accept more.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.writable().await?,
            Self::Unix(socket) => socket.writable().await?,
        }
        self.forget(Interest::WRITABLE);
        Ok(())
    }

    /// Clears the readiness. Call it before a read or write, so that a change during that is not missed.
    fn forget(&self, interest: Interest) {
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = match self {
            Self::Tcp(socket) => socket.try_io(interest, nothing),
            Self::Unix(socket) => socket.try_io(interest, nothing),
        };
    }
}
