//! Requests that go to a node together: what tasks ask of it at the same moment is written at once.
//!
//! A write, and the read of its answer, cost more than the request itself. The writer of a connection lets all tasks that can run ask
//! before it sends anything: that takes no time that the client's thread would not have spent on them anyway.

use std::io;
use std::sync::{Mutex, PoisonError};

use redis::{Cmd, RedisError, Value};
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;

use super::connecting::Link;

/// Where requests to a node wait for their writer.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    gathered: Mutex<Gathered>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Gathered {
    /// The connection that has a writer; 0: none has.
    number: u64,
    requests: Vec<Waiting>,
}

type Waiting = (Cmd, oneshot::Sender<Result<Value, RedisError>>);

/// Writes over one connection what is gathered for it. It lives on the client's thread; when it ends, what it has not sent fails.
pub(super) struct Writer<'a> {
    gathering: &'a Gathering,
    link: Link,
}

impl Gathering {
    /// Sends `command` over that connection, with others that are asked for now, and returns what the node answers. Dropped before it is
    /// sent, it is not.
    pub fn ask(&self, number: u64, command: Cmd) -> impl Future<Output = Result<Value, RedisError>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
            // Else the answer goes, which says that it cannot be sent.
            if gathered.number == number {
                gathered.requests.push((command, answer));
            }
            gathered.requests.len() == 1
        };
        if is_first {
            self.news.notify_one();
        }
        async { answered.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::BrokenPipe).into())) }
    }

    /// From here on requests over this connection are gathered.
    pub fn writer(&self, link: &Link) -> Writer<'_> {
        self.begin(link.number);
        Writer { gathering: self, link: link.clone() }
    }

    fn begin(&self, number: u64) {
        *self.gathered.lock().unwrap_or_else(PoisonError::into_inner) = Gathered { number, requests: vec![] };
    }

    fn take(&self) -> Vec<Waiting> {
        std::mem::take(&mut self.gathered.lock().unwrap_or_else(PoisonError::into_inner).requests)
    }
}

impl Writer<'_> {
    /// Writes, for ever.
    pub async fn run(&self) {
        loop {
            self.gathering.news.notified().await;
            yield_now().await;
            let mut requests = self.gathering.take();
            requests.retain(|(_, answer)| !answer.is_closed());
            if !requests.is_empty() {
                tokio::spawn(send(self.link.clone(), requests));
            }
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.gathering.begin(0);
    }
}

async fn send(mut link: Link, requests: Vec<Waiting>) {
    let mut pipeline = redis::Pipeline::with_capacity(requests.len());
    let mut answers = Vec::with_capacity(requests.len());
    for (command, answer) in requests {
        pipeline.add_command(command);
        answers.push(answer);
    }
    match link.connection.send_packed_commands(&pipeline, 0, answers.len()).await {
        Ok(replies) => answers.into_iter().zip(replies).for_each(|(answer, reply)| drop(answer.send(Ok(reply)))),
        Err(error) => answers.into_iter().for_each(|answer| drop(answer.send(Err(error.clone())))),
    }
}
