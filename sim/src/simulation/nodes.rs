//! Nodes of a run: starts and ends of their processes, the content of their disks, and the knowledge of their replicas.

use palisade_core::BootId;
use palisade_core::quorum::NodeId;
use palisade_core::{AofFile, BootTime, Found as Ties, NodeState, Now, WaiterId};
use rand::RngExt;

use super::agenda::Next;
use super::machine::Machine;
use super::node::{Files, Followed};
use super::outcome::Failure;
use super::plan::{Keeps, Plan};
use super::world::World;
use crate::history::TimeUs;
use crate::messages::{Reply, Request};
use crate::server::{Found, Server, Setup};

/// The interval at which a master sends its ceiling of tokens to its replicas, in microseconds.
const TELL_REPLICAS_US: u64 = 2_000_000;

/// The number of consecutive checks in which a request may wait for a free lock. Each earlier waiter may get its turn
/// and not use it.
const UNSERVED_TICKS: u32 = 20;

/// The longest delay of a node's timer, in microseconds.
const TIMER_LATE_US: u64 = 10_000;

/// The time of a write to the disk, in microseconds.
const DISK_US: u64 = 3_000;

impl World<'_> {
    /// Starts a server with the content of its disk.
    pub(super) fn start(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let now = node.machine.now(self.at);
        let first = node.lives == 0;
        let aof_always = node.keeps == Keeps::Everything;
        let Files { state, data, aof, stamp } = node.files.clone();
        let ties = Ties { file: state.as_ref().map(|(_, file)| *file), used_by: stamp, aof: aof.into_iter().collect() };
        let found = Found {
            state: state.map(|(state, _)| state),
            ties,
            locks: data.unwrap_or_default(),
            from_aof: aof_always && !first,
            aof_always,
            boot: boot_id(n, &node.machine),
        };
        node.lives += 1;
        // The replicas start over, and receive the ceiling.
        node.told = (0, 0, 0);
        node.replica.clear();
        node.machine.down = false;
        let mut server = Server::start(self.setup(), self.without, self.nodes[n].id, found, now);
        if self.plan.has_slots() {
            server.begin_in_cluster(&self.slots_of(n), now);
        }
        let node = &mut self.nodes[n];
        // The disk records which incarnation uses the data before the node grants anything.
        node.files.stamp = Some(server.incarnation());
        if aof_always && node.files.aof.is_none() {
            node.files.aof = Some(AofFile { id: node.new_file(), bytes: self.at });
        }
        node.server = Some(server);
        self.nodes[n].armed = None;
        self.plan_snapshot(n);
        self.connections_end(n);
        self.tell(|| format!("node {n} starts"));
        self.on_server(n, |_, _| ());
    }

    pub(super) fn setup(&self) -> Setup {
        let Plan { max_ttl_ms, skew_ms, .. } = *self.plan;
        Setup { max_ttl_ms, skew_ms, window_ms: 20 }
    }

    pub(super) fn plan_snapshot(&mut self, n: usize) {
        if let Keeps::Snapshots { every_us } = self.nodes[n].keeps {
            self.plan_at(self.at + every_us, Next::Snapshot(n));
        }
    }

    /// Kills a server's process.
    pub(super) fn kill(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let now = node.machine.now(self.at);
        let Some(server) = node.server.take() else { return };
        node.died = self.at;
        if node.keeps == Keeps::Everything {
            node.files.data = Some(server.told_records(now));
            node.files.aof = node.files.aof.map(|aof| AofFile { bytes: self.at, ..aof });
        }
        // The disk replaces a file atomically: after a crash, it has the old or the new one.
        if let Some(state) = node.writing.take()
            && self.rng.random()
        {
            self.nodes[n].write(state);
        }
        self.nodes[n].machine.down = true;
    }

    /// Shuts a server down in order.
    pub(super) fn shut_down(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let now = node.machine.now(self.at);
        if let Some(server) = &mut node.server
            && node.hangs_until <= self.at
        {
            let state = server.end_of_life(now);
            let records = if node.keeps == Keeps::Everything { server.told_records(now) } else { server.records(now) };
            if node.keeps != Keeps::Nothing {
                node.files.data = Some(records);
            }
            node.files.aof = node.files.aof.map(|aof| AofFile { bytes: self.at, ..aof });
            if let Some(state) = state {
                node.write(state);
            }
            (node.server, node.writing, node.machine.down, node.died) = (None, None, true, self.at);
        }
        self.kill(n);
    }

    /// Makes a copy of a node's files.
    pub(super) fn copy_files(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let now = node.machine.now(self.at);
        let mut copy = node.files.clone();
        if let Some(server) = node.server.as_ref().filter(|_| node.keeps == Keeps::Everything) {
            copy.data = Some(server.told_records(now));
            copy.aof = copy.aof.map(|aof| AofFile { bytes: self.at, ..aof });
        }
        node.copy = Some(copy);
    }

    /// Starts a node from the copy of its files. The files have the same content and other inodes.
    pub(super) fn restore_files(&mut self, n: usize) {
        self.kill(n);
        let node = &mut self.nodes[n];
        let Some(copy) = node.copy.take() else { return };
        let file = node.new_file();
        let aof = copy.aof.map(|aof| AofFile { id: node.new_file(), ..aof });
        node.files = Files { state: copy.state.map(|(state, _)| (state, file)), aof, ..copy };
        node.id = node.id.wrapping_add(1_000);
        self.start(n);
    }

    /// Shuts a node down, and starts it with another state file.
    pub(super) fn change_state_file(&mut self, n: usize) {
        self.shut_down(n);
        let node = &mut self.nodes[n];
        node.aside = node.files.state.take();
        node.id = node.id.wrapping_add(1_000);
        self.start(n);
    }

    /// Kills the node, and starts it with the first state file.
    pub(super) fn change_state_file_back(&mut self, n: usize) {
        self.kill(n);
        let node = &mut self.nodes[n];
        if let Some(state) = node.aside.take() {
            node.files.state = Some(state);
        }
        self.start(n);
    }

    /// Runs `body` on a server, sends its answers, hands the state to write to its disk, and sets its timer.
    pub(super) fn on_server<T>(&mut self, n: usize, body: impl FnOnce(&mut Server, Now) -> T) -> Option<T> {
        let node = &mut self.nodes[n];
        let now = node.machine.now(self.at);
        let server = node.server.as_mut()?;
        let value = body(server, now);
        let (id, told, due) = (server.id(), server.told(), server.next_due());
        if let Some(wrong) = server.wrong() {
            self.wrong.get_or_insert(Failure::Wrong { node: n, wrong });
        }
        if node.writing.is_none()
            && let Some((number, mut state)) = server.take_write()
        {
            // The AOF grows as long as the node runs.
            let aof = node.files.aof.filter(|_| server.is_aof_life());
            state.aof = aof.map(|aof| AofFile { bytes: self.at, ..aof });
            node.writing = Some(state.clone());
            let (life, done) = (node.lives, self.at.max(node.hangs_until));
            let takes = self.rng.random_range(0..DISK_US);
            self.plan_at(done + takes, Next::Written(n, life, number, Box::new(state)));
        }
        if let Some(due) = due {
            self.arm(n, due);
        }
        for (waiter, hears) in told {
            self.tell(|| format!("node {n} answers {hears} to {}", shown(waiter)));
            self.send_back(n, Reply::later(waiter, id, hears));
        }
        Some(value)
    }

    /// Writes a state that must be on disk before the server promises anything else.
    pub(super) fn write_at_once(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let now = node.machine.now(self.at);
        let Some(server) = node.server.as_mut().filter(|server| server.waits_for_disk()) else { return };
        let Some((number, mut state)) = server.state_now(now) else { return };
        let aof = node.files.aof.filter(|_| server.is_aof_life());
        state.aof = aof.map(|aof| AofFile { bytes: self.at, ..aof });
        server.written(number, state.ceiling);
        node.write(state);
        node.writing = None;
    }

    pub(super) fn arm(&mut self, n: usize, due: BootTime) {
        let late = self.rng.random_range(0..TIMER_LATE_US);
        let at = self.nodes[n].machine.when(due).max(self.at) + 1 + late;
        if self.nodes[n].armed.is_none_or(|armed| at < armed) {
            self.nodes[n].armed = Some(at);
            self.plan_at(at, Next::Timer(n));
        }
    }

    pub(super) fn written(&mut self, n: usize, life: u32, number: u64, state: NodeState) {
        let node = &mut self.nodes[n];
        if node.lives != life || node.server.as_ref().is_none_or(|server| server.has_saved(number)) {
            return;
        }
        if node.hangs_until > self.at {
            let at = node.hangs_until;
            return self.plan_at(at, Next::Written(n, life, number, Box::new(state)));
        }
        let ceiling = state.ceiling;
        node.write(state);
        node.writing = None;
        self.on_server(n, |server, _| server.written(number, ceiling));
    }

    /// Records what the node has sent to its replica by now: the locks, the ceiling, and the longest lease that may
    /// still run.
    pub(super) fn follow(&mut self, n: usize) {
        let (at, node) = (self.at, &mut self.nodes[n]);
        let now = node.machine.now(at);
        let Some(server) = &node.server else { return };
        if at >= node.told.0 + TELL_REPLICAS_US {
            let (ceiling, outstanding_ttl_ms) = server.replica_news(now);
            node.told = (at, ceiling, outstanding_ttl_ms);
        }
        let (_, ceiling, outstanding_ttl_ms) = node.told;
        node.replica.push((at, Followed { locks: server.told_records(now), ceiling, outstanding_ttl_ms }));
        node.replica.retain(|(when, _)| *when + 5_000_000 > at);
    }

    /// Promotes the replica in place of its dead master.
    pub(super) fn promote(&mut self, n: usize, behind: TimeUs) {
        let node = &mut self.nodes[n];
        let known = node.replica.iter().rev().find(|(when, _)| *when <= behind).or(node.replica.first());
        let Some((_, followed)) = known.cloned() else { return };
        node.id = node.id.wrapping_add(1_000);
        // The replica's disk has the locks, the ceiling and the longest lease that its master sent, under an id of its
        // own.
        let state = NodeState {
            ceiling: followed.ceiling,
            outstanding_ttl_ms: followed.outstanding_ttl_ms,
            ..NodeState::new(node.id, boot_id(n, &node.machine))
        };
        node.files = Files { data: Some(followed.locks), stamp: Some(state.incarnation()), ..Files::default() };
        node.write(state);
        self.start(n);
        self.on_server(n, |server, now| server.promote(followed.ceiling, followed.outstanding_ttl_ms, now));
        // After the promotion, the replica keeps its data as its master did.
        if self.nodes[n].keeps != Keeps::Everything {
            self.nodes[n].files.data = None;
        }
    }

    /// Checks that no request waits long on a node that could serve it.
    pub(super) fn answer_waiters(&mut self, n: usize) -> Result<(), Failure> {
        let node = &mut self.nodes[n];
        let now = node.machine.now(self.at);
        let idle = node.server.as_ref().is_some_and(|server| server.lets_wait_for_nothing(now));
        node.idle_ticks = if idle { node.idle_ticks + 1 } else { 0 };
        if node.idle_ticks > UNSERVED_TICKS {
            return Err(Failure::Unserved { node: n });
        }
        Ok(())
    }

    pub(super) fn deliver(&mut self, n: usize, request: Request) {
        let Request { who, key, number, .. } = request;
        let answer = self.on_server(n, |server, now| server.hear(&request, now));
        if let Some(None) = answer
            && request.is_answered()
        {
            let waits = shown(request.waiter());
            self.tell(|| format!("node {n} hears {asked} of {who} about key {key}: {waits}", asked = request.says));
        }
        if let Some(Some(says)) = answer {
            let id = self.nodes[n].server.as_ref().map_or(NodeId(0), Server::id);
            self.tell(|| {
                format!("node {n} hears {asked} of {who} about key {key}, answers {says}", asked = request.says)
            });
            self.send_back(n, Reply { who, number, id, says });
        }
    }
}

/// Describes a waiting request.
fn shown(WaiterId(id): WaiterId) -> String {
    format!("request {} of client {}", id & u64::from(u32::MAX), id >> 32)
}

fn boot_id(n: usize, machine: &Machine) -> BootId {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (n as u8, machine.boots());
    BootId(bytes)
}
