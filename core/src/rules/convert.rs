//! LOCK.CONVERT: changes the mode of a grant.

use crate::lock::grant::GrantId;
use crate::lock::phase::Past;
use crate::lock::{Lock, live_of};
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::{Conversion, Convert};
use crate::rules::on_grant::OnGrant;
use crate::values::key::Key;
use crate::values::mode::Mode;
use crate::values::time::Now;
use crate::values::token::Token;

/// Converts the grant of the requesting owner. From exclusive to shared it does so at once, with the same token. From
/// shared to exclusive it does so only for the last remaining reader, with a token above all earlier ones. It never
/// waits: two readers that both want to write would wait for each other.
pub fn convert(
    key: Key<'_>,
    held: Option<&mut Lock>,
    ask: &Convert<'_>,
    node: &mut Node,
    now: Now,
) -> Result<OnGrant<Token>, Refusal> {
    let Some((lock, own)) = live_of(held, ask.owner, ask.token, now.boot) else { return Ok(OnGrant::NotHeld) };
    node.ensure_trusted(lock.grant(own), now.boot)?;
    let token = lock.grant(own).token();
    let is_alone = lock.live_len(now.boot) == 1;
    let token = match (lock.mode(own), ask.to) {
        (Mode::Exclusive, Conversion::Exclusive) | (Mode::Shared, Conversion::Shared) => {
            return Ok(OnGrant::Unchanged(token));
        }
        (Mode::Exclusive, Conversion::Shared) => {
            lock.convert(own, Mode::Shared, node.past(key));
            token
        }
        (Mode::Shared, Conversion::Exclusive)
            if is_alone && !node.waiting.is_kept_for_others(key, ask.owner, now.boot) =>
        {
            // While the node is guarded, readers that it has forgotten may still read.
            node.ensure_may_grant(key, ask.owner, false, now.boot)?;
            node.prepare_token(key, None, now)?;
            let token = node.tokens.issue(key.name, None, now, node.skew_ms)?;
            // Grants of others whose leases are over, but which were not removed yet, end here.
            node.counters.expiries += lock.len() as u64 - 1;
            node.converted = Some(Box::new(lock.convert(own, Mode::Exclusive, Past::default())));
            lock.set_token(GrantId::default(), token);
            node.waiting.withdraw_turn(key, ask.owner);
            token
        }
        _ => return Ok(OnGrant::NotHeld),
    };
    node.counters.conversions += 1;
    Ok(OnGrant::Changed(GrantId::default(), token))
}
