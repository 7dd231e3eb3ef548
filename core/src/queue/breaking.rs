//! An operator's BREAK of more grants than one pass of the event loop may end.

use std::sync::Arc;

use crate::queue::of_key::WaiterId;
use crate::values::key::Key;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// A BREAK of many grants with one token, performed in slices while its client waits.
#[derive(Clone, Debug)]
pub struct Breaking {
    /// The database and the name of the lock's key.
    pub(crate) db: u32,
    pub(crate) name: Arc<[u8]>,
    /// The token of the grants that it ends.
    pub(crate) token: Token,
    /// The time of the last slice.
    pub(crate) since: BootTime,
    /// True if the lock left the key (DEL, RENAME, ...). Another lock may be there now.
    pub(crate) is_cut: bool,
    /// The client that sent the BREAK. It is blocked until the last grant with the token has ended. `None` if it has gone:
    /// another client may have its id now.
    pub(crate) client: Option<WaiterId>,
}

impl Breaking {
    /// Returns the key of the lock whose grants are being broken.
    pub fn key(&self) -> Key<'_> {
        Key { db: self.db, name: &self.name }
    }
}
