//! A client that has nothing to do with locks, and notices delays of the server.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{Server, SetAtTheEnd};

/// Runs `until` while a client that has nothing to do with locks sends requests all the time; prints how long it was
/// kept waiting.
pub fn beside_a_bystander(server: &Server, until: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let mut latencies = std::thread::scope(|scope| {
        let mut bystander = server.client();
        let watch = scope.spawn({
            let done = &done;
            move || {
                let mut latencies: Vec<Duration> = vec![];
                while !done.load(Relaxed) {
                    let start = Instant::now();
                    bystander.say("PING");
                    latencies.push(start.elapsed());
                }
                latencies
            }
        });
        let at_the_end = SetAtTheEnd(&done);
        until();
        drop(at_the_end);
        watch.join().unwrap()
    });
    // A report, not a limit: the machine may be busy with other tests.
    latencies.sort();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    println!("a bystander's PING meanwhile: p50 {:?}, p99 {:?}, max {:?}", at(0.5), at(0.99), latencies.last());
}
