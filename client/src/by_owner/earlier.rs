//! Repetitions of a request that ends a lock, because the set of nodes has changed meanwhile.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Error;

/// The error of an earlier run of a request that may have ended the lock. A later run finds no lock then, which says
/// nothing about whether it was held when the request came.
#[derive(Clone, Debug, Default)]
pub struct Earlier(Arc<Mutex<Option<Error>>>);

impl Earlier {
    /// Returns the result of this run: the error of the earlier one, if this one has found no lock.
    pub fn or<T>(&self, result: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
        let mut earlier = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(None) => earlier.take().map_or(Ok(None), Err),
            Err(error) => {
                if error.is_perhaps_done() {
                    *earlier = Some(error.clone());
                }
                Err(error)
            }
            found => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_lock_that_an_earlier_run_may_have_ended_is_not_reported_absent() {
        let earlier = Earlier::default();
        let sent = Error::release_sent(vec![]);
        let before = Error::new(ErrorKind::NoQuorum, "too few nodes").before_release();
        assert_eq!(earlier.or::<u32>(Err(before.clone())), Err(before));
        assert_eq!(earlier.or::<u32>(Ok(None)), Ok(None), "nothing was sent");
        assert_eq!(earlier.or::<u32>(Err(sent.clone())), Err(sent.clone()));
        assert_eq!(earlier.clone().or(Ok(Some(0))), Ok(Some(0)), "this run has found it");
        assert_eq!(earlier.or::<u32>(Ok(None)), Err(sent));
    }
}
