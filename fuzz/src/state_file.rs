//! Fuzzes the reading of a node's state file, with any text.

use std::fmt::Write as _;

use palisade_core::BootId;
use palisade_core::{BootTime, FileId, Found, Guard, LocksDigest, NodeState, Now, OutstandingTtl, Start, Tokens};
use sha2::{Digest as _, Sha256};

/// Reads the text as it is, and once more with a correct checksum. A wrong checksum would end the parsing, so the rest
/// of the parser would not be tested.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    read(text);
    let body = text.rfind("check ").map_or(text, |end| &text[..end]);
    read(&checked(body));
}

/// Returns `body` with a last line that has its checksum.
pub fn checked(body: &str) -> String {
    let mut text = body.to_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let digest = Sha256::digest(text.as_bytes());
    text.push_str("check ");
    digest.iter().take(8).for_each(|byte| write!(text, "{byte:02x}").expect("a string takes it"));
    text.push('\n');
    text
}

fn read(text: &str) {
    let Ok(state) = NodeState::from_text(text) else { return };
    let written = state.to_text();
    assert_eq!(NodeState::from_text(&written).as_ref(), Ok(&state), "what is written is read");
    for cut in [0, written.len() / 2, written.len() - 1] {
        assert!(NodeState::from_text(&written[..cut]).is_err(), "cut at {cut}");
    }
    start(&state);
}

/// Begins an incarnation with a state that was read. Nothing may panic.
fn start(state: &NodeState) {
    let now = BootTime::from_us(1_000_000);
    for boot in [state.boot, BootId([7; 16])] {
        let mut guard = Guard::default();
        if let Some(armed) = state.guard_now(boot, now) {
            guard.restore(armed);
            assert_eq!(guard.armed(now).is_some(), guard.left_ms(now) > 0);
            assert_eq!(guard.ensure_open(now).is_err(), guard.left_ms(now) > 0);
        }
        let loaded = state.end.map_or(LocksDigest::default(), |end| end.locks);
        let found =
            Found { file: state.file, used_by: Some(state.incarnation()), aof: state.aof.into_iter().collect() };
        let proof = |found: &Found, from_aof| Start { last: Some(state), found, loaded, from_aof, boot }.is_proved();
        let is_tied = state.file.is_some();
        assert_eq!(proof(&found, false), is_tied && state.end.is_some(), "the locks of a clean end, and nothing else");
        assert_eq!(
            proof(&found, true),
            is_tied && (state.end.is_some() || state.aof.is_some()),
            "or the AOF of that incarnation"
        );
        let copied = state.file.map(|file| FileId { born_ns: file.born_ns ^ 1, ..file });
        assert!(!proof(&Found { file: copied, ..found.clone() }, true), "a copy proves nothing");
        assert!(!proof(&Found { used_by: None, ..found }, true), "nor what nobody knows the user of");
    }
    assert!(OutstandingTtl::new(state.outstanding_ttl_ms, 1, u32::MAX, now).ms(now) >= state.outstanding_ttl_ms);
    let mut tokens = Tokens::new(state.ceiling);
    tokens.set_ceiling(state.ceiling);
    tokens.restore_stripes(&state.stripes);
    if let Ok(token) = tokens.issue(b"k", None, Now::new(now, u64::from(u32::MAX)), 0) {
        panic!("token {} of an incarnation whose ceiling was {}", token.get(), state.ceiling);
    }
}
