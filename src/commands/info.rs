//! `LOCK.INFO key [HOLDERS n] [WAITERS n]`; for a gate, without the options.

use palisade_core::engine::Key;
use palisade_core::request::{self, ListedHolders, ListedWaiters};
use palisade_core::{BootTime, Grant, KeptLock, Mode, Node, Refusal, Waiter, Want};

use super::key::{read_gate, read_lock};
use crate::driver::sight;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, state};

/// LOCK.INFO: shows who holds the lock, or what the gate remembers.
pub struct Info;

impl Command for Info {
    const SPEC: Spec = Spec::new(request::Info::SPEC, AclGroup::Read, "0.1.0", "O(1)");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Info { holders, waiters: listed } = request::Info::read(call.words(), config::bounds())?;
        let now = clock::boot_now();
        let key = match read_lock(call) {
            Ok(key) => key,
            Err(_) => {
                let gate = read_gate(call)?;
                return Ok(gate.value().and_then(|gate| sight::gate_fields(gate, now)).unwrap_or(Reply::Null));
            }
        };
        let at = Key { db: call.ctx.db(), name: key.name().bytes() };
        let lock = key.lock().filter(|lock| !lock.is_expired(now));
        state::with(|node| {
            let reserved = node.waiting().reservation(at, now);
            let waiters = node.waiting().len_of(at);
            // Of a free lock there is nothing to show, except its queue if the client asks for that.
            if lock.is_none() && (listed.is_none() || waiters == 0 && reserved.is_none()) {
                return Ok(Reply::Null);
            }
            let mut fields = sight::fields(lock, at, node, now);
            if let Some(ListedHolders(count)) = holders {
                let kept = node.keepalives().of(at);
                let live = lock.into_iter().flat_map(|lock| sight::live(lock, now)).take(count);
                let grants = live.map(|(mode, grant)| describe_grant(mode, grant, kept.as_ref(), node, now));
                fields.push(("grants", Reply::List(grants.collect())));
            }
            if let Some(ListedWaiters(count)) = listed {
                let waiters = node.waiting().of(at).take(count).map(|waiter| describe(waiter, now));
                fields.push(("queue", Reply::List(waiters.collect())));
                let (owner, until) = reserved.map_or((&b""[..], now), |(owner, until)| (owner.bytes(), until));
                fields.push(("reserved", Reply::Bytes(owner.to_vec())));
                fields.push(("reserved_ms", Reply::Integer(until.ms_since_rounded_up(now))));
            }
            Ok(Reply::Map(fields))
        })
    }
}

/// Describes one holder, for HOLDERS.
fn describe_grant(mode: Mode, grant: &Grant, kept: Option<&KeptLock<'_>>, node: &Node, now: BootTime) -> Reply {
    let (number, limit) = match mode {
        Mode::Permit(permit) => (permit.number(), permit.limit()),
        Mode::Exclusive | Mode::Shared => (0, 0),
    };
    Reply::Map(vec![
        ("owner", Reply::Bytes(grant.owner().to_vec())),
        ("token", Reply::Integer(grant.token().get())),
        ("mode", Reply::Bytes(mode.word().into())),
        ("permit", Reply::Integer(number.into())),
        ("limit", Reply::Integer(limit.into())),
        ("holds", Reply::Integer(grant.holds().into())),
        ("ttl", Reply::Integer(grant.left_ms(now))),
        ("held", Reply::Integer(grant.held_ms(now))),
        ("note", Reply::Bytes(grant.note().to_vec())),
        ("suspect", Reply::Integer(node.is_suspect(grant).into())),
        ("seq", Reply::Integer(grant.note_sequence().get())),
        ("keepalive", Reply::Integer(sight::kept_ms(kept, grant, now))),
        ("extended", Reply::Integer(grant.extended_ms(now))),
    ])
}

/// Describes one waiting request, for a person who looks for the cause of contention.
fn describe(waiter: &Waiter, now: BootTime) -> Reply {
    let wants = match waiter.want {
        Want::Lock { .. } => "lock",
        Want::Turn => "turn",
    };
    Reply::Map(vec![
        ("owner", Reply::Bytes(waiter.owner().bytes().to_vec())),
        ("waited", Reply::Integer(now.ms_since(waiter.since))),
        ("wants", Reply::Bytes(wants.as_bytes().to_vec())),
        ("note", Reply::Bytes(waiter.note().bytes().to_vec())),
        ("mode", Reply::Bytes(waiter.wanted.word().into())),
        ("behind", Reply::Integer(waiter.behind.get().into())),
    ])
}
