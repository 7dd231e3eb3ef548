//! A version of the set of nodes, as a value and as text.

use crate::values::limits::{MEMBER_ADDRESS_BYTES_MAX, MEMBERS_MAX};

/// A node of a set: its id and its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// The `id` from LOCK.NODE. A server with another id is not this member, even at the same address or if the server
    /// lost its state file. `None` if the node did not answer when the set was created; then it has no vote.
    pub id: Option<u128>,
    /// The address for clients, without a password.
    pub address: String,
}

/// A version of the set: its number and its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Members {
    /// The number of the version; 0 if the node belongs to no set.
    pub version: u64,
    /// The nodes of the set.
    pub list: Vec<Member>,
}

impl Members {
    /// Returns whether `list` differs from the nodes of this version by exactly one node, added or removed.
    pub fn is_next_to(&self, list: &[Member]) -> bool {
        let differs = |one: &[Member], other: &[Member]| one.iter().filter(|member| !other.contains(member)).count();
        differs(&self.list, list) + differs(list, &self.list) == 1 && self.list.len().abs_diff(list.len()) == 1
    }

    /// Returns whether the server `id` is a member.
    pub fn has(&self, id: u128) -> bool {
        self.list.iter().any(|member| member.id == Some(id))
    }
}

/// The number of an attempt to change the set. A larger one wins, and no two attempts have the same one.
pub type Ballot = u128;

/// A list that a node accepted as the next version, in an attempt that may not be finished.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Accepted {
    /// The ballot of the attempt in which the node accepted the list.
    pub ballot: Ballot,
    /// The nodes of the next version.
    pub list: Vec<Member>,
}

/// Formats a list as one word: `id@address,id@address,…`, the id as 32 hexadecimal digits or `unknown`.
pub fn members_to_text(list: &[Member]) -> String {
    let word = |Member { id, address }: &Member| match id {
        Some(id) => format!("{id:032x}@{address}"),
        None => format!("unknown@{address}"),
    };
    list.iter().map(word).collect::<Vec<_>>().join(",")
}

/// Parses the text of [`members_to_text`]. Returns `None` if an id, or an address without one, appears twice.
pub fn members_from_text(text: &str) -> Option<Vec<Member>> {
    let member = |word: &str| {
        let (id, address) = word.split_once('@')?;
        let id = match id {
            "unknown" => None,
            id if id.len() == 32 => Some(u128::from_str_radix(id, 16).ok()?),
            _ => return None,
        };
        is_address(address).then(|| Member { id, address: address.to_owned() })
    };
    let list: Vec<_> = text.split(',').map(member).collect::<Option<_>>()?;
    let twice = |n: usize| {
        list[..n].iter().any(|other: &Member| other.id.is_some() && other.id == list[n].id || *other == list[n])
    };
    (list.len() <= MEMBERS_MAX && !(0..list.len()).any(twice)).then_some(list)
}

/// Returns whether `address` can be that of a member: it must not contain a comma or a space, which separate members
/// and words.
pub fn is_address(address: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != ',';
    !address.is_empty() && address.len() <= MEMBER_ADDRESS_BYTES_MAX && address.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ids: &[u128]) -> Vec<Member> {
        ids.iter().map(|&id| Member { id: Some(id), address: format!("10.0.0.{id}:6379") }).collect()
    }

    #[test]
    fn a_step_adds_or_removes_one() {
        let set = |ids: &[u128]| Members { version: 1, list: list(ids) };
        assert!(set(&[1, 2, 3]).is_next_to(&list(&[1, 2, 3, 4])));
        assert!(set(&[1, 2, 3]).is_next_to(&list(&[3, 1])));
        for other in [&[1, 2, 3][..], &[1, 2, 4], &[1, 2, 3, 4, 5], &[1], &[3, 2, 1]] {
            assert!(!set(&[1, 2, 3]).is_next_to(&list(other)), "{other:?}");
        }
        let mut moved = list(&[1, 2, 3]);
        moved[2].address = "elsewhere:1".to_owned();
        assert!(!set(&[1, 2, 3]).is_next_to(&moved));
    }

    #[test]
    fn a_list_is_a_word() {
        let mut all = list(&[1, 2]);
        all.push(Member { id: None, address: "unix:///run/a.sock".to_owned() });
        assert_eq!(members_from_text(&members_to_text(&all)), Some(all));
        let one = "00000000000000000000000000000001@a:1";
        for bad in
            ["", "1@a:1", "unknown@", "unknown@a b", "unknown", &format!("{one},{one}"), "unknown@a,unknown@a", ","]
        {
            assert_eq!(members_from_text(bad), None, "{bad}");
        }
    }
}
