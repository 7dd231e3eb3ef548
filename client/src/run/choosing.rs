//! Asks the nodes which of several permits are free.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_quorum::{Choice, ChoiceProgress, free, limits::LISTED_HOLDERS_MAX};
use tracing::debug;

use crate::Holder;
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::net::wire;
use crate::values::shown_key::ShownKey;

/// A free permit and a holder, as a majority of the nodes shows them.
#[derive(Debug)]
pub struct FreePermit {
    /// The number of a permit that a majority shows as free; `None` if there is none.
    pub number: Option<u16>,
    /// A holder of one of the permits.
    pub holder: Option<Holder>,
}

/// Asks all nodes which of `limit` permits of `key` are free, leaving out grants of `owner`, the name of the request's
/// last attempt. Acquires nothing.
pub async fn find_free_permit(nodes: &Nodes, key: &[u8], owner: &[u8], limit: u16, given: Given) -> FreePermit {
    let command = &wire::info_with(key, usize::from(limit).min(LISTED_HOLDERS_MAX));
    let ask = |place: usize| async move { (place, nodes.list[place].ask(command, given, None).await) };
    let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(ask).collect();
    let mut choice = Choice::begin(nodes.len());
    let mut holder = None;
    while let Some((place, (id, reply))) = asked.next().await {
        let shown = reply.ok().and_then(|info| {
            holder = holder.take().or_else(|| wire::holder(&info));
            let has_waiters = wire::number(&info, "waiters").unwrap_or(0) > 0;
            Some(free(limit, &wire::modes(&info, owner)?, has_waiters))
        });
        match choice.on_view(place, id.zip(shown)) {
            ChoiceProgress::Goes => {}
            ChoiceProgress::Free | ChoiceProgress::Full => break,
        }
    }
    let number = choice.number(rand::random());
    debug!(key = %ShownKey(key), nodes = nodes.len(), limit, number, "looked for a free permit");
    FreePermit { number, holder }
}
