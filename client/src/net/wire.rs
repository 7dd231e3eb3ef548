//! Builds the commands that are sent, and interprets their replies.

use std::time::Duration;

use palisade_quorum::{
    Answer, Ask, MemberRequest, Members, Mode, NodeId, Permit, Token, members_from_text, members_to_text,
};
use redis::{Cmd, Value, cmd};

use crate::{Holder, Why};

/// Returns the holder in a reply of LOCK.INFO; of several, the one that has held the lock longest.
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

/// Returns the command that waits for up to `ms` milliseconds until `key` is no longer held with this token, or its
/// note has a larger sequence number. If the token is 0, it waits until the key is no longer free.
pub fn watch(key: &[u8], ms: u64, token: u64, sequence: u64) -> Cmd {
    let mut command = cmd("LOCK.WATCH").arg(key).arg(ms).take();
    if token > 0 {
        command.arg("TOKEN").arg(token).arg("SEQ").arg(sequence);
    }
    command
}

/// Returns the command that receives, for up to `ms` milliseconds, the answers to waits that name this listener.
pub fn hear(name: &[u8], ms: u64) -> Cmd {
    cmd("LOCK.HEAR").arg(name).arg(ms).take()
}

/// Returns the command that ends the waits of this owner over this listener; grants and reservations stay.
pub fn wait_no_more(key: &[u8], owner: &[u8], listener: &[u8]) -> Cmd {
    cmd("LOCK.WAIT").arg(key).arg(owner).arg(0).arg("HEARD").arg(listener).take()
}

/// Returns whether the reply says that the request waits, and its listener will receive the answer.
pub fn is_waiting(reply: &Value) -> bool {
    matches!(reply, Value::SimpleString(text) if text == "WAITING")
}

/// The outcome of a waiting request.
#[derive(Debug)]
pub struct News {
    pub key: Box<[u8]>,
    pub owner: Box<[u8]>,
    /// The answer of LOCK.WAIT, or its error.
    pub told: Result<Value, Why>,
}

/// Returns the outcomes in a reply to LOCK.HEAR; `None` if the reply has another form.
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

/// Returns the command that states this client's version of the set; a node replies with its own version.
pub fn join(version: u64) -> Cmd {
    cmd("LOCK.MEMBERS").arg("JOIN").arg(version).take()
}

/// Returns the command that sends a member this request about the next version of the set.
pub fn propose_members(told: &MemberRequest) -> Cmd {
    let mut command = cmd("LOCK.SETMEMBERS");
    match told {
        MemberRequest::Promise { version, ballot } => command.arg(version).arg("PROMISE").arg(format!("{ballot:032x}")),
        MemberRequest::Accept { version, ballot, list, floor } => {
            command.arg(version).arg("ACCEPT").arg(format!("{ballot:032x}"));
            command.arg("MEMBERS").arg(members_to_text(list)).arg("FLOOR").arg(floor)
        }
    };
    command
}

/// Returns the command that announces a decided version of the set.
pub fn announce_members(members: &Members) -> Cmd {
    let mut command = cmd("LOCK.SETMEMBERS");
    command.arg(members.version).arg("DECIDED").arg("MEMBERS").arg(members_to_text(&members.list));
    command
}

/// Returns the set in a reply of LOCK.MEMBERS; `None` if the reply has another form.
pub fn members(value: &Value) -> Option<Members> {
    let (version, list) = (number(value, "version")?, text(value, "members")?);
    let list = if version == 0 { vec![] } else { members_from_text(&list)? };
    Some(Members { version, list })
}

/// Returns the command that checks whether `key` is held with this token.
pub fn check(key: &[u8], token: Token) -> Cmd {
    cmd("LOCK.CHECK").arg(key).arg(token.get()).take()
}

/// Returns the command that asks for the holder of `key`.
pub fn info(key: &[u8]) -> Cmd {
    cmd("LOCK.INFO").arg(key).take()
}

