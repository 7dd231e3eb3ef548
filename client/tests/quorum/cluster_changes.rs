//! Slots that move while their locks are held, and while many requests wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use palisade_client::{Client, Loss, Options, Released};

use crate::cluster::{MAX_TTL_MS, Six, options, tcp};
use crate::fixture::{Register, connected, locking, ms, slot, until};
use crate::harness::{Member, Reply, int, joined_with, text, wait_until};

/// A key whose slot belongs to the second master.
const KEY: &str = "k";

/// Moves the slot of [`KEY`] with its locks, as operators do: each key by MIGRATE, then the slot by SETSLOT on every
/// master.
fn move_by_keys(masters: &[&Member], from: &Member, to: &Member) {
    let slot = slot(KEY);
    assert_eq!(to.client().say(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id)), text("OK"));
    assert_eq!(from.client().say(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id)), text("OK"));
    let mut source = from.client();
    wait_until("all keys are there", || {
        for key in source.say(&format!("CLUSTER GETKEYSINSLOT {slot} 100")).as_list() {
            let line = format!("MIGRATE 127.0.0.1 {} {} 0 60000", to.server.port(), key.as_text());
            if let Reply::Error(why) = source.say(&line) {
                panic!("{why}");
            }
        }
        source.say(&format!("CLUSTER COUNTKEYSINSLOT {slot}")) == int(0)
    });
    for member in [to, from].iter().chain(masters) {
        assert_eq!(member.client().say(&format!("CLUSTER SETSLOT {slot} NODE {}", to.id)), text("OK"));
    }
}

