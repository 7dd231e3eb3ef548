//! The commands as they are sent, and what their replies mean.

use std::time::Duration;

use palisade_quorum::{
    Answer, Ask, Members, Mode, NodeId, Permit, TellMember, Token, members_from_text, members_to_text,
};
use redis::{Cmd, Value, cmd};

use crate::{Holder, Why};

/// Who holds a lock, as LOCK.INFO tells; of several the one who has held it for longest.
pub fn holder(info: &Value) -> Option<Holder> {
    let ms = |name| Duration::from_millis(number(info, name).unwrap_or(0));
    Some(Holder {
        owner: bytes(info, "owner")?.to_vec(),
        token: number(info, "token")?,
        note: text(info, "note").unwrap_or_default(),
        held_for: ms("held"),
        lease_left: ms("ttl"),
    })
}

/// Tells within so many milliseconds when `key` is not held with this token, and a note with this number, any more; token 0: free.
pub fn watch(key: &[u8], ms: u64, token: u64, sequence: u64) -> Cmd {
    let mut command = cmd("LOCK.WATCH").arg(key).arg(ms).take();
    if token > 0 {
        command.arg("TOKEN").arg(token).arg("SEQ").arg(sequence);
    }
    command
}

/// Hears of waits for up to so many milliseconds, under this name.
pub fn hear(name: &[u8], ms: u64) -> Cmd {
    cmd("LOCK.HEAR").arg(name).arg(ms).take()
}

/// What waits of this owner and a listener of this name hears waits no longer; what is held or kept stays.
pub fn wait_no_more(key: &[u8], owner: &[u8], listener: &[u8]) -> Cmd {
    cmd("LOCK.WAIT").arg(key).arg(owner).arg(0).arg("HEARD").arg(listener).take()
}

/// Whether a node says that a request waits, and a listener hears the rest.
pub fn is_waiting(reply: &Value) -> bool {
    matches!(reply, Value::SimpleString(text) if text == "WAITING")
}

/// What became of a request that waits.
#[derive(Debug)]
pub struct News {
    pub key: Box<[u8]>,
    pub owner: Box<[u8]>,
    /// What LOCK.WAIT would have answered.
    pub told: Result<Value, Why>,
}

/// What a listener is told; `None`: it is no such answer.
pub fn news(reply: Value) -> Option<Vec<News>> {
    let Value::Array(list) = reply else { return None };
    let one = |news| {
        let Value::Array(news) = news else { return None };
        let [Value::BulkString(key), Value::BulkString(owner), told] = <[Value; 3]>::try_from(news).ok()? else {
            return None;
        };
        let told = match told {
            Value::BulkString(text) => Err(Why::read(&String::from_utf8_lossy(&text))),
            number => Ok(number),
        };
        Some(News { key: key.into(), owner: owner.into(), told })
    };
    list.into_iter().map(one).collect()
}

/// This client works with this version of the set of nodes; which one does the node know?
pub fn join(version: u64) -> Cmd {
    cmd("LOCK.MEMBERS").arg("JOIN").arg(version).take()
}

/// What a member of the set is asked when its next version is looked for.
pub fn tell_member(told: &TellMember) -> Cmd {
    let mut command = cmd("LOCK.SETMEMBERS");
    match told {
        TellMember::Promise { version, ballot } => command.arg(version).arg("PROMISE").arg(format!("{ballot:032x}")),
        TellMember::Accept { version, ballot, list, floor } => {
            command.arg(version).arg("ACCEPT").arg(format!("{ballot:032x}"));
            command.arg("MEMBERS").arg(members_to_text(list)).arg("FLOOR").arg(floor)
        }
    };
    command
}

/// This version of the set was decided.
pub fn tell_decided(members: &Members) -> Cmd {
    let mut command = cmd("LOCK.SETMEMBERS");
    command.arg(members.version).arg("DECIDED").arg("MEMBERS").arg(members_to_text(&members.list));
    command
}

/// Which set of nodes a node was told of; `None`: it is no such answer.
pub fn members(value: &Value) -> Option<Members> {
    let (version, list) = (number(value, "version")?, text(value, "members")?);
    let list = if version == 0 { vec![] } else { members_from_text(&list)? };
    Some(Members { version, list })
}

/// Is `key` held with this token?
pub fn check(key: &[u8], token: Token) -> Cmd {
    cmd("LOCK.CHECK").arg(key).arg(token.get()).take()
}

/// Who has `key`?
pub fn info(key: &[u8]) -> Cmd {
    cmd("LOCK.INFO").arg(key).take()
}

/// Who has `key`, with so many of the grants?
pub fn info_with(key: &[u8], grants: usize) -> Cmd {
    cmd("LOCK.INFO").arg(key).arg("HOLDERS").arg(grants).take()
}

/// The mode of each grant that a LOCK.INFO with HOLDERS lists, but of those of `owner`; `None`: it is no such answer.
pub fn modes(info: &Value, owner: &[u8]) -> Option<Vec<Mode>> {
    let list = match info {
        Value::Nil => return Some(vec![]),
        info => field(info, "grants")?,
    };
    let Value::Array(grants) = list else { return None };
    let others =
        grants.iter().filter(|grant| !matches!(field(grant, "owner"), Some(Value::BulkString(name)) if name == owner));
    others.map(mode).collect()
}

