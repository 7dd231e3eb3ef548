//! Exports a program's lock metrics to Prometheus and its lock spans to OpenTelemetry.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Installs both exporters; call it before the first use of a client. Prometheus scrapes the handle's `render()`. Shut
/// the provider down at the end, so that no span is lost.
pub fn install(exporter: impl SpanExporter + 'static) -> (PrometheusHandle, SdkTracerProvider) {
    // Buckets in seconds: from a free lock on a near node to a queue of minutes.
    let buckets = [0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0];
    let prometheus = PrometheusBuilder::new().set_buckets(&buckets).expect("there are some");
    let scraped = prometheus.install_recorder().expect("no other recorder is installed");

    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let to_opentelemetry = tracing_opentelemetry::layer().with_tracer(provider.tracer("palisade_client"));
    let of_locks = Targets::new().with_target("palisade_client", Level::DEBUG);
    tracing_subscriber::registry().with(to_opentelemetry.with_filter(of_locks)).init();
    (scraped, provider)
}
