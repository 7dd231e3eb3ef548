//! Commands that the agent does not have: those of a single node, and those of a server with data. The refusal of each
//! says what to do instead.

use bytes::Bytes;

/// The lock commands that only a node has, each with the reason why the agent does not have it.
const OF_A_NODE: [(&str, &str); 12] = [
    ("LOCK.WAIT", "it is how a client waits on several nodes at once: LOCK.ACQUIRE with WAIT does that here"),
    ("LOCK.FENCE", "it is how a quorum brings tokens together: LOCK.ACQUIRE does that here"),
    ("LOCK.GATE", "it protects data in the server that has them: send it there"),
    ("LOCK.GUARD", "each node has a guard of its own: use palisade guard, or ask the node"),
    ("LOCK.FLOOR", "each node has tokens of its own: ask the node"),
    ("LOCK.MEMBERS", "each node knows the set that it is in: ask the node"),
    ("LOCK.SETMEMBERS", "each node is told of the set that it is in: ask the nodes"),
    ("LOCK.LOG", "each node has a log of its own: ask the node"),
    ("LOCK.HEAR", "it is how a client hears of its waits on a node: LOCK.ACQUIRE with WAIT does that here"),
    ("LOCK.TOP", "each node counts by itself: ask the node"),
    ("LOCK.EFFECT", "it is between servers"),
    ("LOCK.CEILING", "it is between servers"),
];

/// The server's commands that combine several commands into one step, or run a script.
const TOGETHER: [&str; 10] =
    ["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH", "EVAL", "EVALSHA", "FCALL", "SCRIPT", "FUNCTION"];

/// Returns the error for a command with this name, which the agent does not have.
pub fn refusal(name: &[u8]) -> String {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    if let Some((known, why)) = OF_A_NODE.iter().find(|(known, _)| is(known)) {
        return format!("ERR {known} is for a node, not for a quorum of them: {why}");
    }
    let unknown = format!(
        "ERR unknown command '{}': this is palisade agent, which knows the LOCK commands over a quorum of nodes; ask a node for data",
        shown(name)
    );
    if TOGETHER.iter().any(|other| is(other)) {
        return format!("{unknown}. Send LOCK commands one by one: each of them is one step");
    }
    unknown
}

/// Returns as much of a command's name as an error repeats.
fn shown(name: &[u8]) -> String {
    const SHOWN_BYTES: usize = 64;
    Bytes::copy_from_slice(&name[..name.len().min(SHOWN_BYTES)]).escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{OF_A_NODE, refusal};
    use crate::commands::names;

    /// The documentation names each command of a node that the agent refuses, and no other.
    #[test]
    fn the_pages_name_what_is_elsewhere() {
        let commands = |text: &str| -> BTreeSet<String> {
            let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '.');
            words.filter(|word| word.starts_with("LOCK.")).map(|word| word.trim_end_matches('.').to_owned()).collect()
        };
        let row = |page: &str, start: &str| page.lines().find(|line| line.starts_with(start)).expect(start).to_owned();
        let index =
            include_str!("../../../docs/commands/README.md").lines().filter(|line| line.starts_with("| [LOCK."));
        let of_nodes: BTreeSet<String> = index.flat_map(|line| commands(line.split(']').next().unwrap())).collect();
        let here: BTreeSet<String> = names().map(str::to_owned).collect();
        let elsewhere: BTreeSet<String> = of_nodes.difference(&here).cloned().collect();
        assert!(elsewhere.iter().all(|name| OF_A_NODE.iter().any(|(known, _)| known == name)), "{elsewhere:?}");
        let entry = include_str!("../../../docs/agent.md").split("\n- `LOCK.ACQUIRE … FENCE`, ").nth(1);
        let page = entry.and_then(|entry| entry.split(": ").next()).expect("the entry of what is refused");
        assert_eq!(commands(page), elsewhere, "docs/agent.md");
        let page = row(include_str!("../../../docs/errors.md"), "| `ERR LOCK.GUARD is for a node");
        assert_eq!(commands(&page), elsewhere, "docs/errors.md");
    }

    #[test]
    fn what_is_elsewhere_is_refused_with_what_to_do() {
        assert!(refusal(b"lock.guard").starts_with("ERR LOCK.GUARD is for a node, not for a quorum of them: "));
        assert_eq!(
            refusal(b"GET"),
            "ERR unknown command 'GET': this is palisade agent, which knows the LOCK commands over a quorum of nodes; ask a node for data"
        );
        assert!(refusal(b"Multi").ends_with("Send LOCK commands one by one: each of them is one step"));
        let long = refusal(&[b'\n'; 10_000]);
        assert!(long.contains("'\\n\\n") && long.len() < 300, "{long}");
    }
}
