//! The load of waiting requests on a node (places and bytes), and how large a share of it each user and each listener
//! may have.
//!
//! Places (`lock.max-waiters`) and bytes (`lock.max-waiting-bytes`) are shared by a dynamic threshold: nobody may have
//! more than a multiple of what is free. (Choudhury and Hahne: "Dynamic Queue Length Thresholds for Shared-Memory
//! Packet Switches", IEEE/ACM Transactions on Networking 6, 1998.) A wait can last a day and is never revoked, so the
//! multiple is small. A connection's first request may use room that is refused to its later ones.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::keepalive::ClientId;
use crate::refusal::Refusal;
use crate::values::limits::{
    ENTRY_BYTES, FIRST_SHARE_OF_A_USER, MAX_WAITERS_DEFAULT, MAX_WAITING_BYTES_DEFAULT, SHARE_OF_A_LISTENER,
    SHARE_OF_A_USER,
};

/// The id of a server's user, made from the name. Two users whose names have the same hash share one share of the
/// queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserId(u64);

impl UserId {
    /// Creates the id of the user with this name.
    pub fn of(name: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The sender of a request that may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// The id of the user who sends the request.
    pub user: UserId,
    /// The listener that receives the answer. Without one the request blocks its connection, which then has no other
    /// request.
    pub listener: Option<ClientId>,
}

/// A number of places in queues and of bytes of memory: what some entries take, or the most that entries may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The number of places, which is the number of requests.
    pub places: u64,
    /// The number of bytes that the requests take.
    pub bytes: u64,
}

impl Load {
    /// The places and bytes of no entries.
    pub(crate) const NONE: Load = Load { places: 0, bytes: 0 };

    /// The bounds on the places and bytes of waiting requests, for a node whose operator set none.
    pub(crate) const DEFAULT_MAX: Load = Load { places: MAX_WAITERS_DEFAULT as u64, bytes: MAX_WAITING_BYTES_DEFAULT };

    /// Returns the places and bytes that an entry in a table takes: the bytes of the entry and of `texts`, and one
    /// place. A further entry of a request that already has a place takes no place.
    pub(crate) fn of_entry(takes_place: bool, texts: &[&[u8]]) -> Self {
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        Self { places: takes_place.into(), bytes: ENTRY_BYTES + bytes as u64 }
    }

    /// Returns the load of the arguments that the server stores for a client while it is blocked on the lock `name`.
    pub(crate) fn of_blocked(name: &[u8]) -> Self {
        Self { places: 0, bytes: name.len() as u64 }
    }

    /// Returns the sum of the places and of the bytes of both.
    pub(crate) fn plus(self, other: Load) -> Self {
        Self { places: self.places + other.places, bytes: self.bytes + other.bytes }
    }

