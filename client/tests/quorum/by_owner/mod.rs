//! Locks under names that the caller chooses, used by several processes that act for the same owners.

mod breaking;
mod finding;
mod releasing;
mod rising;
mod waiting;

use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

use palisade_client::by_owner::{ByOwner, Granted, Keeper, NAME_BYTES_MAX, Reach, Take, Wanted};
use palisade_client::{Client, Error, ErrorKind, Options};

use crate::fixture::{Nodes, connected, ms, until};
use crate::harness::{Setup, int, null, text};
use crate::proxy::{before_each, proxied};

pub const TTL: Duration = Duration::from_secs(30);

pub fn take(owner: &str) -> Take {
    Take {
        key: b"k".to_vec(),
        owner: owner.into(),
        ttl: TTL,
        wanted: Wanted::Exclusive,
        wait: Duration::ZERO,
        retry: false,
        note: vec![],
        keepalive: None,
    }
}

fn again(owner: &str) -> Take {
    Take { retry: true, ..take(owner) }
}

/// Starts a task that takes a lock, waiting for it.
fn taking(locks: &ByOwner, take: Take) -> JoinHandle<Result<Option<Granted>, Error>> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.take(take).await })
}

pub async fn takes(locks: &ByOwner, take: Take) -> Granted {
    locks.take(take).await.unwrap().expect("it is free")
}

/// Returns a client that stands for a process of its own. Its nodes have as much time to answer as they need on a busy
/// machine.
pub async fn process(nodes: &Nodes) -> ByOwner {
    patient(&nodes.addresses()).await.by_owner()
}

/// Waits until the process reaches all nodes.
async fn connected_again(locks: &ByOwner) {
    let are_up = || locks.standing().nodes.iter().all(|(_, reach)| matches!(reach, Reach::Up));
    until("all nodes are reached", async || are_up()).await;
}

/// Starts nodes, and creates a client that stands for a process of its own.
async fn start(count: usize) -> (Nodes, ByOwner) {
    let nodes = Nodes::start(count);
    let locks = process(&nodes).await;
    (nodes, locks)
}

/// One process acquires the lock. Another one extends, re-enters and releases it, as if the first had crashed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_process_takes_another_gives_back() {
    for count in [1, 5] {
        let nodes = Nodes::start(count);
        if count > 1 {
            nodes.follow_their_clocks().await;
        }
        let gone = process(&nodes).await;
        let locks = process(&nodes).await;
        let granted = takes(&gone, Take { note: b"nightly".to_vec(), ..take("me") }).await;
        assert_eq!(locks.take(take("you")).await.unwrap(), None);
        assert_eq!(locks.extend(b"k", b"you", TTL, None).await.unwrap(), None);
        assert_eq!(locks.release(b"k", b"you", Some(1), None).await.unwrap(), None);
        assert_eq!(nodes.holding("k"), count);
        assert_eq!(locks.extend(b"k", b"me", TTL, Some(granted.token)).await.unwrap(), Some(granted.token));
        assert_eq!(locks.reenter(b"k", b"me", None, None).await.unwrap(), Some(2));
        assert_eq!(locks.take(again("me")).await.unwrap().unwrap().token, granted.token);
        assert_eq!(locks.take(take("me")).await.unwrap_err().kind(), ErrorKind::Owned);
        let shown = locks.info(b"k", None).await.unwrap().unwrap();
        let held = &shown.grants[0];
        assert_eq!((&*held.owner, held.holds, &*held.note), (&b"me"[..], 2, &b"nightly"[..]));
        assert!(locks.check(b"k", granted.token).await.unwrap().unwrap() > ms(20_000));
        assert_eq!(locks.release(b"k", b"me", None, None).await.unwrap(), Some(1));
        assert_eq!(locks.release(b"k", b"me", None, Some(granted.token)).await.unwrap(), Some(0));
        assert_eq!(locks.release(b"k", b"me", None, None).await.unwrap(), None);
        until("it is free everywhere", async || nodes.holding("k") == 0).await;
        assert_eq!(locks.check(b"k", granted.token).await.unwrap(), None);
        assert!(takes(&locks, take("you")).await.token > granted.token);
    }
}

