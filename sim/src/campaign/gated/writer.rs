//! A task of a client process that writes to resources which check its token, and never looks whether it still has the
//! lock: it sleeps past its leases, and the nemesis stops its process.

use std::time::Duration;

use palisade_client::Options;
use tokio::time::sleep;

use super::store::Store;
use crate::campaign::journal::{Line, now_us};
use crate::campaign::process::Task;
use crate::campaign::resource::{Answer, Entry, Resource};

/// The number of such tasks in a client process.
pub const TASKS: u64 = 2;

/// The shortest and the longest lease, in milliseconds.
const TTL_MS: [u64; 2] = [200, 600];

/// The time for which a writer waits for the lock.
const WAIT: Duration = Duration::from_secs(2);

/// The most writes under one lock.
const WRITES_MAX: u64 = 4;

/// A writer.
pub struct Writer {
    task: Task,
    resources: Vec<(Resource, Store)>,
}

impl Writer {
    /// Returns a writer to all resources.
    pub fn new(task: Task) -> Self {
        let all = task.shared.settings.resources.iter();
        let resources = all.map(|resource| (resource.clone(), Store::new(&resource.place))).collect();
        Self { task, resources }
    }

    /// Takes one lock after the other, and writes.
    pub async fn run(mut self) {
        while !self.task.is_to_finish() && !self.resources.is_empty() {
            self.hold_one().await;
            sleep(self.task.ms(0, 60)).await;
        }
    }

    async fn hold_one(&mut self) {
        let place = self.task.below(self.resources.len());
        let (resource, store) = &mut self.resources[place];
        let ttl = self.task.ms(TTL_MS[0], TTL_MS[1]);
        let options = Options::new().ttl(ttl).auto_extend(self.task.once_in(3)).node_timeout(ttl / 5).wait(WAIT);
        let Ok(guard) = self.task.shared.client.with(&options.note("chaos")).lock(resource.lock()).await else {
            return sleep(self.task.ms(20, 200)).await;
        };
        let who = self.task.set_out();
        for number in 0..self.task.below(WRITES_MAX as usize) as u32 + 1 {
            let entry = Entry { token: guard.token(), who, number };
            let pause = if self.task.once_in(4) { self.task.ms(0, 2 * TTL_MS[1]) } else { Duration::ZERO };
            let sent = now_us();
            let answer = store.write(resource, &guard, entry, pause).await;
            let at = now_us();
            self.task.write(Line::Gated { sent, at, resource: resource.number, entry, answer });
            if answer == Answer::Fenced && guard.is_valid() {
                let what = format!("{who} was refused by resource {}, and has its lock", resource.number);
                self.task.write(Line::Wrong { at, what });
            }
            if self.task.once_in(2) {
                sleep(self.task.ms(0, 2 * TTL_MS[1])).await;
            }
        }
        if !self.task.once_in(4) {
            guard.release().await;
        }
    }
}
