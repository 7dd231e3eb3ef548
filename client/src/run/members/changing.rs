//! Changes the set of nodes, step by step. Each step adds or removes one node, and the nodes themselves agree on it.
//!
//! A change begins with the set that the nodes know, whatever this client knows, and completes steps that others left
//! unfinished. The change fails if a concurrent one moves the set away from its [`Path`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::FuturesUnordered;
use palisade_quorum::{
    Accepted, Ballot, Change, ChangeProgress, Member, MemberRequest, MemberSays, Members, NodeId, Path, majority,
    members_from_text, step_towards,
};
use rand::RngExt;
use redis::Value;
use tokio::time::{Instant, sleep};
use tracing::info;

use super::asking::{Answered, ask};
use crate::net::access::Way;
use crate::net::nodes::Nodes;
use crate::net::ways::NO_SERVER;
use crate::net::wire;
use crate::{Error, ErrorKind, NodeError, Why};

/// The error for a server whose module is too old.
const TOO_OLD: &str = "its lock module is too old for a set that changes: upgrade it";

/// Maximum time without progress before the obstacle is reported. Time that the nodes need until leases have ended does
/// not count.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time after which the caller is informed that a new node does not answer and is asked again.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// Time after which the first version of the set is stored although a node does not answer; that node's id is then
/// recorded as unknown.
const FOUNDING: Duration = Duration::from_secs(5);

/// Pause between two checks of a guarded node: an operator may lift the guard.
const GUARD_LOOK: Duration = Duration::from_secs(1);

/// First and longest pause after a failed attempt.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Lowest bit of a ballot's most significant part. This part at least doubles each time another changer outbids this
/// one, so that this one outbids even a changer that died.
const ATTEMPTS_SHIFT: u32 = 96;

/// Makes the nodes at these addresses the set, in as many steps as needed. Returns once the client of `nodes` works with it.
///
/// # Errors
/// `Configuration`, `NotAllowed`, `NoQuorum`, `Overtaken`.
pub async fn set_nodes(nodes: &Arc<Nodes>, addresses: &[String]) -> Result<(), Error> {
    if !nodes.set.ways.can_change() {
        return Err(Error::new(ErrorKind::Configuration, NO_SERVER));
    }
    let first = nodes.set.ways.first();
    let wanted = nodes.set.ways.name(addresses)?;
    let mut changer = Changer::new(nodes, &|_| ());
    let mut path = None;
    loop {
        let surveyed = changer.survey(first).await;
        changer.update_behind(&surveyed).await;
        let present = surveyed.present(first)?;
        // This check comes before the first version is stored, so that an impossible set is refused while nothing has
        // been changed.
        let (wanted, guarded) = changer.wanted(&present, &wanted).await?;
        let path = path.get_or_insert_with(|| Path::begin(present.clone()));
        overtaken_unless(path.on_present(&present, &wanted), &present)?;
        let done = match (present.version, step_towards(&present.list, &wanted)) {
            (0, _) => changer.create_set(first).await?,
            (_, None) => return taken_up(nodes, present).await,
            (_, Some(list)) if changer.added_serves(&present, &list, &guarded).await => {
                changer.step(&present, list).await?
            }
            (_, Some(_)) => None,
        };
        if let Some(members) = done {
            changer.decided(&present, &members).await?;
            overtaken_unless(path.on_decided(&members, &wanted), &members)?;
        }
    }
}

/// Returns an error unless `is_on_path`: concurrent changes, if any, went through the same versions as this one.
fn overtaken_unless(is_on_path: bool, Members { version, list }: &Members) -> Result<(), Error> {
    let nodes = || list.iter().map(|member| member.address.as_str()).collect::<Vec<_>>().join(", ");
    let text = || {
        format!(
            "the set of nodes is not changed further: somebody else changes it too, and made version {version} of other nodes than this change \
             ({}). What was changed until now stays. Agree on one list, and set it when the other change is done",
            nodes()
        )
    };
    is_on_path.then_some(()).ok_or_else(|| Error::new(ErrorKind::Overtaken, text()))
}

/// Waits until the client works with this version, or with a later one.
async fn taken_up(nodes: &Arc<Nodes>, members: Members) -> Result<(), Error> {
    loop {
        let latest = nodes.latest();
        if latest.set.news.version() >= members.version {
            return Ok(());
        }
        latest.set.news.record(members.clone());
        latest.superseded().await;
    }
}

