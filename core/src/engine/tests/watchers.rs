//! Tests of watchers when something other than a request changes the lock.

use super::super::fixture::Key;
use super::super::{Key as At, Reply, Request};
use crate::fixture::*;
use crate::queue::of_key::WaiterId;
use crate::refusal::Refusal;
use crate::request::{Acquire, Known};
use crate::values::mode::Wanted;

/// Returns the state of the lock as a client would know it now.
fn known(key: &Key) -> Known {
    key.lock.as_ref().map_or(Known::Free, |lock| Known::Grant(lock.first().token(), None))
}

/// Checks that `happens` answers a watcher of the present state at the next check.
fn hears_of(key: &mut Key, happens: impl FnOnce(&mut Key)) {
    let id = key.watch(known(key), 1_000).unwrap().unwrap();
    key.settle();
    assert!(key.told.is_empty(), "nothing has happened");
    happens(key);
    assert!(key.node.watching().next_due().is_some_and(|due| due <= at(key.now).boot), "it is looked at");
    key.settle();
    assert_eq!(std::mem::take(&mut key.told), [id]);
    assert!(key.node.watching().is_empty());
}

#[test]
fn what_the_server_does_to_keys_is_told() {
    let mut key = Key::held();
    hears_of(&mut key, Key::del);
    // A lock comes to the key, which was free, by RENAME.
    key.perform_for(b"other", &Request::Acquire(asks("b"))).unwrap();
    hears_of(&mut key, |key| key.rename(b"other"));
    hears_of(&mut key, |key| {
        let mut lock = key.lock.take().unwrap();
        key.node.cancel_expiry(KEY, &mut lock);
        key.node.flush(None);
    });
    key.acquire("a", 1_000, 0).unwrap();
    hears_of(&mut key, |key| {
        let mut lock = key.lock.take().unwrap();
        key.node.cancel_expiry(KEY, &mut lock);
        key.node.swap(0, 1);
    });
}

/// A lease ends on a replica, which deletes no lock by itself; its master may never order it to. A watcher there is
/// answered nevertheless.
#[test]
fn the_end_of_a_lease_is_told_where_nobody_deletes_the_lock() {
    let mut key = Key::held();
    let id = key.watch(known(&key), 5_000).unwrap().unwrap();
    key.now = 1_000;
    assert_eq!(key.node.take_watch_due(at(1_000).boot), None);
    key.now = 1_001;
    let (db, name) = key.node.take_watch_due(at(1_001).boot).unwrap();
    let told = key.node.take_outdated(At { db, name: &name }, key.lock.as_ref(), 10, at(1_001).boot);
    assert_eq!(told, [WaiterId(id)]);
}

#[test]
fn crowds_are_told_bit_by_bit_and_are_bounded() {
    let mut key = Key::held();
    key.node.max_load.places = 5;
    let ids: Vec<_> = (0..5).map(|_| key.watch(known(&key), 5_000).unwrap().unwrap()).collect();
    assert_eq!(key.watch(known(&key), 5_000), Err(Refusal::QueueFull { max: 5 }));
    key.del();
    key.now = 1;
    let mut told = vec![];
    for left in [3, 1, 0] {
        let (db, name) = key.node.take_watch_due(at(1).boot).unwrap();
        told.extend(key.node.take_outdated(At { db, name: &name }, None, 2, at(1).boot).iter().map(|id| id.0));
        assert_eq!(key.node.watching().len(), left);
    }
    assert_eq!((told, key.node.take_watch_due(at(1).boot)), (ids, None));
    assert_eq!(key.node.watching().next_due(), None);
}

/// Regression: each command on a lock compared all states that its watchers knew, so a pipeline of commands stalled the
/// server. With many states the watchers are answered by one check after them.
#[test]
fn many_known_states_are_checked_once_for_many_commands() {
    for (readers, answered_at_once) in [(64, 1), (65, 0)] {
        let mut key = Key::new();
        let names: Vec<_> = (0..readers).map(|n| format!("r{n}")).collect();
        let mut first = None;
        for name in &names {
            let read = Request::Acquire(Acquire { wanted: Wanted::Shared, ..asks(name) });
            let Ok(Reply::Granted(token, _)) = key.perform(&read) else { panic!() };
            let id = key.watch(Known::Grant(token, None), 60_000).unwrap().unwrap();
            first.get_or_insert(id);
        }
        key.settle();
        assert!(key.told.is_empty());
        key.release("r0");
        assert_eq!(key.told.len(), answered_at_once);
        key.settle();
        assert_eq!(key.told, [first.unwrap()]);
    }
}