/// A lock that another process acquired is broken. Its owner hears that it does not hold the lock, also on nodes that grant
/// no lease as long as the one that this process assumes for locks of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_another_process_that_was_broken_is_not_held() {
    let nodes = Nodes::start_with(3, || Setup::new().module_arguments(&["max-ttl", "20000"]));
    let (gone, locks) = (process(&nodes).await, process(&nodes).await);
    for what in ["note", "reenter", "release"] {
        let ttl = ms(20_000);
        takes(&gone, Take { ttl, ..again("me") }).await;
        assert!(locks.extend(b"k", b"me", ttl, None).await.unwrap().is_some());
        if what == "release" {
            assert_eq!(locks.reenter(b"k", b"me", None, None).await.unwrap(), Some(2));
        }
        nodes.say("LOCK.BREAK k");
        let told = match what {
            "note" => locks.note(b"k", b"me", b"x", None, None).await,
            "reenter" => locks.reenter(b"k", b"me", None, None).await.map(|holds| holds.map(u64::from)),
            _ => locks.release(b"k", b"me", None, None).await.map(|holds| holds.map(u64::from)),
        };
        assert_eq!(told.unwrap(), None, "{what}");
    }
}

/// One node after the other loses the lock and grants it again. Each hears of the holds and of the note, so a process that
/// continues the lock knows both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_lost_a_lock_hear_of_its_holds_and_its_note_again() {
    let (nodes, gone) = start(3).await;
    let ttl = ms(2_000);
    takes(&gone, Take { ttl, note: b"begun".to_vec(), ..take("me") }).await;
    assert_eq!(gone.reenter(b"k", b"me", Some(3), None).await.unwrap(), Some(3));
    assert_eq!(gone.release(b"k", b"me", Some(3), None).await.unwrap(), Some(2));
    assert_eq!(gone.note(b"k", b"me", b"half", Some(7), None).await.unwrap(), Some(7));
    for server in &nodes.0 {
        assert!(server.client().say("LOCK.BREAK k").as_int() > 0);
        until("it has the lock, its holds and its note again", async || {
            assert!(gone.extend(b"k", b"me", ttl, None).await.unwrap().is_some());
            let info = server.client().say("LOCK.INFO k");
            info != null() && info.field("holds") == int(2) && info.field("note") == text("half")
        })
        .await;
    }
    let locks = process(&nodes).await;
    let shown = locks.info(b"k", None).await.unwrap().unwrap();
    assert_eq!((shown.grants[0].holds, shown.grants[0].sequence), (2, 7));
    assert_eq!(locks.release(b"k", b"me", None, None).await.unwrap(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_permits_of_a_process_that_is_gone() {
    let (nodes, gone) = start(5).await;
    let locks = process(&nodes).await;
    let reads = |owner: &str| Take { wanted: Wanted::Shared, ..again(owner) };
    let (one, other) = (takes(&gone, reads("one")).await, takes(&gone, reads("other")).await);
    assert!(takes(&locks, reads("one")).await.token >= one.token);
    assert_eq!(locks.info(b"k", None).await.unwrap().unwrap().holders, 2);
    assert_eq!(locks.release(b"k", b"other", None, None).await.unwrap(), Some(0));
    assert_eq!(locks.release(b"k", b"one", None, None).await.unwrap(), Some(0));
    assert!(other.token > 0);
    let permit = |owner: &str| Take {
        key: b"permits".to_vec(),
        wanted: Wanted::Permit { limit: 2, number: None },
        ..again(owner)
    };
    let one = takes(&gone, permit("one")).await;
    let same = takes(&locks, permit("one")).await;
    assert!((same.number, same.waited) == (one.number, Duration::ZERO) && same.token >= one.token, "{same:?}");
    let other = takes(&locks, permit("other")).await;
    assert_ne!(one.number, other.number);
    assert_eq!(locks.take(permit("third")).await.unwrap(), None);
    // A request that names a permit gets that permit or none, also if it waits.
    let named = |owner: &str, number| Take {
        wanted: Wanted::Permit { limit: 3, number: Some(number) },
        key: b"named".to_vec(),
        ..again(owner)
    };
    assert_eq!(takes(&locks, named("one", 2)).await.number, 2);
    assert_eq!(locks.take(named("other", 2)).await.unwrap(), None);
    let waits = taking(&locks, Take { wait: ms(60_000), ..named("other", 2) });
    assert_eq!(locks.release(b"named", b"one", None, None).await.unwrap(), Some(0));
    assert_eq!(waits.await.unwrap().unwrap().unwrap().number, 2);
}

/// Two requests of one owner for a lock that it may share, at the same time: the second learns that its owner holds it,
/// as from a node, unless it repeats a request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_requests_of_one_owner_do_not_both_acquire_the_lock() {
    let (_nodes, locks) = start(3).await;
    for wanted in [Wanted::Shared, Wanted::Permit { limit: 2, number: None }] {
        let reads = Take { wanted, ..take("me") };
        let (one, other) = tokio::join!(locks.take(reads.clone()), locks.take(reads.clone()));
        let refused: Vec<_> = [&one, &other].into_iter().filter_map(|told| told.as_ref().err()).collect();
        assert!(matches!(refused[..], [why] if why.kind() == ErrorKind::Owned), "{one:?} {other:?}");
        let granted = one.or(other).unwrap().unwrap();
        // A node that grants late may raise the token.
        let again = takes(&locks, Take { retry: true, ..reads }).await;
        assert!(again.token >= granted.token, "{granted:?} {again:?}");
        assert_eq!(locks.release(b"k", b"me", None, Some(again.token)).await.unwrap(), Some(0));
    }
}

/// A process ended while its attempt had the lock on a minority of the nodes. The others are free, so the attempt does
/// not keep its own owner from getting the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_of_an_attempt_on_a_minority_is_in_nobodys_way() {
    let (nodes, locks) = start(5).await;
    let stray = "LOCK.ACQUIRE k me#0123456789abcdef 60000";
    nodes.0[..2].iter().for_each(|server| assert!(server.client().say(stray).as_int() > 0));
    assert_eq!(locks.extend(b"k", b"me", TTL, None).await.unwrap(), None, "two of five are no majority");
    assert!(takes(&locks, again("me")).await.token > 0);
}

