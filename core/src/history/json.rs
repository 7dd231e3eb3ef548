//! Events of grants as JSON, for programs.

use std::fmt::Write;

use crate::history::grant_events::GrantEvent;
use crate::values::mode::Mode;

impl GrantEvent {
    /// Formats the event as one JSON object. `wall_ms` is its time on the wall clock, and `node` the node's id.
    ///
    /// Keys, owners and notes are any bytes: UTF-8 becomes a string, anything else an object with the bytes in
    /// hexadecimal digits.
    pub fn to_json(&self, wall_ms: u64, node: u128) -> String {
        let (permit, limit) = match self.mode {
            Mode::Permit(permit) => (permit.number(), permit.limit()),
            Mode::Exclusive | Mode::Shared => (0, 0),
        };
        let Self { db, token, ttl_ms, waited_ms, held_ms, waiters, .. } = self;
        let (event, mode, token) = (self.happened.word(), self.mode.word(), token.get());
        let [key, owner, note] = [&self.name, &self.owner, &self.note].map(|bytes| text(bytes));
        format!(
            "{{\"event\":\"{event}\",\"time\":{wall_ms},\"node\":\"{node:032x}\",\"db\":{db},\"key\":{key},\"owner\":{owner},\
             \"token\":{token},\"mode\":\"{mode}\",\"permit\":{permit},\"limit\":{limit},\"note\":{note},\"ttl\":{ttl_ms},\
             \"waited\":{waited_ms},\"held\":{held_ms},\"waiters\":{waiters}}}"
        )
    }
}

/// Formats the message that `count` events are missing at this point, because there were too many unpublished ones.
pub fn missed_to_json(count: u64, wall_ms: u64, node: u128) -> String {
    format!("{{\"event\":\"missed\",\"time\":{wall_ms},\"node\":\"{node:032x}\",\"count\":{count}}}")
}

fn text(bytes: &[u8]) -> String {
    let mut json = String::with_capacity(bytes.len() + 2);
    // Writing to a string cannot fail.
    let _ = match std::str::from_utf8(bytes) {
        Ok(text) => quoted(text, &mut json),
        Err(_) => hex(bytes, &mut json),
    };
    json
}

fn quoted(text: &str, json: &mut String) -> std::fmt::Result {
    json.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(json, "\\{character}")?,
            // Line ends are escaped too, so that each event is one line; and characters that some JSON readers take for
            // line ends.
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                write!(json, "\\u{:04x}", u32::from(character))?;
            }
            _ => json.write_char(character)?,
        }
    }
    json.write_char('"')
}

fn hex(bytes: &[u8], json: &mut String) -> std::fmt::Result {
    json.write_str("{\"hex\":\"")?;
    for byte in bytes {
        write!(json, "{byte:02x}")?;
    }
    json.write_str("\"}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::*;
    use crate::history::ending::Ending;
    use crate::history::grant_events::Happened;

    fn event(name: &[u8], owner: &[u8], note: &[u8]) -> GrantEvent {
        let mode = permit(2, 3);
        let [name, owner, note] = [name, owner, note].map(Box::from);
        let happened = Happened::Ended(Ending::Released);
        GrantEvent {
            happened,
            at: ms(5),
            db: 1,
            name,
            owner,
            token: token(7),
            mode,
            note,
            ttl_ms: 4,
            waited_ms: 5,
            held_ms: 6,
            waiters: 8,
        }
    }

    fn shown(bytes: &[u8]) -> Value {
        match std::str::from_utf8(bytes) {
            Ok(text) => json!(text),
            Err(_) => json!({"hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()}),
        }
    }

    #[test]
    fn each_field_has_its_name() {
        let told: Value = serde_json::from_str(&event(b"k\n", b"\0\xFF", b"\"\\").to_json(9, 10)).unwrap();
        let expected = json!({
            "event": "released", "time": 9, "node": "0000000000000000000000000000000a", "db": 1, "key": "k\n",
            "owner": {"hex": "00ff"}, "token": 7, "mode": "permit", "permit": 2, "limit": 3, "note": "\"\\",
            "ttl": 4, "waited": 5, "held": 6, "waiters": 8,
        });
        assert_eq!(told, expected);
        let missed: Value = serde_json::from_str(&missed_to_json(3, 9, 10)).unwrap();
        assert_eq!(missed, json!({"event": "missed", "time": 9, "node": expected["node"], "count": 3}));
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![proptest::collection::vec(any::<u8>(), 0..20), any::<String>().prop_map(String::into_bytes)]
    }

    proptest! {
        #[test]
        fn any_bytes_make_one_line_of_valid_json(name in bytes(), owner in bytes(), note in bytes()) {
            let line = event(&name, &owner, &note).to_json(0, u128::MAX);
            prop_assert!(!line.chars().any(|character| character.is_control()), "{}", line);
            let told: Value = serde_json::from_str(&line).unwrap();
            for (field, bytes) in [("key", name), ("owner", owner), ("note", note)] {
                prop_assert_eq!(&told[field], &shown(&bytes));
            }
        }
    }
}
