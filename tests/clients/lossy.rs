//! A network that loses one answer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// A proxy between clients and a server. It breaks a connection instead of passing on the answer to the first request
/// that contains certain words.
pub struct LossyNetwork {
    port: u16,
    requests: Arc<AtomicUsize>,
}

impl LossyNetwork {
    /// Starts a proxy in front of the server at this port. The request is the first one with all of these words.
    pub fn to(server: u16, words: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        // The thread ends with the process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(("127.0.0.1", server));
                if let Ok(server) = server {
                    pass_on(client, server, words, counted.clone());
                }
            }
        });
        Self { port, requests }
    }

    /// Returns the port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of requests with these words.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn pass_on(client: TcpStream, server: TcpStream, words: &'static [&'static str], requests: Arc<AtomicUsize>) {
    let breaks = Arc::new(AtomicBool::new(false));
    let (asks, asked, breaking) = (client.try_clone().unwrap(), server.try_clone().unwrap(), breaks.clone());
    thread::spawn(move || {
        copy(asks, asked, |request| {
            let has = |word: &str| request.windows(word.len()).any(|part| part == word.as_bytes());
            if words.iter().all(|word| has(word)) && requests.fetch_add(1, Ordering::SeqCst) == 0 {
                breaking.store(true, Ordering::SeqCst);
            }
            true
        });
    });
    thread::spawn(move || copy(server, client, |_answer| !breaks.load(Ordering::SeqCst)));
}

/// Copies bytes until one side ends or `passes` returns false; then closes both sides.
fn copy(mut from: TcpStream, mut to: TcpStream, mut passes: impl FnMut(&[u8]) -> bool) {
    // Larger than any request or answer of a recipe, so that each is read in one piece.
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !passes(&bytes[..count]) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