/// A process that takes over a lock whose tokens differ between the nodes first raises them to a common one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_were_not_raised_yet() {
    let (nodes, locks) = start(3).await;
    let attempt = "me#0123456789abcdef";
    let tokens: Vec<i64> =
        nodes.say(&format!("LOCK.ACQUIRE k {attempt} 60000")).iter().map(|reply| reply.as_int()).collect();
    let raised = tokens.iter().max().unwrap() + 1_000_000;
    let fence = format!("LOCK.FENCE k {attempt} {raised}");
    until("its state file allows that", async || nodes.0[1].client().say(&fence) == int(raised)).await;
    nodes.0[2].client().say("LOCK.BREAK k");
    assert_eq!(locks.extend(b"k", b"me", TTL, None).await.unwrap(), Some(raised as u64));
    assert_eq!(nodes.0[0].client().say("LOCK.INFO k").field("token"), int(raised));
}

/// The nodes no longer have the token that they acknowledged to this process, because another process raised it. This
/// process used to consider the lock lost, and granted its owner a second permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_another_process_raises() {
    let (nodes, locks) = start(3).await;
    let permit = Take { wanted: Wanted::Permit { limit: 2, number: None }, ..take("me") };
    let granted = takes(&locks, permit.clone()).await;
    until("every node has it", async || nodes.holding("k") == 3).await;
    let raise = async |by: u64| {
        let infos = nodes.say("LOCK.INFO k");
        let raised = infos.iter().map(|info| info.field("token").as_int()).max().unwrap() + by as i64;
        let fence = format!("LOCK.FENCE k {} {raised}", infos[0].field("owner").as_text());
        for server in &nodes.0 {
            until("its state file allows that", async || server.client().say(&fence) == int(raised)).await;
        }
        raised as u64
    };
    let raised = raise(1_000).await;
    for token in [granted.token, raised] {
        assert!(locks.check(b"k", token).await.unwrap().is_some(), "its owner was told of {token} of {raised}");
    }
    assert_eq!(locks.take(permit.clone()).await.unwrap_err().kind(), ErrorKind::Owned);
    assert_eq!(locks.extend(b"k", b"me", TTL, Some(raised)).await.unwrap(), Some(raised));
    let raised = raise(1_000).await;
    assert_eq!(locks.extend(b"k", b"me", TTL, Some(granted.token)).await.unwrap(), Some(raised));
    assert_eq!(locks.take(permit.clone()).await.unwrap_err().kind(), ErrorKind::Owned);
    assert_eq!(locks.info(b"k", None).await.unwrap().unwrap().holders, 1);
    let raised = raise(1_000).await;
    assert_eq!(locks.release(b"k", b"me", None, Some(raised + 1)).await.unwrap(), None);
    assert_eq!(locks.release(b"k", b"me", None, Some(raised)).await.unwrap(), Some(0));
    until("it is free", async || nodes.holding("k") == 0).await;
}

