//! `LOCK.NODE [KEY key]`

use palisade_core::{Cause, IncarnationId, Refusal, request};

use crate::driver::cluster;
use crate::durability::readiness;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, state};

/// The version of the protocol: of the names, arguments and replies of the commands.
const PROTOCOL: u64 = 1;

/// The features that were added after the first version of the protocol, so that clients can find out which ones this
/// node has. `log` is LOCK.LOG. `behind` is BEHIND of ACQUIRE and WAIT, and NOTE of WAIT. `top` is LOCK.TOP. `hear` is
/// LOCK.HEAR and HEARD of WAIT. `members` is LOCK.MEMBERS and LOCK.SETMEMBERS.
const FEATURES: &str = "log behind top hear members";

/// LOCK.NODE: shows this node's identity, and whether it grants locks.
pub struct Node;

impl Command for Node {
    const SPEC: Spec = Spec::new(request::Node::SPEC, AclGroup::Read, "0.1.0", "O(1)");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Node { key } = request::Node::read(call.words(), config::bounds())?;
        // If the start has not been judged yet, this does it. So the answer is not older than the first grant.
        let _ = readiness::ready(call.ctx, clock::boot_now());
        let now = clock::boot_now();
        let IncarnationId { node: id, number: incarnation } = state::with(|node| node.ledger().incarnation());
        let whole = state::with(|node| {
            let cause = node.guard().armed(now).map_or("", |armed| armed.cause.word());
            (node.guard().left_ms(now), cause)
        });
        let slot = (key.map_or(0, |key| cluster::slot_guard_ms(call.ctx, key)), Cause::Slot.word());
        let (guard_ms, cause) = if slot.0 > whole.0 { slot } else { whole };
        let word = |word: &str| Reply::Bytes(word.as_bytes().to_vec());
        Ok(Reply::Map(vec![
            ("id", Reply::Bytes(format!("{id:032x}").into_bytes())),
            ("incarnation", Reply::Integer(incarnation)),
            ("state", word(if guard_ms == 0 { "serving" } else { "guarded" })),
            ("guard_ms", Reply::Integer(guard_ms)),
            ("guard_reason", word(cause)),
            ("max_ttl", Reply::Integer(config::max_ttl_ms().into())),
            ("role", word(if call.ctx.is_master() { "master" } else { "replica" })),
            ("clock_us", Reply::Integer(clock::wall_us())),
            ("version", word(env!("CARGO_PKG_VERSION"))),
            ("protocol", Reply::Integer(PROTOCOL)),
            ("features", word(FEATURES)),
        ]))
    }
}
