//! LOCK.ACQUIRE: grants a lock that is free, or joint in a compatible mode.

use crate::lock::grant::GrantId;
use crate::lock::modes::Modes;
use crate::lock::{Lock, live};
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::Acquire;
use crate::rules::grant::{Given, grant};
use crate::values::key::Key;
use crate::values::time::Now;

/// The outcome of an ACQUIRE.
#[derive(Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lock was free and is granted. The driver has to store this lock in the key.
    Granted(Box<Lock>),
    /// This grant joined the holders of a joint lock.
    Joined(GrantId),
    /// A repetition: the owner has the lock already by this grant, whose lease now lasts longer.
    Prolonged(GrantId),
    /// A repetition: the owner has the lock already, and its lease already lasts as long as the request asks for.
    /// Nothing changed.
    Unchanged(GrantId),
    /// Another owner holds the lock, or comes before this one. The request does not wait.
    Contended,
    /// Another owner has the lock. The request takes a place in the queue.
    Queues,
    /// Only the state file is in the way: it has to be written before the grant. The request takes a place in the queue
    /// for at most [`DISK_WAIT_MS`](crate::limits::DISK_WAIT_MS). It is answered as soon as the node knows who has the
    /// lock.
    WaitsForDisk,
}

/// Decides whether a refused ACQUIRE waits. The request takes a place in the queue if its WAIT is longer than the time
/// after which the refusal passes, such as the rest of a guard. If it was refused only because the state file must be
/// written first, it takes a place without WAIT too, for a short time.
///
/// A request with a proposed token is from a client of several nodes. It does not wait for the disk: the client repeats
/// it by itself, and its other requests over the same connection must not be delayed.
pub fn acquire_later(key: Key<'_>, ask: &Acquire<'_>, refusal: Refusal, node: &Node) -> Result<Acquired, Refusal> {
    let room = || node.waiting.room_for(key, ask.owner);
    match refusal.or_queue(ask.patience.ms(), room, Acquired::Queues) {
        Err(Refusal::NotYet) if ask.fence.is_none() && room().is_ok() => Ok(Acquired::WaitsForDisk),
        outcome => outcome,
    }
}

/// Acquires the lock of `key` for the requesting owner, if no waiter comes before it and the lock is free at `now`, or
/// held jointly in a compatible mode. `held` is the key's content. While the node is guarded it grants nothing, because
/// an owner that it has forgotten may hold what is free here. If the request may wait for longer than the reason for
/// its refusal lasts, [`acquire_later`] queues it.
///
/// Refuses with [`Refusal::Owned`] an owner that holds the lock already, since a second acquisition must not pass for a
/// re-entry. With RETRY the answer is the existing grant, whose lease then lasts at least as long from `now` on as the
/// request asks for. So the owner can count on the full ttl from its request on. A request for another mode counts as a
/// second acquisition.
// Inlined with the functions that it calls, so that no lock is copied on its way (`make instructions`).
#[inline(always)]
pub fn acquire(
    key: Key<'_>,
    held: Option<&mut Lock>,
    ask: &Acquire<'_>,
    node: &mut Node,
    now: Now,
) -> Result<Acquired, Refusal> {
    let in_memory = held.as_ref().map_or(0, |lock| lock.len() as u64);
    let mut holders = None;
    if let Some(lock) = live(held, now.boot) {
        let own = lock.find(ask.owner).filter(|&own| !lock.grant(own).is_expired(now.boot));
        if let Some(own) = own.filter(|&own| ask.retry && ask.wanted.is(lock.mode(own))) {
            node.ensure_trusted(lock.grant(own), now.boot)?;
            node.slots.ensure_vouched(key.name, now.boot)?;
            node.keepalives.end_of_another(key, lock.grant(own));
            let is_longer = lock.prolong(own, now.boot, ask.ttl);
            return Ok(if is_longer { Acquired::Prolonged(own) } else { Acquired::Unchanged(own) });
        }
        node.ensure_may_grant(key, ask.owner, matches!(lock, Lock::Joint(_)), now.boot)?;
        match lock {
            _ if own.is_some() => return Err(Refusal::Owned),
            Lock::Exclusive(_) => return contended(key, ask, node),
            Lock::Joint(joint) => holders = Some(joint),
        }
    } else {
        node.ensure_may_grant(key, ask.owner, true, now.boot)?;
    }
    let held = holders.as_ref().map_or(Modes::free(), |holders| holders.modes());
    let Some(mode) = node.waiting.claim(key, ask.owner, ask.wanted, held, now.boot) else {
        return contended(key, ask, node);
    };
    let is_free = holders.is_none();
    let given = grant(key, holders.map(|holders| &mut **holders), ask, mode, node, now)?;
    // A lock whose lease was over, but which the timer had not deleted yet, ends here.
    node.counters.expiries += if is_free { in_memory } else { 0 };
    Ok(match given {
        Given::Anew(lock) => Acquired::Granted(lock),
        Given::Joined(id) => Acquired::Joined(id),
    })
}