/// The validity known to this process ended during an extension, because it had not learned of an earlier extension by
/// another process. The lock is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_another_process_extended_is_not_lost() {
    let nodes = Nodes::start(3);
    let (proxies, addresses) = before_each(&nodes.0).await;
    let (locks, other) = (patient(&addresses).await.by_owner(), process(&nodes).await);
    let granted = takes(&locks, Take { ttl: ms(4_000), ..take("me") }).await;
    // Nodes that granted one after the other have different tokens, which are raised to a common one.
    assert!(other.extend(b"k", b"me", TTL, None).await.unwrap() >= Some(granted.token));
    proxies.iter().for_each(|proxy| proxy.delay(ms(4_200)));
    let began = Instant::now();
    let end = async {
        until("its first validity is over", async || began.elapsed() > ms(4_000)).await;
        proxies.iter().for_each(|proxy| proxy.delay(ms(0)));
    };
    let (extended, ()) = tokio::join!(locks.extend(b"k", b"me", TTL, None), end);
    assert!(extended.unwrap() >= Some(granted.token));
}

/// An owner that extended a lock is promised the full length, also if most nodes have not received the extension yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_as_long_as_it_was_extended() {
    let (nodes, locks) = start(5).await;
    for round in 0..10 {
        let key = format!("k{round}");
        let short = Take { key: key.clone().into(), ttl: ms(20_000), ..take("me") };
        let granted = takes(&locks, short).await;
        let began = Instant::now();
        let token = locks.extend(key.as_bytes(), b"me", ms(60_000), Some(granted.token)).await.unwrap().unwrap();
        let least = |began: Instant| (ms(60_000) * 99 / 100 - ms(3)).saturating_sub(began.elapsed());
        let left = locks.check(key.as_bytes(), token).await.unwrap().unwrap();
        assert!(left >= least(began), "{left:?} after {:?}", began.elapsed());
        let shown = locks.info(key.as_bytes(), None).await.unwrap().unwrap();
        assert!(shown.grants[0].ttl >= least(began) && shown.grants[0].token >= token, "{shown:?} {token}");
        assert!(locks.break_lock(key.as_bytes(), Some(granted.token)).await.unwrap().is_some());
        assert_eq!(nodes.holding(&key), 0, "wherever its token has risen");
    }
}

