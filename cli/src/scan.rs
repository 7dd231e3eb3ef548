//! Iterates over a server's keys by SCAN.

use palisade_client::Why;
use palisade_client::direct::ServerLink;
use redis::{FromRedisValue, cmd};

use crate::node_failure::strange;

/// The cursor with which a scan begins, and which the server returns at its end.
pub const START: &str = "0";

/// The number of keys that the server examines in one step: about a millisecond of work.
const COUNT: usize = 1_000;

/// Takes one step of a scan. Returns the next cursor, and the keys of this pattern and type that the server found. The
/// server may find a key twice.
///
/// # Errors
///
/// The server does not answer, refuses, or its answer makes no sense.
pub async fn step(
    link: &mut ServerLink,
    cursor: &str,
    pattern: &[u8],
    kind: &str,
) -> Result<(String, Vec<Vec<u8>>), Why> {
    let scan = cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(COUNT).arg("TYPE").arg(kind).take();
    FromRedisValue::from_redis_value(link.ask(&scan).await?).map_err(|why| strange("SCAN", why))
}
