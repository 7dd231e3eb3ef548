//! A socket that never waits, with or without TLS.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use socket2::Socket;

/// The two ends of it.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    #[cfg(feature = "tls")]
    tls: Option<Box<rustls::ClientConnection>>,
}

/// The state of what was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The system took everything.
    Done,
    /// The rest has to wait.
    Blocked,
}

impl Stream {
    /// A socket that is connected, and does not block.
    pub fn new(socket: Socket) -> Self {
        Self {
            socket,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The same with TLS, after its handshake.
    #[cfg(feature = "tls")]
    pub fn over_tls(socket: Socket, tls: rustls::ClientConnection) -> Self {
        let mut tls = Box::new(tls);
        // What is written is bounded where it is asked for.
        tls.set_buffer_limit(None);
        Self { socket, tls: Some(tls) }
    }

    /// Ends the connection, also for its other handles.
    pub fn shut(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Another handle of the socket, to wait for it.
    pub fn handle(&self) -> io::Result<Socket> {
        self.socket.try_clone()
    }

    /// Writes what the system takes of `bytes`, and returns how much that was.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return tls.writer().write(bytes);
        }
        not_now(|| (&self.socket).write(bytes)).map(|written| written.unwrap_or(0))
    }

    /// Hands to the system what TLS holds.
    pub fn flush(&mut self) -> io::Result<Flow> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                if not_now(|| tls.write_tls(&mut &self.socket))?.is_none() {
                    return Ok(Flow::Blocked);
                }
            }
        }
        Ok(Flow::Done)
    }

    /// Returns true if there may be more than one read tells.
    pub fn is_buffered(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        return false;
    }

    /// Reads into `room`; `None`: nothing is there now. 0: the other end hung up.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            loop {
                match not_now(|| tls.reader().read(room))? {
                    Some(read) => return Ok(Some(read)),
                    None if not_now(|| tls.read_tls(&mut &self.socket))?.is_none() => return Ok(None),
                    None => {
                        let read = tls.process_new_packets();
                        read.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
                    }
                }
            }
        }
        not_now(|| (&self.socket).read(room))
    }
}

/// Does it, again where a signal came; `None`: it would have to wait.
fn not_now(mut act: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match act() {
            Ok(count) => return Ok(Some(count)),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}
