//! Tests that docs/telemetry.md lists every metric, with its labels.

use palisade_client::Options;

use crate::fixture::{Nodes, ms};
use crate::recorder::{labels_of, scraped};

/// Returns the rows of the page's table: name, kind, labels.
fn rows() -> Vec<(String, String, Vec<String>)> {
    let page = include_str!("../../../docs/telemetry.md");
    let row = |line: &str| {
        let cells: Vec<_> = line.strip_prefix("| `palisade_client_")?.split(" | ").collect();
        let mut labels: Vec<_> = cells[2].split(", ").map(|label| label.trim_matches('`').to_owned()).collect();
        labels.sort();
        Some((format!("palisade_client_{}", cells[0].trim_end_matches('`')), cells[1].to_owned(), labels))
    };
    page.lines().filter_map(row).collect()
}

/// Makes the client report each metric at least once.
async fn all() {
    let (_nodes, locks) = Nodes::with_client(1).await;
    let options = Options::new().ttl(ms(300)).auto_extend(false);
    let guard = locks.with(&options).lock("k").await.unwrap();
    let _ = guard.extend().await;
    guard.lost().await;
    drop(guard);
    let lost = || scraped().contains("palisade_client_losses_total{");
    crate::fixture::until("it is lost", async || lost()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_is_right() {
    all().await;
    let text = scraped();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut told: Vec<_> = types.filter(|(name, _)| name.starts_with("palisade_client_")).collect();
    told.sort();
    let rows = rows();
    let mut named: Vec<_> = rows.iter().map(|(name, kind, _)| (name.as_str(), kind.as_str())).collect();
    named.sort();
    assert_eq!(named, told);
    for (name, kind, labels) in &rows {
        let series = if kind == "histogram" { format!("{name}_count") } else { name.clone() };
        assert_eq!(*labels, labels_of(&series), "{name}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
    }
}

#[test]
fn the_page_shows_the_code_of_the_example() {
    let code = include_str!("../../examples/telemetry/setup.rs");
    let code = code.split_once("\n\n").unwrap().1;
    assert!(include_str!("../../../docs/telemetry.md").contains(code));
}
