//! Connections without a client library: requests are bytes prepared beforehand, and answers are only counted. The
//! server is measured, so its client must cost less than it does.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redis::{Parser, Value};

/// The longest wait for an answer before a benchmark gives up; a stop under valgrind or an fsync is shorter.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns `words` as the bytes of one request.
pub fn request<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        write!(bytes, "${}\r\n", word.len()).unwrap();
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A blocking connection.
pub struct Raw {
    stream: TcpStream,
    parser: Parser,
    buffer: Vec<u8>,
}

impl Raw {
    /// Connects to the server on `port` of the loopback, once it answers.
    pub fn connect(port: u16) -> Self {
        let stream = (0..).find_map(|tried| match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => Some(stream),
            Err(why) if tried > 6_000 => panic!("the server on port {port} does not answer: {why}"),
            Err(_) => {
                std::thread::sleep(Duration::from_millis(10));
                None
            }
        });
        let stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, parser: Parser::new(), buffer: vec![0; 1 << 16] }
    }

    /// Opens one more connection to the same server.
    pub fn another(&self) -> Self {
        Self::connect(self.stream.peer_addr().unwrap().port())
    }

    /// Sends requests.
    pub fn send(&mut self, requests: &[u8]) {
        self.stream.write_all(requests).unwrap();
    }

    /// Waits for `lines` lines of answers without parsing them: an answer of one kind always has the same number of
    /// lines.
    pub fn skip_lines(&mut self, lines: usize) {
        let mut seen = 0;
        while seen < lines {
            let read = self.stream.read(&mut self.buffer).unwrap();
            assert!(read > 0, "the server closed the connection");
            seen += self.buffer[..read].iter().filter(|byte| **byte == b'\n').count();
        }
        assert_eq!(seen, lines, "an answer has another form than the first ones had");
    }

    /// Makes the connection non-blocking: only [`Self::send`] and [`Self::lines_so_far`] may be called from now on.
    pub fn do_not_block(&mut self) {
        self.stream.set_nonblocking(true).unwrap();
    }

    /// Returns the number of lines of answers since the last call.
    pub fn lines_so_far(&mut self) -> usize {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => panic!("the server closed the connection"),
            Ok(read) => self.buffer[..read].iter().filter(|byte| **byte == b'\n').count(),
            Err(why) if why.kind() == ErrorKind::WouldBlock => 0,
            Err(why) => panic!("{why}"),
        }
    }

    /// Waits for one answer. All answers have to be read before [`Self::skip_lines`].
    pub fn answer(&mut self) -> Value {
        self.parser.parse_value(Uninterrupted(&mut self.stream)).unwrap()
    }

    /// Sends one request, given as words with spaces between them, and waits for its answer.
    pub fn ask(&mut self, line: &str) -> Value {
        self.send(&request(&line.split(' ').collect::<Vec<_>>()));
        self.answer()
    }
}

/// A stream whose reads go on after a signal, such as that of a process that ended.
struct Uninterrupted<'a>(&'a mut TcpStream);

impl Read for Uninterrupted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

/// Returns the number of lines of an answer on the wire, in RESP2.
pub fn lines(answer: &Value) -> usize {
    match answer {
        Value::Nil | Value::Int(_) | Value::Okay | Value::SimpleString(_) => 1,
        Value::BulkString(bytes) => 2 + bytes.iter().filter(|byte| **byte == b'\n').count(),
        Value::Array(items) => 1 + items.iter().map(lines).sum::<usize>(),
        other => panic!("an answer that no workload asks for: {other:?}"),
    }
}
