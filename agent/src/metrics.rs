//! Metrics for Prometheus over HTTP: `GET /metrics`, and `GET /health` to check whether locks are granted.

use std::fmt::Write;

use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};

use crate::commands::node;
use crate::http::{self, Response};
use crate::state::State;

/// The content type of the metrics.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers a request.
pub async fn answer(state: &State, request: Request<Bytes>) -> Response {
    let said = |status: StatusCode, text: String| http::response(status, METRICS, text);
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => said(StatusCode::OK, text(state).await),
        (&Method::GET, "/health") => match health(state).await {
            Ok(text) => said(StatusCode::OK, text),
            Err(text) => said(StatusCode::SERVICE_UNAVAILABLE, text),
        },
        (&Method::GET, _) => said(StatusCode::NOT_FOUND, "ask for /metrics or /health\n".to_owned()),
        _ => said(StatusCode::METHOD_NOT_ALLOWED, "GET only\n".to_owned()),
    }
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
