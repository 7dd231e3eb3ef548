//! `LOCK.INFO key [WAITERS n]`

use palisade_core::{BootTime, Lock, Refusal, Waiter, Want};

use super::declaration::arguments;
use super::key::look;
use super::values::ListedWaiters;
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::{clock, state};

arguments! {
    /// What is asked.
    struct Asked {
        [WAITERS n] waiters: ListedWaiters,
    }
}

/// Who holds the lock?
pub struct Info;

impl Command for Info {
    const SPEC: Spec = Spec {
        name: c"LOCK.INFO",
        summary: c"Answers who holds a lock, with which token, since when and for how long, and the first who wait for it if asked; \
                   Null if it is free.",
        complexity: c"O(1)",
        since: c"0.1.0",
        flags: c"readonly fast",
        acl: AclGroup::Read,
        key: Some(KeyAccess::Read),
        arguments: Asked::ARGUMENTS,
        master_only: false,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { waiters: listed } = Asked::read(call)?;
        let now = clock::boot_now();
        let key = look(call)?;
        let (db, name) = (call.ctx.db(), key.name().bytes());
        let lock = key.lock().filter(|lock| !lock.is_expired(now));
        state::with(|node| {
            let reserved = node.waiting().reservation(db, name, now).filter(|_| lock.is_none());
            let waiters = node.waiting().len_of(db, name);
            // A free lock has something to tell only to one who asks for its queue.
            if lock.is_none() && (listed.is_none() || waiters == 0 && reserved.is_none()) {
                return Ok(Reply::Null);
            }
            let bytes = |of: fn(&Lock) -> &[u8]| Reply::Bytes(lock.map(of).unwrap_or_default().to_vec());
            let number = |of: &dyn Fn(&Lock) -> u64| Reply::Integer(lock.map_or(0, of));
            let mut fields = vec![
                ("owner", bytes(Lock::owner)),
                ("token", number(&|lock| lock.token().get())),
                ("holds", number(&|lock| lock.holds().into())),
                ("ttl", number(&|lock| lock.left_ms(now))),
                ("held", number(&|lock| lock.held_ms(now))),
                ("note", bytes(Lock::note)),
                ("waiters", Reply::Integer(waiters as u64)),
                ("suspect", number(&|lock| node.is_suspect(lock).into())),
            ];
            if let Some(ListedWaiters(count)) = listed {
                let waiters = node.waiting().of(db, name).take(count).map(|waiter| describe(waiter, now));
                fields.push(("queue", Reply::List(waiters.collect())));
                let (owner, until) = reserved.map_or((&b""[..], now), |(owner, until)| (owner.bytes(), until));
                fields.push(("reserved", Reply::Bytes(owner.to_vec())));
                fields.push(("reserved_ms", Reply::Integer(until.ms_since_rounded_up(now))));
            }
            Ok(Reply::Map(fields))
        })
    }
}

/// One who waits, for the person who looks for a culprit.
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
    ])
}
