//! A slab: many values of one kind in pieces of 4 KiB, each at a fixed place until it is removed.
//!
//! A list that moved as it grew would keep a server waiting, and an allocation for each value would take more memory
//! and time than the value. An empty piece is freed, unless it is the only one with room.

/// The number of values in a piece: with 32 bytes each, a piece takes slightly less than 4 KiB in all.
const PIECE: u32 = 127;

/// The power of two that separates the first places of two pieces: piece `n` has the places from `n << STRIDE_BITS` on.
const STRIDE_BITS: u32 = 7;

/// The bits of a piece all of whose places are taken.
const FULL: [u64; 2] = [u64::MAX, u64::MAX >> (2 * u64::BITS - PIECE)];

/// The number that stands for no piece.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Piece<T> {
    values: [T; PIECE as usize],
    /// A bit for each place of the piece that has a value.
    taken: [u64; 2],
    /// The pieces before and after in the list of pieces with room, [`NONE`] at the ends.
    before: u32,
    after: u32,
}

impl<T> Piece<T> {
    fn is_taken(&self, index: u32) -> bool {
        self.taken[index as usize / 64] >> (index % 64) & 1 != 0
    }

    /// Returns the index of the first free place in this piece, which must have one.
    fn first_free(&self) -> u32 {
        match self.taken[0].trailing_ones() {
            64 => 64 + self.taken[1].trailing_ones(),
            free => free,
        }
    }
}

/// Many values of one kind, each at a place with a number that stays the same until the value is removed.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    pieces: Vec<Option<Box<Piece<T>>>>,
    /// The numbers of pieces that were freed, to be used again.
    given_back: Vec<u32>,
    /// The first piece in the list of pieces with room; [`NONE`] if all are full.
    room: u32,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { pieces: vec![], given_back: vec![], room: NONE, len: 0 }
    }
}

/// Returns the piece of a place, and the index in that piece.
const fn split(place: u32) -> (usize, u32) {
    ((place >> STRIDE_BITS) as usize, place & ((1 << STRIDE_BITS) - 1))
}

impl<T: Default> Slab<T> {
    /// Returns the number of values in the slab.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the value at this place, if there is one.
    #[inline]
    pub fn get(&self, place: u32) -> Option<&T> {
        let (number, index) = split(place);
        let piece = self.pieces.get(number)?.as_deref()?;
        (index < PIECE && piece.is_taken(index)).then(|| &piece.values[index as usize])
    }

    /// Returns the value at this place for changes, if there is one.
    #[inline]
    pub fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        let (number, index) = split(place);
        let piece = self.pieces.get_mut(number)?.as_deref_mut()?;
        (index < PIECE && piece.is_taken(index)).then(|| &mut piece.values[index as usize])
    }

    /// Adds `value`, and returns its place.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        if self.room == NONE {
            self.add_piece();
        }
        let number = self.room;
        let piece = self.piece(number);
        let index = piece.first_free();
        piece.values[index as usize] = value;
        piece.taken[index as usize / 64] |= 1 << (index % 64);
        if piece.taken == FULL {
            self.has_no_room(number);
        }
        self.len += 1;
        number << STRIDE_BITS | index
    }

    /// Removes and returns the value at this place, if there is one.
    #[inline]
    pub fn remove(&mut self, place: u32) -> Option<T> {
        let (number, index) = split(place);
        let piece = self.pieces.get_mut(number)?.as_deref_mut()?;
        if index >= PIECE || !piece.is_taken(index) {
            return None;
        }
        let value = std::mem::take(&mut piece.values[index as usize]);
        let (number, was_full) = (number as u32, piece.taken == FULL);
        piece.taken[index as usize / 64] &= !(1 << (index % 64));
        let is_empty = piece.taken == [0; 2];
        if was_full {
            self.has_room(number);
        }
        if is_empty && (self.room != number || self.piece(number).after != NONE) {
            self.has_no_room(number);
            self.pieces[number as usize] = None;
            self.given_back.push(number);
        }
        self.len -= 1;
        Some(value)
    }

    /// Iterates over all values with their places, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.pieces).filter_map(|(number, piece)| Some((number, piece.as_deref()?))).flat_map(
            |(number, piece)| {
                let taken = (0..PIECE).filter(|&index| piece.is_taken(index));
                taken.map(move |index| (number << STRIDE_BITS | index, &piece.values[index as usize]))
            },
        )
    }

    fn piece(&mut self, number: u32) -> &mut Piece<T> {
        self.pieces[number as usize].as_deref_mut().expect("a piece that was not given back")
    }

    #[cold]
    fn add_piece(&mut self) {
        let values = std::array::from_fn(|_| T::default());
        let piece = Some(Box::new(Piece { values, taken: [0; 2], before: NONE, after: NONE }));
        let number = self.given_back.pop().unwrap_or_else(|| {
            self.pieces.push(None);
            u32::try_from(self.pieces.len() - 1).expect("fewer than 2^25 pieces")
        });
        self.pieces[number as usize] = piece;
        self.has_room(number);
    }

    /// Puts this piece first in the list of pieces with room.
    fn has_room(&mut self, number: u32) {
        let after = std::mem::replace(&mut self.room, number);
        if after != NONE {
            self.piece(after).before = number;
        }
        let piece = self.piece(number);
        (piece.before, piece.after) = (NONE, after);
    }

    fn has_no_room(&mut self, number: u32) {
        let piece = self.piece(number);
        let (before, after) = (piece.before, piece.after);
        match before {
            NONE => self.room = after,
            before => self.piece(before).after = after,
        }
        if after != NONE {
            self.piece(after).before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    proptest! {
        /// Compares the slab with a plain table of places: runs of values come and go, so that pieces fill up and
        /// empty. Each value stays at its place, and of the empty pieces at most one is kept.
        #[test]
        fn values_stay_where_they_are_and_empty_pieces_are_given_back(
            steps in prop::collection::vec((any::<bool>(), 1_usize..200, any::<Index>()), 1..60)
        ) {
            let (mut slab, mut plain, mut next) = (Slab::<u64>::default(), HashMap::new(), 0);
            for (comes, count, which) in steps {
                for n in 0..count {
                    if comes {
                        next += 1;
                        prop_assert!(plain.insert(slab.insert(next), next).is_none(), "the place is taken");
                    } else if !plain.is_empty() {
                        let place = *plain.keys().nth((which.index(plain.len()) + n) % plain.len()).unwrap();
                        prop_assert_eq!(slab.remove(place), plain.remove(&place));
                        prop_assert_eq!(slab.get(place), None);
                        prop_assert_eq!(slab.remove(place), None);
                    }
                }
                prop_assert_eq!(slab.len(), plain.len());
                prop_assert!(plain.iter().all(|(place, value)| slab.get(*place) == Some(value)));
                let mut all: Vec<_> = slab.iter().map(|(place, value)| (place, *value)).collect();
                all.sort_unstable();
                let mut plain: Vec<_> = plain.iter().map(|(place, value)| (*place, *value)).collect();
                plain.sort_unstable();
                prop_assert_eq!(all, plain);
                let empty = slab.pieces.iter().flatten().filter(|piece| piece.taken == [0; 2]).count();
                prop_assert!(empty <= 1, "an empty piece beside others with room");
            }
            prop_assert!([PIECE, u32::MAX].iter().all(|&place| slab.get(place).is_none()));
        }
    }

    #[test]
    fn a_piece_takes_four_kibibytes() {
        assert!(size_of::<Piece<[u64; 4]>>() <= 4_096);
    }
}
