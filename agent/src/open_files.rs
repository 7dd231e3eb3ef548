//! The system's limit on open files. Each connection needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::OTHER_FILES;

/// Raises the limit on open files so that `connections` connections can be open, as far as the system allows. Returns
/// how many can be.
pub fn make_room(connections: usize) -> usize {
    let wanted = (connections + OTHER_FILES) as u64;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(now) = current else { return connections };
    if now >= wanted {
        return connections;
    }
    let possible = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let got = match setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum }) {
        Ok(()) => possible,
        Err(_) => now,
    };
    connections.min(usize::try_from(got).unwrap_or(usize::MAX).saturating_sub(OTHER_FILES).max(1))
}
