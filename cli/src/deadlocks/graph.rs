//! The graph of waits, and the circles in it. No node is asked here.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// A lock that others wait for, with its holders and waiters.
#[derive(Clone, Debug, Default)]
pub struct WaitedFor {
    pub key: String,
    pub holders: Vec<Party>,
    /// True if there are more holders than listed.
    pub has_more: bool,
    pub waiters: Vec<Party>,
}

/// A holder of a lock, or a waiter for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Party {
    /// The flow of control that holds or waits: its holder id, or if it has none, the owner of this acquisition.
    pub who: String,
    /// The name for people: the note, or the owner.
    pub name: String,
    /// The owner of this acquisition.
    pub owner: String,
    /// The token of a holder; 0 for a waiter.
    pub token: u64,
    /// The time held, or waited, in milliseconds.
    pub ms: u64,
    /// True if the request is for any permit, and the holders have permits.
    pub takes_any: bool,
}

impl Party {
    /// Returns true if there is no holder id, so that other holds and waits of the same flow of control are unknown.
    pub fn is_unnamed(&self) -> bool {
        self.who == self.owner
    }
}

/// One of several holders that wait for each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    pub holder_id: String,
    pub holder: String,
    /// The lock that this member holds and that the previous member waits for.
    pub holds: String,
    pub token: u64,
    pub held_ms: u64,
    pub waits_for: String,
    pub waited_ms: u64,
    /// The owner of the awaited acquisition.
    #[serde(skip)]
    pub owner: String,
}

impl Member {
    /// Returns true if this is the same hold and the same wait, seen at another time.
    pub fn is_same(&self, other: &Self) -> bool {
        let what = |member: &Self| (member.holds.clone(), member.token, member.waits_for.clone(), member.owner.clone());
        what(self) == what(other)
    }
}

/// Returns the circles in which holders wait for each other: each waits for what the next one holds, and the last for
/// what the first holds. Of circles that share a holder, only one is returned.
pub fn circles(locks: &[WaitedFor]) -> Vec<Vec<Member>> {
    let stuck = stuck(locks);
    let mut seen = BTreeSet::new();
    let mut circles = vec![];
    for start in &stuck {
        let mut path: Vec<Edge<'_>> = vec![];
        let mut at = *start;
        // A party that is stuck waits for another stuck party, so this walk ends in a circle.
        while seen.insert(at)
            && let Some(edge) = blocked_by(locks, &stuck, at)
        {
            path.push(edge);
            at = &edge.holder.who;
        }
        if let Some(first) = path.iter().position(|edge| edge.waiter.who == at) {
            circles.push(members(&path[first..]));
        }
    }
    circles
}

/// Returns true if missing holder ids may hide a circle of waits: there would be one if all parties without a holder id
/// were the same flow of control.
pub fn may_be_hidden(locks: &[WaitedFor]) -> bool {
    let as_one = |party: &Party| Party {
        who: if party.is_unnamed() { String::new() } else { party.who.clone() },
        ..party.clone()
    };
    let with_one = |lock: &WaitedFor| WaitedFor {
        holders: lock.holders.iter().map(as_one).collect(),
        waiters: lock.waiters.iter().map(as_one).collect(),
        ..lock.clone()
    };
    let locks: Vec<WaitedFor> = locks.iter().map(with_one).collect();
    !circles(&locks).is_empty()
}

/// A wait of one party for a lock that another party holds.
#[derive(Clone, Copy)]
struct Edge<'a> {
    waiter: &'a Party,
    holder: &'a Party,
    key: &'a str,
}

/// Returns the stuck parties: each waits for a lock that it cannot get until a stuck party gives up.
fn stuck(locks: &[WaitedFor]) -> BTreeSet<&str> {
    let mut waits: BTreeMap<&str, Vec<(&WaitedFor, bool)>> = BTreeMap::new();
    for lock in locks {
        for waiter in &lock.waiters {
            waits.entry(&waiter.who).or_default().push((lock, waiter.takes_any));
        }
    }
    let mut stuck: BTreeSet<&str> = waits.keys().copied().collect();
    loop {
        let ends = |party: &Party| !stuck.contains(party.who.as_str());
        let goes_on = |(lock, takes_any): &(&WaitedFor, bool)| match takes_any {
            true => lock.has_more || lock.holders.is_empty() || lock.holders.iter().any(ends),
            false => lock.holders.iter().all(ends),
        };
        let free: Vec<&str> = stuck.iter().filter(|who| waits[**who].iter().all(goes_on)).copied().collect();
        if free.is_empty() {
            return stuck;
        }
        stuck.retain(|who| !free.contains(who));
    }
}

/// Returns a wait of `who` for a lock that one of the `stuck` parties holds.
fn blocked_by<'a>(locks: &'a [WaitedFor], stuck: &BTreeSet<&str>, who: &str) -> Option<Edge<'a>> {
    locks.iter().find_map(|lock| {
        let waiter = lock.waiters.iter().find(|waiter| waiter.who == who)?;
        let holder = lock.holders.iter().find(|holder| stuck.contains(holder.who.as_str()))?;
        Some(Edge { waiter, holder, key: &lock.key })
    })
}

