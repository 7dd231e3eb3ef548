//! The beginning of a node: its start with the content of its disk, and the promotion of a replica.

use palisade_core::record::{self, Arrival, Here};
use palisade_core::{
    Beginning, BootTime, Found as Ties, GuardPolicy, Node, Now, SavedMembership, Settings, Start, Tokens, token_floor,
};

use super::Server;
use super::keys::{STRIPES, STRIPES_APART, key_of, name};
use super::setup::{Found, Setup};
use super::watch::Watch;
use crate::rules::{Rule, Without};

impl Server {
    /// Starts the server at `now` with the content of its disk. `id` becomes its id if there is no state file. The node
    /// promises nothing until the state that it [hands out](Server::take_write) is [on disk](Server::written).
    pub fn start(setup: Setup, without: Without, id: u128, mut found: Found, now: Now) -> Self {
        if let Some(last) = found.state.as_ref().filter(|_| without.is(Rule::TiedData)) {
            found.ties =
                Ties { file: last.file, used_by: Some(last.incarnation()), aof: last.aof.into_iter().collect() };
        }
        if let Some(last) = found.state.as_mut().filter(|_| without.is(Rule::VersionIsKept)) {
            last.members = SavedMembership::default();
        }
        let last = found.state.as_ref();
        let floor = token_floor(last, &found.ties, now.wall_us, setup.skew_ms);
        let floor = if without.is(Rule::Ceiling) { now.wall_us } else { floor };
        let beginning = Beginning {
            last,
            found: &found.ties,
            has_file: true,
            new_id: id,
            boot: found.boot,
            max_ttl_ms: setup.max_ttl_ms,
            skew_ms: setup.skew_ms,
            is_master: true,
        };
        let mut node = Node::begin(&beginning, Tokens::with_stripes(floor, STRIPES, STRIPES_APART), now.boot);
        let keeps_for_ever = without.is(Rule::ReservationEnds);
        let handoff_window_ms = if keeps_for_ever { u32::MAX / 2 } else { setup.window_ms };
        node.configure(Settings { handoff_window_ms, max_clock_skew_ms: setup.skew_ms, ..Settings::default() });
        let mut server = Self {
            setup,
            without,
            boot: found.boot,
            aof_life: found.aof_always && (found.from_aof || found.locks.is_empty()),
            node,
            locks: std::collections::BTreeMap::new(),
            told: std::collections::BTreeMap::new(),
            to_write: None,
            sent_away: vec![],
            joined: std::collections::BTreeMap::new(),
            was_armed: false,
            watch: Watch::default(),
        };
        for (key, bytes) in &found.locks {
            server.load(*key, bytes, now);
        }
        let loaded = server.digest(|deadline| Start::is_counted(last, found.boot, deadline));
        let judged = Start { last, found: &found.ties, loaded, from_aof: found.from_aof, boot: found.boot };
        server.node.judge(&judged, server.policy(), now.boot);
        server.shorten_guard(now.boot);
        // The disk records which incarnation uses the data before the node grants anything.
        server.node.on_stamped();
        server.save_first(now);
        server
    }

    /// Returns the configured policy of the guard, or one without a guard if the rule `Guard` is switched off.
    pub(super) fn policy(&self) -> GuardPolicy {
        if self.without.is(Rule::Guard) { GuardPolicy::Never } else { GuardPolicy::Auto }
    }

    /// Shortens the guard, if `GuardLength` is switched off.
    pub(super) fn shorten_guard(&mut self, now: BootTime) {
        if let Some(armed) = self.node.guard().armed(now).filter(|_| self.without.is(Rule::GuardLength)) {
            let ms = u32::try_from(self.node.guard().left_ms(now) / 3).unwrap_or(u32::MAX);
            self.node.tamper().guard.lift();
            self.node.tamper().guard.arm(armed.cause, now, now.plus_ms(ms));
        }
    }

    fn load(&mut self, key: u32, bytes: &[u8], now: Now) {
        if let Ok(mut lock) = record::decode(bytes, Here { arrival: Arrival::Storage, now: now.boot, boot: self.boot })
        {
            self.node.on_lock_arrived(key_of(&name(key)), &mut lock, now.boot);
            self.told.insert(key, lock.clone());
            self.locks.insert(key, lock);
        }
    }

    /// Promotes this replica to a master. Its former master issued tokens up to `ceiling` and leases of up to
    /// `outstanding_ttl_ms`. The replica's copies of the locks stay.
    pub fn promote(&mut self, ceiling: u64, outstanding_ttl_ms: u32, now: Now) {
        self.aof_life = false;
        let ceiling = if self.without.is(Rule::Ceiling) { 0 } else { ceiling };
        self.node.on_master_values(ceiling, outstanding_ttl_ms, &[]);
        self.node.become_master(self.policy(), now);
        self.shorten_guard(now.boot);
        self.save_first(now);
    }
}
