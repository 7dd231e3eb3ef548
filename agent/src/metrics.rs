//! Metrics for Prometheus over HTTP: `GET /metrics`, and `GET /health` to check whether locks are granted.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::commands::node;
use crate::limits::{ACCEPT_AGAIN, SCRAPE_TIME, SCRAPES_MAX, SCRAPES_OPEN_MAX};
use crate::state::State;

/// The content type of the metrics.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Listens for requests for metrics at `address`.
///
/// # Errors
/// The agent cannot listen there.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|why| format!("metrics cannot be listened for on {address}: {why}"))
}

/// A connection to the metrics' address, which is closed when this is dropped.
struct Scrape {
    has_asked: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Scrape {
    fn begin(state: &Arc<State>, turns: &Arc<Semaphore>, stream: TcpStream) -> Self {
        let has_asked = Arc::new(AtomicBool::new(false));
        let (state, turns, asked) = (Arc::clone(state), Arc::clone(turns), Arc::clone(&has_asked));
        let task = tokio::spawn(async move {
            let answer = service_fn(async |request| {
                asked.store(true, Ordering::Relaxed);
                // The semaphore is never closed, so this does not fail.
                let _turn = turns.acquire().await.ok();
                answer(&state, request).await
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).keep_alive(false);
            // If the client has disconnected, or does not speak HTTP, it gets no answer.
            let _ = timeout(SCRAPE_TIME, http.serve_connection(TokioIo::new(stream), answer)).await;
        });
        Self { has_asked, task }
    }
}

impl Drop for Scrape {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers requests for metrics until the future is dropped. If there are too many connections, the oldest one that has
/// sent no request is closed, so that silent ones keep nobody out.
pub async fn serve(state: Arc<State>, listener: TcpListener) {
    let turns = Arc::new(Semaphore::new(SCRAPES_MAX));
    let mut open: Vec<Scrape> = vec![];
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_AGAIN).await;
            continue;
        };
        open.retain(|scrape| !scrape.task.is_finished());
        while open.len() >= SCRAPES_OPEN_MAX {
            match open.iter().position(|scrape| !scrape.has_asked.load(Ordering::Relaxed)) {
                Some(silent) => drop(open.remove(silent)),
                None => {
                    sleep(ACCEPT_AGAIN).await;
                    open.retain(|scrape| !scrape.task.is_finished());
                }
            }
        }
        open.push(Scrape::begin(&state, &turns, stream));
    }
}

async fn answer(state: &State, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let said = |status: StatusCode, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(TEXT));
        response
    };
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => said(StatusCode::OK, text(state).await),
        (&Method::GET, "/health") => match health(state).await {
            Ok(text) => said(StatusCode::OK, text),
            Err(text) => said(StatusCode::SERVICE_UNAVAILABLE, text),
        },
        (&Method::GET, _) => said(StatusCode::NOT_FOUND, "ask for /metrics or /health\n".to_owned()),
        _ => said(StatusCode::METHOD_NOT_ALLOWED, "GET only\n".to_owned()),
    })
}

/// Returns a line that says whether locks are granted; as an error if they are not.
async fn health(state: &State) -> Result<String, String> {
    if state.is_ending() {
        return Err("the agent is ending\n".to_owned());
    }
    match state.nodes_soon().await {
        Some(Ok(nodes)) => {
            let line = format!("{}: {} of {} nodes serve\n", node::state(&nodes), nodes.serving, nodes.nodes);
            if nodes.serving >= nodes.majority { Ok(line) } else { Err(line) }
        }
        Some(Err(why)) => Err(format!("{why}\n")),
        None => Err("the nodes did not answer in time\n".to_owned()),
    }
}

/// Returns all metrics, as text for Prometheus.
async fn text(state: &State) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, values: &[(String, f64)]| {
        let _ = write!(text, "# HELP palisade_agent_{name} {help}\n# TYPE palisade_agent_{name} {kind}\n");
        for (labels, value) in values {
            let _ = writeln!(text, "palisade_agent_{name}{labels} {value}");
        }
    };
    let one = |value: f64| vec![(String::new(), value)];
    let counts = &state.counts;
    let gauge = |count: &crate::counts::Count| one(count.get() as f64);
    family("info", "gauge", "The version.", &[(format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0)]);
    family("uptime_seconds", "gauge", "Since when it runs.", &one(state.started.elapsed().as_secs_f64()));
    family("connections", "gauge", "Open connections.", &gauge(&counts.connections));
    family("connections_max", "gauge", "Most connections.", &one(state.connections_max as f64));
    family("connections_total", "counter", "Connections that were accepted.", &gauge(&counts.accepted));
    let closed = [
        ("limit", &counts.turned_away),
        ("garbage", &counts.garbage),
        ("slow", &counts.too_slow),
        ("panic", &counts.panics),
    ];
    let closed: Vec<_> = closed.iter().map(|(why, n)| (format!("{{why=\"{why}\"}}"), n.get() as f64)).collect();
    family("closed_total", "counter", "Connections that the agent closed, by why.", &closed);
    family("wrong_passwords_total", "counter", "Wrong passwords.", &gauge(&counts.wrong_passwords));
    family("blocked", "gauge", "Connections that wait for a lock, or for a change of one.", &gauge(&counts.blocked));
    let label = |name: &str| format!("{{command=\"{}\"}}", name.to_lowercase());
    let calls: Vec<_> = counts.commands.iter().map(|of| (label(of.name), of.calls.get() as f64)).collect();
    family("commands_total", "counter", "Commands that were sent.", &calls);
    let errors: Vec<_> = counts.commands.iter().map(|of| (label(of.name), of.errors.get() as f64)).collect();
    family("command_errors_total", "counter", "Commands that were answered with an error.", &errors);
    family("unknown_commands_total", "counter", "Commands that there are not here.", &gauge(&counts.unknown));
    let (held, waiting, watching) = state.locks.counts();
    family("held", "gauge", "Locks that were taken here and not given back.", &one(held as f64));
    family("waiting", "gauge", "Requests that wait for a lock.", &one(waiting as f64));
    family("watching", "gauge", "Requests that watch a lock.", &one(watching as f64));
    let nodes = state.nodes_soon().await.and_then(Result::ok);
    family(
        "up",
        "gauge",
        "Whether so many nodes serve that locks are granted.",
        &one(f64::from(u8::from(nodes.as_ref().is_some_and(|nodes| nodes.serving >= nodes.majority)))),
    );
    if let Some(nodes) = nodes {
        family("nodes", "gauge", "How many nodes there are.", &one(nodes.nodes as f64));
        family("nodes_serving", "gauge", "How many of them grant locks.", &one(nodes.serving as f64));
        family("nodes_majority", "gauge", "How many are needed.", &one(nodes.majority as f64));
        family("nodes_unreachable", "gauge", "How many cannot be asked.", &one(nodes.unreachable.len() as f64));
        let guarded = nodes.guarded.map_or(0.0, |(left, _)| left.as_secs_f64());
        family(
            "guard_seconds",
            "gauge",
            "For how long too few nodes grant, since they may have forgotten grants.",
            &one(guarded),
        );
    }
    text
}
