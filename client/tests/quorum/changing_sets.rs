//! The set of nodes changes while locks are held and acquired: no lock is lost, and none is held twice.

use std::collections::BTreeSet;
use std::fs;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use palisade_client::by_owner::{Keeper, Take};
use palisade_client::{Client, ErrorKind, Guard, Options, Released};
use palisade_quorum::{Member, members_to_text};
use tokio::time::timeout;

use crate::by_owner::take;
use crate::cluster_changes::{Judge, take_turns_with};
use crate::fixture::{Nodes, connected, locking, ms, until};
use crate::harness::{Server, Setup, acl_rules, int, patience, state_file};
use crate::proxy::{Proxy, before_each};

/// The ttl of locks that are held throughout. A step waits until earlier leases have ended. After it all clients
/// reconnect to all nodes, which takes seconds on a machine that is busy with other tests.
const TTL_MS: u64 = 5_000;

fn lasting() -> Setup {
    Setup::new().module_arguments(&["max-ttl", "5000", "max-clock-skew", "1000"])
}

/// Returns a setup with short leases, so that steps need not wait long; for tests in which no lock is held throughout.
fn short() -> Setup {
    Setup::new().module_arguments(&["max-ttl", "1000", "max-clock-skew", "100"])
}

fn brief() -> Options {
    Options::new().ttl(ms(1_000)).wait(patience())
}

fn options() -> Options {
    Options::new().ttl(ms(TTL_MS))
}

/// Changes the set; fails if that takes too long.
async fn set(client: &Client, addresses: Vec<String>) {
    timeout(patience() * 2, client.set_nodes(addresses)).await.expect("a change comes to an end").unwrap();
}

fn some(nodes: &Nodes, places: &[usize]) -> Vec<String> {
    places.iter().map(|&place| nodes.0[place].address()).collect()
}

fn id(server: &Server) -> u128 {
    u128::from_str_radix(&server.client().say("LOCK.NODE").field("id").as_text(), 16).unwrap()
}

/// Returns these nodes as the list of a version.
fn list(nodes: &Nodes, places: &[usize]) -> String {
    let member = |&place: &usize| Member { id: Some(id(&nodes.0[place])), address: nodes.0[place].address() };
    members_to_text(&places.iter().map(member).collect::<Vec<_>>())
}

fn version(server: &Server) -> i64 {
    server.client().say("LOCK.MEMBERS").field("version").as_int()
}

fn members(server: &Server) -> String {
    server.client().say("LOCK.MEMBERS").field("members").as_text()
}

/// Waits until a lock of this client is on exactly these nodes.
async fn is_on(nodes: &Nodes, key: &str, places: &[usize]) {
    let has = |server: &Server| server.client().say(&format!("EXISTS {key}")) == int(1);
    until("the lock is where it should be", async || {
        (0..nodes.0.len()).filter(|place| has(&nodes.0[*place])).collect::<Vec<_>>() == places
    })
    .await;
}

