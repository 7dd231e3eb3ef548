//! Tests of the events of grants: there is one when a grant begins, when its token or mode changes, and when it ends,
//! in this order.

use proptest::prelude::*;

use crate::engine::Request;
use crate::engine::fixture::Key;
use crate::fixture::{KEY, at, owner, token};
use crate::guard::evicted::Evictee;
use crate::history::ending::Ending;
use crate::history::grant_events::{GrantEvent, Happened};
use crate::node::Settings;
use crate::request::Conversion;
use crate::values::mode::{Mode, Wanted};
use crate::values::token::Token;

fn telling() -> Key {
    let mut key = Key::new();
    key.node.configure(Settings { events: true, ..Settings::default() });
    key
}

fn events(key: &mut Key) -> Vec<GrantEvent> {
    std::iter::from_fn(|| key.node.history_mut().take_event()).collect()
}

/// Takes the unpublished events, and returns their words and owners.
fn told(key: &mut Key) -> Vec<(&'static str, String)> {
    let owner = |event: &GrantEvent| String::from_utf8(event.owner.to_vec()).unwrap();
    events(key).iter().map(|event| (event.happened.word(), owner(event))).collect()
}

#[track_caller]
fn assert_told(key: &mut Key, expected: &[(&'static str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(event, owner)| (*event, (*owner).to_owned())).collect();
    assert_eq!(told(key), expected);
}

#[test]
fn each_thing_that_happens_to_a_grant() {
    let mut key = telling();
    key.acquire("a", 1_000, 0).unwrap();
    key.acquire("refused", 1_000, 0).unwrap();
    key.acquire("a", 1_000, 0).unwrap_err();
    key.acquire("b", 1_000, 60_000).unwrap();
    key.release("a");
    assert_told(&mut key, &[("granted", "a"), ("released", "a"), ("handed_over", "b")]);
    let raised = token(key.lock.as_ref().unwrap().first().token().get() + 5);
    key.perform(&Request::Fence(owner("b"), raised)).unwrap();
    key.perform(&Request::Fence(owner("b"), raised)).unwrap();
    key.convert("b", Conversion::Shared).unwrap();
    let changed = events(&mut key);
    assert_eq!(changed.iter().map(|event| event.happened.word()).collect::<Vec<_>>(), ["raised", "converted"]);
    assert!(changed.iter().all(|event| event.token == raised) && changed[1].mode.word() == "shared");
    key.wanted = Wanted::Shared;
    key.acquire("c", 1_000, 0).unwrap();
    key.perform(&Request::Break(None)).unwrap();
    assert_told(&mut key, &[("granted", "c"), ("broken", "b"), ("broken", "c")]);
    // Before the lock is granted again, the end of the lease that is over is reported.
    key.wanted = Wanted::Exclusive;
    key.acquire("over", 1_000, 0).unwrap();
    key.now += 1_001;
    key.acquire("next", 1_000, 0).unwrap();
    assert_told(&mut key, &[("granted", "over"), ("expired", "over"), ("granted", "next")]);
    let evictee = Evictee::of(key.lock.as_ref().unwrap());
    key.del();
    key.node.evict(KEY, evictee, at(key.now));
    assert_told(&mut key, &[("evicted", "next")]);
}

#[test]
fn what_is_renamed_says_so_and_what_a_reload_brings_back_was_not_flushed() {
    let mut key = telling();
    key.acquire("me", 1_000, 0).unwrap();
    let lock = key.lock.take().unwrap();
    key.node.record_deleted(KEY, &lock, at(3).boot);
    key.others.insert(b"other".to_vec(), lock);
    key.rename(b"other");
    assert_told(&mut key, &[("granted", "me"), ("renamed", "me"), ("renamed", "me")]);
    let lock = key.lock.clone().unwrap();
    key.node.record_flushed(KEY, &lock, at(3).boot);
    key.node.history.on_reloaded();
    assert_told(&mut key, &[]);
}

#[test]
fn nothing_where_nobody_listens() {
    let mut key = Key::new();
    key.acquire("me", 1_000, 0).unwrap();
    key.now += 60_000;
    key.settle();
    assert!(!key.node.history().has_events());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// From the events alone one knows, after any steps, who holds the lock and with which token. Each grant begins and
    /// ends once.
    #[test]
    fn who_listens_knows_who_has_it(
        steps in proptest::collection::vec((0_u8..9, 0_u8..4, 0_usize..3, 1_u64..60, 0_u64..60), 1..60)
    ) {
        let mut key = telling();
        let (mut known, mut begun): (Vec<(Box<[u8]>, Token, Mode)>, _) = (vec![], 0);
        for step in steps {
            key.random_step(step);
            for GrantEvent { happened, owner, token, mode, .. } in events(&mut key) {
                let before = known.iter().position(|(known, ..)| *known == owner);
                match happened {
                    Happened::Granted | Happened::HandedOver => {
                        prop_assert_eq!(before, None);
                        begun += 1;
                        known.push((owner, token, mode));
                    }
                    Happened::Raised | Happened::Converted => known[before.unwrap()] = (owner, token, mode),
                    Happened::Ended(how) => {
                        prop_assert!(how != Ending::Renamed);
                        prop_assert_eq!(known.remove(before.unwrap()), (owner, token, mode));
                    }
                }
            }
            prop_assert_eq!(begun, key.node.counters.grants);
            let mut held: Vec<(Box<[u8]>, Token, _)> =
                key.lock.iter().flat_map(|lock| lock.grants()).map(|(mode, grant)| (grant.owner().into(), grant.token(), mode)).collect();
            held.sort_by(|one, other| one.0.cmp(&other.0));
            known.sort_by(|one, other| one.0.cmp(&other.0));
            prop_assert_eq!(&held, &known);
        }
    }
}
