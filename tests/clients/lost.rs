//! Recipes on a network that loses the answer to an ACQUIRE.

use crate::harness::{Setup, null};
use crate::lossy::LossyNetwork;
use crate::page::{INDEX, Page, SENDS_AGAIN};
use crate::running::run;
use crate::{Recipe, build, story, writes_pages};

/// Runs a recipe that never gets the answer to its first ACQUIRE. The client either reports that, or repeats the
/// request by itself and gets the answer that it already has the lock. Both end the recipe.
pub fn is_sent_again_as_the_index_says(recipe: &Recipe) {
    build(recipe.build);
    let server = Setup::new().replication().start();
    let network = LossyNetwork::to(server.port(), &["LOCK.ACQUIRE"]);
    let ended = run(recipe.run, network.port());
    assert!(!ended.status.success(), "nothing was lost:\n{}", ended.printed);
    let sends_again = match network.requests() {
        1 => "no",
        2 => "yes",
        other => panic!("{other} requests:\n{}{}", ended.printed, ended.complaint),
    };
    if writes_pages() {
        Page::change(INDEX, |index| index.sends_again(recipe.client, sends_again));
    } else {
        let said = Page::read(INDEX).row(recipe.client).expect("a row")[SENDS_AGAIN].clone();
        assert_eq!(sends_again, said, "docs/clients/README.md says something else: make client-pages");
    }
}

/// Runs a recipe whose function for locks never gets the answer to its ACQUIRE. A client that repeats the request gets
/// the token, due to RETRY, and continues. Any other client fails, but releases the lock.
pub fn gives_back_what_it_does_not_know_of(recipe: &Recipe) {
    build(recipe.build);
    let server = Setup::new().replication().start();
    // Only that function sends WAIT and RETRY together.
    let network = LossyNetwork::to(server.port(), &["LOCK.ACQUIRE", "WAIT", "RETRY"]);
    let ended = run(recipe.run, network.port());
    let context = || format!("{}\n{}{}", ended.status, ended.printed, ended.complaint);
    assert!(network.requests() > 0, "nothing was lost: {}", context());
    assert_eq!(ended.status.success(), network.requests() > 1, "{}", context());
    if ended.status.success() {
        assert!(story::told(&ended.printed).is_ok(), "{}", context());
    }
    assert_eq!(server.client().say("LOCK.INFO orders:42"), null(), "the lock is still held: {}", context());
}
