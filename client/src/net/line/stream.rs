//! A socket that never blocks, with or without TLS.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use socket2::Socket;

/// A connected, non-blocking socket, and TLS over it.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    #[cfg(feature = "tls")]
    tls: Option<Box<rustls::ClientConnection>>,
}

/// The result of writing: whether bytes are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The system accepted everything.
    Done,
    /// Some bytes are left until the socket is writable.
    Blocked,
}

impl Stream {
    /// Creates a stream of a connected, non-blocking socket.
    pub fn new(socket: Socket) -> Self {
        Self {
            socket,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Creates a stream with TLS, after its handshake.
    #[cfg(feature = "tls")]
    pub fn over_tls(socket: Socket, tls: rustls::ClientConnection) -> Self {
        let mut tls = Box::new(tls);
        // The callers bound the bytes that they write.
        tls.set_buffer_limit(None);
        Self { socket, tls: Some(tls) }
    }

    /// Ends the connection, also for its other handles.
    pub fn shut(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Returns another handle of the socket, to wait for it.
    pub fn handle(&self) -> io::Result<Socket> {
        self.socket.try_clone()
    }

    /// Writes as many bytes as the system accepts, and returns their number.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return tls.writer().write(bytes);
        }
        not_now(|| (&self.socket).write(bytes)).map(|written| written.unwrap_or(0))
    }

    /// Hands the bytes that TLS holds to the system.
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

    /// Returns whether one read may have left bytes in a buffer.
    pub fn is_buffered(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        return false;
    }

    /// Reads into `room`; `None` if nothing is there now, 0 if the other end closed the connection.
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

/// Performs `act`, and repeats it if a signal interrupts it; `None` if it would block.
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
