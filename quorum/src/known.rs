//! Combines what the nodes answer when they are asked for an owner's grant.

use super::ask::majority;

/// The answer to the question whether an owner holds a lock on a majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldStatus {
    /// A majority shows the grant of this owner.
    Held,
    /// Too few nodes have the grant, even if all that are unsure have it.
    NotHeld,
    /// The outcome depends on the nodes that are unsure.
    Unknown,
}

/// Returns whether an owner holds a lock, if `has` of `nodes` nodes show its grant. `unsure` others cannot say whether
/// they granted it: they do not answer, are loading their data, or are guarded. A guarded node that shows nothing may
/// have forgotten its grant.
pub const fn known(nodes: usize, has: usize, unsure: usize) -> HoldStatus {
    if has >= majority(nodes) {
        HoldStatus::Held
    } else if has + unsure >= majority(nodes) {
        HoldStatus::Unknown
    } else {
        HoldStatus::NotHeld
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_its_status() {
        use HoldStatus::*;
        let cases = [
            ((1, 0, 0), NotHeld),
            ((1, 0, 1), Unknown),
            ((1, 1, 0), Held),
            ((3, 1, 0), NotHeld),
            ((3, 1, 1), Unknown),
            ((3, 0, 1), NotHeld),
            ((5, 0, 2), NotHeld),
            // All nodes may have granted the lock and have forgotten it.
            ((5, 0, 3), Unknown),
            ((5, 2, 0), NotHeld),
            ((5, 2, 3), Unknown),
            ((5, 3, 2), Held),
            ((4, 2, 0), NotHeld),
            ((4, 2, 1), Unknown),
        ];
        for ((nodes, has, unsure), expected) in cases {
            assert_eq!(known(nodes, has, unsure), expected, "{has} of {nodes}, {unsure} cannot say");
        }
    }
}
