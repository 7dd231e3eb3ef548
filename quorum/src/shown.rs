//! Finds the holder to whom a token belongs, from the tokens that nodes show.

use super::ask::majority;
use crate::values::token::Token;

/// Returns whether `token` certainly belongs to this holder, and not to an earlier one. Some of the `nodes` nodes show
/// the tokens `shown` for that holder.
///
/// The grants of one holder may have different tokens on different nodes, until all are raised to one of them. An
/// earlier holder had a token that a majority reached, and each of these nodes gave the later holder a larger one. So
/// `token` belongs to no earlier holder if the nodes that show neither it nor a smaller token are no majority.
/// (Readers, and permits of different numbers, are not ordered. Two of them can have the same token: two requests of one
/// process at the same time propose the same one if a node's tokens are ahead of the clock.)
pub fn is_named_by(nodes: usize, shown: &[Token], token: Token) -> bool {
    let not_above = shown.iter().filter(|&&other| other <= token).count();
    shown.contains(&token) && not_above > nodes - majority(nodes)
}

/// Returns the token of a grant for which nodes show these tokens. It is the largest that at least a `majority` of
/// nodes have reached. If fewer nodes show the grant, it is the largest shown; `None` if no node shows it.
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
    fn each_set_of_tokens_names_its_holder() {
        // (nodes, the tokens that they show, the tokens that identify the holder)
        let cases: [(usize, &[u64], &[u64]); 9] = [
            (1, &[7], &[7]),
            (3, &[7, 7], &[7]),
            // The holder has token 7 if two nodes had granted that; the third node's token came later.
            (3, &[7, 7, 9], &[7, 9]),
            // An earlier holder may have had token 7 on this node and on the two others before.
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

    /// Tries every way in which two holders can follow each other. The token of the first never counts as the second's.
    #[test]
    fn the_token_of_an_earlier_holder_names_nobody() {
        const NODES: usize = 3;
        // For each node, the tokens that the first and the second holder had there. If a node had both, the second's is
        // larger.
        for seed in 0..6_u64.pow(6) {
            let digit = |place: u32| seed / 6_u64.pow(place) % 6;
            let first: Vec<u64> = (0..3).map(digit).collect();
            let second: Vec<u64> = (3..6).map(digit).collect();
            if (0..NODES).any(|node| first[node] > 0 && second[node] <= first[node]) {
                continue;
            }
            // The first holder's token is the largest that a majority reached.
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
