//! Cuts texts to a bounded length, and shows how much was cut.

/// Returns `bytes`, or the first `max` of them and the number of omitted bytes if there are more.
pub(super) fn shortened(bytes: &[u8], max: usize) -> Box<[u8]> {
    match bytes.get(..max) {
        Some(start) if bytes.len() > max => {
            [start, format!("... ({} more bytes)", bytes.len() - max).as_bytes()].concat().into()
        }
        _ => bytes.into(),
    }
}
