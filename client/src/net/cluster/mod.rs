//! A cluster as one node of the list: requests go to the master that serves the slot of their key.
//!
//! Each master is a [`Node`] with its own connections, adaptive timeout and pending releases. So a dead or frozen
//! master affects only the keys of its own slots. The servers report the master of each slot (CLUSTER SLOTS), and so
//! does each redirection; redis-rs computes the slot of a key.

mod asking;
pub mod map;
mod staying;
mod views;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt;
use palisade_quorum::NodeId;
use redis::cluster_routing::Slot;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tracing::info;

use self::map::{Place, SLOTS, View};
pub use self::views::{cluster_name, view_of};
use crate::net::access::Way;
use crate::net::bounds::UNHURRIED;
use crate::net::debt::Debt;
use crate::net::node::{Common, Node, Whereabouts};
use crate::values::failure::Why;

/// Number of low bits of a connection's number that count the connections of one master; the higher bits are the
/// master's number.
const NUMBERED_FROM: u32 = 32;

/// A cluster, which is one entry of the client's list of nodes.
#[derive(Debug)]
pub struct Cluster {
    /// A weak reference to this cluster, through which tasks of its masters make pending releases.
    this: Weak<Self>,
    name: String,
    /// The cluster's index in the client's list of nodes.
    place: usize,
    /// The servers that the user named.
    seeds: Vec<Way>,
    known: watch::Sender<MapStatus>,
    /// The masters by address: those in the map, and those that redirections named.
    masters: Mutex<HashMap<Place, Master>>,
    /// Number of masters created so far, from which the numbers of their connections derive.
    count: AtomicU64,
    /// Notified when the map of slots may have changed.
    stale: Notify,
    common: Common,
}

/// The state of the map of slots.
#[derive(Clone, Debug)]
enum MapStatus {
    /// No server has answered so far.
    Nothing,
    /// There is no map of slots, for this reason.
    Failed(Why),
    Map(Arc<Map>),
}

/// The map of slots: the master of each.
#[derive(Clone, Debug)]
struct Map {
    /// The index in `masters` for each slot.
    slots: HashMap<Slot, u16>,
    masters: Vec<Arc<Node>>,
    /// Servers that serve no slot now; they can be asked for a map of slots too.
    replicas: Vec<Place>,
}

/// A master, and the tasks that keep it connected as long as this value lives.
#[derive(Debug)]
struct Master {
    node: Arc<Node>,
    tasks: Vec<AbortHandle>,
}

impl Drop for Master {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.node.retire("it is no master of the cluster now");
    }
}

impl Map {
    fn master(&self, slot: Slot) -> Option<&Arc<Node>> {
        self.masters.get(usize::from(*self.slots.get(&slot)?))
    }
}

