//! Tests of the log: how each grant or wait ended, and how long it took.

use proptest::prelude::*;

use crate::engine::fixture::Key;
use crate::engine::{Finding, Question, Request};
use crate::fixture::{KEY, at, keep_alive};
use crate::guard::evicted::Evictee;
use crate::history::ending::Ending;
use crate::history::log::About;
use crate::node::Settings;
use crate::queue::of_key::WaiterId;
use crate::refusal::Refusal;
use crate::values::prefixes::KeyPrefixes;

/// Returns a key whose node logs every end, however short.
fn logging() -> Key {
    let mut key = Key::new();
    key.node.configure(Settings { log_slower_than_ms: Some(0), log_max_len: 10_000, ..Settings::default() });
    key
}

/// Returns the log's entries, the newest first: owner, ending, time waited, time held, number of waiters.
fn log(key: &Key) -> Vec<(String, Ending, u64, u64, usize)> {
    let entries = key.node.history().log().entries();
    entries
        .map(|entry| {
            let owner = String::from_utf8(entry.owner.to_vec()).unwrap();
            (owner, entry.ending, entry.waited_ms, entry.held_ms, entry.waiters)
        })
        .collect()
}

/// Returns the newest entry of the log.
fn last(key: &Key) -> (String, Ending, u64, u64, usize) {
    log(key).swap_remove(0)
}

#[test]
fn each_way_in_which_a_grant_ends() {
    let mut key = logging();
    let entry = |owner: &str, ending, held_ms| (owner.to_owned(), ending, 0, held_ms, 0);
    let grant = |key: &mut Key, name: &str| assert_eq!(key.acquire(name, 1_000, 0), Ok(None));

    grant(&mut key, "released");
    key.now = 7;
    key.release("released");
    assert_eq!(last(&key), entry("released", Ending::Released, 7));

    grant(&mut key, "broken");
    key.now = 10;
    key.perform(&Request::Break(None)).unwrap();
    assert_eq!(last(&key), entry("broken", Ending::Broken, 3));

    grant(&mut key, "deleted");
    key.del();
    assert_eq!(last(&key), entry("deleted", Ending::Deleted, 0));

    grant(&mut key, "evicted");
    let evictee = Evictee::of(key.lock.as_ref().unwrap());
    key.del();
    key.node.evict(KEY, evictee, at(key.now));
    assert_eq!(last(&key), entry("evicted", Ending::Evicted, 0));
    key.now += 1_001;

    // The logged time held is that of the lease, even if the end is noticed later or a command removes the grant.
    grant(&mut key, "expired");
    key.now += 5_000;
    key.settle();
    assert_eq!(last(&key), entry("expired", Ending::Expired, 1_000));
    for ends in [Key::del, |key: &mut Key| {
        key.perform(&Request::Break(None)).unwrap();
    }] {
        grant(&mut key, "over");
        key.now += 5_000;
        ends(&mut key);
        grant(&mut key, "next");
        key.release("next");
        assert_eq!(log(&key)[1], entry("over", Ending::Expired, 1_000));
    }

    grant(&mut key, "flushed");
    let lock = key.lock.clone().unwrap();
    key.node.record_flushed(KEY, &lock, at(key.now).boot);
    assert_eq!(last(&key), entry("flushed", Ending::Flushed, 0));
    // The flush turns out to be the start of a reload, so the entry has to go.
    key.node.history.on_reloaded();
    assert_ne!(last(&key).1, Ending::Flushed);
}

#[test]
fn what_is_renamed_goes_on_and_was_not_deleted() {
    let mut key = logging();
    key.acquire("me", 1_000, 0).unwrap();
    let lock = key.lock.take().unwrap();
    key.node.record_deleted(KEY, &lock, at(3).boot);
    key.others.insert(b"other".to_vec(), lock);
    key.rename(b"other");
    let endings: Vec<_> = log(&key).into_iter().map(|entry| entry.1).collect();
    assert_eq!(endings, [Ending::Renamed, Ending::Renamed]);
    key.now = 9;
    key.release("me");
    assert_eq!((last(&key).1, last(&key).3), (Ending::Released, 9));
}

