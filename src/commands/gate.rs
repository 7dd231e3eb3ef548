//! `LOCK.GATE gate token [SHARED | PERMIT n] [HELD] [KEEP ms] [COMMAND command [arg …]]`
//!
//! The server knows only the first key, so the keys of the protected command are checked here: the caller's permission,
//! and their slots. (A server could ask LOCK.GATE for all of its keys. In a cluster, Redis 8.2 and Valkey 9 ask on their
//! I/O threads, while another command runs, and crash.) `lock.gate-commands` lists the commands that may run.

use palisade_core::request::{self, GateMemory};
use palisade_core::{GateRefusal, Refusal, ensure_held, slot_of};

use super::key::{open_gate, read_gate, read_lock};
use crate::driver::{cluster, gates, timer};
use crate::durability::readiness;
use crate::ffi::{AclGroup, Call, Command, Inner, InnerKey, NoKeys, Reply, Spec, User};
use crate::{clock, config, state};

/// LOCK.GATE: lets a token pass, and runs the command that the token protects.
pub struct Gate;

impl Command for Gate {
    const SPEC: Spec = Spec::new(request::Gate::SPEC, AclGroup::Gate, "1.0.0", "O(1), and what COMMAND costs")
        .master_only()
        .refused_when_poisoned();

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let asked = request::Gate::read(call.words(), config::bounds())?;
        let inner = match asked.command {
            Some(name) => Some(permitted(call, call.inner(name))?),
            None if call.ctx.is_in_transaction() && !call.ctx.is_in_script() => {
                return Err(Refusal::Gate(GateRefusal::InTransaction));
            }
            None => None,
        };
        let passed = pass(call, asked);
        if let Ok(()) | Err(Refusal::Gate(GateRefusal::Fenced { .. } | GateRefusal::NotHeld)) = passed {
            state::with(|node| node.count_gate(passed.is_ok()));
        }
        passed?;
        Ok(inner.map_or(Reply::Integer(1), Inner::run))
    }
}

fn pass(call: &Call<'_>, request::Gate { token, kind, memory, .. }: request::Gate) -> Result<(), Refusal> {
    match memory {
        GateMemory::Tokens(keep_ms) => {
            gates::pass(call.ctx, &mut open_gate(call)?, kind, token, keep_ms)?;
            if keep_ms.is_some() {
                timer::arm(call.ctx);
            }
            Ok(())
        }
        GateMemory::Lock => {
            let key = read_lock(call).map_err(|other| match read_gate(call) {
                Ok(_) => Refusal::Gate(GateRefusal::IsGate),
                Err(_) => other,
            })?;
            let now = clock::boot_now();
            readiness::ready(call.ctx, now)?;
            cluster::ensure_vouched(call.ctx, call.key())?;
            state::with(|node| ensure_held(key.lock(), token, kind, node, now))
        }
    }
}

/// Checks before anything changes that LOCK.GATE may run the command. Refuses commands that `lock.gate-commands` does
/// not list.
fn permitted<'a>(call: &Call<'a>, inner: Inner<'a>) -> Result<Inner<'a>, Refusal> {
    let refused = |why| Err(Refusal::Gate(why));
    let keys = match inner.keys() {
        Ok(keys) => keys,
        Err(NoKeys::UnknownCommand) => return refused(GateRefusal::UnknownCommand),
        Err(NoKeys::WrongWords) => return refused(GateRefusal::CommandWords),
        Err(NoKeys::None) => return refused(GateRefusal::NoKey),
    };
    let name = inner.name();
    let is_check = name.eq_ignore_ascii_case(b"LOCK.CHECK");
    if !is_check && name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"LOCK.")) {
        return refused(GateRefusal::LockCommand);
    }
    if !is_check && !config::permits(&inner) {
        return refused(GateRefusal::CommandForbidden);
    }
    if keys.iter().any(|key| key.name.bytes() == call.key().bytes()) {
        return refused(GateRefusal::GateIsKey);
    }
    ensure_keys_permitted(call, &keys)?;
    ensure_one_slot(call, &inner, &keys)?;
    Ok(inner)
}

/// Checks that the caller may use the keys: as a gate those that the command changes, and to read the others.
fn ensure_keys_permitted(call: &Call<'_>, keys: &[InnerKey<'_>]) -> Result<(), Refusal> {
    let refused = Err(Refusal::Gate(GateRefusal::KeyForbidden));
    let Some(user) = User::of_caller(call.ctx) else { return Ok(()) };
    let Some(rules) = user.rules() else { return refused };
    let (gate, db) = (call.name(), call.ctx.db());
    let may_use = |key: &InnerKey<'_>| {
        if key.may_change { rules.permit(gate, db, key.name) } else { rules.permit_reading(key.name) }
    };
    if let Some(denied) = keys.iter().find(|key| !may_use(key)) {
        rules.log_denied(call.ctx, denied.name);
        return refused;
    }
    Ok(())
}

/// Checks that a node of a cluster serves all keys together with the gate, as the server does for a command with these
/// keys.
fn ensure_one_slot(call: &Call<'_>, inner: &Inner<'_>, keys: &[InnerKey<'_>]) -> Result<(), Refusal> {
    if !call.ctx.is_cluster() {
        return Ok(());
    }
    let slot = slot_of(call.key().bytes());
    if keys.iter().any(|key| slot_of(key.name.bytes()) != slot) {
        return Err(Refusal::Gate(GateRefusal::OtherSlot));
    }
    if !inner.are_here(keys, call.key()) {
        return Err(Refusal::Gate(GateRefusal::SlotMoves));
    }
    Ok(())
}