/// The addresses of guarded nodes, each with the milliseconds left of its guard.
pub(super) type Guarded = Vec<(String, u64)>;

/// The knowledge of one server about the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerKnowledge {
    /// The id of the server.
    pub id: u128,
    /// Milliseconds for which the server grants nothing.
    pub guard_ms: u64,
    /// The longest lease that the server accepts, in milliseconds.
    pub max_ttl_ms: u64,
    /// Milliseconds until the server votes on the next version.
    pub unsettled_ms: u64,
    /// The latest version that the server knows.
    pub members: Members,
}

/// The answers of nodes about their set.
#[derive(Debug, Default)]
pub struct Surveyed {
    /// The addresses of the nodes that the client began with, in their order; empty if one of them is not a single
    /// server.
    pub first: Vec<String>,
    /// The latest version that any node knows.
    pub latest: Members,
    /// The answer for each address, or the reason why there is none.
    pub known: HashMap<String, Result<ServerKnowledge, Why>>,
}

impl Surveyed {
    /// Returns the present set. If no node knows one, returns the nodes at `first`, with which it will be founded.
    ///
    /// # Errors
    /// `Configuration`: two of these addresses belong to one server.
    pub(super) fn present(&self, first: &[String]) -> Result<Members, Error> {
        if self.latest.version > 0 {
            return Ok(self.latest.clone());
        }
        let id = |address| self.known.get(address).and_then(|knows| knows.as_ref().ok()).map(|knows| knows.id);
        let list: Vec<_> = first.iter().map(|address| Member { id: id(address), address: address.clone() }).collect();
        are_distinct(&list)?;
        Ok(Members { version: 0, list })
    }
}

/// Asks the nodes that the user named, and the members that they name, which set they know.
pub async fn survey(nodes: &Arc<Nodes>) -> Surveyed {
    Changer::new(nodes, &|_| ()).survey(nodes.set.ways.first()).await
}

pub(super) struct Changer<'a> {
    nodes: &'a Arc<Nodes>,
    /// The first part of the next ballot, by which it outbids others.
    outbid: u32,
    pause: Duration,
    progressed: Instant,
    /// A callback for each added node that does not answer and is asked again.
    waits: &'a OnWait,
}

/// A callback that receives the error of an added node that does not answer.
pub type OnWait = dyn Fn(NodeError) + Send + Sync;

impl<'a> Changer<'a> {
    /// Creates the state of a change of the set that has not begun.
    pub(super) fn new(nodes: &'a Arc<Nodes>, waits: &'a OnWait) -> Self {
        Self { nodes, outbid: 0, pause: BACK_OFF.0, progressed: Instant::now(), waits }
    }

    fn way(&self, address: &str) -> Result<Arc<Way>, Why> {
        let nowhere = || Why::Unfit("its address in the set is of no use here".to_owned());
        self.nodes.set.ways.to_address(address).ok_or_else(nowhere)
    }

    async fn ask(&self, member: &Member, command: &redis::Cmd) -> Result<Answered, Why> {
        ask(&self.way(&member.address)?, member.id.map(NodeId), command).await
    }

    /// Returns what the nodes at `first`, and those of all versions that they name, know of the set.
    pub(super) async fn survey(&self, first: &[String]) -> Surveyed {
        let mut addresses = first.to_vec();
        addresses.extend(self.nodes.latest().set.news.members.list.iter().map(|member| member.address.clone()));
        let mut known: HashMap<String, Result<ServerKnowledge, Why>> = HashMap::new();
        let mut latest = self.nodes.latest().set.news.members.clone();
        loop {
            let unknown: BTreeSet<_> =
                addresses.extract_if(.., |_| true).filter(|at| !known.contains_key(at)).collect();
            if unknown.is_empty() {
                break;
            }
            known.extend(
                join_all(unknown.into_iter().map(async |at| (at.clone(), self.ask_knowledge(&at).await))).await,
            );
            let newest = known.values().flatten().map(|knows| &knows.members).max_by_key(|members| members.version);
            if let Some(newest) = newest.filter(|newest| newest.version > latest.version) {
                latest = newest.clone();
            }
            addresses.extend(latest.list.iter().map(|member| member.address.clone()));
        }
        Surveyed { first: first.to_vec(), latest, known }
    }