/// Returns the command that asks whether the node, or the slot of `key` in a cluster, is guarded.
pub fn node_of(key: &[u8]) -> Cmd {
    cmd("LOCK.NODE").arg("KEY").arg(key).take()
}

/// Returns the command that asks for the holders of `key`, up to `grants`.
pub fn info_with(key: &[u8], grants: usize) -> Cmd {
    cmd("LOCK.INFO").arg(key).arg("HOLDERS").arg(grants).take()
}

/// Returns the mode of each grant in a reply of LOCK.INFO with HOLDERS, except those of `owner`; `None` if the reply
/// has another form.
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

/// Returns the mode of a grant in a reply of LOCK.INFO.
pub fn mode(grant: &Value) -> Option<Mode> {
    let small = |name| number(grant, name).and_then(|value| u16::try_from(value).ok());
    match &*text(grant, "mode")? {
        "exclusive" => Some(Mode::Exclusive),
        "shared" => Some(Mode::Shared),
        "permit" => Permit::new(small("permit")?, small("limit")?).map(Mode::Permit),
        _ => None,
    }
}

/// Converts a node's reply to `ask` to the form that a quorum machine receives. Also returns the failure if the reply
/// is not a token.
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
        // The reply after a wait or for a permit: token, milliseconds waited, and the permit's number.
        Ok(Value::Array(mut list)) if matches!(ask, Ask::Acquire { .. }) && matches!(list.len(), 2 | 3) => {
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

/// Returns the milliseconds that an ACQUIRE waited for its grant; 0 in a reply of another form.
pub fn waited_ms(value: &Value) -> u64 {
    match value {
        Value::Array(list) => match &list[..] {
            [_, Value::Int(waited)] | [_, Value::Int(waited), _] => u64::try_from(*waited).unwrap_or(0),
            _ => 0,
        },
        _ => 0,
    }
}

/// Returns the permit number in a reply to ACQUIRE, 0 if it is invalid; `None` if no permit was requested.
pub fn permit_number(value: &Value) -> Option<u16> {
    match value {
        Value::Array(list) => match &list[..] {
            [_, _, Value::Int(number)] => Some(u16::try_from(*number).unwrap_or(0)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the permit number that a LOCK.WAIT reports as reserved; `None` if there is none.
pub fn reserved_number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok().filter(|number| *number > 0),
        _ => None,
    }
}

/// Returns the value of `name` in a map, or in a flat list of names and values.
pub fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let is = |value: &Value| matches!(value, Value::BulkString(bytes) if bytes == name.as_bytes());
    match value {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is(key)).map(|(_, value)| value),
        Value::Array(list) => list.chunks(2).find(|pair| is(&pair[0]))?.get(1),
        _ => None,
    }
}

/// Returns an integer field.
pub fn number(value: &Value, name: &str) -> Option<u64> {
    match field(value, name)? {
        Value::Int(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}

/// Returns the bytes of a text field.
pub fn bytes<'a>(value: &'a Value, name: &str) -> Option<&'a [u8]> {
    match field(value, name)? {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

/// Returns a text field.
pub fn text(value: &Value, name: &str) -> Option<String> {
    match field(value, name)? {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

/// Returns the server's id in a reply of LOCK.NODE.
pub fn node_id(value: &Value) -> Option<NodeId> {
    u128::from_str_radix(&text(value, "id")?, 16).ok().map(NodeId)
}

/// Returns whether a reply of LOCK.NODE is that of a master.
pub fn is_master(node: &Value) -> bool {
    text(node, "role").as_deref() == Some("master")
}

/// Refuses an agent, by its reply of LOCK.NODE: it has nodes of its own, and is none.
///
/// # Errors
/// `Stranger`: the reply is that of an agent.
pub fn ensure_no_agent(node: &Value) -> Result<(), Why> {
    field(node, "majority").map_or(Ok(()), |_| Err(Why::Stranger("an agent".to_owned())))
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

    /// Null after a BREAK means that nobody holds the lock. It used to be reported as held by another owner.
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
