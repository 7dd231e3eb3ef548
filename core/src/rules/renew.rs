//! KEEPALIVE: renews a lease while its holder's connection is open.

use crate::keepalive::Renewal;
use crate::lock::grant::GrantId;
use crate::lock::{Lock, live_of};
use crate::node::Node;
use crate::refusal::Refusal;
use crate::rules::on_grant::OnGrant;
use crate::values::time::Now;

/// Returns the lock and the grant whose lease `renewal` keeps alive. `None` if that lease is over, or if the lock was
/// released, broken, deleted or renamed.
pub(crate) fn live_grant<'a>(
    held: Option<&'a mut Lock>,
    renewal: &Renewal,
    now: Now,
) -> Option<(&'a mut Lock, GrantId)> {
    let own = live_of(held, renewal.owner(), None, now.boot);
    own.filter(|(lock, own)| renewal.is_of(lock.grant(*own)))
}

/// Extends the lease of `renewal`, whose connection is open, if a third of it has passed. This does what
/// [`crate::extend()`] does, but never beyond the end that KEEPALIVE named. Once the lease is over, the node stops
/// renewing it.
pub fn renew(held: Option<&mut Lock>, renewal: &Renewal, node: &mut Node, now: Now) -> Result<OnGrant<()>, Refusal> {
    let own = live_grant(held, renewal, now);
    let next = own.and_then(|(lock, own)| {
        let deadline = lock.grant(own).deadline();
        Some((lock, own, deadline, renewal.ttl(deadline, now.boot)?))
    });
    let next = next.filter(|_| node.keepalives.found(renewal));
    let Some((lock, own, deadline, ttl)) = next else {
        node.keepalives.end(renewal);
        return Ok(OnGrant::Unchanged(()));
    };
    let due = renewal.due(deadline);
    if due > now.boot {
        node.keepalives.schedule_check(renewal, due);
        return Ok(OnGrant::Unchanged(()));
    }
    node.ensure_trusted(lock.grant(own), now.boot)?;
    let is_longer = lock.prolong(own, now.boot, ttl);
    node.keepalives.schedule_check(renewal, renewal.due(lock.grant(own).deadline()));
    node.counters.renewals += 1;
    Ok(if is_longer { OnGrant::Changed(own, ()) } else { OnGrant::Unchanged(()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::history::ending::Ending;
    use crate::keepalive::{ClientId, KeepAlive};
    use crate::request::{Acquire, Extend, Note};
    use crate::rules::acquire::acquire;
    use crate::rules::extend::extend;
    use crate::rules::release::release;
    use crate::values::key::Key;
    use crate::values::limits::{KEEPALIVES_LEFT_BYTES_MAX, RENEWALS_A_SECOND_MAX};
    use crate::values::time::BootTime;

    /// Returns a node and the lock of [`mine`], a lease of one second granted at 0, which the node keeps alive for
    /// `ms`.
    fn kept(ms: u64) -> (Node, Lock) {
        let mut node = node();
        keep_alive(&mut node, 1, ms, 0);
        (node, mine(1))
    }

    fn take_any(node: &mut Node, ms: u64) -> Option<Renewal> {
        let now = at(ms).boot;
        node.keepalives.take_due(now).or_else(|| node.keepalives.take_again(now))
    }

    /// Lets time pass until `until`, and checks at each millisecond the leases that are due. Returns each outcome and
    /// its time.
    fn pass(
        node: &mut Node,
        mut held: Option<&mut Lock>,
        from: u64,
        until: u64,
    ) -> Vec<(u64, Result<OnGrant<()>, Refusal>)> {
        let mut done = vec![];
        for ms in from..=until {
            while let Some(renewal) = take_any(node, ms) {
                done.push((ms, renew(held.as_deref_mut(), &renewal, node, at(ms))));
            }
        }
        done
    }

    #[test]
    fn a_lease_is_prolonged_whenever_a_third_of_it_has_gone_and_ends_when_its_holder_said() {
        let (mut node, mut lock) = kept(2_000);
        let done = pass(&mut node, Some(&mut lock), 0, 3_000);
        let times: Vec<_> =
            done.iter().filter(|(_, done)| matches!(done, Ok(OnGrant::Changed(..)))).map(|(ms, _)| *ms).collect();
        assert_eq!(times, [334, 668, 1_002]);
        assert_eq!(lock.end(), at(2_000).boot, "no later than that");
        assert!(node.keepalives.is_empty());
        assert_eq!((node.counters.renewals, node.counters.extensions), (3, 0));
    }

    #[test]
    fn a_lease_that_its_holder_extends_is_left_alone_meanwhile() {
        let (mut node, mut lock) = kept(60_000);
        let ask = Extend { owner: owner("me"), ttl: ttl(10_000), token: None };
        extend(Some(&mut lock), &ask, &mut node, at(100)).unwrap();
        let done = pass(&mut node, Some(&mut lock), 100, 10_000);
        let times: Vec<_> =
            done.iter().filter(|(_, done)| matches!(done, Ok(OnGrant::Changed(..)))).map(|(ms, _)| *ms).collect();
        assert_eq!(times, [9_434, 9_768]);
    }

    /// A lease that is over is not renewed, nor is a later grant to the same owner.
    #[test]
    fn only_the_grant_that_its_holder_was_told_of_is_kept() {
        let later = exclusive(owner("me"), Default::default(), token(9), at(10).boot, ttl(1_000));
        let others = exclusive(owner("you"), Default::default(), token(9), at(10).boot, ttl(1_000));
        for held in [None, Some(later), Some(others)] {
            let (mut node, _) = kept(60_000);
            let mut after = held.clone();
            let done = pass(&mut node, after.as_mut(), 0, 1_000);
            assert_eq!((done, after), (vec![(334, Ok(OnGrant::Unchanged(())))], held));
            assert!(node.keepalives.is_empty());
        }
        let (mut node, mut lock) = kept(60_000);
        assert_eq!(pass(&mut node, Some(&mut lock), 1_001, 1_001), [(1_001, Ok(OnGrant::Unchanged(())))], "it is over");
        assert!(node.keepalives.is_empty());
    }

    #[test]
    fn a_release_ends_it_at_once() {
        let (mut node, mut lock) = kept(60_000);
        release(KEY, Some(&mut lock), &releases("me"), &mut node, at(5));
        assert!(node.keepalives.is_empty() && node.keepalives.next_due().is_none());
    }

    #[test]
    fn a_suspect_lease_is_not_prolonged() {
        let (mut node, mut lock) = kept(60_000);
        lock.mark_suspect();
        let done = pass(&mut node, Some(&mut lock), 0, 1_100);
        assert!(done.iter().all(|(_, done)| !matches!(done, Ok(OnGrant::Changed(..)))), "{done:?}");
        assert_eq!(lock.end(), at(1_000).boot);
        assert!(node.keepalives.is_empty(), "it ended");
    }

    /// An owner repeats its request over another connection. The lease is kept alive as long as that one is open.
    #[test]
    fn a_repeated_request_binds_the_lease_to_its_own_connection() {
        let (mut node, _) = kept(60_000);
        keep_alive(&mut node, 2, 1_000, 100);
        assert_eq!(node.keepalives.len(), 1);
        assert_eq!(
            node.keepalives.of(KEY).and_then(|lock| lock.left_ms(owner("me"), at(0).boot, at(100).boot)),
            Some(59_900),
            "the longer of both"
        );
        let renewal = node.keepalives.take_due(at(500).boot).unwrap();
        assert_eq!(renewal.client(), ClientId(2));
        assert!(node.keepalives.take_due(at(500).boot).is_none());
    }

    #[test]
    fn a_lease_keeps_its_bounds() {
        for (ms, lease, is_taken) in [
            (None, 1_000, false),
            (Some(999), 1_000, false),
            (Some(1_000), 1_000, true),
            (Some(2_592_000_000), 1_000, true),
            (Some(2_592_000_001), 1_000, false),
            (Some(1_000), 999, false),
        ] {
            let keep = KeepAlive::new(ClientId(1), ms, ttl(lease));
            assert_eq!(keep.is_ok(), is_taken, "{ms:?} {lease}");
        }
    }

    /// A connection can keep any number of leases alive, so the node bounds their renewals. At the maximum it refuses
    /// further leases; those that it keeps go on, and can move to another connection.
    #[test]
    fn a_node_takes_on_no_more_renewals_than_it_can_do() {
        let (mut node, most) = (node(), RENEWALS_A_SECOND_MAX / 3);
        let name = |n: u64| n.to_be_bytes();
        let keep = |ms| KeepAlive::new(ClientId(1), Some(60_000), ttl(ms)).unwrap();
        for n in 0..most {
            let key = Key { db: 0, name: &name(n) };
            assert_eq!(node.keepalives.ensure_room(key, owner("me"), ttl(1_000)), Ok(()));
            node.keepalives.keep(key, owner("me"), at(0).boot, ttl(1_000), keep(1_000), at(0).boot);
        }
        let (first, other) = (Key { db: 0, name: &name(0) }, Key { db: 0, name: &name(most) });
        let room = |node: &Node, key, ms| node.keepalives.ensure_room(key, owner("me"), ttl(ms));
        assert_eq!(room(&node, other, 1_000), Err(Refusal::KeepAliveFull));
        assert_eq!(room(&node, other, 30_000), Ok(()), "a longer lease costs less");
        assert_eq!(room(&node, first, 1_000), Ok(()));
        assert_eq!(room(&node, first, 30_000), Ok(()));
        node.keepalives.keep(first, owner("me"), at(0).boot, ttl(1_000), keep(1_000), at(1).boot);
        assert_eq!(room(&node, other, 1_000), Err(Refusal::KeepAliveFull), "bound anew it counts once");
        node.keepalives.keep(first, owner("me"), at(0).boot, ttl(30_000), keep(30_000), at(1).boot);
        node.keepalives.keep(other, owner("me"), at(0).boot, ttl(1_000), keep(1_000), at(1).boot);
        assert_eq!(room(&node, first, 1_000), Err(Refusal::KeepAliveFull), "it would be renewed more often");
        node.record_deleted(other, &mine(1), at(1).boot);
        node.keepalives.keep(first, owner("me"), at(0).boot, ttl(1_000), keep(1_000), at(1).boot);
        assert_eq!(room(&node, other, 1_000), Err(Refusal::KeepAliveFull), "its lock has left, so it counts as new");
        release(first, Some(&mut mine(1)), &releases("me"), &mut node, at(2));
        assert_eq!(room(&node, other, 1_000), Ok(()));
    }

    /// Regression: the node kept 500 leases with keys of a megabyte alive, which took a whole core, and half of them
    /// ended although their connection was open. A long name now counts as several renewals, so that fewer leases are
    /// accepted.
    #[test]
    fn a_renewal_of_a_long_name_counts_as_several() {
        let mut node = node();
        let name = |n: u8, len| [vec![b'k'; len], vec![n]].concat();
        let keep = KeepAlive::new(ClientId(1), Some(60_000), ttl(1_000)).unwrap();
        let mut taken = 0;
        for n in 0..=255 {
            let (name, me) = (name(n, 1 << 20), owner("me"));
            let key = Key { db: 0, name: &name };
            if node.keepalives.ensure_room(key, me, ttl(1_000)).is_err() {
                break;
            }
            node.keepalives.keep(key, me, at(0).boot, ttl(1_000), keep, at(0).boot);
            taken += 1;
        }
        assert_eq!(taken, 8, "of a megabyte, three times a second");
        let room = |node: &Node, len, ms| {
            node.keepalives.ensure_room(Key { db: 0, name: &name(255, len) }, owner("me"), ttl(ms))
        };
        assert_eq!((room(&node, 1 << 20, 1_000), room(&node, 60, 1_000)), (Err(Refusal::KeepAliveFull), Ok(())));
        assert_eq!(room(&node, 1 << 20, 60_000), Ok(()), "a longer lease costs less");
        let first = name(0, 1 << 20);
        release(Key { db: 0, name: &first }, Some(&mut mine(1)), &releases("me"), &mut node, at(2));
        assert_eq!(room(&node, 1 << 20, 1_000), Ok(()));
    }

    /// Regression: leases counted towards the node's maximum of renewals until their next renewal, although their locks
    /// had ended. They must not.
    #[test]
    fn a_lock_that_is_gone_takes_no_room_for_renewals() {
        let dear = KeepAlive::new(ClientId(1), Some(60_000), ttl(1_000)).unwrap();
        let lock = || exclusive(owner("me"), Note::default(), token(7), at(0).boot, ttl(1_000));
        let ends: [(&str, fn(&mut Node, Key<'_>, &Lock)); 3] = [
            ("deleted", |node, key, lock| node.record_deleted(key, lock, at(5).boot)),
            ("flushed", |node, _, _| drop(node.flush(Some(0)))),
            ("broken", |node, key, lock| node.record_lock_end(key, Some(lock), Ending::Broken, at(5).boot)),
        ];
        for (what, end) in ends {
            let mut node = node();
            let key = Key { db: 0, name: b"k" };
            for n in 0..RENEWALS_A_SECOND_MAX / 3 {
                let owner_name = format!("o{n}");
                node.keepalives.keep(key, owner(&owner_name), at(0).boot, ttl(1_000), dear, at(0).boot);
            }
            let other = Key { db: 1, name: b"other" };
            let room = |node: &Node| node.keepalives.ensure_room(other, owner("me"), ttl(1_000));
            assert_eq!(room(&node), Err(Refusal::KeepAliveFull));
            end(&mut node, key, &lock());
            assert_eq!(room(&node), Ok(()), "{what}");
        }
    }

    /// Regression: leases of a day whose locks were deleted kept the bytes of their keys for 8 hours. These bytes now
    /// have a bound.
    #[test]
    fn leases_of_locks_that_are_gone_take_a_bounded_number_of_bytes() {
        let mut node = node();
        let name = vec![b'k'; KEEPALIVES_LEFT_BYTES_MAX / 2];
        let key = |db| Key { db, name: &name };
        let keep = KeepAlive::new(ClientId(1), Some(3_600_000), ttl(60_000)).unwrap();
        let mut lock = exclusive(owner("me"), Note::default(), token(7), at(0).boot, ttl(60_000));
        for db in 0..3 {
            node.keepalives.keep(key(db), owner("me"), at(0).boot, ttl(60_000), keep, at(0).boot);
            node.record_deleted(key(db), &lock, at(1).boot);
            node.record_deleted(key(db), &lock, at(1).boot);
        }
        // The first two leases are checked now. The lock of one is gone; that of the other has returned.
        assert_eq!(node.keepalives.next_due(), Some(BootTime::default()));
        for (db, back) in [(0, None), (1, Some(&mut lock))] {
            let renewal = node.keepalives.take_due(at(2).boot).unwrap();
            assert_eq!(renewal.key().db, db);
            renew(back, &renewal, &mut node, at(2)).unwrap();
        }
        assert!(node.keepalives.take_due(at(2).boot).is_none());
        let dbs = |node: &Node| {
            let left_ms = |db| node.keepalives.of(key(db))?.left_ms(owner("me"), at(0).boot, at(2).boot);
            (0..3).filter(|db| left_ms(*db).is_some()).collect::<Vec<_>>()
        };
        assert_eq!((dbs(&node), node.keepalives.next_due()), (vec![1, 2], Some(at(20_000).boot)));
    }

    /// The answer to a first request arrives after the owner has released that grant and has another one. The lease of
    /// the later grant is still renewed.
    #[test]
    fn a_late_answer_does_not_take_the_place_of_a_later_grant() {
        let mut node = node();
        let keep = KeepAlive::new(ClientId(1), Some(60_000), ttl(1_000)).unwrap();
        for granted in [5, 0] {
            node.keepalives.keep(KEY, owner("me"), at(granted).boot, ttl(1_000), keep, at(6).boot);
        }
        assert!(node.keepalives.of(KEY).unwrap().left_ms(owner("me"), at(5).boot, at(6).boot).is_some());
    }

    /// Regression: the leases of a lock that was renamed away and back were checked before those that were due, and all
    /// others ended meanwhile.
    #[test]
    fn a_lease_that_is_due_is_renewed_before_those_of_locks_that_left_are_checked() {
        let mut node = node();
        let name = vec![b'k'; KEEPALIVES_LEFT_BYTES_MAX];
        let (left, lock) = (Key { db: 1, name: &name }, mine(1));
        let keep = |ms| KeepAlive::new(ClientId(1), Some(60_000), ttl(ms)).unwrap();
        node.keepalives.keep(KEY, owner("me"), at(0).boot, ttl(1_000), keep(1_000), at(0).boot);
        node.keepalives.keep(left, owner("me"), at(0).boot, ttl(60_000), keep(60_000), at(0).boot);
        node.record_deleted(left, &lock, at(0).boot);
        let dbs: Vec<_> =
            std::iter::from_fn(|| node.keepalives.take_due(at(400).boot)).map(|renewal| renewal.key().db).collect();
        assert_eq!(dbs, [0, 1]);
    }

    /// Regression: leases whose lock was renamed away did not count, and counted again once it was back. So a client
    /// had four times the node's maximum of renewals, and leases of others ended.
    #[test]
    fn a_lock_that_is_back_is_renewed_only_if_there_is_room() {
        let (mut node, mut lock) = kept(60_000);
        node.record_deleted(KEY, &lock, at(5).boot);
        let keep = KeepAlive::new(ClientId(1), Some(60_000), ttl(1_000)).unwrap();
        for n in 0..RENEWALS_A_SECOND_MAX / 3 {
            let name = n.to_be_bytes();
            node.keepalives.keep(Key { db: 1, name: &name }, owner("me"), at(0).boot, ttl(1_000), keep, at(300).boot);
        }
        let renewal = node.keepalives.take_due(at(350).boot).unwrap();
        assert!(matches!(renew(Some(&mut lock), &renewal, &mut node, at(350)), Ok(OnGrant::Unchanged(()))));
        assert_eq!((node.keepalives.of(KEY).is_none(), lock.end()), (true, at(1_000).boot));
    }

    /// A lock is renamed to another key and back, or deleted and loaded again. Its lease counts in the node's maximum
    /// again.
    #[test]
    fn a_lock_that_is_back_takes_room_again() {
        let (mut node, mut lock) = kept(60_000);
        node.record_deleted(KEY, &lock, at(5).boot);
        let done = pass(&mut node, Some(&mut lock), 5, 400);
        assert!(matches!(done[..], [(334, Ok(OnGrant::Changed(..)))]), "{done:?}");
        release(KEY, Some(&mut lock), &releases("me"), &mut node, at(401));
        assert!(node.keepalives.is_empty());
    }

    /// RENAME brings another lock of the same owner to the key. INFO shows its lease as kept alive only if that grant
    /// is the one that is renewed.
    #[test]
    fn a_lease_is_shown_as_kept_only_of_the_grant_that_is_renewed() {
        let (node, _) = kept(60_000);
        for (granted, left_ms) in [(0, Some(59_990)), (9, None)] {
            assert_eq!(node.keepalives.of(KEY).unwrap().left_ms(owner("me"), at(granted).boot, at(10).boot), left_ms);
        }
    }

    /// Regression: RENAME over a kept lock brought an earlier grant of the same owner to the key, and the node renewed it.
    #[test]
    fn an_earlier_grant_of_the_owner_is_not_renewed_in_its_place() {
        let (mut node, mut earlier) = (node(), mine(1));
        let keep = KeepAlive::new(ClientId(1), Some(60_000), ttl(1_000)).unwrap();
        node.keepalives.keep(KEY, owner("me"), at(5).boot, ttl(1_000), keep, at(5).boot);
        let renewal = node.keepalives.take_due(at(400).boot).unwrap();
        assert!(matches!(renew(Some(&mut earlier), &renewal, &mut node, at(400)), Ok(OnGrant::Unchanged(()))));
        assert_eq!((node.keepalives.len(), earlier.end()), (0, at(1_000).boot));
    }

    /// SWAPDB brings another lock of the same owner to the key. A repeated ACQUIRE then gets that lock's grant, and the
    /// KEEPALIVE of the first ACQUIRE does not apply to it.
    #[test]
    fn a_repeated_request_knows_its_grant_from_one_that_left_the_key() {
        let again = Acquire { retry: true, ..asks("me") };
        for (granted, left_ms) in [(0, 59_990), (9, 5_000)] {
            let (mut node, _) = kept(60_000);
            let mut lock = exclusive(owner("me"), Note::default(), token(9), at(granted).boot, ttl(1_000));
            acquire(KEY, Some(&mut lock), &again, &mut node, at(10)).unwrap();
            let keep = KeepAlive::new(ClientId(2), Some(5_000), ttl(1_000)).unwrap();
            node.keepalives.keep(KEY, owner("me"), at(granted).boot, ttl(1_000), keep, at(10).boot);
            assert_eq!(
                node.keepalives.of(KEY).unwrap().left_ms(owner("me"), at(granted).boot, at(10).boot),
                Some(left_ms)
            );
        }
    }
}
