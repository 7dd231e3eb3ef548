//! The state of the set, as reported by the nodes of the list and by the members that they name.

use std::collections::HashSet;

use palisade_client::Why;
use palisade_client::direct::{ServerKnowledge, Surveyed, survey};
use palisade_quorum::{Member, Members};
use serde::Serialize;

use crate::node_failure::in_json;
use crate::nodes::Nodes;

/// The relation of a server or a member to the latest version of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// A member that knows the latest version.
    Member,
    /// A member that knows an earlier version.
    Behind,
    /// A member that does not answer.
    Unreachable,
    /// A member at whose address another server answers: it was replaced, or lost its state file.
    AnotherId,
    /// A member whose id is unknown, because it could not be asked when the first set was stored.
    UnknownId,
    /// A node of the list that is not in the set.
    NoMember,
    /// A second name of a server that is a member, or in the list, under another name.
    SecondName,
    /// No node knows a set.
    NoSet,
}

impl Standing {
    /// Returns the words for this relation in the table of `palisade members`.
    fn words(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Behind => "behind",
            Self::Unreachable => "unreachable",
            Self::AnotherId => "another id",
            Self::UnknownId => "id unknown",
            Self::NoMember => "no member",
            Self::SecondName => "second name",
            Self::NoSet => "no set",
        }
    }
}

/// A server that was asked which set it knows.
#[derive(Clone, Debug)]
pub struct SurveyedServer {
    /// The position in the list of nodes, from 1; `None` if the server is not in the list but a node named it.
    pub number: Option<usize>,
    /// The server's name for people.
    pub name: String,
    /// The address as nodes store it: `host:port`, or `unix:///path`.
    pub address: String,
    pub said: Result<ServerKnowledge, Why>,
}

/// A member, or a node of the list that is not a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The position in the list of nodes; `None` if it is not in the list.
    pub number: Option<usize>,
    pub node: String,
    pub standing: Standing,
    /// The version of the set that the server there knows; `None` if it cannot be asked.
    pub version: Option<u64>,
    /// Milliseconds until the node may vote on the next version.
    pub unsettled_ms: Option<u64>,
    /// The id of the server that answers there.
    pub id: Option<String>,
    /// The id that the set has for the member, if it differs from the server's.
    pub member_id: Option<String>,
    /// The reason why the server cannot be asked.
    #[serde(serialize_with = "in_json")]
    pub error: Option<Why>,
}

/// The state of the set, as far as it is known.
#[derive(Clone, Debug)]
pub struct Survey {
    pub told: Vec<SurveyedServer>,
    /// The latest version of the set that any server knows.
    pub latest: Members,
}

impl Survey {
    /// Asks the nodes of the list and the members that they name. If a node of the list is not a single server, the
    /// result is empty.
    pub async fn of(nodes: &Nodes) -> Self {
        let Surveyed { first, latest, mut known } = survey(nodes.client()).await;
        let listed =
            first.into_iter().enumerate().map(|(n, address)| (Some(n + 1), nodes.list[n].name.clone(), address));
        let others = latest.list.iter().map(|Member { address, .. }| (None, name_of(address), address.clone()));
        // Each server is listed once, and a node of the list has its position there.
        let told = listed.chain(others).filter_map(|(number, name, address)| {
            let said = known.remove(&address)?;
            Some(SurveyedServer { number, name, address, said })
        });
        Self { told: told.collect(), latest }
    }