/// Returns the waiters of a circle, each with the lock that it holds and that the previous one waits for.
fn members(circle: &[Edge<'_>]) -> Vec<Member> {
    let before = circle.iter().cycle().skip(circle.len() - 1);
    let pairs = circle.iter().zip(before);
    let member = |(wait, hold): (&Edge<'_>, &Edge<'_>)| Member {
        holder_id: wait.waiter.who.clone(),
        holder: hold.holder.name.clone(),
        holds: hold.key.to_owned(),
        token: hold.holder.token,
        held_ms: hold.holder.ms,
        waits_for: wait.key.to_owned(),
        waited_ms: wait.waiter.ms,
        owner: wait.waiter.owner.clone(),
    };
    pairs.map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(who: &str) -> Party {
        let any = who.strip_prefix('?');
        let who = any.unwrap_or(who).to_owned();
        Party { name: who.clone(), owner: who.clone(), who, takes_any: any.is_some(), ..Party::default() }
    }

    /// Parses locks in the form `key: holders < waiters`; `?` before a waiter means that it takes any permit.
    fn locks(texts: &[&str]) -> Vec<WaitedFor> {
        let parties = |text: &str| text.split_whitespace().map(party).collect();
        let lock = |text: &&str| {
            let (key, rest) = text.split_once(": ").unwrap();
            let (holders, waiters) = rest.split_once('<').unwrap();
            let (key, holders, waiters) = (key.to_owned(), parties(holders), parties(waiters));
            WaitedFor { key, holders, has_more: false, waiters }
        };
        texts.iter().map(lock).collect()
    }

    fn found(texts: &[&str]) -> Vec<String> {
        let member = |member: &Member| format!("{} has {} wants {}", member.holder, member.holds, member.waits_for);
        let circle = |circle: &Vec<Member>| circle.iter().map(member).collect::<Vec<_>>().join(", ");
        circles(&locks(texts)).iter().map(circle).collect()
    }

    #[test]
    fn who_waits_in_a_circle() {
        let cases: [(&str, &[&str], &[&str]); 14] = [
            ("nobody", &[], &[]),
            ("one waits", &["x: a < b"], &[]),
            ("a chain", &["x: a < b", "y: b < c"], &[]),
            ("two", &["x: a < b", "y: b < a"], &["a has x wants y, b has y wants x"]),
            ("with itself", &["x: a < a"], &["a has x wants x"]),
            (
                "three, and one behind them",
                &["x: a < b d", "y: b < c", "z: c < a"],
                &["a has x wants z, c has z wants y, b has y wants x"],
            ),
            (
                "two pairs",
                &["x: a < b", "y: b < a", "u: c < d", "v: d < c"],
                &["a has x wants y, b has y wants x", "c has u wants v, d has v wants u"],
            ),
            ("a writer waits for all readers", &["x: a r < w", "y: w < a"], &["a has x wants y, w has y wants x"]),
            ("a permit of one who goes on is enough", &["x: a b < ?w", "y: w < a"], &[]),
            ("all who have permits wait for it", &["x: a b < ?w", "y: w < a b"], &["a has x wants y, w has y wants x"]),
            ("a wait for nobody", &["x: < a", "y: a < b"], &[]),
            (
                "it waits twice, once in vain",
                &["x: a < b", "y: b < a", "z: c < b"],
                &["a has x wants y, b has y wants x"],
            ),
            (
                "one circle of two that share a holder",
                &["x: a < b c", "y: b < a", "z: c < a"],
                &["a has x wants y, b has y wants x"],
            ),
            (
                "others wait for those",
                &["x: a < b", "y: b < a", "z: e < f", "w: a < e"],
                &["a has x wants y, b has y wants x"],
            ),
        ];
        for (name, texts, expected) in cases {
            assert_eq!(found(texts), expected, "{name}");
        }
        let mut more = locks(&["x: a b < ?w", "y: w < a b"]);
        more[0].has_more = true;
        assert!(circles(&more).is_empty(), "one who is not listed may give a permit back");
    }

    /// A wait that has no holder id may hide a circle. In these tests a name in capitals is a holder id, which differs
    /// from the owner.
    #[test]
    fn what_those_without_an_id_may_hide() {
        let named = |texts: &[&str]| {
            let mut locks = locks(texts);
            for lock in &mut locks {
                for party in lock.holders.iter_mut().chain(&mut lock.waiters).filter(|party| party.who.as_str() < "a") {
                    party.owner = format!("owner of {}", party.who);
                }
            }
            locks
        };
        let cases: [(&str, &[&str], bool); 7] = [
            ("nobody", &[], false),
            ("all tell their ids", &["x: A < B", "y: B < C"], false),
            ("one who holds and one who waits may be the same", &["x: a < b"], true),
            ("those who wait for others who tell theirs hold nothing", &["x: A < b c"], false),
            ("those who hold wait for nothing", &["x: a < B", "y: b < C"], false),
            ("through one who tells its id", &["x: a < B", "y: B < c"], true),
            ("one of two permits may be given back", &["x: a B < ?c"], false),
        ];
        for (name, texts, expected) in cases {
            assert_eq!(may_be_hidden(&named(texts)), expected, "{name}");
        }
    }

    #[test]
    fn the_same_hold_and_wait() {
        let all = circles(&locks(&["x: a < b", "y: b < a"]));
        let (a, b) = (&all[0][0], &all[0][1]);
        assert!(a.is_same(&Member { waited_ms: 9, held_ms: 9, ..a.clone() }) && !a.is_same(b));
        assert!(
            !a.is_same(&Member { token: 9, ..a.clone() }) && !a.is_same(&Member { owner: "o".to_owned(), ..a.clone() })
        );
    }
}
