//! The resource that the lock protects: it refuses a token that is smaller than an earlier one.

/// A value, and the largest token with which it was written.
#[derive(Default)]
pub struct Register {
    largest: u64,
}

impl Register {
    /// Writes with `token`.
    ///
    /// # Errors
    /// The larger token that was used before.
    pub fn write(&mut self, token: u64) -> Result<(), u64> {
        if token < self.largest {
            return Err(self.largest);
        }
        self.largest = token;
        Ok(())
    }
}
