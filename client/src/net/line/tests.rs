use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use redis::Value;

use super::*;
use crate::net::pace::Given;

struct Asker(usize, Arc<AtomicUsize>);

impl Caller for Asker {
    fn is_wanted(&self) -> bool {
        true
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

fn line() -> (Arc<Line<Asker>>, UnixStream) {
    let (own, other) = UnixStream::pair().unwrap();
    own.set_nonblocking(true).unwrap();
    (Arc::new(Line::new(Stream::new(own.into()))), other)
}

fn waiting(number: usize, gone: &Arc<AtomicUsize>) -> Waiting<Asker> {
    let second = Duration::from_secs(1);
    let given = Given::Within { least: second, most: second };
    Waiting { waits: Asker(number, Arc::clone(gone)), given, from: None, before: None }
}

/// Sends more than the system accepts at once; the server answers only when all requests have arrived. Each caller
/// gets its own answer.
#[test]
fn so_much_is_asked_as_there_is_and_each_hears_its_answer() {
    const COUNT: usize = 20_000;
    let ((line, mut server), gone) = (line(), Arc::default());
    let request = redis::cmd("PING").arg("x".repeat(40)).get_packed_command();
    for number in 0..COUNT {
        assert!(line.ask(&request, waiting(number, &gone), None).is_ok());
    }
    let bytes = COUNT * request.len();
    let serving = std::thread::spawn(move || {
        server.read_exact(&mut vec![0; bytes]).unwrap();
        let answers: String = (0..COUNT).map(|number| format!(":{number}\r\n")).collect();
        server.write_all(answers.as_bytes()).unwrap();
        server
    });
    let mut heard = vec![];
    while heard.len() < COUNT {
        line.flush(Instant::now()).unwrap();
        line.read(Instant::now(), &mut heard).unwrap();
    }
    for (number, arrived) in heard.iter().enumerate() {
        let Arrived::Answer { waits: Some(asker), reply, .. } = arrived else { panic!("no answer: {number}") };
        assert_eq!((asker.0, reply), (number, &Value::Int(number as i64)));
    }
    let server = serving.join().unwrap();
    server.shutdown(Shutdown::Both).unwrap();
    assert!(line.read(Instant::now(), &mut heard).is_err(), "it hung up");
}

/// A lone request of the client's thread is written at once. The task that serves the connection is woken only if it
/// has to check the connection earlier than it knows.
#[test]
fn a_lone_request_of_the_clients_thread_is_written_at_once() {
    let ask = || {
        home::is_here();
        let ((line, mut server), gone) = (line(), Arc::default());
        server.set_nonblocking(true).unwrap();
        let (request, mut heard) = (redis::cmd("PING").get_packed_command(), vec![]);
        let sooner = Given::Exactly(Duration::from_millis(1));
        let cases = [(waiting(0, &gone), true), (waiting(1, &gone), false)];
        for (waiting, wakes) in cases.into_iter().chain([(Waiting { given: sooner, ..waiting(2, &gone) }, true)]) {
            let number = waiting.waits.0;
            assert!(line.ask(&request, waiting, None).is_ok());
            server.read_exact(&mut vec![0; request.len()]).unwrap();
            assert_eq!(line.wait_for_work().now_or_never().is_some(), wakes, "{number}");
            server.write_all(b"+PONG\r\n").unwrap();
            line.read(clock::now(), &mut heard).unwrap();
        }
        assert_eq!(heard.len(), 3);
    };
    std::thread::spawn(ask).join().unwrap();
}

#[test]
fn what_was_not_sent_is_taken_back_and_the_rest_is_told_at_the_end() {
    let ((line, _server), gone) = (line(), Arc::default());
    let request = redis::cmd("PING").get_packed_command();
    assert!(line.ask(&request, waiting(0, &gone), None).is_ok());
    line.flush(Instant::now()).unwrap();
    assert!(line.ask(&request, waiting(1, &gone), None).is_ok());
    let not_sent: Vec<_> = line.close().iter().map(|asker| asker.0).collect();
    assert!(line.ask(&request, waiting(2, &gone), None).is_err());
    let sent: Vec<_> = line.end().iter().map(|asker| asker.0).collect();
    assert_eq!((not_sent, sent, gone.load(Ordering::Relaxed)), (vec![1], vec![0], 3));
}
