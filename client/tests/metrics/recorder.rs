//! The recorder of this process, as Prometheus would scrape it. Each test has a class of locks and nodes of its own.

use std::sync::OnceLock;

use metrics_exporter_prometheus::PrometheusHandle;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};

use crate::setup;

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// What hears of this process.
pub struct Installed {
    pub scraped: PrometheusHandle,
    pub provider: SdkTracerProvider,
    pub spans: InMemorySpanExporter,
}

/// Installs it, before the first client of the process, as docs/telemetry.md says.
pub fn install() -> &'static Installed {
    INSTALLED.get_or_init(|| {
        let spans = InMemorySpanExporter::default();
        let (scraped, provider) = setup::install(spans.clone());
        Installed { scraped, provider, spans }
    })
}

/// What Prometheus would read.
pub fn scraped() -> String {
    install().scraped.render()
}

/// The value of `name` summed over all series that have these labels: `of("palisade_client_held", r#"class="a""#)`.
pub fn sum(name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |series: &str| labels.iter().all(|(label, value)| series.contains(&format!("{label}=\"{value}\"")));
    let text = scraped();
    let series = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} "));
    series.filter(|(series, _)| has(series)).map(|(_, value)| value.parse::<f64>().unwrap()).sum()
}

/// The labels of all series of `name`, sorted; without the buckets' own.
pub fn labels_of(name: &str) -> Vec<String> {
    let text = scraped();
    let series = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} "));
    let labels = series.flat_map(|(series, _)| series.split(',').filter_map(|label| label.split('=').next()));
    let mut labels: Vec<_> = labels.filter(|label| *label != "le").map(str::to_owned).collect();
    labels.sort();
    labels.dedup();
    labels
}