    /// Sends the latest version to members that know only an earlier one, because they would have no vote on the next.
    async fn update_behind(&self, Surveyed { latest, known, .. }: &Surveyed) {
        let is_behind = |member: &&Member| {
            let knows = known.get(&member.address).and_then(|knows| knows.as_ref().ok());
            knows.is_some_and(|knows| Some(knows.id) == member.id && knows.members.version < latest.version)
        };
        // If the user lacks the permission, the first step reports that.
        join_all(latest.list.iter().filter(is_behind).map(|member| self.announce(member, latest))).await;
    }

    /// Asks the server at this address what it knows of the set.
    pub(super) async fn ask_knowledge(&self, address: &str) -> Result<ServerKnowledge, Why> {
        let answered = ask(&self.way(address)?, None, &redis::cmd("LOCK.MEMBERS")).await;
        let Answered { id, node, value } = answered.map_err(|why| match why {
            Why::UnknownCommand(_) => Why::Unfit(TOO_OLD.to_owned()),
            why => why,
        })?;
        let members =
            wire::members(&value).ok_or_else(|| Why::Unfit(format!("it answered {value:?} to LOCK.MEMBERS")))?;
        let ms = |reply, name| wire::number(reply, name).unwrap_or(0);
        let (guard_ms, max_ttl_ms) = (ms(&node, "guard_ms"), ms(&node, "max_ttl"));
        Ok(ServerKnowledge { id: id.0, guard_ms, max_ttl_ms, unsettled_ms: ms(&value, "unsettled_ms"), members })
    }

    /// Asks the server at this address what it knows of the set, and asks again until `until` if it fails for a
    /// temporary reason. After a second the caller is informed.
    async fn ask_knowledge_until(&self, address: &str, until: Instant) -> Result<ServerKnowledge, Why> {
        let (began, mut is_told) = (Instant::now(), false);
        loop {
            match self.ask_knowledge(address).await {
                Err(why) if !why.is_lasting() && Instant::now() < until => {
                    if !is_told && began.elapsed() >= TOLD_AFTER {
                        is_told = true;
                        (self.waits)(NodeError { node: address.to_owned(), why });
                    }
                    sleep(BACK_OFF.1).await;
                }
                knows => return knows,
            }
        }
    }

    async fn announce(&self, member: &Member, members: &Members) -> Result<Answered, Why> {
        self.ask(member, &wire::announce_members(members)).await
    }

    /// Stores the first version of the set, which has the nodes at `first`, with their ids.
    async fn create_set(&mut self, first: &[String]) -> Result<Option<Members>, Error> {
        // The ids of nodes that are slow now are waited for: otherwise these nodes would have to be removed and added
        // again.
        let until = Instant::now() + FOUNDING;
        let asked = join_all(first.iter().map(|address| self.ask_knowledge_until(address, until))).await;
        let mut whys = vec![];
        let mut list: Vec<Member> = vec![];
        for (address, knows) in first.iter().zip(asked) {
            let id = match knows {
                Ok(knows) => Some(knows.id),
                Err(why) => {
                    whys.push((address.clone(), why));
                    None
                }
            };
            list.push(Member { id, address: address.clone() });
        }
        are_distinct(&list)?;
        if list.iter().filter(|member| member.id.is_some()).count() < majority(list.len()) {
            self.wait_or_fail(whys).await?;
            return Ok(None);
        }
        let nobody = |address: &String| Member { id: None, address: address.clone() };
        self.step(&Members { version: 0, list: first.iter().map(nobody).collect() }, list).await
    }

    /// Returns the nodes at the `wanted` addresses as members, and how long those to be added are guarded. A new node
    /// that does not answer is asked again; a lasting refusal of one is returned at once.
    pub(super) async fn wanted(&self, present: &Members, wanted: &[Arc<Way>]) -> Result<(Vec<Member>, Guarded), Error> {
        let asked = try_join_all(wanted.iter().map(|way| self.member_at(way.address(), present))).await?;
        let is_guarded = |(member, guard_ms): &&(Member, u64)| *guard_ms > 0 && !present.list.contains(member);
        let guarded = asked.iter().filter(is_guarded).map(|(member, guard_ms)| (member.address.clone(), *guard_ms));
        let guarded = guarded.collect();
        let list: Vec<_> = asked.into_iter().map(|(member, _)| member).collect();
        are_distinct(&list)?;
        Ok((list, guarded))
    }

