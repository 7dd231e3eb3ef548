//! `LOCK.WAIT key owner ms [TICKET n]`

use palisade_core::request::{Note, Patience, Wait as Request};
use palisade_core::{Refusal, Waited, Want, wait};

use super::{CONSTANT, SINCE, look};
use crate::arguments::{Arguments, parse_ticket};
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::waiting::{self, Form, Joins};
use crate::{alarm, clock, cluster, life, state};

/// Tells when the lock is free.
pub struct Wait;

impl Command for Wait {
    const SPEC: Spec = Spec {
        name: c"LOCK.WAIT",
        summary:
            c"Waits until a lock is free for this owner, for whom it then is kept for a moment, and answers 1; 0 if \
                   that did not happen in time. Grants nothing. For clients that acquire over several nodes.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"readonly fast blocking",
        acl: AclGroup::Write,
        // It changes no key, but what it keeps free others do not get: that takes the trust of one who may write it.
        key: Some(KeyAccess::Update),
        arguments: &[
            Argument { name: c"owner", token: None, shape: Shape::Bytes },
            Argument { name: c"ms", token: None, shape: Shape::Integer },
            Argument { name: c"n", token: Some(c"TICKET"), shape: Shape::Integer },
        ],
        master_only: true,
        vouches: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let mut ask = request(&mut Arguments::after_key(call))?;
        if !call.ctx.may_block() {
            ask.patience = Patience::NONE;
        }
        let now = clock::now();
        let key = look(call)?;
        cluster::know(call.ctx, key.name());
        let (db, name) = (call.ctx.db(), key.name().bytes());
        let waited =
            life::ready(call.ctx).and_then(|()| state::with(|node| wait(db, name, key.lock(), &ask, node, now)));
        let Request { owner, patience, ticket } = ask;
        let waited = waited.or_else(|refusal| {
            let room = || state::with(|node| node.waiting.room_for(db, name, owner));
            refusal.or_queue(patience, room, Waited::Queues)
        })?;
        waiting::deliver(call.ctx);
        alarm::arm(call.ctx);
        Ok(match waited {
            Waited::Turn => Reply::Integer(1),
            Waited::InVain => waiting::in_vain(Want::Turn),
            Waited::Queues => {
                let joins =
                    Joins { owner, note: Note::default(), want: Want::Turn, patience, ticket, form: Form::Token };
                waiting::join(call.ctx, &key, joins, now)
            }
        })
    }
}

fn request<'a>(arguments: &mut Arguments<'a>) -> Result<Request<'a>, Refusal> {
    let (owner, patience) = (arguments.owner()?, arguments.patience()?);
    let mut ticket = None;
    while let Some(option) = arguments.option() {
        if option.eq_ignore_ascii_case(b"TICKET") {
            arguments.value("TICKET", &mut ticket, parse_ticket)?;
        } else {
            return Err(Refusal::UnknownOption { known: "TICKET n" });
        }
    }
    Ok(Request { owner, patience, ticket })
}
