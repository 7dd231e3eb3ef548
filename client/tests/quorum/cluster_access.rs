//! A cluster with passwords: the client uses them for all masters, also for those that it finds in the map.

use std::fs;

use palisade_client::{Client, Credentials};

use crate::cluster::{options, tcp};
use crate::fixture::{connected, until};
use crate::harness::{Member, joined_with};

/// The slots of two masters.
const SLOTS: [&str; 2] = ["0 8191", "8192 16383"];

fn keys() -> [String; 2] {
    let of = |is_first: bool| move |key: &String| (crate::fixture::slot(key) < 8_192) == is_first;
    [true, false].map(|is_first| (0..).map(|n| format!("key{n}")).find(of(is_first)).unwrap())
}

fn held(members: &[Member; 2]) -> [u64; 2] {
    [members[0].server.info("held"), members[1].server.info("held")]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_was_changed_on_all_masters_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    let members = joined_with(SLOTS, |setup| setup);
    let on_all = |line: &str| members.each_ref().map(|member| member.server.client().say(line));
    let user = |password: &str| format!("ACL SETUSER app reset on >{password} ~* +@all");
    on_all(&user("first"));
    fs::write(&file, "app:first\n").unwrap();
    let locks = Client::builder().cluster([tcp(&members[0])]).credentials(Credentials::file(&file)).build().unwrap();
    connected(&locks).await;
    let mut guards = vec![];
    for key in keys() {
        guards.push(locks.with(&options()).lock(key).await.unwrap());
    }
    on_all(&user("second"));
    on_all("CLIENT KILL USER app");
    let is_refused = |member: &Member| !member.server.client().say("ACL LOG").as_list().is_empty();
    until("the old password is refused", async || members.iter().all(is_refused)).await;
    fs::write(&file, "app:second\n").unwrap();
    for guard in &guards {
        until("the new one is read, and the lock extended", async || guard.extend().await.is_ok()).await;
    }
    assert_eq!(held(&members), [1, 1]);
    for guard in guards {
        guard.release().await;
    }
}