/// The set grows from three nodes to five, one of which is replaced, and shrinks to three again, while many tasks take
/// turns. One lock of each kind is held throughout. One holder changes the set, one only follows, and one is cut off
/// for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_come_and_go_under_load() {
    let nodes = Nodes::start_with(6, lasting);
    let old = some(&nodes, &[0, 1, 2]);
    let changer = Client::new(old.clone()).unwrap();
    let follower = Client::new(old.clone()).unwrap();
    connected(&changer).await;
    connected(&follower).await;
    // This client is cut off: nothing that it sends or receives arrives.
    let (proxies, addresses) = before_each(&nodes.0[..3]).await;
    let sleeper = Client::new(addresses).unwrap();
    connected(&sleeper).await;
    let asleep = sleeper.with(&options()).lock("asleep").await.unwrap();
    proxies.iter().for_each(|proxy| proxy.swallow());

    let judged: Vec<_> = (0..5).map(|n| (format!("turns {n}"), Arc::new(Judge::default()))).collect();
    let workers: Vec<_> = (0..50)
        .map(|n| {
            let ((key, judge), client) = (judged[n % 5].clone(), [&changer, &follower][n / 5 % 2].clone());
            tokio::spawn(take_turns_with(client, key, judge, options()))
        })
        .collect();

    let exclusive = follower.with(&options()).lock("exclusive").await.unwrap();
    let own = changer.with(&options()).lock("own").await.unwrap();
    let shared = follower.with(&options()).rw_lock("shared");
    let readers = [shared.read().await.unwrap(), shared.read().await.unwrap()];
    let permits = follower.with(&options()).semaphore("permits", 2);
    let permit = permits.acquire().await.unwrap();
    let session = follower.with(&options()).session();
    session.lock("of the session").await.unwrap();
    let leader = follower.with(&options()).election("election").campaign("first").await.unwrap();
    let mut leaders = changer.with(&options()).election("election").observe().unwrap();
    assert_eq!(leaders.changed().await.unwrap().unwrap().term, leader.term());
    let mut holders = changer.watch("exclusive").unwrap();
    // A node whose token is still being raised may be among the first that answer.
    while holders.changed().await.unwrap().is_none_or(|holder| holder.token < exclusive.token()) {}
    let by_owner = follower.by_owner();
    let keepalive = Some((Duration::from_secs(600), Keeper(1)));
    let take = Take { key: b"by owner".to_vec(), ttl: ms(TTL_MS), keepalive, ..take("me") };
    let named = by_owner.take(take).await.unwrap().unwrap();
    let waiter = locking(&changer, &options(), "exclusive");
    let candidate = tokio::spawn({
        let changer = changer.clone();
        async move { changer.with(&options()).election("election").campaign("second").await.unwrap() }
    });

    let turns = || judged.iter().map(|(_, judge)| judge.judge()).sum::<usize>();
    for places in [&[0, 1, 2, 3, 4][..], &[5, 1, 2, 3, 4], &[5, 3, 4]] {
        set(&changer, some(&nodes, places)).await;
        let before = turns();
        until("they take turns", async || turns() > before + 20).await;
        let held: [&Guard; 6] = [&exclusive, &own, &permit, &leader, &readers[0], &readers[1]];
        if let Some(guard) = held.into_iter().find(|guard| guard.is_lost()) {
            panic!("{:?}: {}", guard.key(), guard.lost().await);
        }
        assert!(!session.is_done());
        assert!(!waiter.is_finished() && !candidate.is_finished());
    }
    assert_eq!([3, 4, 5].map(|place| version(&nodes.0[place])), [7; 3], "one step for each node that came or went");
    is_on(&nodes, "exclusive", &[3, 4, 5]).await;
    is_on(&nodes, "shared", &[3, 4, 5]).await;
    is_on(&nodes, "permits", &[3, 4, 5]).await;

    // The client that was cut off knows only the old nodes, and finds the others.
    asleep.lost().await;
    proxies.iter().for_each(|proxy| proxy.pass());
    assert_eq!(sleeper.with(&options().wait(ms(500))).lock("own").await.unwrap_err().kind(), ErrorKind::TimedOut);
    let again = sleeper.with(&options()).lock("asleep").await.unwrap();
    assert!(again.token() > asleep.token());
    // A client that starts with the old list finds them too.
    let late = Client::new(old).unwrap();
    assert_eq!(late.with(&options()).try_lock("own").await.unwrap_err().kind(), ErrorKind::Contended);

    assert_eq!(by_owner.check(b"by owner", named.token).await.unwrap().map(|left| left.is_zero()), Some(false));
    assert_eq!(by_owner.release(b"by owner", b"me", None, None).await.unwrap(), Some(0));
    assert_eq!(exclusive.release().await, Released::Released);
    let next = waiter.await.unwrap();
    assert!(next.is_valid());
    while holders.changed().await.unwrap().is_none_or(|holder| holder.token < next.token()) {}
    leader.proclaim("once more").await.unwrap();
    while leaders.changed().await.unwrap().is_none_or(|seen| seen.value != b"once more") {}
    let term = leader.term();
    assert_eq!(leader.resign().await, Released::Released);
    let second = candidate.await.unwrap();
    assert!(second.term() > term);
    while leaders.changed().await.unwrap().is_none_or(|seen| seen.term != second.term()) {}
    let writer = shared.try_write().await.unwrap_err();
    assert_eq!(writer.kind(), ErrorKind::Contended, "readers keep writers out");
    for reader in readers {
        assert_eq!(reader.release().await, Released::Released);
    }
    assert_eq!(permit.release().await, Released::Released);
    assert!(session.close().await.values().all(|released| *released == Released::Released));
    judged.iter().for_each(|(_, judge)| judge.is_over());
    for worker in workers {
        worker.await.unwrap();
    }
    println!("{} turns", turns());
}