/// Two processes write the note of one grant; each continues the other's numbers.
/// The third node was away when the lock was granted, and does not have it. Then the second node goes. The error names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_that_fails_names_the_nodes_that_are_away() {
    let nodes = Nodes::start(3);
    let (proxies, locks) = proxied(&nodes).await;
    let by_owner = locks.by_owner();
    let is_up = |place: usize| matches!(by_owner.standing().nodes[place].1, Reach::Up);
    proxies[2].cut();
    until("the third is away", async || !is_up(2)).await;
    takes(&by_owner, take("me")).await;
    proxies[2].pass();
    until("the third is back", async || is_up(2)).await;
    proxies[1].cut();
    until("the second is away", async || !is_up(1)).await;
    let error = by_owner.extend(b"k", b"me", TTL, None).await.unwrap_err();
    let away: Vec<_> = error.nodes().iter().map(|node| node.node.clone()).collect();
    assert!(error.kind() == ErrorKind::NoQuorum && away == [proxies[1].name()], "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notes_of_two_processes() {
    let (nodes, locks) = start(3).await;
    let other = process(&nodes).await;
    takes(&locks, take("me")).await;
    let note = async || locks.info(b"k", None).await.unwrap().unwrap().grants[0].note.clone();
    for (number, by, text) in
        [(1, &locks, &b"one"[..]), (2, &other, b"two"), (3, &other, b"three"), (4, &locks, b"four")]
    {
        assert_eq!(by.note(b"k", b"me", text, None, None).await.unwrap(), Some(number));
        assert_eq!(note().await, text);
    }
    let last = (1 << 53) - 1;
    assert_eq!(locks.note(b"k", b"me", b"last", Some(last), None).await.unwrap(), Some(last));
    let error = other.note(b"k", b"me", b"more", None, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    assert!(
        error.to_string().starts_with("the note of this grant has the sequence number 9007199254740991"),
        "{error}"
    );
    assert_eq!(note().await, b"last");
}

/// Returns a connected client that gives nodes a minute to answer.
pub async fn patient(addresses: &[String]) -> Client {
    patient_for(addresses, ms(60_000)).await
}

pub async fn patient_for(addresses: &[String], timeout: Duration) -> Client {
    let defaults = Options::new().node_timeout(timeout);
    let client = Client::builder().nodes(addresses).defaults(defaults).build().unwrap();
    connected(&client).await;
    client
}

/// A lock is extended as long as its keeper exists, and lasts for at most its lease after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_ends() {
    let (_nodes, locks) = start(5).await;
    let kept = |keeper| Take { ttl: ms(1_000), keepalive: Some((TTL, Keeper(keeper))), ..again("me") };
    let granted = takes(&locks, kept(1)).await;
    let began = Instant::now();
    until("its lease would have ended", async || began.elapsed() > ms(1_500)).await;
    assert!(locks.check(b"k", granted.token).await.unwrap().is_some());
    // Another connection takes over, and the first one ends.
    assert!(takes(&locks, kept(2)).await.token >= granted.token);
    locks.keeper_ended(Keeper(1));
    let began = Instant::now();
    until("its lease would have ended", async || began.elapsed() > ms(1_500)).await;
    assert!(locks.check(b"k", granted.token).await.unwrap().is_some());
    locks.keeper_ended(Keeper(2));
    until("it ends", async || locks.info(b"k", None).await.unwrap().is_none()).await;
}

