//! The resource that the lock protects: it takes only tokens that do not fall.

/// A value, and the largest token it was written with.
#[derive(Default)]
pub struct Register {
    largest: u64,
}

impl Register {
    /// Writes with `token`.
    ///
    /// # Errors
    /// The larger token that has been here before.
    pub fn write(&mut self, token: u64) -> Result<(), u64> {
        if token < self.largest {
            return Err(self.largest);
        }
        self.largest = token;
        Ok(())
    }
}
