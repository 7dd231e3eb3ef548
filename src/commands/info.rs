//! `LOCK.INFO key [WAITERS n]`

use palisade_core::{BootTime, Lock, Refusal, Waiter, Want};

use super::{CONSTANT, SINCE, look};
use crate::arguments::{Arguments, parse_listed_waiters};
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, state};

/// Who holds the lock?
pub struct Info;

impl Command for Info {
    const SPEC: Spec = Spec {
        name: c"LOCK.INFO",
        summary: c"Answers who holds a lock, with which token, since when and for how long, and the first who wait for it if asked; \
                   Null if it is free.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"readonly fast",
        acl: AclGroup::Read,
        key: Some(KeyAccess::Read),
        arguments: &[Argument { name: c"n", token: Some(c"WAITERS"), shape: Shape::Integer }],
        master_only: false,
        vouches: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let listed = request(&mut Arguments::after_key(call))?;
        let now = clock::boot_now();
        let key = look(call)?;
        let (db, name) = (call.ctx.db(), key.name().bytes());
        let lock = key.lock().filter(|lock| !lock.is_expired(now));
        state::with(|node| {
            let reserved = node.waiting.reservation(db, name, now).filter(|_| lock.is_none());
            let waiters = node.waiting.len_of(db, name);
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
            if let Some(count) = listed {
                let waiters = node.waiting.of(db, name).take(count).map(|waiter| describe(waiter, now));
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

/// How many who wait are to be listed.
fn request(arguments: &mut Arguments<'_>) -> Result<Option<usize>, Refusal> {
    let mut listed = None;
    while let Some(option) = arguments.option() {
        if option.eq_ignore_ascii_case(b"WAITERS") {
            arguments.value("WAITERS", &mut listed, parse_listed_waiters)?;
        } else {
            return Err(Refusal::UnknownOption { known: "WAITERS n" });
        }
    }
    Ok(listed)
}