impl Cluster {
    /// Creates the cluster of the servers `seeds`, which is the entry `place` of the client's list of nodes. Nothing is
    /// connected yet.
    pub fn new(place: usize, seeds: Vec<Way>, common: &Common) -> Arc<Self> {
        let name = cluster_name(&seeds);
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            name,
            place,
            seeds,
            known: watch::Sender::new(MapStatus::Nothing),
            masters: Mutex::default(),
            count: AtomicU64::new(0),
            stale: Notify::new(),
            common: common.clone(),
        })
    }

    /// Returns the cluster's name, made of the servers that the user named.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the cluster's masters, as far as they are known.
    pub fn masters(&self) -> Vec<Arc<Node>> {
        match &*self.known.borrow() {
            MapStatus::Map(map) => map.masters.clone(),
            MapStatus::Nothing | MapStatus::Failed(_) => vec![],
        }
    }

    /// Returns the master of `key`, if it is known.
    pub fn known_master(&self, key: &[u8]) -> Option<Arc<Node>> {
        match &*self.known.borrow() {
            MapStatus::Map(map) => map.master(Slot::for_key(key)).map(Arc::clone),
            MapStatus::Nothing | MapStatus::Failed(_) => None,
        }
    }

    /// Returns whether to send a request about `key`: it can be answered, or fails at once with a lasting error.
    pub fn is_worth_asking(&self, key: &[u8]) -> bool {
        match &*self.known.borrow() {
            MapStatus::Nothing => true,
            MapStatus::Failed(failure) => failure.is_lasting(),
            MapStatus::Map(map) => map.master(Slot::for_key(key)).is_some_and(|node| node.is_worth_asking()),
        }
    }

    /// Returns the cluster's id, which is the lowest of its masters' ids, once each master is connected or has failed.
    ///
    /// # Errors
    /// There is no map of the cluster, no master is connected, or a master has failed permanently, for example because
    /// it lacks the module.
    pub async fn connected(&self, by: Instant) -> Result<NodeId, Why> {
        let map = self.map(by).await?;
        let (mut lowest, mut last) = (None, None);
        for node in &map.masters {
            match node.connected(by).await {
                Ok(id) => lowest = Some(lowest.map_or(id, |lowest: NodeId| if id.0 < lowest.0 { id } else { lowest })),
                Err(failure) if failure.is_lasting() => return Err(failure.of_server(node.name())),
                Err(failure) => last = Some(failure.of_server(node.name())),
            }
        }
        let none = || Why::Unreachable("no slot is served".to_owned());
        lowest.ok_or_else(|| last.unwrap_or_else(none))
    }

    /// Returns the map of slots. If there has never been one, waits for it until `by`.
    async fn map(&self, by: Instant) -> Result<Arc<Map>, Why> {
        let mut known = self.known.subscribe();
        let known = timeout_at(by, known.wait_for(|known| !matches!(known, MapStatus::Nothing))).await;
        match known.ok().and_then(Result::ok).as_deref() {
            Some(MapStatus::Map(map)) => Ok(Arc::clone(map)),
            Some(MapStatus::Failed(failure)) => Err(failure.clone()),
            Some(MapStatus::Nothing) | None => Err(Why::Unreachable("no server of it has answered yet".to_owned())),
        }
    }

    /// Returns the master of `key`.
    async fn master_of(&self, key: &[u8], by: Instant) -> Result<Arc<Node>, Why> {
        let map = self.map(by).await?;
        map.master(Slot::for_key(key)).map(Arc::clone).ok_or_else(|| {
            self.stale.notify_one();
            Why::Unreachable(format!("no master serves slot {} of this key", number_of(Slot::for_key(key))))
        })
    }

    fn all_masters(&self) -> MutexGuard<'_, HashMap<Place, Master>> {
        self.masters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the master at `place`, creating and connecting it if it is new.
    fn master_at(&self, masters: &mut HashMap<Place, Master>, place: &Place) -> Arc<Node> {
        let new = || {
            // The settings of the first server apply to all servers of a cluster.
            let way = Arc::new(self.seeds[0].to(&place.host, place.port));
            let first = (self.count.fetch_add(1, Ordering::Relaxed) << NUMBERED_FROM) + 1;
            let node = Node::new(self.place, Whereabouts::At(way), &self.common).of_cluster(first);
            let node = Arc::new(node);
            let stay = {
                let node = Arc::clone(&node);
                tokio::spawn(async move { node.stay_connected().await }).abort_handle()
            };
            let (cluster, own) = (Weak::clone(&self.this), Arc::clone(&node));
            // A release goes to the present master of the slot, which may have moved meanwhile.
            let release = move |debt: Arc<Debt>| {
                let (cluster, own) = (cluster.upgrade(), Arc::clone(&own));
                let paid = async move {
                    match cluster {
                        Some(cluster) => cluster.ask(&debt.command, UNHURRIED, None).await.1,
                        None => own.ask(&debt.command, UNHURRIED, None).await.1,
                    }
                };
                paid.boxed()
            };
            let pay = tokio::spawn(Arc::clone(&node).pay(release)).abort_handle();
            Master { node, tasks: vec![stay, pay] }
        };
        Arc::clone(&masters.entry(place.clone()).or_insert_with(new).node)
    }

    /// Installs a new map of slots, and forgets masters that are no longer in it.
    fn install(&self, view: &View) {
        let mut all = self.all_masters();
        let mut map = Map { slots: HashMap::with_capacity(SLOTS.into()), masters: vec![], replicas: vec![] };
        let mut places: HashMap<&Place, u16> = HashMap::new();
        for shard in &view.shards {
            let Some((master, replicas)) = shard.servers.split_first() else { continue };
            let Ok(next) = u16::try_from(map.masters.len()) else { continue };
            let at = *places.entry(master).or_insert(next);
            if at == next {
                map.masters.push(self.master_at(&mut all, master));
                map.replicas.extend(replicas.iter().cloned());
            }
            map.slots.extend((shard.first..=shard.last).filter_map(Slot::new).map(|slot| (slot, at)));
        }
        self.common.admission.has_masters(map.masters.len());
        let before = all.len();
        let leaving = all.iter().filter(|(place, _)| !places.contains_key(place));
        let owed: Vec<_> = leaving.flat_map(|(_, master)| master.node.take_debts()).collect();
        all.retain(|place, _| places.contains_key(place));
        if all.len() != before
            || !matches!(&*self.known.borrow(), MapStatus::Map(old) if old.masters.len() == map.masters.len())
        {
            info!(
                cluster = self.name(),
                masters = map.masters.len(),
                slots = map.slots.len(),
                "the masters of the cluster"
            );
        }
        drop(all);
        self.known.send_replace(MapStatus::Map(Arc::new(map)));
        // The replica that took over has the locks that are to be released. If nobody serves a slot, its locks end with
        // their leases.
        for debt in owed {
            if let Some(master) = self.known_master(&debt.lease.key) {
                master.owe(&debt);
            }
        }
        self.common.answers_again.notify_waiters();
    }

    /// Records that a redirection named the server at `place` as master of `key`'s slot, and returns that server.
    fn moved(&self, key: &[u8], place: &Place) -> Arc<Node> {
        let slot = Slot::for_key(key);
        let mut all = self.all_masters();
        let master = self.master_at(&mut all, place);
        self.known.send_if_modified(|known| {
            let MapStatus::Map(map) = known else { return false };
            if map.master(slot).is_some_and(|node| Arc::ptr_eq(node, &master)) {
                return false;
            }
            let map = Arc::make_mut(map);
            let at = map.masters.iter().position(|node| Arc::ptr_eq(node, &master)).unwrap_or_else(|| {
                map.masters.push(Arc::clone(&master));
                map.masters.len() - 1
            });
            if let Ok(at) = u16::try_from(at) {
                map.slots.insert(slot, at);
            }
            true
        });
        self.stale.notify_one();
        master
    }

    /// Returns the server at `place`, which a redirection named for a single request (ASK).
    fn importing(&self, place: &Place) -> Arc<Node> {
        self.master_at(&mut self.all_masters(), place)
    }
}