    /// Returns the members, and the nodes of the list that are not members; nodes of the list first.
    pub fn rows(&self) -> Vec<Row> {
        let mut seen: HashSet<usize> = HashSet::new();
        let mut rows = vec![];
        for member in &self.latest.list {
            let place = self.place_of(member);
            seen.extend(place);
            rows.push(self.row_of(member, place.map(|place| &self.told[place])));
        }
        let others = self.told.iter().enumerate().filter(|(n, told)| told.number.is_some() && !seen.contains(n));
        rows.extend(others.map(|(_, told)| {
            let standing = match (&told.said, self.latest.version) {
                (Err(_), _) => Standing::Unreachable,
                (Ok(_), _) if self.first_name(&told.address).is_some() => Standing::SecondName,
                (Ok(_), 0) => Standing::NoSet,
                (Ok(_), _) => Standing::NoMember,
            };
            row(told, standing)
        }));
        rows.sort_by_key(|row| row.number.unwrap_or(usize::MAX));
        rows
    }

    /// Returns the preferred name of the server at `address`, if it is another one: its address as a member, otherwise
    /// its first address in the list.
    pub fn first_name(&self, address: &str) -> Option<&str> {
        let id = |told: &SurveyedServer| told.said.as_ref().ok().map(|knows| knows.id);
        let at_address = self.told.iter().find(|told| told.address == address).and_then(id)?;
        let member = self.latest.list.iter().find(|member| member.id == Some(at_address));
        let earlier = || self.told.iter().find(|told| id(told) == Some(at_address));
        let first = member.map(|member| &*member.address).or_else(|| earlier().map(|told| &*told.address));
        first.filter(|first| *first != address)
    }

    /// Returns those of `addresses` that can form a set: each server once, under its first name.
    pub fn distinct<'a>(&self, addresses: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let mut distinct = vec![];
        for address in addresses.filter(|address| self.first_name(address).is_none()) {
            if !distinct.contains(&address) {
                distinct.push(address);
            }
        }
        distinct
    }

    /// Returns the index of the server that answered for this member: the one with its id, otherwise the one at its
    /// address.
    fn place_of(&self, member: &Member) -> Option<usize> {
        let is_it = |told: &SurveyedServer| told.said.as_ref().is_ok_and(|knows| Some(knows.id) == member.id);
        let by_id = |told: &&SurveyedServer| is_it(told) && told.address == member.address;
        let place = |told: &SurveyedServer| self.told.iter().position(|other| std::ptr::eq(other, told));
        let found = self.told.iter().find(by_id).or_else(|| self.told.iter().find(|told| is_it(told)));
        found.or_else(|| self.told.iter().find(|told| told.address == member.address)).and_then(place)
    }

    /// Returns the number of this member in the list of nodes. It has none if the list lacks it, or has another server
    /// at its address.
    pub fn number_of(&self, member: &Member) -> Option<usize> {
        let told = &self.told[self.place_of(member)?];
        let is_another = told.said.as_ref().is_ok_and(|knows| Some(knows.id) != member.id);
        told.number.filter(|_| !is_another)
    }

    fn row_of(&self, member: &Member, told: Option<&SurveyedServer>) -> Row {
        let hexadecimal = |id: u128| format!("{id:032x}");
        let Some(told) = told else {
            return Row {
                number: None,
                node: member.address.clone(),
                standing: Standing::Unreachable,
                version: None,
                unsettled_ms: None,
                id: None,
                member_id: member.id.map(hexadecimal),
                error: Some(Why::Unfit("its address in the set is of no use here".to_owned())),
            };
        };
        let standing = match &told.said {
            Err(_) => Standing::Unreachable,
            Ok(_) if member.id.is_none() => Standing::UnknownId,
            Ok(knows) if Some(knows.id) != member.id => Standing::AnotherId,
            Ok(knows) if knows.members.version < self.latest.version => Standing::Behind,
            Ok(_) => Standing::Member,
        };
        let row = row(told, standing);
        let member_id = member.id.map(hexadecimal).filter(|id| row.id.as_ref() != Some(id));
        Row { member_id, ..row }
    }

    /// Returns the longest lease that any of the nodes allows, in milliseconds.
    pub fn max_ttl_ms(&self) -> u64 {
        self.knowing().map(|knows| knows.max_ttl_ms).max().unwrap_or(0)
    }

    /// Returns the time until all members that answer may vote on the next version, in milliseconds.
    pub fn unsettled_ms(&self) -> u64 {
        let members = self.knowing().filter(|knows| self.latest.has(knows.id));
        members.map(|knows| knows.unsettled_ms).max().unwrap_or(0)
    }

    fn knowing(&self) -> impl Iterator<Item = &ServerKnowledge> {
        self.told.iter().filter_map(|told| told.said.as_ref().ok())
    }
}

