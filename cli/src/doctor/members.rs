//! Checks of what the nodes know of their set.

use crate::node_failure::words;
use palisade_quorum::majority;

use super::finding::Finding;
use super::finding::Level::{Change, Fail, Note, Ok};
use crate::members::even;
use crate::members::survey::{Row, Standing, Survey};

/// Checks what the nodes know of their set; `nodes` is the length of the list.
pub fn check(nodes: usize, survey: &Survey) -> Vec<Finding> {
    let latest = &survey.latest;
    if latest.version == 0 {
        return unfounded(nodes, survey).into_iter().collect();
    }
    let rows = survey.rows();
    let addresses: Vec<&str> = latest.list.iter().map(|member| member.address.as_str()).collect();
    let again = format!("palisade members set {}", addresses.join(" "));
    let mut findings: Vec<Finding> = rows.iter().flat_map(|row| of_row(row, latest.version, &again)).collect();
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

/// Explains how to found a set, if there are several nodes of one server each, all answer, and none knows a set.
fn unfounded(nodes: usize, survey: &Survey) -> Option<Finding> {
    let told = &survey.told;
    if nodes < 2 || told.len() < nodes || told.iter().any(|told| told.said.is_err()) {
        return None;
    }
    let addresses: Vec<&str> = told.iter().map(|told| told.address.as_str()).collect();
    let even = even(told.len()).map_or(String::new(), |why| format!("; {} are {why}", told.len()));
    Some(Finding::new(
        Note,
        ALL,
        "no set is founded: nobody notices when a node loses its disk and comes back as a new one",
        format!("palisade members set {}, if all clients were given exactly these{even}", addresses.join(" ")),
    ))
}

/// The subject of findings about the whole set.
const ALL: &str = "all nodes";

fn of_row(row: &Row, version: u64, again: &str) -> Vec<Finding> {
    let mut findings = vec![];
    let mut found = |found: String, advice: &str| findings.push(Finding::new(Change, &row.node, found, advice));
    match row.standing {
        Standing::Behind => found(
            format!("it knows version {} of the set, and others know version {version}", row.version.unwrap_or(0)),
            &format!("{again}, which tells it"),
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
            &format!("take it out of PALISADE_NODES and of the lists of clients, or add it: {again} {}", row.node),
        ),
        // Nodes of the list are reported in any case.
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
    use crate::members::survey::Told;
    use palisade_client::Why;
    use palisade_client::direct::Knows;

    fn set(version: u64, ids: &[u128]) -> Members {
        let list = ids.iter().map(|&id| Member { id: Some(id), address: format!("node{id}:1") }).collect();
        Members { version, list }
    }

    fn told(number: Option<usize>, place: u128, id: u128, members: &Members) -> Told {
        let knows = Knows { id, members: members.clone(), max_ttl_ms: 60_000, ..Knows::default() };
        Told { number, name: format!("node{place}:1"), address: format!("node{place}:1"), said: Result::Ok(knows) }
    }

    fn found(told: Vec<Told>, latest: &Members) -> Vec<(super::super::finding::Level, String, String)> {
        let findings = check(told.len(), &Survey { told, latest: latest.clone() });
        assert!(findings.iter().all(|finding| finding.level == Ok || !finding.advice.is_empty()), "{findings:?}");
        findings.into_iter().map(|finding| (finding.level, finding.about, finding.found)).collect()
    }

    #[test]
    fn each_fault_of_a_set_is_found_and_nothing_else() {
        let now = set(3, &[1, 2, 3]);
        let well = || vec![told(Some(1), 1, 1, &now), told(Some(2), 2, 2, &now), told(Some(3), 3, 3, &now)];
        assert_eq!(found(vec![told(Some(1), 1, 1, &Members::default())], &Members::default()), []);
        let said = |told: Vec<Told>, level, about: &str, text: &str| {
            let found = found(told, &now);
            let is_it = |(at, of, what): &&(_, String, String)| *at == level && of == about && what.contains(text);
            assert!(found.len() == 1 && found.iter().any(|finding| is_it(&finding)), "{text}: {found:?}");
        };
        said(well(), Ok, ALL, "version 3 of the set");
        let none = Members::default();
        let unfounded: Vec<Told> = (1..=4).map(|n| told(Some(n as usize), n, n, &none)).collect();
        let [hint] = &check(4, &Survey { told: unfounded.clone(), latest: none.clone() })[..] else {
            panic!("no hint")
        };
        assert!(hint.level == Note && hint.found.contains("no set is founded"), "{hint:?}");
        assert!(hint.advice.contains("palisade members set node1:1 node2:1 node3:1 node4:1"), "{hint:?}");
        assert!(hint.advice.contains("4 are an even number"), "{hint:?}");
        let mut down = unfounded;
        down[0].said = Err(Why::late());
        assert_eq!(check(4, &Survey { told: down, latest: none }), [], "first the node that is down");
        let with = |place: usize, other: Told| {
            let mut all = well();
            all[place] = other;
            all
        };
        said(with(1, told(Some(2), 2, 2, &set(2, &[1, 2]))), Change, "node2:1", "knows version 2");
        said(with(1, told(Some(2), 2, 9, &Members::default())), Change, "node2:1", "another server is there");
        said(with(1, told(None, 2, 2, &now)), Change, "node2:1", "not in --nodes");
        let mut more = well();
        more.push(told(Some(4), 4, 4, &Members::default()));
        said(more, Change, "node4:1", "not in the set");
        let mut silent = well();
        silent[1].said = Err(Why::late());
        assert_eq!(found(silent.clone(), &now).len(), 1, "one that is down is told of by itself: {silent:?}");
        silent[2].said = Err(Why::late());
        said(silent, Fail, ALL, "1 of 3 members");
    }
}