/// A program that changes the set is stopped again and again, at any point; another one completes the change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changer_that_stops_half_way_is_gone_on_from() {
    let nodes = Nodes::start_with(5, short);
    let stopped = Client::new(some(&nodes, &[0, 1, 2])).unwrap();
    connected(&stopped).await;
    for after in [1, 2, 5, 10, 20, 50, 100, 200, 400] {
        let changes = stopped.set_nodes(some(&nodes, &[2, 3, 4]));
        let _ = timeout(ms(after), changes).await;
    }
    let other = Client::new(some(&nodes, &[0, 1, 2])).unwrap();
    set(&other, some(&nodes, &[0, 3, 4])).await;
    let members = members(&nodes.0[0]);
    assert_eq!([3, 4].map(|place| self::members(&nodes.0[place])), [members.clone(), members.clone()]);
    let mut places: Vec<_> = list(&nodes, &[0, 3, 4]).split(',').map(str::to_owned).collect();
    let mut found: Vec<_> = members.split(',').map(str::to_owned).collect();
    places.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, places);
    // The stopped client works with the new set.
    let guard = other.with(&brief()).lock("k").await.unwrap();
    assert_eq!(stopped.with(&brief()).try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
    is_on(&nodes, "k", &[0, 3, 4]).await;
    guard.release().await;
}

