//! The recorder of this process, read as Prometheus would read it. Each test has its own class of locks and its own
//! nodes.

use std::sync::OnceLock;

use metrics_exporter_prometheus::PrometheusHandle;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};

use crate::setup;

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// The installed recorder, tracer and span exporter.
pub struct Installed {
    pub scraped: PrometheusHandle,
    pub provider: SdkTracerProvider,
    pub spans: InMemorySpanExporter,
}

/// Installs recorder, tracer and exporter before the process creates its first client, as docs/telemetry.md says.
pub fn install() -> &'static Installed {
    INSTALLED.get_or_init(|| {
        let spans = InMemorySpanExporter::default();
        let (scraped, provider) = setup::install(spans.clone());
        Installed { scraped, provider, spans }
    })
}

/// Returns the text that Prometheus would scrape.
pub fn scraped() -> String {
    install().scraped.render()
}

/// Returns the sum of `name` over all series with these labels: `sum("palisade_client_held", &[("class", "a")])`.
pub fn sum(name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |series: &str| labels.iter().all(|(label, value)| series.contains(&format!("{label}=\"{value}\"")));
    let text = scraped();
    let series = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} "));
    series.filter(|(series, _)| has(series)).map(|(_, value)| value.parse::<f64>().unwrap()).sum()
}

/// Returns the labels of all series of `name`, sorted; without the label of buckets.
pub fn labels_of(name: &str) -> Vec<String> {
    let text = scraped();
    let series = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} "));
    let labels = series.flat_map(|(series, _)| series.split(',').filter_map(|label| label.split('=').next()));
    let mut labels: Vec<_> = labels.filter(|label| *label != "le").map(str::to_owned).collect();
    labels.sort();
    labels.dedup();
    labels
}
