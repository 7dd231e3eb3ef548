//! Finds nodes that are two names for one server, which counts once.

use super::ask::NodeId;

/// Returns the first index before `node` at which the same server answered; then `node` does not count. `None` if there
/// is none, or if `node` did not answer.
pub fn first_as(ids: &[Option<NodeId>], node: usize) -> Option<usize> {
    let id = ids[node]?;
    ids[..node].iter().position(|other| *other == Some(id))
}

/// Returns the number of different servers that answered.
pub fn servers(ids: &[Option<NodeId>]) -> usize {
    (0..ids.len()).filter(|&node| ids[node].is_some() && first_as(ids, node).is_none()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_counts_once() {
        // (the server that answered at each index; for each index the earlier one with the same server; the number of
        // servers)
        let cases: [(&[Option<u128>], &[Option<usize>], usize); 5] = [
            (&[], &[], 0),
            (&[Some(1), Some(2), Some(3)], &[None, None, None], 3),
            (&[Some(1), Some(1), Some(3)], &[None, Some(0), None], 2),
            (&[None, Some(7), None, Some(7), Some(7)], &[None, None, None, Some(1), Some(1)], 1),
            (&[None, None], &[None, None], 0),
        ];
        for (ids, firsts, count) in cases {
            let ids: Vec<_> = ids.iter().map(|id| id.map(NodeId)).collect();
            let found: Vec<_> = (0..ids.len()).map(|node| first_as(&ids, node)).collect();
            assert_eq!((found.as_slice(), servers(&ids)), (firsts, count), "{ids:?}");
        }
    }
}
