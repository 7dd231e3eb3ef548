//! `LOCK.GATE gate token [SHARED | PERMIT n] [HELD] [KEEP ms] [COMMAND command [arg …]]`
//!
//! The server checks the caller's permission for the keys of the protected command, because LOCK.GATE declares these
//! keys as its own ([`Gate::report_keys`]). `lock.gate-commands` lists the commands that may run.

use palisade_core::request::{self, GateMemory};
use palisade_core::{GateRefusal, Refusal, ensure_held};

use super::key::{open_gate, read_gate, read_lock};
use crate::driver::{cluster, gates, timer};
use crate::durability::readiness;
use crate::ffi::{AclGroup, Call, Command, Inner, NoKeys, Reply, Spec};
use crate::{clock, config, state};

/// LOCK.GATE: lets a token pass, and runs the command that the token protects.
pub struct Gate;

impl Command for Gate {
    const SPEC: Spec = Spec::new(request::Gate::SPEC, AclGroup::Gate, "1.0.0", "O(1), and what COMMAND costs")
        .master_only()
        .refused_when_poisoned()
        .names_its_keys();

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

    fn report_keys(call: &Call<'_>) {
        if let Some(name) = request::Gate::command_in(call.words()) {
            call.inner(name).report_keys();
        }
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
    if keys.names(&inner).any(|key| key == call.key().bytes()) {
        return refused(GateRefusal::GateIsKey);
    }
    Ok(inner)
}
