//! `palisade break --token`: breaks the grant of the holder with this token, whatever happens to the holder's tokens
//! meanwhile.

use crate::fixture::{Nodes, run};
use crate::harness::Frozen;
use crate::pty::Person;

/// Makes an owner hold `k` on three nodes. Returns its tokens there, in ascending order.
fn held(nodes: &Nodes) -> [i64; 3] {
    nodes.say("LOCK.ACQUIRE k me 60000 NOTE web-1");
    let base = nodes.say("LOCK.INFO k").iter().map(|reply| reply.field("token").as_int()).max().unwrap();
    [10, 20, 30].map(|more| raised(nodes, more as usize / 10 - 1, base + more))
}

fn raised(nodes: &Nodes, node: usize, token: i64) -> i64 {
    nodes.servers[node].client().insist(&format!("LOCK.FENCE k me {token}")).as_int()
}

/// Starts a break of the holder with this token, which asks for confirmation.
fn asked(nodes: &Nodes, token: i64) -> Person {
    let mut person = Person::at(nodes, &["bash", "-c", &format!("exec $P break k --token {token}")]);
    person.sees(&format!("Break k for the holder with token {token}? [y/N]"));
    person
}

#[test]
fn a_holder_that_raises_its_tokens_meanwhile_is_broken() {
    let nodes = Nodes::start(3);
    let [.., token] = held(&nodes);
    let mut person = asked(&nodes, token);
    (0..3).for_each(|node| _ = raised(&nodes, node, token + 100));
    person.types("y\n");
    let (code, screen) = person.end();
    assert!(screen.contains(&format!("k: broken on 3 of 3 nodes, token {}", token + 100)), "{screen}");
    assert_eq!((code, nodes.holding("k")), (Some(0), 0));
}

/// The nodes have different tokens for the holder, and one of them answers only after the confirmation was asked for.
#[test]
fn a_node_that_hung_breaks_the_token_that_it_has() {
    let nodes = Nodes::start(3);
    let [first, middle, _] = held(&nodes);
    let frozen = Frozen::new(&nodes.servers[2]);
    let mut person = asked(&nodes, first);
    drop(frozen);
    person.types("y\n");
    let (code, screen) = person.end();
    assert!(screen.contains(&format!("k: broken on 3 of 3 nodes, token {middle}")), "{screen}");
    assert_eq!((code, nodes.holding("k")), (Some(0), 0));
}

#[test]
fn a_token_that_only_a_silent_node_has_cannot_be_found() {
    let nodes = Nodes::start(3);
    let [first, middle, last] = held(&nodes);
    let line = format!("break --yes k --token {last}");
    let frozen = Frozen::new(&nodes.servers[2]);
    let ended = run(nodes.palisade(&line));
    let said = format!(
        "k: nothing was broken: no node that answered has token {last}, its holder has token {first} now; a node that did not answer may have it: "
    );
    ended.assert_refused_after(196, &said);
    for line in ["break --yes free", "break --yes free --token 7"] {
        let free = run(nodes.palisade(line));
        assert_eq!((free.code(), &*free.out()), (Some(0), "free: no node that answered has it, nothing was broken\n"));
    }
    assert_eq!(nodes.servers[0].client().say("LOCK.INFO k").field("token").as_int(), first);
    drop(frozen);
    assert_eq!(run(nodes.palisade(&line)).out(), format!("k: broken on 3 of 3 nodes, token {middle}\n"));
    assert_eq!(nodes.holding("k"), 0);
}

/// `break --token` with a token that no holder has breaks nothing, and the output names the present token. (The
/// holder's token may have risen since the operator read it.)
#[test]
fn a_token_that_has_risen_is_said() {
    let nodes = Nodes::start(3);
    let [_, middle, _] = held(&nodes);
    let said = |line: &str| run(nodes.palisade(line)).out();
    let now = format!("k: no node has token 7, its holder has token {middle} now, nothing was broken\n");
    assert_eq!(said("break --yes k --token 7"), now);
    let readers = ["LOCK.ACQUIRE s one 60000 SHARED", "LOCK.ACQUIRE s two 60000 SHARED"].map(|line| nodes.say(line));
    assert!(
        said("break --yes s --token 7").contains("s: no node has token 7, its holders have tokens "),
        "{readers:?}"
    );
    assert_eq!(said("break --yes free --token 7"), "free: no node has it, nothing was broken\n");
    assert_eq!((nodes.holding("k"), nodes.holding("s")), (3, 3));
}
