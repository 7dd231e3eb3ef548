//! Checks of the set that the nodes know.

use crate::node_failure::words;
use palisade_quorum::majority;

use super::finding::Finding;
use super::finding::Level::{Change, Fail, Note, Ok};
use crate::members::even;
use crate::members::survey::{Row, Standing, Survey};

/// Checks which set the nodes know; `nodes` is the number of nodes in the list.
pub fn check(nodes: usize, survey: &Survey) -> Vec<Finding> {
    let latest = &survey.latest;
    if latest.version == 0 {
        return unfounded(nodes, survey).into_iter().collect();
    }
    let rows = survey.rows();
    let addresses = survey.distinct(latest.list.iter().map(|member| member.address.as_str()));
    let again = format!("palisade members set {}", addresses.join(" "));
    let mut findings: Vec<Finding> = rows.iter().flat_map(|row| of_row(row, survey, &again)).collect();
    let (members, majority) = (latest.list.len(), majority(latest.list.len()));
    let there = rows.iter().filter(|row| matches!(row.standing, Standing::Member | Standing::Behind)).count();
    if there < majority {
        let text = format!("{there} of {members} members of the set answer, and {majority} are needed");
        findings.push(Finding::new(
            Fail,
            ALL,
            text,
            "bring back those that are down: until then the set cannot be changed either",
        ));
    } else if findings.is_empty() {
        findings.push(Finding::new(
            Ok,
            ALL,
            format!("they are version {} of the set, and all of them know it", latest.version),
            "",
        ));
    }
    findings
}

/// Returns the advice how to store a first set, if there are several nodes of one server each, all answer, and none
/// knows a set.
fn unfounded(nodes: usize, survey: &Survey) -> Option<Finding> {
    let told = &survey.told;
    if nodes < 2 || told.len() < nodes || told.iter().any(|told| told.said.is_err()) {
        return None;
    }
    let addresses = survey.distinct(told.iter().map(|told| told.address.as_str()));
    if addresses.len() < 2 {
        return None;
    }
    let even = even(addresses.len()).map_or(String::new(), |why| format!("; {} are {why}", addresses.len()));
    let set = format!("palisade members set {}, if all clients were given exactly these{even}", addresses.join(" "));
    let second = told.iter().filter_map(|told| Some(take_out(&told.name, survey.first_name(&told.address)?)));
    let second: Vec<String> = second.collect();
    Some(Finding::new(
        Note,
        ALL,
        "no set is founded: nobody notices when a node loses its disk and comes back as a new one",
        if second.is_empty() { set } else { format!("first {}; then {set}", second.join(", ")) },
    ))
}

/// The subject of findings about the whole set.
const ALL: &str = "all nodes";

/// Returns the advice about a second name of a server.
fn take_out(name: &str, first: &str) -> String {
    format!("take {name} out of PALISADE_NODES and of the lists of clients: it is the same server as {first}")
}

