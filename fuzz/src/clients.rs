//! Clients that the node does not answer at once, because they wait or watch. Also the connections for which it keeps
//! leases alive.

use std::collections::BTreeMap;

use palisade_core::engine::Finding;
use palisade_core::limits::{KEEPALIVE_MAX_MS, KEEPALIVE_TTL_MIN_MS, NOTE_BYTES_MAX};
use palisade_core::request::{Known, Ttl};
use palisade_core::{BootTime, ClientId, KeepAlive, Refusal, WaiterId, Wanted};

use crate::oracle::{Done, Place};

/// A request's position in the queue: its ticket; the number of arrival of the owner's first request, whose place it
/// shares; and the number of its own arrival.
pub type Stands = (u64, u64, u64);

/// A waiting request, as the checker knows it.
pub struct Waits {
    pub place: Place,
    pub owner: Vec<u8>,
    pub wanted: Wanted,
    pub stands: Stands,
    /// The length of the lease that the request asks for, in milliseconds; `None` if it waits for a turn.
    pub ttl_ms: Option<u32>,
    pub since: BootTime,
    pub until: BootTime,
    /// True if the request waits only for a write to the disk, and not for other requests.
    pub at_once: bool,
    /// True if the request's owner has withdrawn it.
    pub taken_back: bool,
}

/// A client that watches a lock, as the checker knows it.
pub struct Watcher {
    pub place: Place,
    pub known: Known,
    pub until: BootTime,
}

/// The number of connections open at a time.
pub const CONNECTIONS: usize = 4;

/// The KEEPALIVE of a request: the connection for which the node should keep the lease alive, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub client: ClientId,
    pub ttl: Ttl,
    pub ms: u32,
    pub keep: KeepAlive,
}

/// A lease that the node has promised to keep alive for a connection.
#[derive(Clone, Copy, Debug)]
pub struct KeptLease {
    pub client: ClientId,
    pub ttl_ms: u32,
    pub granted: BootTime,
    pub until: BootTime,
    /// The time at which to retry a renewal that failed.
    pub again: BootTime,
    /// True if a client moved another lock to the key. The node does not promise to keep that lock's lease alive.
    pub is_moved: bool,
}

/// The connections, and the leases that are kept alive for them.
#[derive(Debug, Default)]
pub struct Keeping {
    /// For each index of an open connection (below [`CONNECTIONS`]), the number of connections that have ended there. A
    /// new connection takes the index of an ended one.
    pub ended: [u64; CONNECTIONS],
    pub kept: BTreeMap<(Place, Vec<u8>), KeptLease>,
    pub waiting: BTreeMap<WaiterId, Wish>,
    /// True if the server refused to let a lease be extended during the present request.
    pub refused: bool,
}

impl Keeping {
    /// Returns the connection that is open at the index `at`.
    pub fn open_at(&self, at: usize) -> ClientId {
        ClientId(self.ended[at] * CONNECTIONS as u64 + at as u64)
    }

    pub fn is_open(&self, client: ClientId) -> bool {
        self.open_at(client.0 as usize % CONNECTIONS) == client
    }

    /// Derives a KEEPALIVE, or none, from the quotient of the random number `note`; its remainder chooses the note.
    pub fn wish(&self, note: u16, ttl: Ttl) -> Done<Option<Wish>> {
        let Some(choice) = (usize::from(note) / (NOTE_BYTES_MAX + 2)).checked_sub(24) else { return Ok(None) };
        let (client, length) = (self.open_at(choice % CONNECTIONS), u64::from(ttl.ms()));
        let ms = match choice / CONNECTIONS {
            0 => None,
            1 => Some(length - 1),
            2 => Some(length),
            3 => Some(length + 1),
            4 => Some(length * 3),
            5 => Some(length * 50),
            6 => Some(120_000),
            7 => Some(3_600_000),
            8 => Some(KEEPALIVE_MAX_MS.into()),
            _ => Some(u64::from(KEEPALIVE_MAX_MS) + 1),
        };
        let keep = KeepAlive::new(client, ms, ttl);
        let bounds = length..=KEEPALIVE_MAX_MS.into();
        let is_possible = ttl.ms() >= KEEPALIVE_TTL_MIN_MS && ms.is_some_and(|ms| bounds.contains(&ms));
        assert_eq!(keep.is_ok(), is_possible, "{ms:?} of {ttl:?}");
        Ok(Some(Wish { client, ttl, ms: ms.unwrap_or_default() as u32, keep: keep? }))
    }

    /// Notes that the request waits as `id`, with this KEEPALIVE.
    pub fn waits(&mut self, id: WaiterId, wish: Option<Wish>) {
        if let Some(wish) = wish {
            self.waiting.insert(id, wish);
        }
    }

    /// Notes that the request no longer waits. Returns its KEEPALIVE, if it had one.
    pub fn stop_waiting(&mut self, id: WaiterId) -> Option<Wish> {
        self.waiting.remove(&id)
    }

    /// Notes that a grant of `owner` was released or replaced, so that its lease is no longer kept alive.
    pub fn ended(&mut self, place: Place, owner: &[u8]) {
        self.kept.remove(&(place, owner.to_vec()));
    }

    /// Notes that a client moved a lock to each place for which `is_there` returns true.
    pub fn moved(&mut self, is_there: impl Fn(Place) -> bool) {
        let there = self.kept.iter_mut().filter(|((place, _), _)| is_there(*place));
        there.for_each(|(_, kept)| kept.is_moved = true);
    }

    /// Answers, in the server's place, whether the lease of this client may be renewed. If the connection is open,
    /// `doubt` chooses between yes and two refusals.
    pub fn may_renew(&mut self, place: Place, client: ClientId, doubt: u8) -> Finding {
        let of_client = |(at, kept): (&(Place, _), &KeptLease)| at.0 == place && kept.client == client;
        assert!(self.kept.iter().any(of_client), "nothing is kept for {client:?} at {place:?}");
        self.refused = false;
        let refusal = match doubt {
            _ if !self.is_open(client) => return Finding::No,
            1 => Refusal::NotYet,
            3 => Refusal::Poisoned,
            _ => return Finding::Yes,
        };
        self.refused = true;
        Finding::Refused(refusal)
    }
}