/// Returns a member's name for people.
fn name_of(address: &str) -> String {
    address.trim_start_matches("unix://").to_owned()
}

fn row(told: &SurveyedServer, standing: Standing) -> Row {
    let knows = told.said.as_ref().ok();
    Row {
        number: told.number,
        node: told.name.clone(),
        standing,
        version: knows.map(|knows| knows.members.version),
        unsettled_ms: knows.map(|knows| knows.unsettled_ms),
        id: knows.map(|knows| format!("{:032x}", knows.id)),
        member_id: None,
        error: told.said.as_ref().err().cloned(),
    }
}

impl Row {
    /// Returns the relation to the set in words, for people.
    pub fn standing_words(&self) -> &'static str {
        self.standing.words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(version: u64, members: &[(u128, &str)]) -> Members {
        let member = |&(id, address): &(u128, &str)| Member { id: Some(id), address: address.to_owned() };
        Members { version, list: members.iter().map(member).collect() }
    }

    fn told(number: Option<usize>, address: &str, id: u128, members: &Members) -> SurveyedServer {
        let knows = ServerKnowledge { id, members: members.clone(), max_ttl_ms: 60_000, ..ServerKnowledge::default() };
        SurveyedServer { number, name: address.to_owned(), address: address.to_owned(), said: Ok(knows) }
    }

    fn standings(latest: &Members, told: Vec<SurveyedServer>) -> Vec<(Option<usize>, String, Standing)> {
        let survey = Survey { latest: latest.clone(), told };
        survey.rows().into_iter().map(|row| (row.number, row.node, row.standing)).collect()
    }

    #[test]
    fn each_server_has_its_standing() {
        use Standing::*;
        let (before, now) = (set(1, &[(1, "a"), (2, "b")]), set(2, &[(1, "a"), (2, "b"), (3, "c")]));
        let named = |rows: &[(Option<usize>, &str, Standing)]| -> Vec<_> {
            rows.iter().map(|(number, node, standing)| (*number, (*node).to_owned(), *standing)).collect()
        };
        let none = Members::default();
        assert_eq!(standings(&none, vec![told(Some(1), "a", 1, &none)]), named(&[(Some(1), "a", NoSet)]));
        let mut silent = told(None, "c", 3, &none);
        silent.said = Err(Why::late());
        let all =
            vec![told(Some(1), "a", 1, &now), told(Some(2), "b", 2, &before), told(Some(3), "d", 4, &none), silent];
        let rows = [(Some(1), "a", Member), (Some(2), "b", Behind), (Some(3), "d", NoMember), (None, "c", Unreachable)];
        assert_eq!(standings(&now, all), named(&rows));
        // Another server is at b; a member has another name in the list; and b is replaced, so both ids exist.
        let all = vec![told(Some(1), "a", 1, &now), told(Some(2), "b", 9, &none), told(Some(3), "see", 3, &now)];
        assert_eq!(
            standings(&now, all),
            named(&[(Some(1), "a", Member), (Some(2), "b", AnotherId), (Some(3), "see", Member)])
        );
        let both = set(3, &[(1, "a"), (2, "b"), (9, "b")]);
        let all = vec![told(Some(1), "a", 1, &both), told(Some(2), "b", 9, &both)];
        let rows = [(Some(1), "a", Member), (Some(2), "b", AnotherId), (Some(2), "b", Member)];
        assert_eq!(standings(&both, all), named(&rows));
    }
}
