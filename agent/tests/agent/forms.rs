//! Compares the agent's answers with a node's: they must be equal, except for tokens, times, and fields that only one
//! of them has.

use crate::fixture::{Nodes, Raw};

/// The lines that are sent to a node and to the agent. `T` stands for the token that was granted last.
const SCRIPT: &[&str] = &[
    "LOCK.INFO k",
    "LOCK.RELEASE k me",
    "LOCK.EXTEND k me 5000",
    "LOCK.REENTER k me",
    "LOCK.NOTE k me text",
    "LOCK.CONVERT k me SHARED",
    "LOCK.CHECK k 5",
    "LOCK.BREAK k",
    "LOCK.WATCH k 5",
    "LOCK.INFO k HOLDERS 3 WAITERS 3",
    "LOCK.ACQUIRE k me 60000 NOTE mine",
    "LOCK.ACQUIRE k me 60000",
    "lock.acquire k me 60000 retry",
    "LOCK.ACQUIRE k me 60000 WAIT 5 RETRY",
    "LOCK.ACQUIRE k me 60000 SHARED RETRY",
    "LOCK.ACQUIRE k you 60000",
    "LOCK.ACQUIRE k you 60000 WAIT 5",
    "LOCK.INFO k",
    "LOCK.INFO k HOLDERS 3 WAITERS 3",
    "LOCK.CHECK k T",
    "LOCK.CHECK k 5",
    "LOCK.EXTEND k me 1000",
    "LOCK.EXTEND k me 1000 TOKEN 5",
    "LOCK.REENTER k me",
    "LOCK.REENTER k me LEVEL 4 TTL 3000",
    "LOCK.NOTE k me other",
    "LOCK.NOTE k me third SEQ 7",
    "LOCK.NOTE k me fourth",
    "LOCK.INFO k",
    "LOCK.WATCH k 5 TOKEN T SEQ 7",
    "LOCK.WATCH k 5 TOKEN T SEQ 1",
    "LOCK.WATCH k 5",
    "LOCK.RELEASE k me",
    "LOCK.RELEASE k me LEVEL 2",
    "LOCK.CONVERT k me SHARED",
    "LOCK.ACQUIRE k you 60000 SHARED",
    "LOCK.INFO k",
    "LOCK.NOTE k me last SEQ 9007199254740991",
    "LOCK.NOTE k me more",
    "LOCK.INFO k",
    "LOCK.RELEASE k me TOKEN 5",
    "LOCK.RELEASE k me LEVEL 1",
    "LOCK.RELEASE k you",
    "LOCK.RELEASE k you",
    "LOCK.ACQUIRE p me 60000 LIMIT 3",
    "LOCK.ACQUIRE p me 60000 LIMIT 3 RETRY",
    "LOCK.ACQUIRE p you 60000 LIMIT 1 WAIT 5",
    "LOCK.INFO p HOLDERS 3",
    "LOCK.CONVERT p me SHARED",
    "LOCK.BREAK p TOKEN 5",
    "LOCK.BREAK p",
    "LOCK.ACQUIRE one me 60000 LIMIT 1",
    "LOCK.ACQUIRE kept me 1000 KEEPALIVE 60000",
    "LOCK.RELEASE kept me",
    // From here on, lines that are refused.
    "LOCK.ACQUIRE",
    "LOCK.ACQUIRE k me",
    "LOCK.ACQUIRE k me 0",
    "LOCK.ACQUIRE k me 60001",
    "LOCK.ACQUIRE k me -1",
    "LOCK.ACQUIRE k me 0 BOGUS",
    "LOCK.ACQUIRE k  1000",
    "LOCK.ACQUIRE k me 1000 WAIT",
    "LOCK.ACQUIRE k me 1000 WAIT for-ever",
    "LOCK.ACQUIRE k me 1000 RETRY retry",
    "LOCK.ACQUIRE k me 1000 PERMIT 1",
    "LOCK.ACQUIRE k me 1000 LIMIT 3 PERMIT 4",
    "LOCK.ACQUIRE k me 1000 LIMIT 65536",
    "LOCK.ACQUIRE k me 1000 LIMIT 3 SHARED",
    "LOCK.ACQUIRE k me 1000 KEEPALIVE 5",
    "LOCK.ACQUIRE k me 50 KEEPALIVE 60000",
    "LOCK.RELEASE k me LEVEL 0",
    "LOCK.RELEASE k me NX",
    "LOCK.RELEASE k me TOKEN 0",
    "LOCK.EXTEND k me 01",
    "LOCK.EXTEND k me",
    "LOCK.ACQUIRE k me 1000 BEHIND 5",
    "LOCK.ACQUIRE k me 1000 WAIT 5 BEHIND many",
    "LOCK.ACQUIRE k me 1000 FENCE 0",
    "LOCK.REENTER k me LEVEL",
    "LOCK.REENTER k me BOGUS",
    "LOCK.CONVERT k me NEITHER",
    "LOCK.NOTE k me t SEQ 9007199254740992",
    "LOCK.CHECK k",
    "LOCK.CHECK k 5 6",
    "LOCK.CHECK k x",
    "LOCK.INFO k HOLDERS 0",
    "LOCK.INFO k WAITERS 1001",
    "LOCK.INFO k ALL",
    "LOCK.WATCH k 5 SEQ 3",
    "LOCK.WATCH k 5 TOKEN 0 SEQ 3",
    "LOCK.WATCH k 86400001",
    "LOCK.BREAK k NOW",
    "LOCK.NODE 1",
];

