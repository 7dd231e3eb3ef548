//! Locks that an operator breaks while requests of their owners are on the way.

use palisade_client::ErrorKind;
use palisade_client::by_owner::ByOwner;

use super::patient;
use crate::fixture::{Nodes, until};
use crate::harness::{Reply, int, null};
use crate::proxy::{Proxy, before_each};

/// The attempt of the owner whose grants are broken.
const ME: &str = "me#0123456789abcdef";
/// The attempt of another reader.
const YOU: &str = "you#0123456789abcdef";

/// Five nodes that have granted `k` to two readers, of which the process of the operator does not reach the first two.
struct Five {
    nodes: Nodes,
    proxies: Vec<Proxy>,
    locks: ByOwner,
    /// The token of the first reader on the last node.
    token: u64,
}

impl Five {
    async fn new() -> Self {
        let nodes = Nodes::start(5);
        let (proxies, addresses) = before_each(&nodes.0).await;
        let locks = patient(&addresses).await.by_owner();
        let granted = nodes.say(&format!("LOCK.ACQUIRE k {ME} 60000 SHARED"));
        nodes.say(&format!("LOCK.ACQUIRE k {YOU} 60000 SHARED"));
        proxies[..2].iter().for_each(Proxy::cut);
        Self { proxies, locks, token: granted[4].as_int() as u64, nodes }
    }

    /// Returns for each node whether it has a grant of this attempt.
    fn has(&self, attempt: &str) -> [bool; 5] {
        let infos = self.nodes.say("LOCK.INFO k HOLDERS 10");
        let lists = |info: &Reply| {
            *info != null()
                && info.field("grants").as_list().iter().any(|grant| grant.field("owner").as_text() == attempt)
        };
        std::array::from_fn(|place| lists(&infos[place]))
    }

    /// Grants the lock to the first reader again as soon as the last node has ended its grant, before the operator is
    /// answered: a request of its owner was on the way.
    async fn grant_again(&self) {
        until("its grant has ended there", async || !self.has(ME)[4]).await;
        let granted = self.nodes.0[4].client().say(&format!("LOCK.ACQUIRE k {ME} 60000 SHARED"));
        assert!(granted.as_int() > 0);
    }
}

/// The answer is a token once a majority does not have the lock, and not when a majority has answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_came_back_is_broken_again() {
    for is_named in [true, false] {
        let five = Five::new().await;
        five.proxies[4].hold_break();
        let again = async {
            five.grant_again().await;
            five.proxies[4].pass();
        };
        let token = is_named.then_some(five.token);
        let (broken, ()) = tokio::join!(five.locks.break_lock(b"k", token), again);
        assert!(broken.unwrap() >= Some(five.token));
        assert_eq!(five.has(ME), [true, true, false, false, false]);
        let others = five.has(YOU);
        assert_eq!(others, if is_named { [true; 5] } else { [true, true, false, false, false] });
    }
}

/// The grant comes back each time. The error names the nodes that have it, or may have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_comes_back_for_ever_is_not_called_broken() {
    for is_named in [true, false] {
        let five = Five::new().await;
        let again = async {
            loop {
                five.proxies[4].hold_break();
                five.grant_again().await;
            }
        };
        let token = is_named.then_some(five.token);
        let error = tokio::select! {
            broken = five.locks.break_lock(b"k", token) => broken.unwrap_err(),
            () = again => unreachable!(),
        };
        let away: Vec<_> = error.nodes().iter().map(|node| node.node.clone()).collect();
        let expected = [0, 1, 4].map(|place: usize| five.proxies[place].name());
        assert!(error.kind() == ErrorKind::NoQuorum && away == expected, "{error}");
        assert!(error.to_string().contains("it granted the lock to the same holder again"), "{error}");
        five.proxies.iter().for_each(Proxy::pass);
        until("the nodes are reached, and it is broken", async || {
            let _ = five.locks.break_lock(b"k", None).await;
            five.nodes.say("EXISTS k").iter().all(|reply| *reply == int(0))
        })
        .await;
    }
}
