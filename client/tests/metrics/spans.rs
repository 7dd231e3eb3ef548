//! Spans that OpenTelemetry receives for a lock.

use opentelemetry_sdk::trace::SpanData;
use palisade_client::Options;

use crate::fixture::{Nodes, ms, until};
use crate::recorder::install;

/// Returns the spans with this name and this key so far.
fn spans(name: &str, key: &str) -> Vec<SpanData> {
    install().provider.force_flush().unwrap();
    let all = install().spans.get_finished_spans().unwrap();
    all.into_iter().filter(|span| span.name == name && attribute(span, "key").as_deref() == Some(key)).collect()
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    span.attributes.iter().find(|attribute| attribute.key.as_str() == name).map(|found| found.value.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_a_span_and_holding_it_is_another() {
    let (_nodes, locks) = Nodes::with_client(3).await;
    let guard = locks.with(&Options::new().ttl(ms(60_000))).lock("spans:1").await.unwrap();
    let token = guard.token().to_string();
    tokio::time::sleep(ms(50)).await;
    guard.release().await;
    until("it is exported", async || !spans("held", "spans:1").is_empty()).await;
    let (lock, held) = (&spans("lock", "spans:1")[0], &spans("held", "spans:1")[0]);
    assert_eq!(held.parent_span_id, lock.span_context.span_id());
    for span in [lock, held] {
        assert_eq!(attribute(span, "token").as_ref(), Some(&token));
        assert_eq!(attribute(span, "nodes").as_deref(), Some("3"));
    }
    let lasted = |span: &SpanData| span.end_time.duration_since(span.start_time).unwrap();
    assert!(lasted(held) >= ms(50), "{:?}", lasted(held));
    let told = |span: &SpanData| span.events.iter().map(|event| event.name.to_string()).collect::<Vec<_>>();
    assert!(told(lock).contains(&"granted".to_owned()), "{:?}", told(lock));
    assert!(told(held).contains(&"released".to_owned()), "{:?}", told(held));
}
