//! A client that uses no locks, and measures delays of the server.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{Server, SetAtTheEnd};

/// Runs `until` while a client that uses no locks sends requests all the time. Prints how long that client had to wait.
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
    // This is a report, not a limit: the machine may be busy with other tests.
    latencies.sort();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    println!("a bystander's PING meanwhile: p50 {:?}, p99 {:?}, max {:?}", at(0.5), at(0.99), latencies.last());
}