#[test]
fn how_long_was_waited_stands_beside_how_long_it_was_held() {
    let mut key = logging();
    key.acquire("first", 1_000, 0).unwrap();
    key.acquire("second", 1_000, 60_000).unwrap();
    key.now = 100;
    key.wait("third", 60_000, None).unwrap();
    key.now = 300;
    key.release("first");
    assert_eq!(last(&key), ("first".to_owned(), Ending::Released, 0, 300, 2));
    key.now = 310;
    key.release("second");
    assert_eq!(last(&key), ("second".to_owned(), Ending::Released, 300, 10, 1));
    // The owner's turn comes, and it acquires a moment later.
    key.now = 320;
    key.acquire("third", 1_000, 0).unwrap();
    key.release("third");
    assert_eq!(last(&key), ("third".to_owned(), Ending::Released, 220, 0, 0));
    assert_eq!(log(&key).len(), 3, "nobody waited in vain");
}

#[test]
fn each_way_in_which_a_wait_comes_to_nothing() {
    let mut key = logging();
    key.acquire("holder", 60_000, 0).unwrap();
    key.acquire("late", 1_000, 50).unwrap();
    let gone = key.acquire("gone", 1_000, 60_000).unwrap().unwrap();
    key.wait("back", 60_000, None).unwrap();
    key.acquire("refused", 1_000, 60_000).unwrap();
    key.now = 60;
    key.settle();
    assert_eq!(last(&key), ("late".to_owned(), Ending::TimedOut, 50, 0, 3));
    key.node.leave_queue(WaiterId(gone), at(61).boot);
    assert_eq!(last(&key), ("gone".to_owned(), Ending::Left, 61, 0, 2));
    key.now = 62;
    key.release("back");
    assert_eq!(last(&key), ("back".to_owned(), Ending::Withdrawn, 62, 0, 1));
    key.says = |question| matches!(question, Question::IsPermitted(_)).then_some(Finding::Refused(Refusal::Forbidden));
    key.now = 63;
    key.release("holder");
    assert_eq!(last(&key), ("refused".to_owned(), Ending::Refused(Refusal::Forbidden), 63, 0, 0));
    assert_eq!(Ending::Refused(Refusal::Forbidden).code(), "NOPERM");
}

#[test]
fn a_lease_that_was_kept_alive_ended_with_its_connection_unless_it_was_extended_since() {
    let ends = |extends: bool| {
        let mut key = logging();
        key.acquire("me", 1_000, 0).unwrap();
        keep_alive(&mut key.node, 1, 60_000, 0);
        key.says = |question| matches!(question, Question::MayRenew(_)).then_some(Finding::No);
        key.now = 500;
        key.settle();
        if extends {
            key.acquire_again("me", 1_000, 0).unwrap();
        }
        key.now = 5_000;
        key.settle();
        (last(&key).1, last(&key).3)
    };
    assert_eq!((ends(false), ends(true)), ((Ending::Unconnected, 1_000), (Ending::Expired, 1_500)));
}

#[test]
fn only_what_was_waited_for_or_held_for_long() {
    let mut key = Key::new();
    key.node.configure(Settings { log_slower_than_ms: Some(100), ..Settings::default() });
    for (waited, held, is_kept) in [(0, 99, false), (0, 100, true), (99, 0, false), (100, 0, true)] {
        key.node.history_mut().reset_log();
        key.acquire("before", 60_000, 0).unwrap();
        key.acquire("me", 60_000, 60_000).unwrap();
        key.now += waited;
        key.release("before");
        key.node.history_mut().reset_log();
        key.now += held;
        key.release("me");
        assert_eq!(log(&key).len(), usize::from(is_kept), "{waited} {held}");
    }
}

