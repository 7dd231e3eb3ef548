//! Which tokens are a grant's, as the nodes show it.

use super::ask::majority;
use crate::values::token::Token;

/// Whether `token` is one of a holder of whom so many of `nodes` nodes show these tokens, and surely of no earlier one.
///
/// The nodes of a grant may have different tokens until they are brought together, and its holder was told one of them. An earlier holder was
/// told a token that a majority had at the least, and each of these nodes gave the later one a larger one. So a token is no earlier
/// holder's if no majority is left without the nodes that show it or a smaller one. (Readers, and permits of different numbers, are in no
/// order; that two of them have one token takes clocks that agree to the microsecond.)
pub fn is_named_by(nodes: usize, shown: &[Token], token: Token) -> bool {
    let not_above = shown.iter().filter(|&&other| other <= token).count();
    shown.contains(&token) && not_above > nodes - majority(nodes)
}

/// The token of a grant of which nodes show these: what a `majority` of them has at the least; of fewer, the largest. `None`: no node
/// shows it.
pub fn token_of(majority: usize, shown: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut shown: Vec<u64> = shown.into_iter().collect();
    shown.sort_unstable_by(|one, other| other.cmp(one));
    shown.get(majority - 1).or(shown.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::token;

    #[test]
    fn table() {
        // (nodes, what they show, those of them that name the holder)
        let cases: [(usize, &[u64], &[u64]); 9] = [
            (1, &[7], &[7]),
            (3, &[7, 7], &[7]),
            // It was told 7 if two had that; the third one's is later.
            (3, &[7, 7, 9], &[7, 9]),
            // 7 may be what an earlier holder was told by the other two.
            (3, &[7, 9, 9], &[9]),
            (3, &[7, 9], &[9]),
            (5, &[7, 7, 9], &[9]),
            (5, &[7, 7, 7, 9, 9], &[7, 9]),
            (5, &[5, 7, 9], &[9]),
            (5, &[5, 7, 9, 11], &[9, 11]),
        ];
        for (nodes, shown, named) in cases {
            let tokens: Vec<_> = shown.iter().map(|&value| token(value)).collect();
            for value in 4..=12 {
                let is_named = is_named_by(nodes, &tokens, token(value));
                assert_eq!(is_named, named.contains(&value), "{value} of {shown:?} on {nodes}");
            }
        }
    }

    #[test]
    fn one_grant_has_one_token() {
        let cases: [(usize, &[u64], Option<u64>); 6] = [
            (1, &[7], Some(7)),
            (3, &[7, 9, 7], Some(7)),
            (3, &[7, 9, 9], Some(9)),
            (5, &[5, 9, 7, 8, 6], Some(7)),
            (5, &[7, 9], Some(9)),
            (3, &[], None),
        ];
        for (nodes, shown, token) in cases {
            assert_eq!(token_of(majority(nodes), shown.iter().copied()), token, "{shown:?} on {nodes}");
        }
    }

    /// Over all ways in which two holders come after each other: what the first was told names the second nowhere.
    #[test]
    fn the_token_of_an_earlier_holder_names_nobody() {
        const NODES: usize = 3;
        // What each node gave the first and the second, in steps; the second's is larger where the first had one.
        for seed in 0..6_u64.pow(6) {
            let digit = |place: u32| seed / 6_u64.pow(place) % 6;
            let first: Vec<u64> = (0..3).map(digit).collect();
            let second: Vec<u64> = (3..6).map(digit).collect();
            if (0..NODES).any(|node| first[node] > 0 && second[node] <= first[node]) {
                continue;
            }
            // It was told what a majority had at the least.
            let mut sorted = first.clone();
            sorted.sort_unstable();
            let told = sorted[NODES - majority(NODES)];
            let shown: Vec<_> = second.iter().filter(|&&value| value > 0).map(|&value| token(value)).collect();
            if told > 0 && shown.len() >= majority(NODES) {
                assert!(!is_named_by(NODES, &shown, token(told)), "{told} of {first:?}, then {second:?}");
            }
        }
    }
}
