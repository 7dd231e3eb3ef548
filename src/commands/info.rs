//! `LOCK.INFO key [WAITERS n]`

use palisade_core::{BootTime, Refusal, Waiter, Want};

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
        let Some(lock) = key.lock().filter(|lock| !lock.is_expired(now)) else { return Ok(Reply::Null) };
        state::with(|node| {
            let mut fields = vec![
                ("owner", Reply::Bytes(lock.owner().to_vec())),
                ("token", Reply::Integer(lock.token().get())),
                ("holds", Reply::Integer(lock.holds().into())),
                ("ttl", Reply::Integer(lock.left_ms(now))),
                ("held", Reply::Integer(lock.held_ms(now))),
                ("note", Reply::Bytes(lock.note().to_vec())),
                ("waiters", Reply::Integer(node.waiting.len_of(db, name) as u64)),
                ("suspect", Reply::Integer(node.is_suspect(lock).into())),
            ];
            if let Some(count) = listed {
                let waiters = node.waiting.of(db, name).take(count).map(|waiter| describe(waiter, now));
                fields.push(("queue", Reply::List(waiters.collect())));
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
