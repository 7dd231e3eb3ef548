//! `LOCK.EFFECT key record`. With it replicas, and a server that loads its AOF, receive the content of a lock or a
//! gate.
//!
//! The record is the same as in the RDB file (see `palisade_core::record`), and contains everything: owner, token,
//! holds, note, full ttl, the times of grant, deadline and writing, and the boot of the machine by whose clock these
//! times count.

use palisade_core::engine::Key;
use palisade_core::grammar::{self, Argument, KeyAccess, Shape};
use palisade_core::record::{self, Applied, Arrival, Here};
use palisade_core::{Refusal, gate_record};

use super::key::{open, open_gate};
use crate::driver::{effects, gates, timer, watchers};
use crate::durability::start;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, command_names, state};

/// LOCK.EFFECT: sets or changes the lock or the gate in a key, as a record says.
pub struct Effect;

impl Command for Effect {
    const SPEC: Spec = Spec::new(
        grammar::Spec {
            name: command_names::text(command_names::EFFECT),
            summary: "Internal: carries the state of a lock or a gate to replicas and the AOF. Refused from clients.",
            flags: "write fast",
            key: Some(KeyAccess::Insert),
            arguments: &[Argument { name: "record", option: None, shape: Shape::Bytes }],
        },
        AclGroup::Operator,
        "0.1.0",
        "O(1)",
    );

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let arrival = if call.ctx.is_from_aof() {
            Arrival::Storage
        } else if call.ctx.is_from_master() {
            Arrival::Stream
        } else {
            return Err(Refusal::Internal);
        };
        let set = set(call, arrival);
        // On an error the server would only log it and go on with its AOF, so this notes that a lock is missing.
        if set.is_err() && arrival == Arrival::Storage {
            start::missed_a_lock();
        }
        set
    }
}

fn set(call: &Call<'_>, arrival: Arrival) -> Result<Reply, Refusal> {
    let record = call.words().next().unwrap_or_default();
    let now = clock::boot_now();
    let here = Here { arrival, now, boot: clock::boot_id() };
    if record.first() == Some(&gate_record::VERSION) {
        return set_gate(call, record, here);
    }
    let told = record::decode_told(record, here).map_err(Refusal::BadRecord)?;
    let mut key = open(call)?;
    let applied = match record::apply(told, key.lock_mut()).map_err(Refusal::BadRecord)? {
        Applied::Anew(lock) => {
            key.put(Box::new(lock));
            None
        }
        in_place => Some(in_place),
    };
    effects::finish_store(&mut key);
    watchers::answer(call.ctx, &key, now);
    let name = key.name();
    if let Some(lock) = key.lock_mut() {
        let key = Key { db: call.ctx.db(), name: name.bytes() };
        // If a lock was changed in place, only the changed grant is noted. Its other grants are known, and may be a
        // hundred thousand.
        state::with(|node| match applied {
            Some(Applied::Grant(id)) => node.on_grant_arrived(key, lock, id, now),
            Some(_) => node.schedule_expiry(key, Some(lock)),
            None => node.on_lock_arrived(key, lock, now),
        });
        timer::arm(call.ctx);
    }
    // The command goes on to this replica's own replicas and AOF as it came.
    call.ctx.replicate_command();
    Ok(Reply::Ok)
}

fn set_gate(call: &Call<'_>, record: &[u8], here: Here) -> Result<Reply, Refusal> {
    gates::store_replicated(call.ctx, &mut open_gate(call)?, record, here).map_err(Refusal::BadRecord)?;
    timer::arm(call.ctx);
    call.ctx.replicate_command();
    Ok(Reply::Ok)
}