/// A list that a majority accepted may have been decided, so the next program completes it, although it wants another
/// list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_changer_had_accepted_is_completed() {
    const BALLOT: &str = "00000000000000000000000000000007";
    let nodes = Nodes::start_with(4, short);
    let first = list(&nodes, &[0, 1, 2]);
    let say = |place: usize, line: &str| nodes.0[place].client().insist(&format!("LOCK.SETMEMBERS {line}"));
    for place in [0, 1, 2] {
        assert_eq!(say(place, &format!("1 DECIDED MEMBERS {first}")), int(1));
    }
    let accepted = list(&nodes, &[0, 1, 2, 3]);
    for place in [0, 1] {
        say(place, &format!("2 PROMISE {BALLOT}"));
        say(place, &format!("2 ACCEPT {BALLOT} MEMBERS {accepted} FLOOR 1"));
    }
    let locks = Client::new(some(&nodes, &[0, 1, 2])).unwrap();
    set(&locks, some(&nodes, &[0, 1])).await;
    assert_eq!(
        (version(&nodes.0[2]), members(&nodes.0[2])),
        (3, list(&nodes, &[0, 1, 3])),
        "the fourth was added first"
    );
    assert_eq!((version(&nodes.0[0]), members(&nodes.0[0])), (4, list(&nodes, &[0, 1])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_changers_at_once_one_ends_unless_they_want_the_same() {
    let nodes = Nodes::start_with(5, short);
    let changers: Vec<_> = (0..2).map(|_| Client::new(some(&nodes, &[0, 1, 2])).unwrap()).collect();
    set(&changers[0], some(&nodes, &[0, 1, 2])).await;
    // A program that had to connect first might begin when the other one is done.
    connected(&changers[1]).await;
    // Each of the two programs wants a node that the other wants to remove.
    let aims = [&[0, 3, 4][..], &[1, 2, 3]];
    let change = async |n: usize| timeout(patience() * 2, changers[n].set_nodes(some(&nodes, aims[n]))).await.unwrap();
    let (one, other) = tokio::join!(change(0), change(1));
    let in_order = |list: &str| list.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
    let present = in_order(&members(&nodes.0[3]));
    let is_made = aims.map(|aim| present == in_order(&list(&nodes, aim)));
    assert!(is_made.contains(&true), "{present:?}");
    for (made, done) in [(is_made[0], one), (is_made[1], other)] {
        // Otherwise the first step of a slow program was to complete the last one of the other, and it went on from
        // there.
        if let Err(error) = done {
            assert!(!made && error.kind() == ErrorKind::Overtaken && !error.is_lasting(), "{error}");
            assert!(error.to_string().contains(&nodes.0[3].address()), "it names what the other one made: {error}");
        }
    }
    tokio::join!(set(&changers[0], some(&nodes, &[3, 4])), set(&changers[1], some(&nodes, &[3, 4])));
    assert_eq!(version(&nodes.0[3]), version(&nodes.0[4]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_is_replaced() {
    let mut nodes = Nodes::start_with(4, lasting);
    let locks = nodes_client(&nodes, &[0, 1, 2]).await;
    let guard = locks.with(&options()).lock("k").await.unwrap();
    nodes.0[2].kill();
    set(&locks, some(&nodes, &[0, 1, 3])).await;
    assert!(guard.is_valid());
    is_on_live(&nodes, "k", &[0, 1, 3]).await;
    let follower = Client::new(some(&nodes, &[0, 2])).unwrap();
    let error = follower.with(&options()).try_lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    // The set was stored first while one node was dead, whose id was unknown then; that node has left the set.
    assert!(members(&nodes.0[0]).split(',').all(|member| !member.starts_with("unknown@")));
    assert_eq!(guard.release().await, Released::Released);
}

/// Two of three nodes know a lock when a fourth is added, which knows it only once the lease is extended. Its owner
/// changes the lock before that. It holds no lock that an operator broke.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_changes_its_lock_before_an_added_node_knows_it() {
    let nodes = Nodes::start_with(4, lasting);
    let locks = nodes_client(&nodes, &[0, 1, 2]).await;
    let by_owner = locks.by_owner();
    let keys = ["noted", "re-entered", "shared", "broken"];
    for key in keys {
        by_owner.take(Take { key: key.into(), ttl: ms(TTL_MS), ..take("me") }).await.unwrap().unwrap();
        is_on(&nodes, key, &[0, 1, 2]).await;
        assert_eq!(nodes.0[2].client().say(&format!("DEL {key}")), int(1));
    }
    set(&locks, some(&nodes, &[0, 1, 2, 3])).await;
    assert_eq!(by_owner.note(b"noted", b"me", b"text", None, None).await.unwrap(), Some(1));
    assert_eq!(by_owner.reenter(b"re-entered", b"me", None, None).await.unwrap(), Some(2));
    assert!(by_owner.share(b"shared", b"me", None).await.unwrap().is_some());
    nodes_client(&nodes, &[0, 1, 2, 3]).await.by_owner().break_lock(b"broken", None).await.unwrap();
    assert_eq!(by_owner.note(b"broken", b"me", b"text", None, None).await.unwrap(), None);
}

/// A lock is granted just before the set changes, and extended right after it, when its own task has not begun yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_extended_as_soon_as_the_set_has_changed() {
    let nodes = Nodes::start_with(3, lasting);
    let locks = nodes_client(&nodes, &[0, 1, 2]).await.with(&options());
    let (mut guards, mut change) = (vec![], pin!(set(&locks, some(&nodes, &[0, 1, 2]))));
    loop {
        tokio::select! {
            biased;
            () = &mut change => break,
            guard = locks.lock(format!("k{}", guards.len())) => guards.push(guard.unwrap()),
        }
    }
    for guard in guards.iter().rev() {
        guard.extend().await.unwrap();
    }
}

/// A new node is guarded, and grants nothing meanwhile. If another node died then, the set of four would have no
/// majority. So the new node is added only once its guard has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_added_when_it_serves() {
    let mut nodes = Nodes::start_with(4, lasting);
    let locks = nodes_client(&nodes, &[0, 1, 2]).await;
    set(&locks, some(&nodes, &[0, 1, 2])).await;
    let guard = locks.with(&options()).lock("k").await.unwrap();
    nodes.0[2].kill();
    // The guard lasts longer than a lease.
    nodes.0[3].client().say("LOCK.GUARD ARM 6500");
    set(&locks, some(&nodes, &[0, 1, 3])).await;
    assert!(!guard.is_lost(), "it was held throughout");
    is_on_live(&nodes, "k", &[0, 1, 3]).await;
    assert_eq!(guard.release().await, Released::Released);
}

/// A new node does not answer in time, as under load: it is asked again, and then added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_that_does_not_answer_is_asked_again() {
    let (nodes, locks) = founded(3, &[0, 1]).await;
    let proxy = Proxy::before(&nodes.0[2]).await;
    proxy.swallow_answers();
    let mut change = pin!(set(&locks, [some(&nodes, &[0, 1]), vec![proxy.address()]].concat()));
    tokio::select! {
        () = &mut change => panic!("a node was added without an answer"),
        () = until("it is asked again", async || proxy.connections() >= 2) => proxy.pass(),
    }
    change.await;
    assert_eq!([0, 1, 2].map(|place| version(&nodes.0[place])), [2; 3]);
}

/// A new node is guarded, and answers only on every other connection. The client that changes the set asks it again and
/// again, and adds it only once it serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guarded_node_that_answers_now_and_then_is_not_added() {
    let (nodes, locks) = founded(3, &[0, 1]).await;
    nodes.0[2].client().say("LOCK.GUARD ARM 3600000");
    let proxy = Proxy::before(&nodes.0[2]).await;
    proxy.answer_every_other();
    let mut change = pin!(set(&locks, [some(&nodes, &[0, 1]), vec![proxy.address()]].concat()));
    tokio::select! {
        () = &mut change => panic!("a guarded node was added"),
        () = until("it is asked again", async || proxy.connections() >= 4) => {}
    }
    assert_eq!([0, 1, 2].map(|place| version(&nodes.0[place])), [1, 1, 0]);
    nodes.0[2].lift();
    proxy.pass();
    change.await;
    assert_eq!([0, 1, 2].map(|place| version(&nodes.0[place])), [2; 3]);
}

