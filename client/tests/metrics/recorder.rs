//! The recorder of this process, as Prometheus would scrape it. Each test has a class of locks and nodes of its own.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

static SCRAPED: OnceLock<PrometheusHandle> = OnceLock::new();

/// Installs it, before the first client of the process.
pub fn install() -> &'static PrometheusHandle {
    SCRAPED.get_or_init(|| {
        let builder = PrometheusBuilder::new().set_buckets(&[0.01, 0.1, 1.0, 10.0]).unwrap();
        builder.install_recorder().unwrap()
    })
}

/// What Prometheus would read.
pub fn scraped() -> String {
    install().render()
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