    /// Returns what is left without `other`, which is a part of this load.
    pub(crate) fn minus(self, other: Load) -> Self {
        debug_assert!(self.places >= other.places && self.bytes >= other.bytes, "what leaves was counted");
        Self { places: self.places.saturating_sub(other.places), bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

/// The places and bytes that one table's entries take, in total and by user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loads {
    all: Load,
    users: HashMap<UserId, Load>,
}

impl Loads {
    /// Returns the places and bytes that all entries of the table take.
    pub(crate) fn all(&self) -> Load {
        self.all
    }

    /// Returns the places and bytes that the entries of `user` take.
    pub(crate) fn of(&self, user: UserId) -> Load {
        self.users.get(&user).copied().unwrap_or(Load::NONE)
    }

    /// Adds `load`, the places and bytes of an entry of `user`.
    pub(crate) fn add(&mut self, user: UserId, load: Load) {
        self.all = self.all.plus(load);
        let own = self.users.entry(user).or_insert(Load::NONE);
        *own = own.plus(load);
    }

    /// Subtracts `load`, the places and bytes of an entry of `user` that has left.
    pub(crate) fn remove(&mut self, user: UserId, load: Load) {
        self.all = self.all.minus(load);
        let left = self.of(user).minus(load);
        if left == Load::NONE {
            self.users.remove(&user);
        } else {
            self.users.insert(user, left);
        }
    }
}

/// The places and bytes that are in use before a new request arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// The places and bytes that all waiting requests take.
    pub(crate) all: Load,
    /// The places and bytes that all requests of the sender's user take.
    pub(crate) user: Load,
    /// The places and bytes that the sender's listener takes; zero for a connection that blocks.
    pub(crate) listener: Load,
}

/// Refuses a request that needs the places and bytes `new` if there is no room for them in `max`, or if the sender
/// already uses its share of the room.
pub(crate) fn ensure_share(taken: Taken, new: Load, max: Load) -> Result<(), Refusal> {
    let all = taken.all.plus(new);
    if all.places > max.places {
        return Err(Refusal::QueueFull { max: max.places });
    }
    if all.bytes > max.bytes {
        return Err(Refusal::BytesFull { max: max.bytes });
    }
    // The request's own place counts as free here. Otherwise rounding would leave a place unused where there are few.
    let free = Load { places: max.places - taken.all.places, bytes: max.bytes - all.bytes };
    let fits = |own: Load, times: u64| {
        let own = own.plus(new);
        if new.places > 0 && own.places > free.places.saturating_mul(times) {
            return Err(Refusal::ShareTaken { parameter: "lock.max-waiters" });
        }
        if own.bytes > free.bytes.saturating_mul(times) {
            return Err(Refusal::ShareTaken { parameter: "lock.max-waiting-bytes" });
        }
        Ok(())
    };
    // A request with more bytes than a place's part of all bytes counts like several, so it is not a first one.
    let is_first = taken.listener.places == 0 && new.bytes <= max.bytes / max.places.max(1);
    if is_first {
        return fits(taken.user, FIRST_SHARE_OF_A_USER);
    }
    fits(taken.user, SHARE_OF_A_USER)?;
    fits(taken.listener, SHARE_OF_A_LISTENER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Load = Load { places: 65_536, bytes: 256 << 20 };
    const SMALL: Load = Load { places: 1, bytes: 1_100 };

    /// The places and bytes of requests that found room, in all and for each user.
    struct Crowd {
        all: Load,
        users: Vec<Load>,
    }

    impl Crowd {
        fn new(users: usize) -> Self {
            Self { all: Load::NONE, users: vec![Load::NONE; users] }
        }

        /// Sends one more request by `user`, through a listener whose requests take `own`.
        fn sends(&mut self, user: usize, own: &mut Load, new: Load) -> Result<(), Refusal> {
            let taken = Taken { all: self.all, user: self.users[user], listener: *own };
            ensure_share(taken, new, MAX)?;
            self.all = self.all.plus(new);
            self.users[user] = self.users[user].plus(new);
            *own = own.plus(new);
            Ok(())
        }

        /// Sends requests of a new listener of `user`, each of which takes `new`, until one is refused. Returns how
        /// many were accepted.
        fn fills(&mut self, user: usize, new: Load) -> u64 {
            let mut own = Load::NONE;
            while self.sends(user, &mut own, new).is_ok() {}
            own.places
        }

        fn free(&self) -> u64 {
            MAX.places - self.all.places
        }
    }

    /// One listener can take half of the places, and its user three quarters. An eighth stays free even if every other
    /// connection of that user sends one request.
    #[test]
    fn nobody_takes_what_others_need() {
        let mut crowd = Crowd::new(3);
        assert_eq!(crowd.fills(0, SMALL), 32_768);
        assert_eq!(crowd.fills(0, SMALL), 16_384);
        assert_eq!(crowd.fills(0, SMALL), 1, "the first of a connection, where its user has three quarters");
        let connections = (0..).take_while(|_| crowd.sends(0, &mut { Load::NONE }, SMALL).is_ok()).count();
        assert_eq!((connections, crowd.free()), (8_191, 8_192));
        // A second user gets its share of what is left, and so does a third.
        assert_eq!(crowd.fills(1, SMALL), 4_096);
        assert_eq!(crowd.fills(2, SMALL), 2_048);
    }

    /// A user sends requests with keys of a megabyte. There is still room for small requests, and for other users.
    #[test]
    fn nobody_takes_the_bytes_that_others_need() {
        let large = Load { places: 1, bytes: 2 << 20 };
        let mut crowd = Crowd::new(2);
        assert_eq!(crowd.fills(0, large), 64);
        while crowd.fills(0, large) > 0 {}
        assert!(crowd.users[0].bytes <= MAX.bytes / 4 * 3, "{:?}", crowd.users);
        assert_eq!(crowd.sends(0, &mut { Load::NONE }, SMALL), Ok(()));
        assert!(crowd.fills(1, SMALL) > 10_000);
        let taken = Taken { all: Load::NONE, user: Load::NONE, listener: Load::NONE };
        let whole = Load { places: 1, bytes: MAX.bytes };
        assert_eq!(ensure_share(taken, whole, MAX), Err(Refusal::ShareTaken { parameter: "lock.max-waiting-bytes" }));
        let more = Load { places: 1, bytes: MAX.bytes + 1 };
        assert_eq!(ensure_share(taken, more, MAX), Err(Refusal::BytesFull { max: MAX.bytes }));
    }

    /// A node has few places. Connections with one request each can use all of them.
    #[test]
    fn few_places_are_whole_ones() {
        for places in 0..7 {
            let max = Load { places, ..MAX };
            for n in 0..places {
                let all = Load { places: n, bytes: 0 };
                let taken = Taken { all, user: all, listener: Load::NONE };
                assert_eq!(ensure_share(taken, SMALL, max), Ok(()), "{n} of {places}");
            }
            let all = Load { places, bytes: 0 };
            let taken = Taken { all, user: all, listener: Load::NONE };
            assert_eq!(ensure_share(taken, SMALL, max), Err(Refusal::QueueFull { max: places }));
        }
    }

    #[test]
    fn what_goes_is_forgotten() {
        let mut loads = Loads::default();
        let [ann, bob] = [b"ann", b"bob"].map(|name| UserId::of(name));
        loads.add(ann, SMALL);
        loads.add(bob, SMALL);
        loads.add(bob, Load::of_entry(false, &[b"key", b"me"]));
        assert_eq!((loads.of(ann), loads.of(bob).places, loads.all().places), (SMALL, 1, 2));
        assert_eq!(loads.of(bob).bytes, SMALL.bytes + ENTRY_BYTES + 5);
        loads.remove(ann, SMALL);
        loads.remove(bob, Load::of_entry(false, &[b"key", b"me"]));
        loads.remove(bob, SMALL);
        assert_eq!((loads.all(), loads.users.len()), (Load::NONE, 0));
    }
}