    /// Returns the node at `address` as a member, and its guard in milliseconds.
    async fn member_at(&self, address: String, present: &Members) -> Result<(Member, u64), Error> {
        let refused = |kind, why: Why| {
            let node = NodeError { node: address.clone(), why };
            Error::new(kind, "a node cannot be added to the set: nothing was changed for it").with_nodes(vec![node])
        };
        let unfit = |text: String| Err(refused(ErrorKind::Configuration, Why::Unfit(text)));
        let knows = match present.list.iter().find(|member| member.address == address) {
            None => self.ask_knowledge_until(&address, self.progressed + PATIENCE).await.map_err(|why| {
                let kind = if why.code() == Some("NOPERM") { ErrorKind::NotAllowed } else { ErrorKind::NoQuorum };
                refused(kind, why)
            })?,
            Some(there) => match self.ask_knowledge(&address).await {
                Ok(knows) => knows,
                // The node may be dead; it stays a member.
                Err(_) => return Ok((there.clone(), 0)),
            },
        };
        let member = Member { id: Some(knows.id), address: address.clone() };
        match present.list.iter().find(|before| before.id == member.id) {
            Some(before) if *before != member => unfit(format!(
                "it is a member already, as {}: remove it, and then add it with this address",
                before.address
            )),
            // A server that was a member of this set, or has become one, is accepted. The last version that it knows
            // shares nodes with the present one.
            None if knows.members.version > 0 && !shares_nodes(&knows.members, present) => unfit(
                "it was told of another set: if it is not in use there, remove its state file (docs/operations.md)"
                    .to_owned(),
            ),
            _ => Ok((member, knows.guard_ms)),
        }
    }

    /// Returns whether the node that `list` adds to `present` may be added now: it is not guarded. If it is, waits for
    /// up to [`GUARD_LOOK`] first. A guarded node would raise the number of nodes that a majority needs, and grant
    /// nothing itself. If another node were dead too, locks would be lost.
    async fn added_serves(&mut self, present: &Members, list: &[Member], guarded: &Guarded) -> bool {
        let is_added = |(node, _): &&(String, u64)| {
            list.iter().any(|member| member.address == *node && !present.list.contains(member))
        };
        let Some((node, guard_ms)) = guarded.iter().find(is_added) else { return true };
        info!(node, guard_ms, "waits until a node serves that is to be added");
        sleep(Duration::from_millis(*guard_ms).min(GUARD_LOOK)).await;
        self.progressed = Instant::now();
        false
    }

    /// Attempts to make `list` the next version of the set after `present`. Returns the decided version, if any.
    async fn step(&mut self, present: &Members, list: Vec<Member>) -> Result<Option<Members>, Error> {
        let mut change = Change::begin(present.clone(), self.ballot(), list);
        loop {
            let told = change.request();
            let command = wire::propose_members(&told);
            let say = async |place: usize| (place, self.ask(&present.list[place], &command).await);
            let mut asked: FuturesUnordered<_> = (0..present.list.len()).map(say).collect();
            let mut failures = vec![];
            let progress = loop {
                let Some((place, answer)) = asked.next().await else { break ChangeProgress::Impossible };
                let (id, says) = match answer {
                    Ok(Answered { id, value, .. }) => match (&told, parse_promise(&value)) {
                        (MemberRequest::Promise { .. }, Some(promised)) => (id.0, promised),
                        (MemberRequest::Accept { .. }, _) => (id.0, MemberSays::Accepted),
                        _ => (id.0, MemberSays::No),
                    },
                    Err(failure) => {
                        failures.push((present.list[place].address.clone(), failure));
                        (0, MemberSays::No)
                    }
                };
                match change.on_answer(place, id, &told, says) {
                    ChangeProgress::Goes => {}
                    // No majority agreed: the reasons of the nodes are handled below.
                    ChangeProgress::Impossible if !asked.is_empty() => {}
                    progress => break progress,
                }
            };
            drop(asked);
            match progress {
                ChangeProgress::Decided(members) => return Ok(Some(members)),
                ChangeProgress::Accepts => {}
                ChangeProgress::Goes | ChangeProgress::Impossible => {
                    self.wait_or_fail(failures).await?;
                    return Ok(None);
                }
            }
        }
    }

    /// Returns the next ballot. Of concurrent changers the one that began last wins; one that never finishes is outbid.
    fn ballot(&self) -> Ballot {
        let (began, chance) = (self.nodes.clock.ticket().get(), rand::rng().random::<u32>());
        Ballot::from(self.outbid) << ATTEMPTS_SHIFT | Ballot::from(began) << u32::BITS | Ballot::from(chance)
    }

