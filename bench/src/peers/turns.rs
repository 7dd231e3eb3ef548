//! The results of one way to wait for a lock, while clients took it in turns.

/// The least average number of turns for a figure of fairness. With fewer turns, the figure only shows which clients
/// were first by chance.
pub const TURNS_MIN: u64 = 2;

/// The results of one way of waiting in one turn of its measurement.
#[derive(Clone, Default)]
pub struct Turns {
    /// The times from a release to the next holder's answer, sorted.
    pub delays_ns: Vec<u64>,
    /// The number of times that each client had the lock.
    pub turns: Vec<u64>,
    pub requests: f64,
    /// The number of bytes, if it is counted.
    pub bytes: Option<f64>,
    /// The number of fsyncs, if data is kept.
    pub fsyncs: Option<f64>,
    /// The number of calls that failed and were made again.
    pub repeated: u64,
    /// The CPU time, in seconds, while the lock went round.
    pub cpu: Cpu,
    /// The use of CPU while all clients waited.
    pub waiting_cpu: Cpu,
}

/// The CPU time of the processes of a measurement, or the shares of one CPU that they use.
#[derive(Clone, Copy, Default)]
pub struct Cpu {
    pub servers: f64,
    pub clients: f64,
}

impl Turns {
    /// Merges the results of all rounds; the turns of each client stay those of the first round. `None` if there is no
    /// round.
    pub fn together(rounds: &[Turns]) -> Option<Turns> {
        let mut all = rounds.first()?.clone();
        for more in &rounds[1..] {
            all.delays_ns.extend(&more.delays_ns);
            all.requests += more.requests;
            all.bytes = all.bytes.zip(more.bytes).map(|(all, more)| all + more);
            all.repeated += more.repeated;
            all.cpu.servers += more.cpu.servers;
            all.cpu.clients += more.cpu.clients;
            all.fsyncs = all.fsyncs.zip(more.fsyncs).map(|(all, more)| all + more);
            all.waiting_cpu.servers += more.waiting_cpu.servers;
            all.waiting_cpu.clients += more.waiting_cpu.clients;
        }
        all.waiting_cpu.servers /= rounds.len() as f64;
        all.waiting_cpu.clients /= rounds.len() as f64;
        all.delays_ns.sort_unstable();
        Some(all)
    }

    /// Returns a quantile in microseconds.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let last = self.delays_ns.len().checked_sub(1)?;
        Some(self.delays_ns[(last as f64 * share).round() as usize] as f64 / 1_000.0)
    }

    pub fn a_hand_over(&self, sum: f64) -> f64 {
        sum / self.delays_ns.len() as f64
    }

    /// Returns Jain's index: the square of the sum, divided by the number times the sum of squares.
    pub fn fairness(&self) -> Option<f64> {
        let (sum, clients) = (self.turns.iter().sum::<u64>(), self.turns.len() as u64);
        let squares: u64 = self.turns.iter().map(|turns| turns * turns).sum();
        (sum >= TURNS_MIN * clients).then(|| (sum * sum) as f64 / (clients * squares) as f64)
    }
}

/// Counters of all nodes, to compare before and after a measurement.
#[derive(Clone, Copy, Default)]
pub struct Done {
    /// The number of requests of clients.
    pub requests: f64,
    /// The bytes to and from clients and between nodes, without the headers of gRPC; ZooKeeper does not count them.
    pub bytes: Option<f64>,
    /// The number of fsyncs of the log.
    pub fsyncs: f64,
}

impl Done {
    /// Returns what was added since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            bytes: self.bytes.zip(before.bytes).map(|(now, before)| now - before),
            fsyncs: self.fsyncs - before.fsyncs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equal_shares_and_little_for_one_winner() {
        let fairness = |turns: &[u64]| Turns { turns: turns.to_vec(), ..Turns::default() }.fairness();
        assert_eq!(fairness(&[5, 5, 5, 5]), Some(1.0));
        assert_eq!(fairness(&[20, 0, 0, 0]), Some(0.25));
        assert_eq!(fairness(&[4, 0, 0, 3]), None, "fewer than two turns each");
    }

    #[test]
    fn rounds_add_up() {
        let round = |delays_ns: &[u64], requests| Turns { delays_ns: delays_ns.to_vec(), requests, ..Turns::default() };
        let all = Turns::together(&[round(&[4_000, 1_000], 6.0), round(&[2_000], 3.0)]).unwrap();
        assert_eq!(all.quantile(0.5), Some(2.0), "in microseconds");
        assert_eq!(all.a_hand_over(all.requests), 3.0);
        assert!(Turns::together(&[]).is_none());
        assert_eq!(round(&[], 0.0).quantile(0.5), None);
    }
}
