//! The ring of a timing wheel: it has room for one number for each moment of a window of time, and finds the first
//! moment with a number. Its size is fixed, whatever its content.
//!
//! A moment is a tick of the wheel, and the number is the index of an entry.

/// The number of moments that a ring covers. A moment is a tick of the timing wheel.
pub(super) const MOMENTS: u64 = (PAGES * PAGE) as u64;

/// The number of pages in a ring. A page is allocated when its first number is set.
const PAGES: usize = 256;

/// The number of moments in a page. The numbers of all its moments take 2 KiB.
const PAGE: usize = 512;

/// The value that marks a moment without a number.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Page {
    numbers: [u32; PAGE],
    /// A bit for each moment (tick) of the page: 1 if the moment has a number.
    set: [u64; PAGE / 64],
}

impl Page {
    #[cold]
    fn empty() -> Box<Self> {
        Box::new(Self { numbers: [NONE; PAGE], set: [0; PAGE / 64] })
    }
}

/// A map from moments to numbers. The moments in it are less than [`MOMENTS`] apart.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    pages: Box<[Option<Box<Page>>; PAGES]>,
    /// A bit for each page: 1 if any of its moments has a number.
    set: [u64; PAGES / 64],
}

impl Default for Ring {
    fn default() -> Self {
        Self { pages: Box::new([const { None }; PAGES]), set: [0; PAGES / 64] }
    }
}

/// Returns the index of a moment's page, and the moment's index in that page.
const fn split(moment: u64) -> (usize, usize) {
    ((moment % MOMENTS) as usize / PAGE, moment as usize % PAGE)
}

impl Ring {
    /// Returns the number that is stored for this moment, or [`NONE`].
    #[inline]
    pub fn get(&self, moment: u64) -> u32 {
        let (page, index) = split(moment);
        self.pages[page].as_ref().map_or(NONE, |page| page.numbers[index])
    }

    /// Sets the number of this moment; `number` must not be [`NONE`]. Returns the number that the moment had before, or
    /// [`NONE`].
    #[inline]
    pub fn set(&mut self, moment: u64, number: u32) -> u32 {
        let (at, index) = split(moment);
        let page = self.pages[at].get_or_insert_with(Page::empty);
        page.set[index / 64] |= 1 << (index % 64);
        self.set[at / 64] |= 1 << (at % 64);
        std::mem::replace(&mut page.numbers[index], number)
    }

    /// Removes the number of this moment.
    #[inline]
    pub fn clear(&mut self, moment: u64) {
        let (at, index) = split(moment);
        let Some(page) = &mut self.pages[at] else { return };
        page.numbers[index] = NONE;
        page.set[index / 64] &= !(1 << (index % 64));
        if page.set == [0; PAGE / 64] {
            self.set[at / 64] &= !(1 << (at % 64));
        }
    }

    /// Returns the first moment from `from` on that has a number, if any has.
    pub fn first_from(&self, from: u64) -> Option<u64> {
        // The most frequent case: a node whose only lock was released.
        if self.set == [0; PAGES / 64] {
            return None;
        }
        let (at, index) = split(from);
        let in_page = |at: usize, from| {
            let index = next_set(&self.pages[at].as_ref()?.set, from)?;
            Some((at * PAGE + index) as u64)
        };
        // The page of `from` comes last once more, because the window may end in it, before the index of `from`.
        let found = in_page(at, index)
            .or_else(|| in_page(next_set(&self.set, at + 1).or_else(|| next_set(&self.set, 0))?, 0))?;
        Some(from + found.wrapping_sub(from) % MOMENTS)
    }

    /// Returns the last moment before `from` + [`MOMENTS`] that has a number, if any has.
    pub fn last_from(&self, from: u64) -> Option<u64> {
        let (at, index) = split(from);
        // Searches the pages backwards from the end of the window. The window ends in the page in which it begins, so
        // this page is searched twice: first the part before `from`, and last the whole page.
        let mut pages = (0..=PAGES).map(|back| ((at + PAGES - back) % PAGES, if back == 0 { index } else { PAGE }));
        let found = pages.find_map(|(at, end)| {
            let page = self.pages[at].as_ref()?;
            let index = (0..end).rev().find(|&index| page.numbers[index] != NONE)?;
            Some((at * PAGE + index) as u64)
        })?;
        Some(from + found.wrapping_sub(from) % MOMENTS)
    }
}

/// Returns the index of the first set bit at or after `from`.
#[inline]
fn next_set(words: &[u64], from: usize) -> Option<usize> {
    let first = words.get(from / 64)? & (u64::MAX << (from % 64));
    let rest = words.iter().enumerate().skip(from / 64 + 1).map(|(n, word)| (n, *word));
    let (n, word) = [(from / 64, first)].into_iter().chain(rest).find(|(_, word)| *word != 0)?;
    Some(n * 64 + word.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares the ring with a tree, in a window that moves on and is sometimes full to its ends.
        #[test]
        fn a_ring_is_a_tree_within_its_window(
            start in prop_oneof![Just(0), any::<u32>().prop_map(u64::from)],
            steps in prop::collection::vec((0..MOMENTS, any::<bool>(), prop_oneof![0..3_u64, 0..MOMENTS]), 1..200),
        ) {
            let (mut ring, mut plain, mut from) = (Ring::default(), BTreeMap::new(), start);
            for (n, (ahead, comes, on)) in (0..).zip(steps) {
                let ahead = if n % 5 == 0 { [0, MOMENTS - 1][n as usize % 2] } else { ahead };
                if comes {
                    let before = plain.insert(from + ahead, n).unwrap_or(NONE);
                    prop_assert_eq!(ring.set(from + ahead, n), before);
                } else {
                    plain.remove(&(from + ahead));
                    ring.clear(from + ahead);
                }
                prop_assert_eq!(ring.get(from + ahead), if comes { n } else { NONE });
                prop_assert_eq!(ring.first_from(from), plain.keys().next().copied());
                prop_assert_eq!(ring.last_from(from), plain.keys().last().copied());
                // The window must not move beyond the first number.
                from = (from + on).min(plain.keys().next().copied().unwrap_or(u64::MAX));
            }
            prop_assert!(plain.iter().all(|(moment, number)| ring.get(*moment) == *number));
        }
    }
}
