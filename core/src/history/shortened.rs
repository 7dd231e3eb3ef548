//! Texts of bounded length, visibly cut.

/// Returns these bytes or, if there are more than `max`, the first `max` and the number of omitted bytes.
pub(super) fn shortened(bytes: &[u8], max: usize) -> Box<[u8]> {
    match bytes.get(..max) {
        Some(start) if bytes.len() > max => {
            [start, format!("... ({} more bytes)", bytes.len() - max).as_bytes()].concat().into()
        }
        _ => bytes.into(),
    }
}
