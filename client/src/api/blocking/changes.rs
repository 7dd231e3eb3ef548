//! Changes that the nodes tell of, blocking.

use super::block_on;

/// Changes of something, as an iterator that blocks until the next one and ends when the client is closed. See [`crate::Changes`].
#[derive(Debug)]
pub struct Changes<T>(pub(super) crate::Changes<T>);

impl<T> Iterator for Changes<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        block_on(self.0.changed()).ok()
    }
}
