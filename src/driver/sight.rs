//! The fields that LOCK.INFO and LOCK.WATCH show of a lock or a gate.

use palisade_core::engine::Key;
use palisade_core::quorum::floors::Kind;
use palisade_core::request::Owner;
use palisade_core::{BootTime, Gate, Grant, KeptLock, Lock, Mode, Node};

use crate::ffi::Reply;

/// Returns the fields that describe the lock of `key`, whose content is `held`, at `now`. If it has several grants,
/// they describe the oldest. If it is free, texts are empty and numbers are 0.
pub fn fields(held: Option<&Lock>, key: Key<'_>, node: &Node, now: BootTime) -> Vec<(&'static str, Reply)> {
    let held = held.filter(|lock| !lock.is_expired(now));
    let first = held.and_then(|lock| live(lock, now).next());
    let bytes = |of: fn(&Grant) -> &[u8]| Reply::Bytes(first.map(|(_, grant)| of(grant)).unwrap_or_default().to_vec());
    let number = |of: &dyn Fn(&Grant) -> u64| Reply::Integer(first.map_or(0, |(_, grant)| of(grant)));
    vec![
        ("owner", bytes(Grant::owner)),
        ("token", number(&|grant| grant.token().get())),
        ("holds", number(&|grant| grant.holds().into())),
        ("ttl", number(&|grant| grant.left_ms(now))),
        ("held", number(&|grant| grant.held_ms(now))),
        ("note", bytes(Grant::note)),
        ("waiters", Reply::Integer(node.waiting().len_of(key) as u64)),
        ("suspect", number(&|grant| node.is_suspect(grant).into())),
        ("mode", Reply::Bytes(first.map_or("", |(mode, _)| mode.word()).into())),
        ("holders", Reply::Integer(held.map_or(0, |lock| lock.live_len(now)) as u64)),
        ("seq", number(&|grant| grant.note_sequence().get())),
        ("keepalive", number(&|grant| kept_ms(node.keepalives().of(key).as_ref(), grant, now))),
        ("waiters_behind", Reply::Integer(node.waiting().behind(key))),
    ]
}

/// Returns the fields that describe a gate; `None` if the gate has ended by `now`, so that it counts as deleted.
pub fn gate_fields(gate: &Gate, now: BootTime) -> Option<Reply> {
    let seen = gate.seen();
    let number = Reply::Integer;
    (!gate.is_over(now)).then(|| {
        Reply::Map(vec![
            ("largest", number(seen.floor_of(Kind::Exclusive))),
            ("exclusive", number(seen.largest(Kind::Exclusive))),
            ("shared", number(seen.largest(Kind::Shared))),
            ("permits", number(seen.permits() as u64)),
            ("keep", number(gate.end().map_or(0, |end| end.ms_since_rounded_up(now)))),
        ])
    })
}

/// Returns for how many milliseconds more the node renews the lease of `grant` while its connection is open; `kept` has
/// the leases of its lock that the node renews. 0 if it does not renew this one.
pub fn kept_ms(kept: Option<&KeptLock<'_>>, grant: &Grant, now: BootTime) -> u64 {
    let owner = Owner::new(grant.owner()).ok();
    kept.zip(owner).and_then(|(kept, owner)| kept.left_ms(owner, grant.granted(), now)).unwrap_or(0)
}

/// Iterates over the grants of `lock` that hold at `now`, the oldest first.
pub fn live(lock: &Lock, now: BootTime) -> impl Iterator<Item = (Mode, &Grant)> {
    lock.grants().filter(move |(_, grant)| !grant.is_expired(now))
}
