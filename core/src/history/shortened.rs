//! Texts of bounded length, cut where it shows.

/// These bytes, or their first `max` and how many were left out.
pub(super) fn shortened(bytes: &[u8], max: usize) -> Box<[u8]> {
    match bytes.get(..max) {
        Some(start) if bytes.len() > max => {
            [start, format!("... ({} more bytes)", bytes.len() - max).as_bytes()].concat().into()
        }
        _ => bytes.into(),
    }
}
