//! The texts of a grant, in 24 bytes: more would make every lock larger.

use crate::lock::waited::Waited;

/// The longest owner that is stored in the grant itself if there is no note, in bytes: long enough for the owners that
/// clients generate.
const INLINE_BYTES: usize = 20;

/// The texts of a grant: the owner, then the note and its sequence number. Also the time waited, since there is room.
#[derive(Clone, Debug)]
pub(super) enum Text {
    /// An owner without a note, stored in the grant itself.
    Owner { len_less_one: u8, waited: Waited, bytes: [u8; INLINE_BYTES] },
    /// Owner, note and sequence number in one allocation.
    All { owner_len_less_one: u8, waited: Waited, bytes: Box<[u8]> },
}

impl Text {
    /// Creates the texts of a grant: an owner of 1 to 256 bytes, then `rest`, which is the note and its sequence
    /// number.
    #[inline]
    pub fn new(owner: &[u8], rest: [&[u8]; 2], waited: Waited) -> Self {
        let len_less_one = (owner.len() - 1) as u8;
        let mut bytes = [0; INLINE_BYTES];
        if let Some(inline) = bytes.get_mut(..owner.len()).filter(|_| rest.iter().all(|part| part.is_empty())) {
            inline.copy_from_slice(owner);
            return Self::Owner { len_less_one, waited, bytes };
        }
        let [note, number] = rest;
        Self::All { owner_len_less_one: len_less_one, waited, bytes: [owner, note, number].concat().into() }
    }

    /// Returns the bytes of all texts, one behind the other.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Owner { bytes, .. } => &bytes[..self.owner_len()],
            Self::All { bytes, .. } => bytes,
        }
    }

    /// Returns the owner's length, in bytes.
    #[inline]
    pub fn owner_len(&self) -> usize {
        let (Self::Owner { len_less_one, .. } | Self::All { owner_len_less_one: len_less_one, .. }) = *self;
        usize::from(len_less_one) + 1
    }

    #[inline]
    pub fn waited(&self) -> Waited {
        let (Self::Owner { waited, .. } | Self::All { waited, .. }) = *self;
        waited
    }

    #[inline(always)]
    pub fn set_waited(&mut self, is: Waited) {
        let (Self::Owner { waited, .. } | Self::All { waited, .. }) = self;
        *waited = is;
    }

    /// Returns the heap memory that the texts take, in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Owner { .. } => 0,
            Self::All { bytes, .. } => bytes.len(),
        }
    }
}
