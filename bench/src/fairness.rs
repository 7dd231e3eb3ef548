//! The fairness with which turns are distributed.

/// Returns Jain's index of `turns`, as a share of the highest index possible for that number of turns.
pub fn fairness(turns: &[u64]) -> f64 {
    let (count, sum) = (turns.len() as u64, turns.iter().sum::<u64>());
    let squares: u64 = turns.iter().map(|turns| turns * turns).sum();
    // If turns are distributed as evenly as possible, some clients have one more than others.
    let (each, more) = (sum / count, sum % count);
    let least = more * (each + 1).pow(2) + (count - more) * each.pow(2);
    // Both indices have the same (Σx)² / n. Without turns, nobody was preferred.
    least.max(1) as f64 / squares.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::fairness;

    #[test]
    fn turns_shared_out_as_evenly_as_can_be_are_fair() {
        for turns in [&[5, 5, 5, 5][..], &[2, 3, 2, 3], &[0, 1, 0, 0], &[0, 0, 0, 0]] {
            assert_eq!(fairness(turns), 1.0, "{turns:?}");
        }
    }

    #[test]
    fn one_client_with_all_turns_is_as_unfair_as_can_be() {
        assert_eq!(fairness(&[20, 0, 0, 0]), 0.25);
        assert_eq!(fairness(&[3, 1]), 0.8);
    }
}