/// Moves the slot in one step, and returns true; false if the server cannot do that.
fn move_at_once(from: &Member, to: &Member) -> bool {
    let slot = slot(KEY);
    let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", to.id);
    if let Reply::Error(why) = from.client().say(&line) {
        assert!(why.to_lowercase().contains("unknown subcommand"), "{why}");
        println!("this server does not move slots in one step");
        return false;
    }
    let mut source = from.client();
    wait_until("it has moved", || source.say(&format!("EXISTS {KEY}")).is_error("MOVED"));
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_that_moved_with_its_keys_can_be_released_and_runs_out() {
    let six = Six::start(60_000);
    let masters: Vec<_> = six.masters().collect();
    let locks = six.client().await;
    let guard = locks.with(&options().ttl(ms(MAX_TTL_MS))).lock(KEY).await.unwrap();
    let token = guard.token();
    move_by_keys(&masters, masters[1], masters[2]);
    assert_eq!(guard.release().await, Released::Released);
    let next = locks.with(&options()).lock(KEY).await.unwrap();
    assert!(next.token() > token);
    // A lock that arrived by MIGRATE is suspect: it is not extended, and no other client gets it before it has ended.
    move_by_keys(&masters, masters[2], masters[0]);
    let locks = locks.with(&options());
    let (loss, after) = tokio::join!(next.lost(), locks.lock(KEY));
    assert!(matches!(loss, Loss::TooFewNodes(_)), "{loss}");
    let after = after.unwrap();
    assert!(after.token() > next.token() && after.is_valid() && !next.is_valid());
    assert_eq!(masters[0].server.info("held"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_that_moved_in_one_step_is_extended_where_it_is() {
    let six = Six::start(60_000);
    let masters: Vec<_> = six.masters().collect();
    let locks = six.client().await;
    let guard = locks.with(&options()).lock(KEY).await.unwrap();
    let waiting = locking(&locks, &options(), KEY);
    until("it waits", async || masters[1].server.info("waiters") == 1).await;
    for (from, to) in [(1, 2), (2, 0), (0, 1)] {
        if !move_at_once(masters[from], masters[to]) {
            return;
        }
        until("it waits there", async || masters[to].server.info("waiters") == 1).await;
        // The rest of the old lease ends.
        tokio::time::sleep(ms(MAX_TTL_MS + 300)).await;
        assert!(guard.is_valid(), "it is the same lock");
    }
    let token = guard.token();
    assert_eq!(guard.release().await, Released::Released);
    let next = waiting.await.unwrap();
    assert!(next.token() > token);
    next.release().await;
}

/// Many tasks want a few locks of one slot, which moves from master to master. No lock is held twice, tokens rise, and
/// each task gets each lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_wait_while_their_slot_goes_round() {
    let six = Six::start(60_000);
    let masters: Vec<_> = six.masters().collect();
    let clients = [six.client().await, six.client().await];
    let judged: Vec<_> = (0..3).map(|n| (format!("{{{KEY}}}{n}"), Arc::new(Judge::default()))).collect();
    let workers: Vec<_> = (0..18)
        .map(|n| {
            let (key, judge) = judged[n % 3].clone();
            tokio::spawn(take_turns(clients[n % 2].clone(), key, judge))
        })
        .collect();
    for moves in 0..8 {
        let (from, to) = ([1, 2, 0][moves % 3], [2, 0, 1][moves % 3]);
        // The slot moves alternately in both ways, if the server knows both.
        if moves % 2 == 0 || !tokio::task::block_in_place(|| move_at_once(masters[from], masters[to])) {
            tokio::task::block_in_place(|| move_by_keys(&masters, masters[from], masters[to]));
        }
        let before: usize = judged.iter().map(|(_, judge)| judge.judge()).sum();
        until("some had it there", async || judged.iter().map(|(_, judge)| judge.judge()).sum::<usize>() > before + 20)
            .await;
    }
    judged.iter().for_each(|(_, judge)| judge.is_over());
    for worker in workers {
        worker.await.unwrap();
    }
    println!("{:?} turns", judged.iter().map(|(_, judge)| judge.judge()).collect::<Vec<_>>());
}

/// A resource protected by locks, and the intervals in which tasks report that they held them.
#[derive(Default)]
pub struct Judge {
    is_over: AtomicBool,
    register: Mutex<Register>,
    had: Mutex<Vec<(Instant, Instant, u64)>>,
}

impl Judge {
    /// Checks that no two tasks held a lock at once, and that later holders have larger tokens. Returns how many times
    /// a task held a lock.
    pub fn judge(&self) -> usize {
        let mut had = self.had.lock().unwrap().clone();
        had.sort_unstable();
        for pair in had.windows(2) {
            let [(_, left, before), (came, _, after)] = pair else { continue };
            assert!(left < came && before < after, "token {before}, then {after}: {pair:?}");
        }
        had.len()
    }

    /// Ends each worker after it has held the lock once more.
    pub fn is_over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Acquires the lock and writes under it, again and again until the judge has ended, and at least once after that.
pub async fn take_turns(locks: Client, key: String, judge: Arc<Judge>) {
    take_turns_with(locks, key, judge, options()).await;
}

/// Acquires the lock repeatedly with these options. See [`take_turns`].
pub async fn take_turns_with(locks: Client, key: String, judge: Arc<Judge>, options: Options) {
    let mut was_over = false;
    while !was_over {
        let is_over = judge.is_over.load(Ordering::Relaxed);
        let guard = locks.with(&options).lock(&key).await.unwrap();
        let came = Instant::now();
        tokio::time::sleep(ms(2)).await;
        let is_taken = judge.register.lock().unwrap().write(guard.token());
        let left = Instant::now();
        // A hold that was not valid until its end proves nothing.
        if guard.is_valid() {
            assert!(is_taken, "the write of a holder was refused: token {}", guard.token());
            judge.had.lock().unwrap().push((came, left, guard.token()));
            was_over = is_over;
        }
        guard.release().await;
    }
}

/// Thousands of requests wait for locks of one slot, which moves: each gets its turn on the slot's last master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_wait_while_their_slot_moves() {
    const WAITING: usize = 2_000;
    let six = Six::start(60_000);
    let masters: Vec<_> = six.masters().collect();
    let locks = six.client().await;
    let name = |n: usize| format!("{{{KEY}}}{n}");
    // There is one lock for ten requests.
    let names = WAITING / 10;
    let mut held = vec![];
    for n in 0..names {
        held.push(locks.with(&options()).lock(name(n)).await.unwrap());
    }
    let patient = options().node_timeout(ms(10_000));
    let mut waiting = tokio::task::JoinSet::new();
    // Of the requests of one client for one lock, only one waits on the nodes.
    let mut clients = vec![];
    for _ in 0..WAITING / names {
        clients.push(six.client().await);
    }
    let had_turn = Arc::new(AtomicU64::new(0));
    for n in 0..WAITING {
        let (locks, name, patient) = (clients[n / names].clone(), name(n % names), patient.clone());
        let had_turn = had_turn.clone();
        waiting.spawn(async move {
            let guard = locks.with(&patient).lock(&name).await.unwrap();
            had_turn.fetch_add(1, Ordering::Relaxed);
            let token = guard.token();
            guard.release().await;
            (name, token)
        });
    }
    // On a busy machine a lock may be extended too late. Then those that waited for it have their turns at once.
    until("all wait", async || masters[1].server.info("waiters") + had_turn.load(Ordering::Relaxed) == WAITING as u64)
        .await;
    // Locks that are extended keep the others waiting; those that arrived by MIGRATE end.
    for (moves, (from, to)) in [(1, 2), (2, 0), (0, 1)].into_iter().enumerate() {
        tokio::task::block_in_place(|| {
            if moves == 1 || !move_at_once(masters[from], masters[to]) {
                move_by_keys(&masters, masters[from], masters[to]);
            }
        });
    }
    drop(held);
    let mut turns = std::collections::BTreeMap::<String, Vec<u64>>::new();
    while let Some(served) = waiting.join_next().await {
        let (name, token) = served.unwrap();
        turns.entry(name).or_default().push(token);
    }
    assert_eq!(turns.values().map(Vec::len).sum::<usize>(), WAITING);
    for tokens in turns.values_mut() {
        tokens.sort_unstable();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "one grant, one token: {tokens:?}");
    }
    let is_idle = |master: &&Member| (master.server.info("waiters"), master.server.info("held")) == (0, 0);
    until("nobody waits, nobody holds", async || masters.iter().all(is_idle)).await;
}

/// A client that was given only the address of a master without slots finds the others: that master redirects it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_that_serves_nothing_is_enough() {
    let members = joined_with(["0 16383", ""], |setup| setup);
    let locks = Client::builder().cluster([tcp(&members[1])]).build().unwrap();
    connected(&locks).await;
    let guard = locks.with(&Options::new()).lock(KEY).await.unwrap();
    assert_eq!((members[0].server.info("held"), members[1].server.info("held")), (1, 0));
    guard.release().await;
}

/// A master dies while a leader relies on its term, and its only slot is given to another master without its locks.
/// The client does not say that the term has ended, nor that the lock is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_came_without_its_locks_ends_no_term() {
    let mut members = joined_with(["0 7628 7630 16383", "7629 7629", ""], |setup| setup);
    let client = Client::builder().cluster([tcp(&members[0]), tcp(&members[2])]).build().unwrap();
    connected(&client).await;
    let term = client.election(KEY).campaign("me").await.unwrap();
    assert!(client.election(KEY).leader().await.unwrap().is_some());
    members[1].server.kill();
    for at in [2, 0] {
        let assign = format!("CLUSTER SETSLOT {} NODE {}", slot(KEY), members[2].id);
        assert_eq!(members[at].client().say(&assign), text("OK"));
    }
    let owners = client.by_owner();
    let shown = async || (client.election(KEY).leader().await, owners.info(KEY.as_bytes(), None).await);
    until("the client finds the new master", async || {
        let (leader, info) = shown().await;
        assert!(!matches!(leader, Ok(None)), "nobody leads");
        assert!(!matches!(info, Ok(None)), "it is free");
        [leader.map(drop), info.map(drop)]
            .into_iter()
            .all(|told| told.is_err_and(|why| format!("{why:?}").contains("may have forgotten")))
    })
    .await;
    drop(term);
}
