//! Prints the output of Prometheus and OpenTelemetry for a lock that is acquired, held for a moment and released.
//!
//! ```text
//! cargo run --features metrics --example telemetry redis://127.0.0.1:6379
//! ```

#[path = "../addresses/mod.rs"]
mod addresses;
mod setup;

use std::time::Duration;

use palisade_client::{Client, Options};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (scraped, spans) = setup::install(opentelemetry_stdout::SpanExporter::default());
    let locks = Client::new(addresses::of_nodes())?;
    let guard = locks.with(&Options::new().class("orders")).lock("orders:42").await?;
    tokio::time::sleep(Duration::from_millis(20)).await;
    guard.release().await;
    locks.close().await?;
    spans.shutdown()?;
    print!("{}", scraped.render());
    Ok(())
}
