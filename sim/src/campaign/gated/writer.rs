//! Tasks of a client process that write to resources which check their tokens. A [`Writer`] never checks whether it
//! still has the lock: it sleeps past its leases, and the nemesis stops its process. A [`Latecomer`] writes all the
//! time with tokens of earlier locks, so that late writes come at every moment, also right after each fault.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palisade_client::Options;
use redis::Cmd;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::store::Store;
use crate::campaign::journal::{Line, now_us};
use crate::campaign::process::{Shared, Task};
use crate::campaign::resource::{Answer, Entry, Resource};

/// The number of writers in a client process.
const WRITERS: u64 = 2;

/// The shortest and the longest lease, in milliseconds.
const TTL_MS: [u64; 2] = [200, 600];

/// The time for which a writer waits for the lock.
const WAIT: Duration = Duration::from_secs(2);

/// The most writes under one lock.
const WRITES_MAX: u32 = 4;

/// The number of earlier locks of a resource whose tokens a client process keeps.
const EARLIER_MAX: usize = 16;

/// The shortest and the longest pause of a latecomer, in milliseconds.
const LATE_MS: [u64; 2] = [20, 200];

/// The latest locks of a resource that the writers are done with, in this order.
type Earlier = Arc<Mutex<VecDeque<Pass>>>;

/// A write with the token of a lock that may have ended.
#[derive(Clone)]
struct Pass {
    /// The entry to write.
    next: Entry,
    /// The LOCK.GATE command with the write, without the text of the entry.
    behind: Cmd,
}

/// Starts all writers and latecomers of a process.
pub async fn spawn(shared: &Arc<Shared>, tasks: &mut JoinSet<()>) {
    let resources: Vec<(Resource, Earlier)> =
        shared.settings.resources.iter().map(|resource| (resource.clone(), Earlier::default())).collect();
    for writer in 0..WRITERS {
        tasks.spawn(Writer { task: Task::new(shared, 800 + writer).await, places: places(&resources) }.run());
    }
    for (number, place) in (900..).zip(places(&resources)) {
        tasks.spawn(Latecomer { task: Task::new(shared, number).await, place }.run());
    }
}

/// A resource, the connection of a task to it, and its earlier locks.
struct Place {
    resource: Resource,
    store: Store,
    earlier: Earlier,
}

fn places(resources: &[(Resource, Earlier)]) -> Vec<Place> {
    let place = |(resource, earlier): &(Resource, Earlier)| Place {
        resource: resource.clone(),
        store: Store::new(&resource.place),
        earlier: Arc::clone(earlier),
    };
    resources.iter().map(place).collect()
}

impl Place {
    /// Writes the entry of `pass`, and records the answer.
    async fn write(&mut self, task: &Task, pass: Pass, pause: Duration) -> Answer {
        let sent = now_us();
        let answer = self.store.write(&self.resource, pass.behind, pass.next, pause).await;
        let (at, resource) = (now_us(), self.resource.number);
        task.write(Line::Gated { sent, at, resource, entry: pass.next, answer });
        answer
    }
}

struct Writer {
    task: Task,
    places: Vec<Place>,
}

impl Writer {
    /// Takes one lock after the other, and writes under each.
    async fn run(mut self) {
        while !self.task.is_to_finish() && !self.places.is_empty() {
            self.hold_one().await;
            sleep(self.task.ms(0, 60)).await;
        }
    }

    async fn hold_one(&mut self) {
        let place = self.task.below(self.places.len());
        let place = &mut self.places[place];
        let ttl = self.task.ms(TTL_MS[0], TTL_MS[1]);
        let options = Options::new().ttl(ttl).auto_extend(self.task.once_in(3)).node_timeout(ttl / 5).wait(WAIT);
        let lock = place.resource.lock();
        let Ok(guard) = self.task.shared.client.with(&options.note("chaos")).lock(lock).await else {
            return sleep(self.task.ms(20, 200)).await;
        };
        let who = self.task.set_out();
        let (gate, list) = (place.resource.gate(), place.resource.list());
        let pass = |number| {
            let behind = guard.gate(&gate).cmd("RPUSH").arg(&list).take();
            Pass { next: Entry { token: guard.token(), who, number }, behind }
        };
        for number in 0..self.task.below(WRITES_MAX as usize) as u32 + 1 {
            let pause = if self.task.once_in(4) { self.task.ms(0, 2 * TTL_MS[1]) } else { Duration::ZERO };
            let answer = place.write(&self.task, pass(number), pause).await;
            if answer == Answer::Fenced && guard.is_valid() {
                let what = format!("{who} was refused by resource {}, and has its lock", place.resource.number);
                self.task.write(Line::Wrong { at: now_us(), what });
            }
            if self.task.once_in(2) {
                sleep(self.task.ms(0, 2 * TTL_MS[1])).await;
            }
        }
        let pass = pass(WRITES_MAX);
        if !self.task.once_in(4) {
            guard.release().await;
        }
        let mut earlier = place.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        earlier.push_back(pass);
        if earlier.len() > EARLIER_MAX {
            earlier.pop_front();
        }
    }
}

struct Latecomer {
    task: Task,
    place: Place,
}

impl Latecomer {
    async fn run(mut self) {
        while !self.task.is_to_finish() {
            sleep(self.task.ms(LATE_MS[0], LATE_MS[1])).await;
            if let Some(pass) = self.draw() {
                self.place.write(&self.task, pass, Duration::ZERO).await;
            }
        }
    }

    /// Draws one of the earlier locks except the last, whose token may still be the newest of all.
    fn draw(&mut self) -> Option<Pass> {
        let mut earlier = self.place.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        let older = earlier.len().checked_sub(1).filter(|&older| older > 0)?;
        let pass = &mut earlier[self.task.below(older)];
        let drawn = pass.clone();
        pass.next.number += 1;
        Some(drawn)
    }
}