/// The validity that an owner is promised is never longer than what the nodes promise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_more_than_the_nodes_promise() {
    let (nodes, locks) = start(3).await;
    let left = |key: &str| {
        let mut left: Vec<i64> = nodes
            .say(&format!("LOCK.INFO {key}"))
            .iter()
            .filter(|info| **info != null())
            .map(|info| info.field("ttl").as_int())
            .collect();
        left.sort_unstable();
        // At least two of the three nodes have this much left.
        left[left.len() - 2]
    };
    for round in 0..20 {
        let key = format!("k{round}");
        let asked = Instant::now();
        let granted = takes(&locks, Take { key: key.clone().into(), ttl: ms(10_000), ..take("me") }).await;
        let told = ms(10_000) * 99 / 100 - ms(2) + granted.waited;
        let promised = left(&key);
        assert!(told.saturating_sub(asked.elapsed()) <= ms(promised as u64), "{told:?} {promised}");
        let extensions = (0..4).map(|_| {
            let (locks, key) = (locks.clone(), key.clone());
            tokio::spawn(async move {
                let asked = Instant::now();
                (asked, locks.extend(key.as_bytes(), b"me", ms(20_000), None).await.unwrap())
            })
        });
        for extension in extensions {
            let (asked, token) = extension.await.unwrap();
            assert!(token >= Some(granted.token));
            let told = ms(20_000) * 99 / 100 - ms(2);
            // The promise is read before the clock, because the test may be suspended in between.
            let promised = left(&key);
            assert!(told.saturating_sub(asked.elapsed()) <= ms(promised as u64), "{told:?} {promised}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notes_watches_breaks_and_the_nodes_themselves() {
    // With one node, the node's token is the lock's at once.
    let (nodes, locks) = start(1).await;
    let other = process(&nodes).await;
    let set = locks.node_set().await.unwrap();
    assert_eq!((set.nodes, set.serving, set.majority, set.max_ttl), (1, 1, 1, Some(ms(60_000))));
    assert_eq!(other.node_set().await.unwrap().id, set.id);
    let watching = |known| {
        tokio::spawn({
            let other = other.clone();
            async move { other.watch(b"k", known, ms(60_000)).await.unwrap() }
        })
    };
    assert_eq!(other.watch(b"k", (0, None), ms(20)).await.unwrap(), None);
    let taken = watching((0, None));
    let granted = takes(&locks, take("me")).await;
    assert_eq!(taken.await.unwrap().unwrap().grants[0].token, granted.token);
    let noted = watching((granted.token, Some(0)));
    assert_eq!(locks.note(b"k", b"me", b"at 10 %", None, None).await.unwrap(), Some(1));
    assert_eq!(noted.await.unwrap().unwrap().grants[0].note, b"at 10 %");
    assert_eq!(locks.note(b"k", b"me", b"old", Some(1), None).await.unwrap(), Some(1));
    assert_eq!(locks.info(b"k", None).await.unwrap().unwrap().grants[0].note, b"at 10 %");
    assert_eq!(other.note(b"k", b"me", b"by another", None, None).await.unwrap(), Some(2));
    // A writer that became a reader lets other readers in.
    assert_eq!(locks.share(b"k", b"me", None).await.unwrap(), Some(granted.token));
    let reads = takes(&other, Take { wanted: Wanted::Shared, ..take("you") }).await;
    assert_eq!(locks.counts().0, 1);
    assert_eq!(other.break_lock(b"k", Some(reads.token)).await.unwrap(), Some(reads.token));
    assert_eq!(locks.info(b"k", None).await.unwrap().unwrap().holders, 1);
    let free = watching((granted.token, None));
    assert_eq!(other.break_lock(b"k", None).await.unwrap(), Some(granted.token));
    assert!(free.await.unwrap().unwrap().grants.is_empty());
    assert_eq!(locks.extend(b"k", b"me", TTL, None).await.unwrap(), None);
    assert_eq!(locks.break_lock(b"k", None).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_have_bounds() {
    let (_nodes, locks) = start(1).await;
    takes(&locks, take(&"x".repeat(NAME_BYTES_MAX))).await;
    for owner in [String::new(), "x".repeat(NAME_BYTES_MAX + 1)] {
        let error = locks.take(take(&owner)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
        assert!(error.to_string().starts_with("owner must be 1 to 239 bytes long"), "{error}");
    }
}
