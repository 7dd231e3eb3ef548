//! Memory of locks that ended, used again for new locks. A server counts the bytes of each allocation when it is made
//! and when it is freed, and that takes longer than finding a key (`make instructions`).

use smallvec::SmallVec;

use crate::lock::Lock;

/// The largest number of kept allocations. A few are enough, since ends and beginnings of locks alternate.
const KEPT: usize = 16;

/// The memory of up to [`KEPT`] locks that ended, for the next ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spare(SmallVec<[Box<Lock>; KEPT]>);

impl Spare {
    /// Puts `lock` on the heap, in the memory of an ended lock if any is kept.
    #[inline(always)]
    pub fn put(&mut self, lock: Lock) -> Box<Lock> {
        match self.0.pop() {
            Some(mut spare) => {
                *spare = lock;
                spare
            }
            None => Box::new(lock),
        }
    }

    /// Keeps the memory of `lock`, which ended, for a later lock. Gives `lock` back if enough memory is kept, or if it
    /// has further memory on the heap; then the caller drops it.
    #[inline(always)]
    pub fn keep(&mut self, lock: Box<Lock>) -> Option<Box<Lock>> {
        if self.0.len() == KEPT || matches!(*lock, Lock::Joint(_)) || lock.heap_bytes() > 0 {
            return Some(lock);
        }
        self.0.push(lock);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::request::Note;

    #[test]
    fn memory_is_kept_up_to_a_bound_and_used_again() {
        let (mut spare, lock) = (Spare::default(), || Box::new(mine(1)));
        let noted = exclusive(owner("me"), Note::new(b"text").unwrap(), token(7), at(0).boot, ttl(1));
        assert!(spare.keep(Box::new(noted)).is_some(), "it has a note on the heap");
        assert!((0..KEPT).all(|_| spare.keep(lock()).is_none()));
        assert_eq!(spare.keep(lock()), Some(lock()));
        let kept: Vec<*const Lock> = spare.0.iter().rev().map(|lock| &raw const **lock).collect();
        let used: Vec<Box<Lock>> = (0..KEPT).map(|_| spare.put(suspect())).collect();
        assert_eq!(used.iter().map(|lock| &raw const **lock).collect::<Vec<_>>(), kept);
        assert!(used.iter().all(|lock| **lock == suspect()));
        assert_eq!(spare.put(suspect()), Box::new(suspect()));
    }
}
