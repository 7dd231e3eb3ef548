//! A connection to a node or an agent, without a client library: requests as text, answers as they come.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, UnixStream};
use tokio::time::timeout;

/// Connections come from there: one from the address of the servers could have the port on which a server is to start again.
const FROM: (Ipv4Addr, u16) = (Ipv4Addr::new(127, 0, 0, 9), 0);

/// What is reached answers within this.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Number(u64),
    /// Of numbers.
    List(Vec<u64>),
    Null,
}

pub struct Connection {
    from: Box<dyn AsyncBufRead + Send + Unpin>,
    to: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Connection {
    /// To a node.
    pub async fn open(address: &str) -> io::Result<Self> {
        let address = address.trim_start_matches("redis://").parse().map_err(io::Error::other)?;
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(FROM))?;
        let stream = timeout(PATIENCE, socket.connect(address)).await??;
        stream.set_nodelay(true)?;
        let (from, to) = stream.into_split();
        Ok(Self { from: Box::new(BufReader::new(from)), to: Box::new(to) })
    }

    /// To a Unix socket.
    pub async fn open_socket(path: &str) -> io::Result<Self> {
        let (from, to) = timeout(PATIENCE, UnixStream::connect(path)).await??.into_split();
        Ok(Self { from: Box::new(BufReader::new(from)), to: Box::new(to) })
    }

    /// Errors are what is refused, too.
    pub async fn ask(&mut self, words: &[&str], limit: Duration) -> io::Result<Reply> {
        let mut text = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.to.write_all(text.as_bytes()).await?;
        match self.line(limit).await? {
            line if line.starts_with('*') && line != "*-1" => {
                let count = line[1..].parse().map_err(io::Error::other)?;
                let mut list = vec![];
                for _ in 0..count {
                    let Reply::Number(number) = reply(&self.line(limit).await?)? else {
                        return Err(io::Error::other("no list of numbers"));
                    };
                    list.push(number);
                }
                Ok(Reply::List(list))
            }
            line => reply(&line),
        }
    }

    async fn line(&mut self, limit: Duration) -> io::Result<String> {
        let mut line = String::new();
        timeout(limit, self.from.read_line(&mut line)).await??;
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

fn reply(line: &str) -> io::Result<Reply> {
    match line.split_at_checked(1) {
        Some((":", number)) => number.parse().map(Reply::Number).map_err(io::Error::other),
        Some(("$", "-1")) => Ok(Reply::Null),
        Some(("*", "-1")) => Ok(Reply::Null),
        _ => Err(io::Error::other(line.to_owned())),
    }
}