/// A new node refuses permanently, which ends the change, although another new node has not answered yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lasting_refusal_of_a_new_node_ends_the_change_at_once() {
    let (nodes, locks) = founded(4, &[0, 1]).await;
    let silent = Proxy::before(&nodes.0[2]).await;
    silent.swallow();
    nodes.0[3].client().say("ACL SETUSER default -lock.members");
    let new = vec![silent.address(), nodes.0[3].address()];
    let error = locks.set_nodes([some(&nodes, &[0, 1]), new].concat()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotAllowed, "{error}");
    assert_eq!(error.nodes().iter().map(|node| &*node.node).collect::<Vec<_>>(), [nodes.0[3].address()]);
    assert_eq!([0, 1].map(|place| version(&nodes.0[place])), [1; 2]);
}

/// Starts `count` nodes with short leases, and makes those at `places` the set. Returns them with a client of the set.
async fn founded(count: usize, places: &[usize]) -> (Nodes, Client) {
    let nodes = Nodes::start_with(count, short);
    let locks = nodes_client(&nodes, places).await;
    set(&locks, some(&nodes, places)).await;
    (nodes, locks)
}

async fn nodes_client(nodes: &Nodes, places: &[usize]) -> Client {
    let client = Client::new(some(nodes, places)).unwrap();
    connected(&client).await;
    client
}

