//! Identifies servers at addresses where no lock node answers: a server of another protocol, or one that refuses
//! clients at once.

use std::future::pending;
use std::time::Duration;

use redis::ConnectionAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use crate::values::failure::Why;
use crate::values::tls_fault::TlsFault;

/// The time for a server that refuses clients to say so, and for an HTTP server to answer.
const AT_ONCE: Duration = Duration::from_millis(100);
const ANSWER: Duration = Duration::from_millis(200);

/// The time for a TLS server to answer the first bytes. A server without TLS waits for the end of a line instead.
const FIRST_WORD: Duration = Duration::from_millis(400);

/// Maximum number of bytes that are read of a server's answer.
const BYTES: usize = 256;

/// A request that HTTP servers understand and that does no harm to other servers.
const QUESTION: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

/// The first bytes of a TLS handshake: a TLS server answers them with an alert.
const HELLO: &[u8] = b"\x16\x03\x01\0\x04\x01\0\0\0";

/// Identifies the server at `address`; `None` if its answer does not reveal what it is. `elsewhere` is the host to
/// connect to, if the certificate names another one.
pub async fn identify(address: &ConnectionAddr, elsewhere: Option<&str>) -> Option<Why> {
    let ask = async |host: &str, port: u16, question| {
        let host = elsewhere.unwrap_or(host).trim_start_matches('[').trim_end_matches(']');
        let connected = timeout(ANSWER, TcpStream::connect((host, port))).await;
        Some(read_answer(connected.ok()?.ok()?, question).await)
    };
    match address {
        ConnectionAddr::Tcp(host, port) => match ask(host, *port, QUESTION).await?.recognise() {
            Server::Unknown => ask(host, *port, HELLO).await?.recognise().why(),
            server => server.why(),
        },
        ConnectionAddr::TcpTls { host, port, .. } => match ask(host, *port, QUESTION).await?.recognise() {
            Server::Refuses(stranger @ Why::Stranger(_)) => Some(stranger),
            Server::Refuses(Why::Tls(_)) | Server::Unknown => None,
            // A server without TLS answers the request with an error of its own protocol.
            Server::Refuses(_) | Server::Redis => Some(Why::Tls(TlsFault::Plain)),
        },
        ConnectionAddr::Unix(path) => {
            read_answer(UnixStream::connect(path).await.ok()?, QUESTION).await.recognise().why()
        }
        _ => None,
    }
}

/// Identifies a server at a TLS address that is silent because it does not use TLS; otherwise never returns.
pub async fn identify_silent(address: &ConnectionAddr, elsewhere: Option<&str>) -> Why {
    if matches!(address, ConnectionAddr::TcpTls { .. }) {
        sleep(FIRST_WORD).await;
        if let Some(why) = identify(address, elsewhere).await {
            return why;
        }
    }
    pending().await
}

/// The first bytes of a server: sent by itself, or as its answer to a question.
struct Heard {
    bytes: Vec<u8>,
    is_answer: bool,
}

/// A server, as it shows itself.
#[derive(Debug, PartialEq)]
enum Server {
    /// The server does not serve this client, for this reason.
    Refuses(Why),
    /// The server answers a question that it does not understand with an error, as Redis does. So it may serve the next
    /// connection.
    Redis,
    Unknown,
}

impl Server {
    fn why(self) -> Option<Why> {
        if let Self::Refuses(why) = self { Some(why) } else { None }
    }
}

/// Reads what the server sends by itself, or if it sends nothing, its answer to `question`.
async fn read_answer(mut connection: impl AsyncRead + AsyncWrite + Unpin, question: &[u8]) -> Heard {
    let mut bytes = vec![0; BYTES];
    let mut read = timeout(AT_ONCE, connection.read(&mut bytes)).await;
    let is_answer = read.is_err();
    if is_answer && connection.write_all(question).await.is_ok() {
        read = timeout(ANSWER, connection.read(&mut bytes)).await;
    }
    bytes.truncate(read.map_or(0, |read| read.unwrap_or(0)));
    Heard { bytes, is_answer }
}

impl Heard {
    fn recognise(&self) -> Server {
        let stranger = |what: &str| Server::Refuses(Why::Stranger(what.to_owned()));
        match &*self.bytes {
            [b'-', error @ ..] => {
                let line = String::from_utf8_lossy(error.split(|byte| *byte == b'\r').next().unwrap_or_default());
                match Why::read(&line).before_asked() {
                    _ if line.is_empty() => Server::Unknown,
                    // A slow server may say these only now; they are no answers to the question.
                    full @ Why::Full(_) => Server::Refuses(full),
                    Why::TurnedAway { code, .. } if self.is_answer && code != "DENIED" => Server::Redis,
                    why => Server::Refuses(why),
                }
            }
            said if said.starts_with(b"HTTP/") => stranger("a server that speaks HTTP"),
            said if said.starts_with(b"SSH-") => stranger("a server that speaks SSH"),
            // This is a TLS alert, the answer to bytes that are not TLS.
            [0x15, 0x03, ..] => Server::Refuses(Why::Tls(TlsFault::Encrypted)),
            _ => Server::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_they_say() {
        let told = |said: &[u8]| match (Heard { bytes: said.to_vec(), is_answer: false }).recognise().why() {
            Some(Why::Stranger(what)) => what,
            Some(Why::TurnedAway { code, text }) => format!("{code}|{text}"),
            Some(Why::Full(text)) => format!("full|{text}"),
            Some(Why::Tls(fault)) => format!("{fault:?}"),
            _ => String::new(),
        };
        for (said, expected) in [
            (&b"-ERR max number of clients reached\r\n"[..], "full|max number of clients reached"),
            (b"-DENIED Redis is running in protected mode\r\n", "DENIED|Redis is running in protected mode"),
            (b"HTTP/1.1 400 Bad Request\r\nServer: x", "a server that speaks HTTP"),
            (b"SSH-2.0-OpenSSH_9.2", "a server that speaks SSH"),
            (b"\x15\x03\x01\0\x02\x02\x46", "Encrypted"),
            (b"", ""),
            (b"-", ""),
            (b"+PONG\r\n", ""),
        ] {
            assert_eq!(told(said), expected);
        }
    }

    /// Regression: a node whose connection broke before its first answer counted as one that refuses for good, because it
    /// does not understand the question.
    #[test]
    fn an_error_about_the_question_is_no_refusal() {
        let heard = Heard { bytes: b"-ERR wrong number of arguments for 'get' command\r\n".to_vec(), is_answer: true };
        assert_eq!(heard.recognise(), Server::Redis);
        let late = Heard { bytes: b"-DENIED Redis is running in protected mode\r\n".to_vec(), is_answer: true };
        assert!(late.recognise().why().is_some(), "a slow server says this only now");
    }
}