fn of_row(row: &Row, survey: &Survey, again: &str) -> Vec<Finding> {
    let version = survey.latest.version;
    let told = survey.told.iter().find(|told| told.number == row.number && told.name == row.node);
    let address = told.map_or(row.node.as_str(), |told| told.address.as_str());
    let first_name = survey.first_name(address);
    let mut findings = vec![];
    let mut found = |found: String, advice: &str| findings.push(Finding::new(Change, &row.node, found, advice));
    match row.standing {
        Standing::Behind => found(
            format!("it knows version {} of the set, and others know version {version}", row.version.unwrap_or(0)),
            &format!("{again}, which tells it"),
        ),
        Standing::AnotherId if let Some(first) = first_name => found(
            format!("the server of {first} answers there, and not this member: a server counts once"),
            &format!("bring the member back to this address, or take it out: {again}"),
        ),
        Standing::AnotherId => found(
            "another server is there than the member of the set: it was replaced, or lost its state file. It counts for nothing".to_owned(),
            &format!("{again}, which puts it in the member's place; its guard is left alone"),
        ),
        Standing::UnknownId => found(
            "it was down when the set was founded, so nobody knows which server the member is. It counts for nothing".to_owned(),
            again,
        ),
        Standing::NoMember => found(
            "it is in --nodes, and not in the set that the others know: clients that know the set do not ask it".to_owned(),
            &format!("take it out of PALISADE_NODES and of the lists of clients, or add it: {again} {address}"),
        ),
        Standing::SecondName => found(
            "a server counts once, and has its place in the set under another name".to_owned(),
            &take_out(&row.node, first_name.unwrap_or("another node")),
        ),
        // Nodes of the list are reported by another check.
        Standing::Unreachable if row.number.is_none() => {
            let why = row.error.as_ref().map_or(String::new(), |why| format!(": {}", words(why)));
            found(format!("this member of the set cannot be asked{why}"), "bring it back, or replace it: palisade members set");
        }
        Standing::Member | Standing::Unreachable | Standing::NoSet => {}
    }
    if row.number.is_none() {
        found(
            "it is a member of the set, and not in --nodes".to_owned(),
            "add it to PALISADE_NODES and to the lists of clients: they find the set only as long as a node of their list is in it",
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use palisade_quorum::{Member, Members};

    use super::*;
    use crate::members::survey::SurveyedServer;
    use palisade_client::Why;
    use palisade_client::direct::ServerKnowledge;

    fn set(version: u64, ids: &[u128]) -> Members {
        let list = ids.iter().map(|&id| Member { id: Some(id), address: format!("node{id}:1") }).collect();
        Members { version, list }
    }

    fn told(number: Option<usize>, place: u128, id: u128, members: &Members) -> SurveyedServer {
        let knows = ServerKnowledge { id, members: members.clone(), max_ttl_ms: 60_000, ..ServerKnowledge::default() };
        SurveyedServer {
            number,
            name: format!("node{place}:1"),
            address: format!("node{place}:1"),
            said: Result::Ok(knows),
        }
    }

    fn found(told: Vec<SurveyedServer>, latest: &Members) -> Vec<(super::super::finding::Level, String, String)> {
        let findings = check(told.len(), &Survey { told, latest: latest.clone() });
        assert!(findings.iter().all(|finding| finding.level == Ok || !finding.advice.is_empty()), "{findings:?}");
        findings.into_iter().map(|finding| (finding.level, finding.about, finding.found)).collect()
    }

    #[test]
    fn each_fault_of_a_set_is_found_and_nothing_else() {
        let now = set(3, &[1, 2, 3]);
        let well = || vec![told(Some(1), 1, 1, &now), told(Some(2), 2, 2, &now), told(Some(3), 3, 3, &now)];
        assert_eq!(found(vec![told(Some(1), 1, 1, &Members::default())], &Members::default()), []);
        let said = |told: Vec<SurveyedServer>, level, about: &str, text: &str| {
            let found = found(told, &now);
            let is_it = |(at, of, what): &&(_, String, String)| *at == level && of == about && what.contains(text);
            assert!(found.len() == 1 && found.iter().any(|finding| is_it(&finding)), "{text}: {found:?}");
        };
        said(well(), Ok, ALL, "version 3 of the set");
        let none = Members::default();
        let unfounded: Vec<SurveyedServer> = (1..=4).map(|n| told(Some(n as usize), n, n, &none)).collect();
        let [hint] = &check(4, &Survey { told: unfounded.clone(), latest: none.clone() })[..] else {
            panic!("no hint")
        };
        assert!(hint.level == Note && hint.found.contains("no set is founded"), "{hint:?}");
        assert!(hint.advice.contains("palisade members set node1:1 node2:1 node3:1 node4:1"), "{hint:?}");
        assert!(hint.advice.contains("4 are an even number"), "{hint:?}");
        let mut down = unfounded;
        down[0].said = Err(Why::late());
        assert_eq!(check(4, &Survey { told: down, latest: none }), [], "first the node that is down");
        let with = |place: usize, other: SurveyedServer| {
            let mut all = well();
            all[place] = other;
            all
        };
        said(with(1, told(Some(2), 2, 2, &set(2, &[1, 2]))), Change, "node2:1", "knows version 2");
        said(with(1, told(Some(2), 2, 9, &Members::default())), Change, "node2:1", "another server is there");
        said(with(1, told(None, 2, 2, &now)), Change, "node2:1", "not in --nodes");
        said(with(1, told(Some(2), 2, 3, &now)), Change, "node2:1", "the server of node3:1 answers there");
        said([well(), vec![told(Some(4), 4, 1, &now)]].concat(), Change, "node4:1", "under another name");
        let mut more = well();
        more.push(told(Some(4), 4, 4, &Members::default()));
        said(more, Change, "node4:1", "not in the set");
        let mut silent = well();
        silent[1].said = Err(Why::late());
        assert_eq!(found(silent.clone(), &now).len(), 1, "one that is down is told of by itself: {silent:?}");
        silent[2].said = Err(Why::late());
        said(silent, Fail, ALL, "1 of 3 members");
    }

    /// `members set` refuses a list with a server twice, so none is proposed.
    #[test]
    fn a_proposal_has_each_server_once() {
        let advice = |told: Vec<SurveyedServer>, latest: &Members| -> Vec<String> {
            let findings = check(told.len(), &Survey { told, latest: latest.clone() });
            findings.into_iter().map(|finding| finding.advice).collect()
        };
        let none = Members::default();
        let new = |place: u128, id: u128| told(Some(place as usize), place, id, &none);
        let [hint] = &advice(vec![new(1, 1), new(2, 1), new(3, 3), new(4, 4)], &none)[..] else { panic!("no hint") };
        assert!(hint.starts_with("first take node2:1 out of PALISADE_NODES"), "{hint}");
        assert!(
            hint.contains("the same server as node1:1; then palisade members set node1:1 node3:1 node4:1,"),
            "{hint}"
        );
        assert!(!hint.contains("even number"), "{hint}");
        assert_eq!(advice(vec![new(1, 1), new(2, 1)], &none), [""; 0], "one server is no set");
        let now = set(3, &[1, 2, 3]);
        let known = |place: u128, id: u128| told(Some(place as usize), place, id, &now);
        // The third server answers at the first address; and a fifth at two addresses.
        let taken = advice(vec![known(1, 3), known(2, 2), known(3, 3)], &now);
        assert!(taken[0].ends_with("take it out: palisade members set node2:1 node3:1"), "{taken:?}");
        let new = advice(vec![new(1, 5), new(2, 5), known(3, 3)], &now);
        assert!(new[0].starts_with("palisade members set node1:1 node3:1, which puts it"), "{new:?}");
        assert!(new[1].ends_with("take it out: palisade members set node1:1 node3:1"), "{new:?}");
    }
}