/// Waits until a lock is on at least these nodes; the others are dead.
async fn is_on_live(nodes: &Nodes, key: &str, places: &[usize]) {
    until("the lock is where it should be", async || {
        places.iter().all(|&place| nodes.0[place].client().say(&format!("EXISTS {key}")) == int(1))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_takes_the_permission() {
    let nodes = Nodes::start_with(4, short);
    for server in &nodes.0 {
        server.client().say(&acl_rules("+lock.acquire")[0].replace("~orders:*", "~*"));
    }
    let with_user = |address: String| format!("{address}?user=app&pass=secret");
    let addresses = |places: &[usize]| some(&nodes, places).into_iter().map(with_user).collect::<Vec<_>>();
    let app = Client::new(addresses(&[0, 1, 2])).unwrap();
    connected(&app).await;
    let error = app.set_nodes(addresses(&[0, 1, 2, 3])).await.unwrap_err();
    assert_eq!((error.kind(), error.nodes().len()), (ErrorKind::NotAllowed, 3), "{error}");
    assert!(error.to_string().contains("+lock.setmembers"), "{error}");
    assert_eq!([0, 1, 2, 3].map(|place| version(&nodes.0[place])), [0; 4]);
    // The application's client follows a change that an operator makes, although its own user has fewer permissions.
    let operator = Client::new(some(&nodes, &[0, 1, 2])).unwrap();
    set(&operator, some(&nodes, &[1, 2, 3])).await;
    let guard = app.with(&brief()).lock("k").await.unwrap();
    is_on(&nodes, "k", &[1, 2, 3]).await;
    guard.release().await;
    // A client that is not allowed to state its version of the set gets an error that says so.
    for server in &nodes.0 {
        server.client().say("ACL SETUSER app -lock.members");
    }
    let deaf = Client::new(addresses(&[1, 2, 3])).unwrap();
    let error = deaf.with(&brief()).lock("k").await.unwrap_err();
    assert!(error.kind() == ErrorKind::NoQuorum && error.to_string().contains("+lock.members"), "{error}");
}

/// A node that lost its state file is a new node: its answers do not count until it is added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_at_an_address_is_no_member() {
    let (mut nodes, locks) = founded(3, &[0, 1, 2]).await;
    nodes.0[2].kill();
    fs::remove_file(state_file(&nodes.0[2])).unwrap();
    nodes.0[2].start_again();
    nodes.0[2].lift();
    let guard = locks.with(&brief()).lock("k").await.unwrap();
    nodes.0[1].signal(rustix::process::Signal::STOP);
    let lost = timeout(patience(), guard.lost()).await;
    lost.expect("with what another server grants there is no majority");
    let one = brief().node_timeout(ms(200));
    let error = locks.with(&one).try_lock("k").await.unwrap_err();
    assert!(error.kind() == ErrorKind::NoQuorum && error.to_string().contains("another server is there"), "{error}");
    nodes.0[1].signal(rustix::process::Signal::CONT);
    set(&locks, some(&nodes, &[0, 1, 2])).await;
    assert_eq!((version(&nodes.0[2]), members(&nodes.0[2])), (3, list(&nodes, &[0, 1, 2])));
    let guard = locks.with(&brief()).lock("k").await.unwrap();
    is_on(&nodes, "k", &[0, 1, 2]).await;
    guard.release().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_a_set_is_refused_before_anything_is_changed() {
    let nodes = Nodes::start_with(3, short);
    let locks = nodes_client(&nodes, &[0, 1]).await;
    let of_another_set = nodes_client(&nodes, &[2]).await;
    set(&of_another_set, some(&nodes, &[2])).await;
    let two = some(&nodes, &[0, 1]);
    let with = |address: &str| [&two[..], &[address.to_owned()]].concat();
    for (addresses, why) in [
        (vec![], "one node at least"),
        (with(&two[0]), "given twice"),
        (with("http://a"), "not an address"),
        (with("redis+cluster://a:1"), "by the id in its state file"),
        (with("redis+sentinel://a:1/locks"), "by the id in its state file"),
        (with(&some(&nodes, &[2])[0]), "another set"),
        (with("unix:///nobody/is/there"), "cannot be reached"),
    ] {
        let error = locks.set_nodes(addresses).await.unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    assert!([0, 1].iter().all(|&place| version(&nodes.0[place]) <= 1), "it was founded at most");
    let cluster = Client::builder().cluster(["redis://127.0.0.1:1"]).build().unwrap();
    let error = cluster.set_nodes(two).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Configuration && error.to_string().contains("cluster"), "{error}");
}

/// A program that watches a lock is slow to read its reports, and then the set changes. Its last report is of the present
/// holder all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_of_a_watch_learns_the_last_state_though_the_set_changed() {
    let nodes = Nodes::start_with(4, short);
    nodes.follow_their_clocks().await;
    let of_three = || Client::new(some(&nodes, &[0, 1, 2])).unwrap();
    let (locks, watcher) = (of_three(), of_three());
    connected(&locks).await;
    connected(&watcher).await;
    let mut changes = watcher.watch("k").unwrap();
    assert_eq!(changes.changed().await.unwrap(), None);
    // More reports than are kept for a reader. It takes them some time to arrive.
    let brief = locks.with(&brief());
    for _ in 0..10 {
        let guard = brief.lock("k").await.unwrap();
        tokio::time::sleep(ms(30)).await;
        guard.release().await;
        tokio::time::sleep(ms(30)).await;
    }
    let last = brief.lock("k").await.unwrap();
    tokio::time::sleep(ms(300)).await;
    set(&locks, some(&nodes, &[0, 1, 2, 3])).await;
    let seen = watcher.by_owner();
    until("the watcher follows", async || seen.standing().version >= 2 && seen.standing().nodes.len() == 4).await;
    let told = async { while changes.changed().await.unwrap().is_none_or(|holder| holder.token < last.token()) {} };
    timeout(patience(), told).await.expect("the present holder is reported");
}