#[test]
fn contention_is_counted_where_it_happens_and_nowhere_else() {
    let mut key = logging();
    let counts = |key: &Key| {
        let contention = key.node.history().contention();
        (contention.waited.total(), contention.refused.total())
    };
    key.acquire("me", 1_000, 0).unwrap();
    key.release("me");
    key.acquire("me", 1_000, 60_000).unwrap();
    assert_eq!(counts(&key), (0, 0));
    key.acquire("you", 1_000, 0).unwrap();
    key.acquire("you", 1_000, 0).unwrap();
    key.acquire("they", 1_000, 60_000).unwrap();
    key.wait("others", 60_000, None).unwrap();
    assert_eq!(counts(&key), (2, 2));
    let refused = key.node.history().contention().refused.keys().next().unwrap();
    assert_eq!((&*refused.name, refused.count, refused.error), (&b"k"[..], 2, 0));
    key.node.history_mut().reset_contention(at(5).boot);
    assert_eq!((counts(&key), key.node.history().contention().since), ((0, 0), at(5).boot));
}

/// Returns the figures of the keys with this prefix: numbers of grants, refusals, served waits and ended grants.
fn figures(key: &Key, prefix: &[u8]) -> (u64, u64, u64, u64) {
    let prefixes = key.node.history().prefixes();
    let of = prefixes.rows().find(|(listed, _)| *listed == prefix).map_or(prefixes.other(), |(_, figures)| figures);
    (of.grants, of.contended, of.waits.count(), of.held.count())
}

/// Grants too short for the log count in the figures of their prefix. Keys without a prefix do not.
#[test]
fn figures_of_a_prefix_are_those_of_its_locks() {
    let mut key = Key::new();
    let prefixes = |key: &mut Key, text: &str| key.node.count_by(&KeyPrefixes::parse(text.as_bytes()).unwrap());
    let story = |key: &mut Key| {
        key.acquire("first", 1_000, 0).unwrap();
        key.acquire("refused", 1_000, 0).unwrap();
        key.acquire("second", 1_000, 60_000).unwrap();
        key.now += 100;
        key.release("first");
        key.now += 7;
        key.release("second");
    };
    story(&mut key);
    prefixes(&mut key, "k");
    assert_eq!(figures(&key, b"k"), (0, 0, 0, 0));
    story(&mut key);
    assert_eq!((figures(&key, b"k"), figures(&key, b"")), ((2, 1, 1, 2), (0, 0, 0, 0)));
    assert_eq!(log(&key).len(), 0);
    let told = |key: &Key| {
        let (_, of) = key.node.history().prefixes().rows().next().unwrap();
        [of.waits.quantile_us(1.0), of.held.quantile_us(0.5), of.held.quantile_us(1.0)]
    };
    for (told, us) in told(&key).into_iter().zip([100_000, 7_000, 100_000]) {
        assert!(told.abs_diff(us) * 100 < us, "{told} {us}");
    }
    // The time held is that of the lease, even if the end is noticed later.
    key.acquire("over", 1_000, 0).unwrap();
    key.now += 50_000;
    key.settle();
    assert!(told(&key)[2].abs_diff(1_000_000) * 100 < 1_000_000, "{:?}", told(&key));
    prefixes(&mut key, "other");
    story(&mut key);
    assert_eq!((figures(&key, b"other"), figures(&key, b"")), ((0, 0, 0, 0), (2, 1, 1, 2)));
    prefixes(&mut key, "");
    story(&mut key);
    assert_eq!(figures(&key, b""), (0, 0, 0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// After any steps, each grant is either in the key or exactly once in the log. The figures of the key's prefix
    /// equal the node's counters.
    #[test]
    fn every_grant_ends_once(
        steps in proptest::collection::vec((0_u8..9, 0_u8..4, 0_usize..3, 1_u64..60, 0_u64..60), 1..60)
    ) {
        let mut key = logging();
        key.node.count_by(&KeyPrefixes::parse(b"j k l").unwrap());
        for step in steps {
            key.random_step(step);
            let in_key = key.lock.iter().flat_map(|lock| lock.grants()).count();
            let entries = key.node.history().log().entries();
            let in_log = entries.filter(|entry| matches!(entry.about, About::Grant(..))).count();
            prop_assert_eq!(key.node.counters.grants, (in_key + in_log) as u64);
            let figures = figures(&key, b"k");
            let counters = key.node.counters;
            prop_assert_eq!((figures.0, figures.1), (counters.grants, counters.contended));
            prop_assert_eq!((figures.2, figures.3), (key.node.waiting.waits.count(), in_log as u64));
        }
    }
}
