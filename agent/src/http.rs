//! HTTP/1.1 for the addresses of metrics and of Terraform's locks: one request a connection, within bounds of size and
//! time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::limits::{
    ACCEPT_AGAIN, BODY_BYTES_MAX, BODY_BYTES_SKIPPED, HTTP_AT_A_TIME, HTTP_OPEN_MAX, HTTP_SILENT_TIME, HTTP_TIME,
};

/// An answer, which is sent whole.
pub type Response = hyper::Response<Full<Bytes>>;

/// The content type of lines for people.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// Creates an answer.
pub fn response(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Listens at `address` for what the option `option` serves.
///
/// # Errors
/// The agent cannot listen there.
pub async fn listen(option: &str, address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|why| format!("--{option} {address} cannot be listened on: {why}"))
}

/// A connection, which is closed when this is dropped.
struct Connection {
    /// True once the whole request has arrived.
    has_asked: Arc<AtomicBool>,
    since: Instant,
    task: JoinHandle<()>,
}

impl Connection {
    fn begin<A, F>(turns: &Arc<Semaphore>, stream: TcpStream, answer: A) -> Self
    where
        A: Fn(Request<Bytes>) -> F + Send + Sync + 'static,
        F: Future<Output = Response> + Send + 'static,
    {
        let has_asked = Arc::new(AtomicBool::new(false));
        let (turns, asked) = (Arc::clone(turns), Arc::clone(&has_asked));
        let task = tokio::spawn(async move {
            let served = service_fn(async |request: Request<Incoming>| {
                let (head, body) = request.into_parts();
                let body = whole(body).await?;
                asked.store(true, Ordering::Relaxed);
                // The semaphore is never closed, so this does not fail.
                let _turn = turns.acquire().await.ok();
                Ok::<_, hyper::Error>(match body {
                    Some(body) => answer(Request::from_parts(head, body)).await,
                    None => too_long(),
                })
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).keep_alive(false);
            // If the client has disconnected, or does not speak HTTP, it gets no answer.
            let _ = timeout(HTTP_TIME, http.serve_connection(TokioIo::new(stream), served)).await;
        });
        Self { has_asked, since: Instant::now(), task }
    }

    fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    /// Returns whether the connection has to give way to another one.
    fn is_slow(&self) -> bool {
        !self.has_asked() && self.since.elapsed() >= HTTP_SILENT_TIME
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers requests until `ended` returns, and then those that have arrived. If there are too many connections, the
/// oldest one without a whole request is closed, so that silent and slow ones keep nobody out.
pub async fn serve<A, F>(listener: TcpListener, ended: impl Future<Output = ()>, answer: A)
where
    A: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let turns = Arc::new(Semaphore::new(HTTP_AT_A_TIME));
    let mut open: Vec<Connection> = vec![];
    let accepting = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                sleep(ACCEPT_AGAIN).await;
                continue;
            };
            open.retain(|connection| !connection.task.is_finished());
            while open.len() >= HTTP_OPEN_MAX {
                match open.iter().position(Connection::is_slow) {
                    Some(slow) => drop(open.remove(slow)),
                    None => {
                        sleep(ACCEPT_AGAIN).await;
                        open.retain(|connection| !connection.task.is_finished());
                    }
                }
            }
            open.push(Connection::begin(&turns, stream, answer.clone()));
        }
    };
    tokio::select! {
        biased;
        () = ended => {}
        () = accepting => {}
    }
    for connection in open.iter_mut().filter(|connection| connection.has_asked()) {
        let _ = (&mut connection.task).await;
    }
}

/// Reads a body; `None` if it is too long. Then much of the rest is read and dropped too, so that the client finishes
/// sending and reads the answer.
async fn whole(mut body: Incoming) -> Result<Option<Bytes>, hyper::Error> {
    let (mut bytes, mut size) = (BytesMut::new(), 0);
    while size <= BODY_BYTES_SKIPPED
        && let Some(frame) = body.frame().await.transpose()?
    {
        let data = frame.into_data().unwrap_or_default();
        size += data.len();
        if size <= BODY_BYTES_MAX {
            bytes.extend_from_slice(&data);
        }
    }
    Ok((size <= BODY_BYTES_MAX).then(|| bytes.freeze()))
}

fn too_long() -> Response {
    let text = format!("a body has up to {BODY_BYTES_MAX} bytes, as the note of a lock: shorten Info, Who or Path\n");
    response(StatusCode::PAYLOAD_TOO_LARGE, TEXT, text)
}
