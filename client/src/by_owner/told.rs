//! The tokens by which an owner knows its grant.

/// The tokens that an owner received for one grant, or may have received from another process. The grant's token may have
/// risen since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The token with which the lock was granted; 0 if another process granted it.
    first: u64,
    /// The tokens, in ascending order.
    tokens: Vec<u64>,
}

impl Told {
    /// Returns the tokens of a grant that this process has just made, with this token.
    pub fn granted(token: u64) -> Self {
        Self { first: token, tokens: vec![token] }
    }

    /// Returns the tokens that nodes show for a grant that another process made.
    pub fn shown(tokens: &[u64]) -> Self {
        let mut told = Self::default();
        told.add(tokens);
        told
    }

    /// Returns whether the owner may know its grant by `token`.
    pub fn has(&self, token: u64) -> bool {
        self.tokens.contains(&token)
    }

    /// Returns whether `token` is certainly not of this grant: this process granted the lock with a larger one.
    pub fn rules_out(&self, token: u64) -> bool {
        token < self.first
    }

    /// Returns the tokens, in ascending order.
    pub fn tokens(&self) -> &[u64] {
        &self.tokens
    }

    /// Adds tokens that the owner received, or that nodes show. Leaves out smaller ones than the first: a slow node may
    /// have granted the lock with the token of an earlier grant of this owner, until that was raised.
    pub fn add(&mut self, tokens: &[u64]) {
        self.tokens.extend(tokens);
        self.tokens.retain(|token| *token >= self.first);
        self.tokens.sort_unstable();
        self.tokens.dedup();
    }

    /// Adds what else is known of the same grant.
    pub fn merge(&mut self, other: &Self) {
        self.first = self.first.max(other.first);
        self.add(&other.tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes whose tokens are ahead of the clock take their own next one. A slow node grants the lock with a token that
    /// the owner's last grant had, until that is raised. The owner's late request about the last grant is not about this
    /// one.
    #[test]
    fn a_token_of_an_earlier_grant_is_none_of_this_one() {
        let mut told = Told::granted(8);
        told.add(&[7, 8, 9]);
        assert_eq!(told.tokens(), [8, 9]);
        assert!(told.rules_out(7) && !told.rules_out(8) && !Told::shown(&[8]).rules_out(7));
        let mut found = Told::shown(&[7, 9]);
        found.add(&[6]);
        assert!(found.has(6) && found.has(7), "another process may have given them to the owner");
        found.merge(&Told::granted(8));
        assert_eq!(found, told);
    }
}
