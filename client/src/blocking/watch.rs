//! Changes of a lock, blocking.

use super::block_on;
use crate::Holder;

/// Changes of a lock, as an iterator that blocks until the next one and ends when the client is closed. See [`crate::Watch`].
#[derive(Debug)]
pub struct Watch(pub(super) crate::Watch);

impl Iterator for Watch {
    type Item = Option<Holder>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.0.changed()).ok()
    }
}