/// Handles a request for a lock that another owner has: it waits, if it asks for that and there is room, and otherwise
/// fails.
fn contended(key: Key<'_>, ask: &Acquire<'_>, node: &mut Node) -> Result<Acquired, Refusal> {
    if ask.patience.ms() > 0 {
        return node.waiting.room_for(key, ask.owner).map(|()| Acquired::Queues);
    }
    node.count_contended(key, 1);
    node.history.count_refusal(key);
    Ok(Acquired::Contended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::guard::evicted::Evictee;
    use crate::request::{Note, Patience};
    use crate::rules::break_lock::break_lock;
    use crate::rules::release::release;
    use crate::values::cause::Cause;
    use crate::values::mode::Wanted;

    fn ask(name: &str, retry: bool) -> Acquire<'_> {
        Acquire { ttl: ttl(500), retry, ..asks(name) }
    }

    #[test]
    fn each_request_has_its_outcome() {
        let node = &mut node();
        // (the key's content, owner, RETRY, at ms, outcome: Ok(true) granted, Ok(false) contended)
        let cases: [(Option<Lock>, &str, bool, u64, Result<Acquired, Refusal>); 9] = [
            (Some(mine(1)), "you", false, 0, Ok(Acquired::Contended)),
            (Some(mine(1)), "you", true, 1_000, Ok(Acquired::Contended)),
            (Some(mine(3)), "me", false, 1_000, Err(Refusal::Owned)),
            (Some(mine(3)), "me", true, 500, Ok(Acquired::Unchanged(GrantId::default()))),
            (Some(suspect()), "you", false, 0, Ok(Acquired::Contended)),
            (Some(suspect()), "me", false, 0, Err(Refusal::Owned)),
            (Some(suspect()), "me", true, 999, Err(Refusal::Suspect { left_ms: 1 })),
            (Some(mine(1)), "m", false, 0, Ok(Acquired::Contended)),
            (Some(mine(1)), "me2", false, 0, Ok(Acquired::Contended)),
        ];
        for (held, name, retry, ms, expected) in cases {
            let mut held = held;
            let before = held.clone();
            assert_eq!(acquire(KEY, held.as_mut(), &ask(name, retry), node, at(ms)), expected);
            assert_eq!(held, before, "a refusal changes nothing");
        }
        assert_eq!((node.counters.grants, node.counters.contended), (0, 5));
    }

    /// An owner counts on the ttl from when it sent its request. So a repetition lasts as long as it asks for, and
    /// never shortens the lease.
    #[test]
    fn a_repetition_lasts_as_long_as_it_asks_for_and_never_shortens_the_lease() {
        let node = &mut node();
        // (at ms, outcome, deadline after in ms), for a lease that ends at 1 000 ms and a request for 500 ms
        let cases = [
            (0, Acquired::Unchanged(GrantId::default()), 1_000),
            (500, Acquired::Unchanged(GrantId::default()), 1_000),
            (501, Acquired::Prolonged(GrantId::default()), 1_001),
            (1_000, Acquired::Prolonged(GrantId::default()), 1_500),
        ];
        for (ms, expected, deadline_ms) in cases {
            let mut lock = mine(3);
            assert_eq!(acquire(KEY, Some(&mut lock), &ask("me", true), node, at(ms)), Ok(expected));
            assert_eq!(
                (lock.first().deadline(), lock.first().holds(), lock.first().granted),
                (at(deadline_ms).boot, 3, at(0).boot)
            );
        }
        assert_eq!((node.counters.grants, node.counters.extensions), (0, 0));
    }

    #[test]
    fn free_whether_absent_or_expired_and_for_the_full_ttl_from_the_grant() {
        let node = &mut node();
        for (held, name) in [(None, "you"), (Some(mine(4)), "you"), (Some(mine(4)), "me"), (Some(suspect()), "me")] {
            let mut held = held;
            let now = at(1_001);
            let Ok(Acquired::Granted(lock)) = acquire(KEY, held.as_mut(), &ask(name, true), node, now) else {
                panic!("{held:?} is free for {name}")
            };
            assert_eq!(
                (lock.first().owner(), lock.first().holds(), lock.first().is_from_outside()),
                (name.as_bytes(), 1, false)
            );
            assert_eq!((lock.first().deadline(), lock.first().granted), (now.boot.plus_ms(500), now.boot));
        }
        assert_eq!((node.counters.grants, node.counters.expiries), (4, 3));
    }

    #[test]
    fn every_grant_has_a_larger_token() {
        let node = &mut node();
        let mut last = 0;
        for ms in [5_000, 5_000, 4_000, 0, 6_000] {
            let Ok(Acquired::Granted(lock)) = acquire(KEY, None, &ask("me", false), node, at(ms)) else { panic!() };
            assert!(lock.first().token().get() > last);
            last = lock.first().token().get();
        }
    }

    #[test]
    fn without_tokens_nothing_is_granted() {
        let node = &mut Node::new(u64::MAX);
        assert_eq!(acquire(KEY, None, &ask("me", false), node, at(0)), Err(Refusal::TokensExhausted));
        assert_eq!(node.counters.grants, 0);
    }

    #[test]
    fn while_guarded_only_a_repetition_of_what_the_node_vouches_for() {
        let mut node = node();
        node.guard.arm(Cause::Operator, at(10).boot, at(500).boot);
        let guarded = Err(Refusal::Guarded { left_ms: 480, cause: Cause::Operator });
        let mut since = exclusive(owner("me"), Note::default(), token(9), at(15).boot, ttl(1_000));
        for (held, name, retry) in [
            (None, "me", true),
            (Some(mine(1)), "you", false),
            (Some(mine(1)), "me", false),
            (Some(mine(1)), "me", true),
        ] {
            let mut held = held;
            assert_eq!(acquire(KEY, held.as_mut(), &ask(name, retry), &mut node, at(20)), guarded);
        }
        let repeated = acquire(KEY, Some(&mut since), &ask("me", true), &mut node, at(20));
        assert_eq!(repeated, Ok(Acquired::Unchanged(GrantId::default())));
        assert!(acquire(KEY, None, &ask("me", false), &mut node, at(501)).is_ok());
    }

    #[test]
    fn locks_of_a_life_that_is_not_remembered_are_suspect() {
        let mut node = node();
        node.trusted_since = at(100).boot;
        let repeated = acquire(KEY, Some(&mut mine(1)), &ask("me", true), &mut node, at(200));
        assert_eq!(repeated, Err(Refusal::Suspect { left_ms: 800 }));
        assert_eq!(acquire(KEY, Some(&mut mine(1)), &ask("you", true), &mut node, at(200)), Ok(Acquired::Contended));
    }

    #[test]
    fn an_evicted_lock_bars_its_key_from_others() {
        let mut node = node();
        node.evicted.note(KEY, Evictee::of(&mine(1)), at(0).boot);
        let refusal = Err(Refusal::Evicted { left_ms: 900 });
        assert_eq!(acquire(KEY, None, &ask("you", false), &mut node, at(100)), refusal);
        assert!(matches!(
            acquire(Key { db: 1, ..KEY }, None, &ask("you", false), &mut node, at(100)),
            Ok(Acquired::Granted(_))
        ));
        assert!(matches!(acquire(KEY, None, &ask("me", false), &mut node, at(100)), Ok(Acquired::Granted(_))));
    }

    /// A lock is evicted, and its holder acquires it again for a shorter time, which passes. The holder may still rely
    /// on the evicted grant, so others are kept out until the later end.
    #[test]
    fn an_evicted_lock_bars_its_key_after_its_holder_took_it_for_a_shorter_time() {
        let mut node = node();
        node.evicted.note(KEY, Evictee::of(&mine(1)), at(0).boot);
        for wanted in [Wanted::Exclusive, Wanted::Shared] {
            let short = Acquire { ttl: ttl(100), wanted, ..ask("me", false) };
            let Ok(Acquired::Granted(mut lock)) = acquire(KEY, None, &short, &mut node, at(100)) else {
                panic!("its own lock does not bar it")
            };
            let you = Acquire { wanted: Wanted::Shared, ..ask("you", false) };
            let barred = |left_ms| Err(Refusal::Evicted { left_ms });
            assert_eq!(acquire(KEY, Some(&mut lock), &you, &mut node, at(250)), barred(750), "it is over");
            let beside = if wanted == Wanted::Shared { barred(850) } else { Ok(Acquired::Contended) };
            assert_eq!(acquire(KEY, Some(&mut lock), &you, &mut node, at(150)), beside);
            let mut after = node.clone();
            release(KEY, Some(&mut lock), &releases("me"), &mut after, at(150));
            assert!(matches!(acquire(KEY, None, &you, &mut after, at(150)), Ok(Acquired::Granted(_))), "released");
            let mut after = node.clone();
            break_lock(KEY, Some(&mut lock), None, &mut after, at(150));
            assert!(matches!(acquire(KEY, None, &you, &mut after, at(150)), Ok(Acquired::Granted(_))), "broken");
        }
    }

    /// A request that proposes a token comes from a client of several nodes. It is refused at once while the disk is
    /// not ready, because the client's other requests over the connection must not wait.
    #[test]
    fn a_request_that_proposes_a_token_does_not_wait_for_the_disk() {
        let node = node();
        let mut ask = asks("a");
        let later = |ask: &Acquire<'_>, refusal| acquire_later(KEY, ask, refusal, &node);
        assert_eq!(later(&ask, Refusal::NotYet), Ok(Acquired::WaitsForDisk));
        let guarded = Refusal::Guarded { left_ms: 1, cause: Cause::Restart };
        assert_eq!(later(&ask, guarded), Err(guarded));
        ask.fence = Some(token(9));
        assert_eq!(later(&ask, Refusal::NotYet), Err(Refusal::NotYet));
        ask.patience = Patience::new(Some(11)).unwrap();
        assert_eq!(later(&ask, Refusal::NotYet), Ok(Acquired::Queues));
    }

    /// An operator who lifts the guard vouches that nobody holds a lock of this node: then an evicted lock is free too.
    #[test]
    fn an_evicted_lock_bars_its_key_no_longer_after_a_lift() {
        let mut node = node();
        node.evicted.note(KEY, Evictee::of(&mine(1)), at(0).boot);
        node.guard_by_operator(None, at(100).boot);
        let you = acquire(KEY, None, &ask("you", false), &mut node, at(150));
        assert!(matches!(you, Ok(Acquired::Granted(_))), "{you:?}");
    }

    /// After LOCK.FLOOR RAISE (and ACCEPT of a new set of nodes) the node issues only larger tokens, also to readers and
    /// permits that join a lock which is held since before.
    #[test]
    fn who_joins_a_lock_gets_a_token_above_a_floor_that_was_raised_since() {
        for wanted in [Wanted::Shared, Wanted::Permit { limit: 3, number: None }] {
            let node = &mut node();
            let asks_for = |name, proposal| Acquire { wanted, fence: Some(token(proposal)), ..ask(name, false) };
            let Ok(Acquired::Granted(mut lock)) = acquire(KEY, None, &asks_for("a", 50), node, at(0)) else { panic!() };
            assert_eq!(lock.first().token(), token(50));
            assert_eq!(node.raise_floor(500), (10, 500));
            let Ok(Acquired::Joined(id)) = acquire(KEY, Some(&mut lock), &asks_for("b", 60), node, at(1)) else {
                panic!()
            };
            let issued = lock.grant(id).token();
            assert!(issued > token(500), "{wanted:?}: issued {issued:?} though the floor is 500");
        }
    }
}
