//! Work that is due at the same time: none keeps the other waiting for long.

use super::super::fixture::Key;
use super::super::{Finding, Question, Reply, Request, Work};
use crate::fixture::*;
use crate::keepalive::{ClientId, KeepAlive};
use crate::lock::Lock;
use crate::refusal::Refusal;
use crate::request::{Acquire, Note};
use crate::rules::acquire::{Acquired, acquire};
use crate::values::limits::ENDED_A_STEP_MAX;
use crate::values::mode::Wanted;
use crate::values::time::BootTime;

/// Puts the lock `name` there, whose lease of `lease_ms` the node keeps alive.
fn add_kept(key: &mut Key, name: &[u8], mut lock: Lock, lease_ms: u64) {
    let at_key = key_of(name);
    key.node.on_lock_arrived(at_key, &mut lock, at(0).boot);
    let keep = KeepAlive::new(ClientId(1), Some(600_000), ttl(lease_ms)).unwrap();
    key.node.keepalives.keep(at_key, owner("me"), at(0).boot, ttl(lease_ms), keep, at(0).boot);
    key.others.insert(name.to_vec(), lock);
}

fn lock_for(lease_ms: u64) -> Lock {
    exclusive(owner("me"), Note::default(), token(7), at(0).boot, ttl(lease_ms))
}

/// A BREAK of many grants goes on while a lease has to be renewed, and another lease ends.
#[test]
fn a_long_break_does_not_keep_renewals_and_ends_of_leases_waiting() {
    let mut key = Key::new();
    key.wanted = Wanted::Shared;
    key.acquire("0", 60_000, 0).unwrap();
    let shared = key.lock.as_ref().unwrap().first().token();
    key.fence = Some(shared);
    for n in 1..40 * ENDED_A_STEP_MAX {
        key.acquire(&n.to_string(), 60_000, 0).unwrap();
    }
    add_kept(&mut key, b"kept", lock_for(1_000), 1_000);
    let mut brief = lock_for(350);
    key.node.on_lock_arrived(key_of(b"brief"), &mut brief, at(0).boot);
    key.others.insert(b"brief".to_vec(), brief);
    assert_eq!(key.perform(&Request::Break(Some(shared))), Ok(Reply::Later));
    key.now = 400;
    let mut done = vec![];
    while let Some(work) = key.node.take_due(at(key.now).boot, true) {
        key.perform_for(work.key().name, &work.request()).unwrap();
        done.push(match work {
            Work::Look(..) => "look",
            Work::Renew(_) => "renew",
            Work::Break(_) => "break",
            Work::Expire(_) => "expire",
        });
    }
    for work in ["renew", "expire"] {
        assert!(done[..4].contains(&work), "{work}: {done:?}");
    }
    assert!(done.iter().filter(|work| **work == "break").count() > 30 && key.lock.is_none(), "{done:?}");
}

/// Renewals that are refused, because the locks came by RESTORE, are tried again soon. There are thousands of them, so one
/// is always due.
#[test]
fn refused_renewals_do_not_keep_ends_of_leases_waiting() {
    /// The time that a piece of work takes, in microseconds.
    const WORK_US: u64 = 4;
    const LEASE_MS: u64 = 60_000;
    let mut key = Key::new();
    for n in 0..10_000 {
        let mut suspect = lock_for(LEASE_MS);
        suspect.mark_suspect();
        add_kept(&mut key, format!("kept{n}").as_bytes(), suspect, LEASE_MS);
    }
    key.now = LEASE_MS / 3 + 1;
    key.acquire("dead", 1_000, 0).unwrap();
    let waiter = key.acquire("waits", 1_000, 50_000).unwrap().unwrap();
    let end_us = (key.now + 1_000) * 1_000;
    let mut now_us = key.now * 1_000;
    let is_served = |key: &mut Key| key.node.waiting.take_answers(usize::MAX).iter().any(|(id, _)| id.0 == waiter);
    while !is_served(&mut key) {
        key.now = now_us / 1_000;
        if let Some(work) = key.node.take_due(at(key.now).boot, true) {
            let _ = key.perform_for(work.key().name, &work.request());
        }
        now_us += WORK_US;
        assert!(now_us < end_us + 200_000, "the waiter is not served");
    }
}

/// Many leases of one lock end, while one grant stays. The lease of another lock ends a little later.
#[test]
fn many_ends_of_one_lock_do_not_keep_another_waiting() {
    let mut key = Key::new();
    key.acquire("x", 103, 0).unwrap();
    let waiter = key.acquire("y", 1_000, 50_000).unwrap().unwrap();
    let (name, mut big) = (key_of(b"big"), None);
    for n in 0..100 * ENDED_A_STEP_MAX {
        let (reader, lease_ms) = (n.to_string(), if n == 0 { 60_000 } else { 100 });
        let ask = Acquire { wanted: Wanted::Shared, ttl: ttl(lease_ms), ..asks(&reader) };
        if let Acquired::Granted(lock) = acquire(name, big.as_mut(), &ask, &mut key.node, at(0)).unwrap() {
            big = Some(*lock);
        }
    }
    key.node.schedule_expiry(name, big.as_mut());
    key.others.insert(b"big".to_vec(), big.unwrap());
    key.now = 110;
    for _ in 0..4 {
        let work = key.node.take_due(at(key.now).boot, true).unwrap();
        key.perform_for(work.key().name, &work.request()).unwrap();
    }
    assert!(key.node.waiting.take_answers(usize::MAX).iter().any(|(id, _)| id.0 == waiter), "it is served");
    while let Some(work) = key.node.take_due(at(key.now).boot, true) {
        key.perform_for(work.key().name, &work.request()).unwrap();
    }
    assert_eq!(key.others[&b"big"[..]].len(), 1);
}

/// A renewal is refused for a moment. Then very many leases of others end. The lease has 600 ms left.
#[test]
fn a_refused_renewal_is_repeated_while_many_leases_end() {
    /// The time that a piece of work takes, in microseconds.
    const WORK_US: u64 = 25;
    let mut key = Key::new();
    add_kept(&mut key, b"kept", lock_for(1_000), 1_000);
    for n in 0..40_000 {
        let (name, mut brief) = (format!("ends{n}"), lock_for(340));
        key.node.on_lock_arrived(key_of(name.as_bytes()), &mut brief, at(0).boot);
        key.others.insert(name.into_bytes(), brief);
    }
    key.says = |question| matches!(question, Question::MayRenew(_)).then_some(Finding::Refused(Refusal::NotYet));
    let mut now_us = 334_000;
    while key.node.counters.renewals == 0 {
        assert!(!key.node.keepalives.is_empty(), "it is lost at {now_us} us");
        key.now = now_us / 1_000;
        if let Some(work) = key.node.take_due(BootTime::from_us(now_us), true) {
            let _ = key.perform_for(work.key().name, &work.request());
            if matches!(work, Work::Renew(_)) {
                key.says = |_| None;
            }
        }
        now_us += WORK_US;
    }
}
