//! A slow link: a proxy on the loopback that passes everything on in order, each piece after a fixed delay.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// The proxy, in a thread of its own, so that the client's thread does none of its work. It lives as long as the
/// process.
pub struct SlowLink {
    port: u16,
}

impl SlowLink {
    /// Opens a link to the server on `port` that adds `delay` in each direction. Timers are accurate to a millisecond.
    pub fn to(port: u16, delay: Duration) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let here = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(link(client, port, delay));
                }
            });
        });
        Self { port: here }
    }

    /// Returns the port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }
}

async fn link(client: TcpStream, port: u16, delay: Duration) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::try_join!(pass(from_client, to_server, delay), pass(from_server, to_client, delay))?;
    Ok(())
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, delay: Duration) -> io::Result<()> {
    let (under_way, mut arriving) = mpsc::unbounded_channel();
    let read = async {
        loop {
            let mut piece = vec![0; 1 << 14];
            let length = from.read(&mut piece).await?;
            piece.truncate(length);
            // The input has ended: so does the channel.
            if length == 0 || under_way.send((Instant::now() + delay, piece)).is_err() {
                drop(under_way);
                return Ok(());
            }
        }
    };
    let write = async {
        while let Some((due, piece)) = arriving.recv().await {
            tokio::time::sleep_until(due.into()).await;
            to.write_all(&piece).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(|_| ())
}
