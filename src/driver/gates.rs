//! Changes gates: in the key, for the replicas and the AOF, and in the list of gates that the node has to delete.

use palisade_core::engine::Key;
use palisade_core::quorum::floors::Kind;
use palisade_core::record::Here;
use palisade_core::{BootTime, Damaged, Gate, GateRefusal, Refusal, Token, gate_record};

use super::effects;
use crate::ffi::{self, Context, GateKey, KeyName};
use crate::{clock, state};

/// Lets a token of this kind pass the gate in the key, and keeps the gate for at least `keep_ms` from now. The caller
/// sets the timer.
pub fn pass(
    ctx: Context<'_>,
    key: &mut GateKey<'_>,
    kind: Kind,
    token: Token,
    keep_ms: Option<u64>,
) -> Result<(), Refusal> {
    let now = clock::boot_now();
    let is_larger = key.value().is_none_or(|gate| gate.grows_with(kind, token));
    if is_larger && ctx.is_out_of_memory() {
        return Err(Refusal::Gate(GateRefusal::OutOfMemory));
    }
    let is_changed = match key.value_mut() {
        Some(gate) => gate.pass(kind, token, keep_ms, now)?,
        None => {
            let mut gate = Gate::default();
            gate.pass(kind, token, keep_ms, now)?;
            key.put(Box::new(gate));
            true
        }
    };
    if is_changed {
        finish_store(ctx, key);
        if let Some(gate) = key.value()
            && !effects::count_if_unpropagated(ctx)
        {
            effects::replicate(ctx, key.name(), |record| {
                gate_record::encode_passed(gate, kind, now, clock::boot_id(), record);
            });
        }
    }
    Ok(())
}

/// Stores a gate, or a change of one, which came from a master or from the AOF. The caller sets the timer.
pub fn store_replicated(ctx: Context<'_>, key: &mut GateKey<'_>, record: &[u8], here: Here) -> Result<(), Damaged> {
    if let Some(gate) = gate_record::apply(record, here, key.value_mut())? {
        key.put(Box::new(gate));
    }
    finish_store(ctx, key);
    Ok(())
}

/// Removes an expiry of the key, whose gate is new or changed, tells clients that WATCH or track the key, and lists the
/// gate. Every node does this.
fn finish_store(ctx: Context<'_>, key: &mut GateKey<'_>) {
    key.clear_expiry();
    key.signal_modified();
    list(ctx.db(), key);
}

/// Adds the gate in the key, if there is one, to the list of gates that the node has to delete.
fn list(db: u32, key: &mut GateKey<'_>) {
    let name = key.name();
    if let Some(gate) = key.value_mut() {
        state::with(|node| node.gates().list(Key { db, name: name.bytes() }, gate));
    }
}

/// If the key `name` has a gate that came by RENAME, MOVE or RESTORE, or was loaded, updates the node's memory for it.
/// Returns whether the timer has to be set.
pub fn list_if_gate(ctx: Context<'_>, name: KeyName<'_>) -> bool {
    let Ok(mut key) = GateKey::read(ctx, name) else { return false };
    let db = key.db();
    list(db, &mut key);
    true
}

/// Removes the gates of a database, or of all (`None`), from the list, because the database is about to be emptied.
pub fn on_flushed(db: Option<u32>) {
    let listed = state::with(|node| node.gates().flush(db));
    let entries = listed.iter().map(|gates| gates.len()).sum();
    ffi::free(listed, entries);
}

/// Deletes the listed gate whose KEEP ended first, if it has ended at `now`; returns false if none has.
pub fn forget_one(ctx: Context<'_>, now: BootTime) -> bool {
    let Some(due) = state::with(|node| node.gates().take_due(now)) else { return false };
    ctx.select(due.key().db);
    KeyName::with(due.key().name, |name| {
        let Ok(mut key) = GateKey::write(ctx, name) else { return };
        let Some(gate) = key.value_mut() else { return };
        if state::with(|node| node.is_gate_over(&due, gate, now)) {
            key.delete().into_iter().for_each(ffi::free_value);
            key.signal_modified();
            if !effects::count_if_unpropagated(ctx) {
                ctx.replicate_del(name);
            }
        }
    });
    true
}