    /// Sends the decided version to all nodes of both versions, and to this client.
    async fn decided(&mut self, before: &Members, after: &Members) -> Result<(), Error> {
        let left = before.list.iter().filter(|member| before.version > 0 && !after.list.contains(member));
        let all: Vec<_> = after.list.iter().chain(left).collect();
        info!(version = after.version, nodes = after.list.len(), "the next version of the set of nodes is decided");
        let told = join_all(all.iter().map(|member| self.announce(member, after))).await;
        let named = all.iter().zip(told).filter_map(|(member, told)| Some((member.address.clone(), told.err()?)));
        self.allowed(&named.collect::<Vec<_>>(), 0)?;
        (self.progressed, self.pause, self.outbid) = (Instant::now(), BACK_OFF.0, 0);
        self.nodes.latest().set.news.record(after.clone());
        Ok(())
    }

    /// Waits until another attempt may succeed, or returns the failure if none will.
    async fn wait_or_fail(&mut self, failures: Vec<(String, Why)>) -> Result<(), Error> {
        self.allowed(&failures, failures.len() / 2)?;
        let unsettled = failures.iter().filter_map(|(_, why)| match why {
            Why::Unsettled { left_ms, .. } => Some(*left_ms),
            _ => None,
        });
        if let Some(ms) = unsettled.min() {
            // Leases have to end first, which takes time but is no obstacle.
            sleep(Duration::from_millis(ms).max(BACK_OFF.0)).await;
            self.progressed = Instant::now();
            return Ok(());
        }
        if failures.iter().any(|(_, why)| why.code() == Some("OUTBID")) {
            self.outbid = self.outbid.saturating_mul(2).saturating_add(1);
        }
        if self.progressed.elapsed() > PATIENCE {
            let text = "too few nodes agree to another version of the set; what was changed until now stays, and it can be gone on with";
            return Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(errors(&failures)));
        }
        let jittered = self.pause.mul_f64(rand::rng().random_range(0.5..1.0));
        sleep(jittered).await;
        self.pause = (self.pause * 2).min(BACK_OFF.1);
        Ok(())
    }

    /// Returns an error if more than `most` nodes refuse this user.
    fn allowed(&self, failures: &[(String, Why)], most: usize) -> Result<(), Error> {
        let refused: Vec<_> =
            failures.iter().filter(|(_, failure)| failure.code() == Some("NOPERM")).cloned().collect();
        if refused.len() <= most {
            return Ok(());
        }
        let text = "this user may not change the set of nodes: that takes +lock.setmembers and +lock.members, the permissions of an operator";
        Err(Error::new(ErrorKind::NotAllowed, text).with_nodes(errors(&refused)))
    }
}

/// Returns an error if a server is in the list twice.
fn are_distinct(list: &[Member]) -> Result<(), Error> {
    let is_known = |member: &&Member| member.id.is_some();
    let twice = (0..list.len()).find(|&n| list[..n].iter().filter(is_known).any(|other| other.id == list[n].id));
    twice.map_or(Ok(()), |n| {
        let text = format!("{} is the same server as another address: give each node once", list[n].address);
        Err(Error::new(ErrorKind::Configuration, text))
    })
}

/// Returns whether two versions can be of one set: they have a node in common.
fn shares_nodes(one: &Members, other: &Members) -> bool {
    let is_there = |member: &Member| {
        let is_it = |other: &Member| (other.id.is_some() && other.id == member.id) || other.address == member.address;
        other.list.iter().any(is_it)
    };
    one.list.iter().any(is_there)
}

fn errors(failures: &[(String, Why)]) -> Vec<NodeError> {
    failures.iter().map(|(node, failure)| NodeError { node: node.clone(), why: failure.clone() }).collect()
}

/// Parses a member's promise to vote for the next version of the set. It names the list that the member has accepted
/// before, if any.
fn parse_promise(value: &Value) -> Option<MemberSays> {
    let accepted = match (wire::text(value, "accepted"), wire::text(value, "members")) {
        (Some(ballot), Some(list)) => {
            Some(Accepted { ballot: Ballot::from_str_radix(&ballot, 16).ok()?, list: members_from_text(&list)? })
        }
        _ => None,
    };
    Some(MemberSays::Promised { accepted, floor: wire::number(value, "floor")? })
}
