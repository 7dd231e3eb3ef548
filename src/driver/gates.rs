//! Changes gates: in the key, for the replicas and the AOF, and in the list of gates that end by themselves.

use palisade_core::engine::Key;
use palisade_core::quorum::floors::Kind;
use palisade_core::record::Here;
use palisade_core::{BootTime, Damaged, Gate, GateRefusal, Refusal, Token, gate_record};

use super::effects;
use crate::ffi::{self, Context, GateKey, KeyName};
use crate::{clock, state};

/// Lets a grant of this kind with `token` pass the gate in the key, and keeps the gate for `keep_ms` at least. The caller arms
/// the timer.
pub fn pass(
    ctx: Context<'_>,
    key: &mut GateKey<'_>,
    kind: Kind,
    token: Token,
    keep_ms: Option<u64>,
) -> Result<(), Refusal> {
    let now = clock::boot_now();
    let is_changed = match key.value_mut() {
        Some(gate) => gate.pass(kind, token, keep_ms, now)?,
        None if ctx.is_out_of_memory() => return Err(Refusal::Gate(GateRefusal::OutOfMemory)),
        None => {
            let mut gate = Gate::default();
            gate.pass(kind, token, keep_ms, now)?;
            key.put(Box::new(gate));
            true
        }
    };
    if is_changed {
        stored(ctx, key);
        if let Some(gate) = key.value()
            && !effects::only_counted(ctx)
        {
            effects::replicate(ctx, key.name(), |record| {
                gate_record::encode_passed(gate, kind, now, clock::boot_id(), record);
            });
        }
    }
    Ok(())
}

/// Stores a gate, or a change of one, from a master or from the AOF. The caller arms the timer.
pub fn told(ctx: Context<'_>, key: &mut GateKey<'_>, record: &[u8], here: Here) -> Result<(), Damaged> {
    if let Some(gate) = gate_record::apply(record, here, key.value_mut())? {
        key.put(Box::new(gate));
    }
    stored(ctx, key);
    Ok(())
}

/// Enters a new or changed gate in the node's memory, as every node does.
fn stored(ctx: Context<'_>, key: &mut GateKey<'_>) {
    key.clear_expiry();
    key.signal_modified();
    list(ctx.db(), key);
}

/// Enters the gate in the key, if there is one, in the list of gates that end by themselves.
fn list(db: u32, key: &mut GateKey<'_>) {
    let name = key.name();
    if let Some(gate) = key.value_mut() {
        state::with(|node| node.gates().list(Key { db, name: name.bytes() }, gate));
    }
}

/// Handles a gate that came to the key `name` by RENAME, MOVE or RESTORE, or was loaded, if it holds one. Returns
/// whether the timer has to be armed.
pub fn arrived(ctx: Context<'_>, name: KeyName<'_>) -> bool {
    let Ok(mut key) = GateKey::read(ctx, name) else { return false };
    let db = key.db();
    list(db, &mut key);
    true
}

/// Forgets the listed gates of a database, or of all (`None`), which is about to be emptied.
pub fn flushed(db: Option<u32>) {
    let listed = state::with(|node| node.gates().flush(db));
    let entries = listed.iter().map(|gates| gates.len()).sum();
    ffi::free(listed, entries);
}

/// Deletes the gate that has been over longest at `now`; returns false if no listed gate is due.
pub fn forget_one(ctx: Context<'_>, now: BootTime) -> bool {
    let Some(due) = state::with(|node| node.gates().take_due(now)) else { return false };
    ctx.select(due.key().db);
    KeyName::with(due.key().name, |name| {
        let Ok(mut key) = GateKey::write(ctx, name) else { return };
        let Some(gate) = key.value_mut() else { return };
        if state::with(|node| node.gates().is_over(&due, gate, now)) {
            key.delete().into_iter().for_each(ffi::free_value);
            key.signal_modified();
            if !effects::only_counted(ctx) {
                ctx.replicate_del(name);
            }
        }
    });
    true
}