/// Returns the number of a slot, for people.
fn number_of(slot: Slot) -> u16 {
    (0..SLOTS).find(|&number| Slot::new(number) == Some(slot)).unwrap_or(SLOTS)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use palisade_quorum::{BootTime, Wanted};
    use redis::Value;

    use super::map::View;
    use crate::Client;
    use crate::net::debt::Debt;
    use crate::net::endpoint::Endpoint;
    use crate::net::lease::Lease;

    /// Returns the view of a cluster whose only master has this port.
    fn view(port: i64) -> View {
        let info = Value::BulkString(b"cluster_state:ok\r\ncluster_current_epoch:1\r\n".to_vec());
        let server = Value::Array(vec![Value::BulkString(b"127.0.0.1".to_vec()), Value::Int(port)]);
        let slots = Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16_383), server])]);
        View::read(&info, &slots, "127.0.0.1").unwrap()
    }

    #[tokio::test]
    async fn a_release_that_is_owed_to_a_dead_master_goes_to_the_one_that_took_over() {
        let client = Client::builder().cluster(["redis://127.0.0.1:1"]).build().unwrap();
        let nodes = client.nodes();
        let Endpoint::Cluster(cluster) = &nodes.list[0] else { panic!("a cluster") };
        cluster.install(&view(1));
        let lease = Arc::new(Lease::new((*b"k").into(), (None, 0), b"", Wanted::Exclusive, 1));
        nodes.owe(0, &Debt::new(&lease, lease.release(1), BootTime::MAX));
        for port in [1, 2, 3] {
            cluster.install(&view(port));
            assert_eq!(nodes.unpaid().0, 1);
        }
    }
}