/// In which mode a grant is that LOCK.INFO lists.
pub fn mode(grant: &Value) -> Option<Mode> {
    let small = |name| number(grant, name).and_then(|value| u16::try_from(value).ok());
    match &*text(grant, "mode")? {
        "exclusive" => Some(Mode::Exclusive),
        "shared" => Some(Mode::Shared),
        "permit" => Permit::new(small("permit")?, small("limit")?).map(Mode::Permit),
        _ => None,
    }
}

/// What a node's reply to `ask` means to the machine; and why it is no token.
pub fn answer(ask: Ask, reply: Result<Value, Why>) -> (Answer, Option<Why>) {
    let why = match reply {
        Ok(Value::Int(value)) => match u64::try_from(value).ok().and_then(Token::new) {
            Some(token) => return (Answer::Token(token), None),
            None => Why::Broken(format!("it answered {value}, which is no token")),
        },
        Ok(Value::Nil) => match ask {
            Ask::Acquire { .. } => Why::Held,
            Ask::Extend { .. } | Ask::Fence { .. } | Ask::Share => Why::NotHeld,
        },
        // A permit: token, milliseconds waited, number.
        Ok(Value::Array(mut list)) if matches!(ask, Ask::Acquire { .. }) && list.len() == 3 => {
            return answer(ask, Ok(list.swap_remove(0)));
        }
        Ok(other) => Why::Broken(format!("it answered {other:?}")),
        Err(why) => why,
    };
    let answer = match why {
        Why::Held | Why::NotHeld => Answer::No,
        Why::Guarded { left_ms, .. } => Answer::Guarded { ms: left_ms },
        Why::NotYet { left_ms, .. } => Answer::NotYet { ms: u32::try_from(left_ms).unwrap_or(u32::MAX) },
        _ => Answer::Failed,
    };
    (answer, Some(why))
}

/// The token and the milliseconds waited of an ACQUIRE that waited; `None`: in vain.
pub fn granted_after_wait(value: &Value) -> Option<(Value, u64)> {
    match value {
        Value::Array(list) => match &list[..] {
            [token @ Value::Int(_), Value::Int(waited)]
            | [token @ Value::Int(_), Value::Int(waited), Value::Int(_)] => {
                Some((token.clone(), u64::try_from(*waited).ok()?))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The number of a permit that an ACQUIRE was granted; 0 if it is none. `None`: the answer is about no permit.
pub fn permit_number(value: &Value) -> Option<u16> {
    match value {
        Value::Array(list) => match &list[..] {
            [_, _, Value::Int(number)] => Some(u16::try_from(*number).unwrap_or(0)),
            _ => None,
        },
        _ => None,
    }
}

/// The number that a LOCK.WAIT says is kept; `None`: none is.
pub fn kept_number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok().filter(|number| *number > 0),
        _ => None,
    }
}

/// The value of `name` in a map, or in a flat list of names and values.
pub fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let is = |value: &Value| matches!(value, Value::BulkString(bytes) if bytes == name.as_bytes());
    match value {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is(key)).map(|(_, value)| value),
        Value::Array(list) => list.chunks(2).find(|pair| is(&pair[0]))?.get(1),
        _ => None,
    }
}

/// An integer field.
pub fn number(value: &Value, name: &str) -> Option<u64> {
    match field(value, name)? {
        Value::Int(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}

/// The bytes of a text field.
pub fn bytes<'a>(value: &'a Value, name: &str) -> Option<&'a [u8]> {
    match field(value, name)? {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

/// A text field.
pub fn text(value: &Value, name: &str) -> Option<String> {
    match field(value, name)? {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

/// Which server LOCK.NODE tells of.
pub fn node_id(value: &Value) -> Option<NodeId> {
    u128::from_str_radix(&text(value, "id")?, 16).ok().map(NodeId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read_and_what_is_none_is_not() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let grant = |owner: &str, mode: &str, permit: i64| {
            let fields = [
                ("owner", text(owner)),
                ("mode", text(mode)),
                ("permit", Value::Int(permit)),
                ("limit", Value::Int(5)),
            ];
            Value::Map(fields.map(|(name, value)| (text(name), value)).to_vec())
        };
        let info = |grants| Value::Map(vec![(text("grants"), Value::Array(grants))]);
        let permit = |number| Mode::Permit(Permit::new(number, 5).unwrap());
        assert_eq!(modes(&Value::Nil, b"me"), Some(vec![]));
        let two = info(vec![grant("you", "permit", 2), grant("me", "permit", 4)]);
        assert_eq!(modes(&two, b"me"), Some(vec![permit(2)]));
        assert_eq!(modes(&info(vec![grant("you", "shared", 1)]), b"me"), Some(vec![Mode::Shared]));
        for no_mode in [info(vec![grant("you", "other", 1)]), info(vec![grant("you", "permit", 9)]), Value::Int(1)] {
            assert_eq!(modes(&no_mode, b"me"), None);
        }
    }

    /// After a BREAK nobody has it; the holder was told that somebody else had.
    #[test]
    fn null_means_what_was_asked() {
        let token = Token::new(7).unwrap();
        let asks = [Ask::Extend { ttl_ms: 1, token }, Ask::Fence { token }];
        for ask in asks {
            assert_eq!(answer(ask, Ok(Value::Nil)), (Answer::No, Some(Why::NotHeld)));
        }
        let ask = Ask::Acquire { ttl_ms: 1, proposal: token, retry: true };
        assert_eq!(answer(ask, Ok(Value::Nil)), (Answer::No, Some(Why::Held)));
    }
}