/// The fields whose values differ between a node's and an agent's reply: times, and the number of a permit.
const DIFFERENT: [&str; 5] = ["ttl", "held", "extended", "reserved_ms", "permit"];

/// Returns the reply with its times and tokens masked, and the tokens that it had.
fn masked(line: &str, reply: &str) -> (String, Vec<u64>) {
    let (mut kept, mut tokens, mut is_time) = (vec![], vec![], false);
    for part in reply.split("\r\n") {
        let number = part.strip_prefix(':').and_then(|number| number.parse::<u64>().ok());
        match number {
            Some(token) if token > 1 << 40 => {
                tokens.push(token);
                kept.push(":token".to_owned());
            }
            Some(_) if is_time || line.starts_with("LOCK.CHECK") => kept.push(":time".to_owned()),
            _ => kept.push(part.to_owned()),
        }
        is_time = DIFFERENT.contains(&part);
    }
    // The time waited is close to zero here, but not always the same.
    let is_list = line.starts_with("LOCK.ACQUIRE") || line.starts_with("lock.acquire");
    if is_list && reply.starts_with('*') {
        kept[2] = ":time".to_owned();
        if reply.starts_with("*3") && line.contains("LIMIT 3") {
            kept[3] = ":permit".to_owned();
        }
    }
    (kept.join("\r\n"), tokens)
}

fn run(raw: &mut Raw, hello: &str) -> Vec<(String, String)> {
    raw.say(hello);
    let mut token = 0;
    SCRIPT
        .iter()
        .map(|line| {
            let line = line.replace(" T", &format!(" {token}")).replace(&format!(" {token}OKEN"), " TOKEN");
            let line = line.replace(&format!(" {token}TL"), " TTL");
            let (reply, tokens) = masked(&line, &raw.insist(&line));
            token = tokens.last().copied().unwrap_or(token);
            (line.replace(&token.to_string(), "T"), reply)
        })
        .collect()
}

#[test]
fn replies_are_those_of_a_node() {
    for hello in ["HELLO 2", "HELLO 3"] {
        let (node, nodes) = (crate::harness::Server::start(), Nodes::start(5));
        let agent = nodes.agent();
        let of_node = run(&mut Raw::new(&node.socket()), hello);
        let of_agent = run(&mut agent.raw(), hello);
        let differ = of_node.iter().zip(&of_agent).filter(|(node, agent)| node.1 != agent.1);
        let differ: Vec<String> =
            differ.map(|(node, agent)| format!("{hello} {}: node {:?}, agent {:?}", node.0, node.1, agent.1)).collect();
        assert!(differ.is_empty(), "{}", differ.join("\n"));
    }
}

/// The agent's LOCK.NODE has all fields of a node's, in the same order, and three more.
#[test]
fn the_fields_of_the_nodes_are_those_of_one() {
    let nodes = Nodes::start(3);
    let agent = nodes.agent();
    let names = |reply: crate::harness::Reply| -> Vec<String> {
        reply.as_list().chunks(2).map(|pair| pair[0].as_text()).collect()
    };
    let (of_node, of_agent) = (names(nodes.0[0].client().say("LOCK.NODE")), names(agent.client().say("LOCK.NODE")));
    assert_eq!(of_agent[..of_node.len()], of_node);
    assert_eq!(of_agent[of_node.len()..], ["nodes", "majority", "serving"]);
}
