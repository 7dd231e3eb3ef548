//! KEEPALIVE, from the check of a lease to its renewal.

use super::super::fixture::Key;
use super::super::{Finding, Question, Request, Step};
use crate::fixture::*;
use crate::keepalive::ClientId;
use crate::refusal::Refusal;

/// Returns a key whose lock "me" holds with a lease of one second, kept alive for 10 s for a connection.
fn kept() -> Key {
    let mut key = Key::new();
    key.acquire("me", 1_000, 0).unwrap();
    keep_alive(&mut key.node, 7, 10_000, 0);
    key
}

/// Returns the time at which the lock of "me" ends, or `until`. At each millisecond all due work is done, and the
/// server answers questions as `says` does.
fn held_until(key: &mut Key, says: fn(Question) -> Option<Finding>, until: u64) -> u64 {
    key.says = says;
    while key.now < until && key.holder().is_some() {
        key.now += 1;
        key.settle();
    }
    key.now
}

fn is_gone(question: Question) -> Option<Finding> {
    (question == Question::MayRenew(ClientId(7))).then_some(Finding::No)
}

fn is_refused(question: Question) -> Option<Finding> {
    matches!(question, Question::MayRenew(_)).then_some(Finding::Refused(Refusal::NotYet))
}

#[test]
fn as_long_as_the_connection_is_open_and_no_longer_than_was_asked() {
    let mut key = kept();
    assert_eq!(held_until(&mut key, |_| None, 20_000), 10_001);
    assert!(key.node.keepalives().is_empty());
}

#[test]
fn a_lease_ends_within_its_ttl_of_its_connection() {
    for end in [1, 333, 334, 335, 1_000, 5_000] {
        let mut key = kept();
        assert_eq!(held_until(&mut key, |_| None, end), end);
        let last = held_until(&mut key, is_gone, 20_000);
        assert!((end + 600..=end + 1_001).contains(&last), "{end} {last}");
        assert!(key.node.keepalives().is_empty());
    }
}

#[test]
fn what_is_refused_is_tried_again_until_the_lease_is_over() {
    let mut key = kept();
    assert_eq!(held_until(&mut key, is_refused, 900), 900, "refused for most of the lease");
    assert_eq!(held_until(&mut key, |_| None, 5_000), 5_000, "and then not any more");
    let last = held_until(&mut key, is_refused, 20_000);
    assert!(last <= 6_001, "{last}");
    key.now += 20;
    key.settle();
    assert!(key.node.keepalives().is_empty(), "nothing is asked for ever");
}

/// A renewal changes the key, and publishes no event. A check that finds nothing to renew changes nothing.
#[test]
fn what_a_renewal_does() {
    let mut key = kept();
    let own = key.lock.as_ref().unwrap().first_id();
    key.now = 400;
    key.settle();
    assert_eq!(key.steps[..2], [Step::Ask(Question::MayRenew(ClientId(7))), Step::Changed(None, own)]);
    assert_eq!(key.lock.as_ref().unwrap().end(), at(1_400).boot);
    key.now = 733;
    key.settle();
    assert_eq!(key.lock.as_ref().unwrap().end(), at(1_400).boot, "not before a third has gone");
    // Waiting requests keep their places.
    let waiter = key.acquire("you", 1_000, 60_000).unwrap().unwrap();
    let told = held_until(&mut key, |_| None, 3_000);
    assert_eq!((told, key.queue()), (3_000, vec![waiter]));
}

/// An owner's grant with KEEPALIVE is broken, and the owner gets a new grant before the old lease is checked. The old
/// KEEPALIVE does not renew the new lease.
#[test]
fn a_new_grant_has_nothing_of_what_its_owner_asked_for_an_earlier_one() {
    let mut key = kept();
    assert!(key.perform(&Request::Break(None)).is_ok());
    key.acquire("me", 1_000, 0).unwrap();
    assert!(key.node.keepalives().is_empty());
    keep_alive(&mut key.node, 8, 2_000, 0);
    assert_eq!(held_until(&mut key, |_| None, 20_000), 2_001, "and not for the 10 s of the earlier one");
}

#[test]
fn a_node_that_stood_still_for_longer_than_the_lease_does_not_bring_it_back() {
    let mut key = kept();
    let waiter = key.acquire("you", 1_000, 60_000).unwrap().unwrap();
    key.now = 1_001;
    assert_eq!(super::super::fixture::granted(&key.settle()), [waiter]);
    assert_eq!(key.holder(), Some(&b"you"[..]));
    assert!(key.node.keepalives().is_empty());
}

#[test]
fn a_node_that_follows_a_master_keeps_nothing_alive() {
    let mut key = kept();
    key.node.become_replica();
    assert!(key.node.keepalives().is_empty());
    assert!(key.perform(&Request::Look).is_ok());
    assert_eq!(held_until(&mut key, |_| None, 5_000), 1_001);
}
