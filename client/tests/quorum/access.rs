//! A client whose user has exactly the permissions that docs/acl.md gives to an application.

use std::fs;

use palisade_client::{Client, Options, Released};

use crate::fixture::{Nodes, ms, until};
use crate::harness::{Setup, acl_rules};

/// A command that a client also sends if the server knows it, but can do without.
const BY_THE_WAY: &str = "client|setinfo";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_of_an_application_can_do_all_that_a_client_does() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users.acl");
    // With an ACL file a server has its users before any client connects, also after a restart.
    fs::write(&users, acl_rules("+lock.acquire")[0].replace("ACL SETUSER", "user") + "\n").unwrap();
    let setup = || {
        let setup = Setup::new().option("aclfile", users.to_str().unwrap());
        setup.module_arguments(&["max-ttl", "3000", "max-clock-skew", "1000"])
    };
    let mut nodes = Nodes::start_with(3, setup);
    let addresses = nodes.addresses_as_app("secret");
    let locks = Client::new(addresses.clone()).unwrap();
    locks.connect().await.unwrap();
    let options = Options::new().ttl(ms(3_000)).node_timeout(ms(2_500));

    // Nodes that have just started have different tokens, which takes a second round.
    let guard = locks.with(&options).try_lock("orders:7").await.unwrap();
    assert_eq!(guard.release().await, Released::Released);

    let guard = locks.with(&options).lock("orders:42").await.unwrap();
    let again = guard.reenter().await.unwrap();
    guard.extend().await.unwrap();
    let others = Client::new(addresses.clone()).unwrap();
    let patient = options.clone();
    let waiter = tokio::spawn(async move { others.with(&patient).lock("orders:42").await });
    nodes.queued(1).await;
    // A node that lost the lock grants it again.
    nodes.0[0].kill();
    nodes.0[0].start_again();
    until("the node has it again", async || nodes.holding("orders:42") == 3).await;
    assert_eq!(again.release().await, Released::StillHeld(1));
    assert_eq!(guard.release().await, Released::Released);
    assert_eq!(waiter.await.unwrap().unwrap().release().await, Released::Released);

    let one = Client::new([addresses[1].clone()]).unwrap();
    one.connect().await.unwrap();
    assert_eq!(one.with(&options).lock("orders:1").await.unwrap().release().await, Released::Released);
    for server in &nodes.0 {
        let denied = server.client().say("ACL LOG").as_list();
        let denied: Vec<String> = denied.iter().map(|entry| entry.field("object").as_text()).collect();
        assert!(denied.iter().all(|what| what == BY_THE_WAY), "{denied:?}");
    }
    let used: String = nodes.say("INFO commandstats").iter().map(|told| told.as_text().to_lowercase()).collect();
    for command in ["acquire", "release", "extend", "reenter", "wait", "node", "fence"] {
        assert!(used.contains(&format!("cmdstat_lock.{command}:calls=")), "{command} was not tried: {used}");
    }
}
