//! Views that nodes have of a lock, and what a majority of them agrees on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use palisade_quorum::{
    BootTime, HoldStatus, Mode, NodeId, OwnGrant, ShownTokens, Token, is_named_by, known,
    limits::{DRIFT_PERCENT, LISTED_HOLDERS_MAX},
    majority,
};
use redis::{Cmd, Value, cmd};

use super::shown::{Shown, ShownGrant, ShownWaiter};
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::net::wire;
use crate::values::attempt_name::name_of;
use crate::values::clock;
use crate::{Error, ErrorKind, Why};

/// The largest error of a time left, which the node and the client both round to milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

/// The view that each node has of a lock, in the order of the list of nodes.
pub struct Views {
    /// The time before the first node was asked.
    pub asked: BootTime,
    pub by_node: Vec<Option<View>>,
    whys: Vec<Option<Why>>,
    nodes: Arc<Nodes>,
}

/// The answer of one node about a lock.
pub struct View {
    pub id: NodeId,
    /// Why the node may have forgotten grants that it does not show; `None` if it has forgotten none.
    unsure: Option<Why>,
    /// The grants, oldest first.
    pub grants: Vec<GrantView>,
    /// The number of grants, of which at most [`LISTED_HOLDERS_MAX`] are listed.
    holders: u64,
    waiters: u64,
    waiters_behind: u64,
    queue: Vec<ShownWaiter>,
    reserved: Option<(Vec<u8>, Duration)>,
}

/// A grant of the lock on one node.
#[derive(Clone)]
pub struct GrantView {
    /// The name of the attempt on that node.
    pub attempt: Vec<u8>,
    pub token: Token,
    pub mode: Mode,
    pub holds: u32,
    pub left_ms: u64,
    held: Duration,
    pub note: Vec<u8>,
    pub sequence: u64,
    pub is_suspect: bool,
    keepalive: Duration,
    extended: Duration,
}

impl Views {
    /// Asks all nodes, until a majority has answered and the views are `enough`. `enough` receives the views so far
    /// after each answer.
    pub async fn ask(
        nodes: &Arc<Nodes>,
        key: &[u8],
        waiters: Option<usize>,
        given: Given,
        enough: impl Fn(&Self) -> bool,
    ) -> Self {
        let asked = clock::boot_now();
        let (command, node) = (&command(key, waiters), &wire::node_of(key));
        let ask = |place: usize| async move {
            let endpoint = &nodes.list[place];
            // The order matters: if the node loses its memory before the first answer, the second answer shows the
            // guard.
            let (said, told) = join(endpoint.ask(command, given, None), endpoint.ask_at(key, node, given)).await;
            (place, said, told.1)
        };
        let mut replies: FuturesUnordered<_> = (0..nodes.len()).map(ask).collect();
        let by_node = (0..nodes.len()).map(|_| None).collect();
        let mut views = Self { asked, by_node, whys: vec![None; nodes.len()], nodes: Arc::clone(nodes) };
        let mut ids = vec![None; nodes.len()];
        while let Some((place, (id, reply), told)) = replies.next().await {
            match (id, reply) {
                (Some(id), Ok(info)) => {
                    ids[place] = Some(id);
                    match View::of(id, &info, unsure(&told)) {
                        Some(_) if views.by_node.iter().flatten().any(|view| view.id == id) => {}
                        Some(view) => views.by_node[place] = Some(view),
                        None => views.whys[place] = Some(Why::Broken(format!("it answered {info:?}"))),
                    }
                }
                (None, Ok(_)) => {
                    views.whys[place] = Some(Why::Broken("it is not known which server answered".to_owned()))
                }
                (_, Err(why)) => views.whys[place] = Some(why),
            }
            if enough(&views) && views.answered() >= majority(nodes.len()) {
                break;
            }
        }
        (0..nodes.len()).for_each(|place| {
            if let Some(view) = &views.by_node[place] {
                views.whys[place].clone_from(&view.unsure);
            }
            if let Some(same) = nodes.same_server(&ids, place) {
                views.whys[place] = Some(same);
            }
        });
        views
    }

    fn answered(&self) -> usize {
        self.by_node.iter().flatten().count()
    }

    /// Returns whether a majority of the nodes has answered.
    pub fn has_majority(&self) -> bool {
        self.answered() >= majority(self.by_node.len())
    }

    /// Returns whether a majority of the nodes has shown all its grants, and none of them may have forgotten any.
    pub fn is_answered(&self) -> bool {
        self.by_node.iter().flatten().filter(|view| view.is_whole()).count() >= majority(self.by_node.len())
    }

    /// Returns whether a node has more grants than it lists.
    pub fn are_cut(&self) -> bool {
        self.by_node.iter().flatten().any(View::is_cut)
    }

    /// Returns whether a majority of the nodes holds the grant of an attempt. `shown` has the nodes that show it.
    fn known(&self, shown: &[(usize, &GrantView)]) -> HoldStatus {
        let is_unsure = |view: &Option<View>| view.as_ref().is_none_or(|view| view.unsure.is_some());
        let shows = |place: usize| shown.iter().any(|(node, _)| *node == place);
        let unsure = self.by_node.iter().enumerate().filter(|(place, view)| is_unsure(view) && !shows(*place)).count();
        known(self.by_node.len(), shown.len(), unsure)
    }

    /// Returns the error that too few nodes have answered, which lists those that did not; or that they list too few
    /// holders.
    pub fn too_few(&self) -> Error {
        if self.answered() >= majority(self.by_node.len()) && self.are_cut() {
            return not_listed();
        }
        let text = format!("too few of {} nodes tell how the lock is", self.by_node.len());
        let count = self.whys.len();
        let lasting = self.whys.iter().flatten().filter(|why| why.is_lasting()).count();
        let error = Error::new(ErrorKind::NoQuorum, text).with_nodes(self.nodes.errors(&self.whys));
        error.lasting(lasting > count - majority(count))
    }

    /// Returns the grants of each attempt, by node.
    pub fn by_attempt(&self) -> BTreeMap<&[u8], Vec<(usize, &GrantView)>> {
        let mut by_attempt: BTreeMap<&[u8], Vec<_>> = BTreeMap::new();
        for (node, view) in self.by_node.iter().enumerate() {
            for grant in view.iter().flat_map(|view| &view.grants) {
                by_attempt.entry(&grant.attempt).or_default().push((node, grant));
            }
        }
        by_attempt
    }

    /// Returns the grant of this attempt on each node, as input of [`palisade_quorum::resume`]. A node without it that is
    /// guarded, or does not list all its grants, counts as one that has not answered.
    pub fn of_attempt(&self, attempt: &[u8]) -> Vec<Option<(NodeId, Option<OwnGrant>)>> {
        let own = |view: &View| {
            let grant = view.grants.iter().find(|grant| grant.attempt == attempt && !grant.is_suspect);
            let has = grant.map(|grant| OwnGrant { token: grant.token, left_ms: grant.left_ms });
            (has.is_some() || view.is_whole()).then_some((view.id, has))
        };
        self.by_node.iter().map(|view| view.as_ref().and_then(own)).collect()
    }

    /// Returns for each node the tokens that it shows, each with its attempt; `None` if it did not answer.
    pub fn tokens(&self) -> Vec<ShownTokens> {
        let tokens = |view: &View| view.grants.iter().map(|grant| (grant.attempt.clone(), grant.token.get())).collect();
        self.by_node.iter().map(|view| view.as_ref().map(tokens)).collect()
    }

    /// Returns for each node the reason why its answer does not count, if there is one.
    pub fn whys(&self) -> Vec<Option<Why>> {
        self.whys.clone()
    }

    /// Returns the tokens that nodes have for this attempt.
    pub fn tokens_of(&self, attempt: &[u8]) -> Vec<u64> {
        let seen = self.by_attempt().remove(attempt).unwrap_or_default();
        seen.iter().map(|(_, grant)| grant.token.get()).collect()
    }

    /// Returns the attempts whose grant a majority of the nodes has, or may have.
    pub fn perhaps_held(&self) -> Vec<Vec<u8>> {
        let by_attempt = self.by_attempt().into_iter();
        let held = by_attempt.filter(|(_, shown)| self.known(shown) != HoldStatus::NotHeld);
        held.map(|(attempt, _)| attempt.to_vec()).collect()
    }

    /// Returns whether a majority of the nodes answered without the grant of any of these attempts. (A node with more
    /// grants than it lists counts as one without. It lists the oldest.)
    pub fn are_gone<'a>(&self, attempts: impl IntoIterator<Item = &'a Vec<u8>>) -> bool {
        let by_attempt = self.by_attempt();
        let listing = |shown: &Vec<(usize, _)>| shown.chunk_by(|one, other| one.0 == other.0).count();
        let lacking = |attempt: &Vec<u8>| self.answered() - by_attempt.get(&**attempt).map_or(0, listing);
        attempts.into_iter().all(|attempt| lacking(attempt) >= majority(self.by_node.len()))
    }

    /// Returns whether the nodes whose grants are unknown are too few to change which grants a majority has. A node's
    /// grants are unknown if it did not answer, or may have forgotten grants.
    pub fn is_decided(&self) -> bool {
        let each: Vec<HoldStatus> = self.by_attempt().values().map(|shown| self.known(shown)).collect();
        // The status of an attempt that no node has shown so far.
        let hidden = self.known(&[]);
        let is_known = each.contains(&HoldStatus::Held) || hidden == HoldStatus::NotHeld;
        self.has_majority() && is_known && !each.contains(&HoldStatus::Unknown)
    }

    /// Returns the grants that a majority has, oldest first.
    pub fn agreed(&self) -> Vec<ShownGrant> {
        let needed = majority(self.by_node.len());
        let by_attempt = self.by_attempt();
        let held = by_attempt.values().filter(|grants| grants.len() >= needed);
        let mut agreed: Vec<_> = held.map(|grants| agreed(grants, self.by_node.len())).collect();
        agreed.sort_by_key(|grant| std::cmp::Reverse(grant.held));
        agreed
    }

    /// Returns the whole state of the lock.
    pub fn shown(&self) -> Shown {
        let grants = self.agreed();
        let views = || self.by_node.iter().flatten();
        let longest = views().max_by_key(|view| view.queue.len());
        let most = views().filter(|view| view.is_cut()).map(|view| view.holders).max();
        Shown {
            holders: most.unwrap_or(0).max(grants.len() as u64),
            listed: views().map(|view| view.grants.len()).max().unwrap_or(0),
            grants,
            waiters: views().map(|view| view.waiters).max().unwrap_or(0),
            waiters_behind: views().map(|view| view.waiters_behind).max().unwrap_or(0),
            queue: longest.map(|view| view.queue.clone()).unwrap_or_default(),
            reserved: views().find_map(|view| view.reserved.clone()),
        }
    }
}

/// Returns the error that nodes do not list all holders of the lock.
pub fn not_listed() -> Error {
    let text = format!("the lock has more than {LISTED_HOLDERS_MAX} holders, of which nodes list the oldest");
    Error::new(ErrorKind::NoQuorum, text)
}

/// Combines the grants that nodes show for one attempt: the newest note, the largest token, and the lease that a
/// majority still has.
fn agreed(grants: &[(usize, &GrantView)], nodes: usize) -> ShownGrant {
    let needed = majority(nodes);
    let kth = |mut values: Vec<u64>| {
        values.sort_unstable_by(|one, other| other.cmp(one));
        values[needed - 1]
    };
    let all = |of: fn(&GrantView) -> u64| grants.iter().map(|(_, grant)| of(grant)).collect::<Vec<_>>();
    let (_, newest) = grants.iter().max_by_key(|(_, grant)| grant.sequence).expect("a majority has it");
    let tokens: Vec<_> = grants.iter().map(|(_, grant)| grant.token).collect();
    let named = tokens.iter().filter(|token| is_named_by(nodes, &tokens, **token));
    ShownGrant {
        owner: name_of(&newest.attempt).to_vec(),
        attempt: newest.attempt.clone(),
        token: tokens.iter().max().map_or(0, |token| token.get()),
        tokens: named.map(|token| token.get()).collect(),
        at: grants.iter().map(|(node, grant)| (*node, grant.token.get())).collect(),
        // A writer may become a reader, and a node may not have heard of that yet. No reader becomes a writer.
        mode: grants.iter().map(|(_, grant)| grant.mode).find(|mode| *mode == Mode::Shared).unwrap_or(newest.mode),
        holds: grants.iter().map(|(_, grant)| grant.holds).max().unwrap_or(1),
        ttl: reliable(Duration::from_millis(kth(all(|grant| grant.left_ms)))),
        held: grants.iter().map(|(_, grant)| grant.held).max().unwrap_or_default(),
        note: newest.note.clone(),
        sequence: newest.sequence,
        is_suspect: grants.iter().filter(|(_, grant)| grant.is_suspect).count() > grants.len() - needed,
        keepalive: grants.iter().map(|(_, grant)| grant.keepalive).max().unwrap_or_default(),
        extended: grants.iter().map(|(_, grant)| grant.extended).min().unwrap_or_default(),
    }
}

/// Returns how much of a time that nodes measured is certain: less the drift of clocks. The lease of a
/// [`Granted`](super::handing::Granted) starts when its wait ends: count from the time before the request, plus the
/// wait.
pub fn reliable(left: Duration) -> Duration {
    (left - left * DRIFT_PERCENT as u32 / 100).saturating_sub(ROUNDING)
}

/// Returns for how long a node grants nothing, and why, from its LOCK.NODE; `None` if it serves.
pub fn guard(node: &Value) -> Option<(Duration, String)> {
    (wire::text(node, "state").as_deref() != Some("serving"))
        .then(|| (ms(node, "guard_ms"), wire::text(node, "guard_reason").unwrap_or_default()))
}

/// Returns why a node with this answer to LOCK.NODE may have forgotten grants.
fn unsure(node: &Result<Value, Why>) -> Option<Why> {
    let guarded = |(left, why): (Duration, String)| Why::Guarded {
        left_ms: left.as_millis() as u64,
        reason: format!("this node may have forgotten grants ({why})"),
        rest: String::new(),
    };
    node.as_ref().map_or_else(|why| Some(why.clone()), |node| guard(node).map(guarded))
}

impl View {
    fn of(id: NodeId, info: &Value, unsure: Option<Why>) -> Option<Self> {
        if matches!(info, Value::Nil) {
            return Some(Self {
                id,
                unsure,
                grants: vec![],
                holders: 0,
                waiters: 0,
                waiters_behind: 0,
                queue: vec![],
                reserved: None,
            });
        }
        let list = |name: &str| match wire::field(info, name) {
            Some(Value::Array(list)) => list.as_slice(),
            _ => &[],
        };
        let reserved = wire::bytes(info, "reserved").filter(|owner| !owner.is_empty()).map(name_of);
        let reserved_for = ms(info, "reserved_ms");
        Some(Self {
            id,
            unsure,
            grants: list("grants").iter().map(GrantView::of).collect::<Option<_>>()?,
            holders: wire::number(info, "holders")?,
            waiters: wire::number(info, "waiters")?,
            // Nodes of an earlier version do not report this.
            waiters_behind: wire::number(info, "waiters_behind").unwrap_or(0),
            queue: list("queue").iter().map(waiter).collect::<Option<_>>()?,
            reserved: reserved.map(|owner| (owner.to_vec(), reserved_for)),
        })
    }

    /// Returns whether the node has no other grants than those that the view has.
    fn is_whole(&self) -> bool {
        self.unsure.is_none() && !self.is_cut()
    }

    fn is_cut(&self) -> bool {
        self.holders > self.grants.len() as u64
    }
}

impl GrantView {
    fn of(grant: &Value) -> Option<Self> {
        Some(Self {
            attempt: wire::bytes(grant, "owner")?.to_vec(),
            token: wire::number(grant, "token").and_then(Token::new)?,
            mode: wire::mode(grant)?,
            holds: wire::number(grant, "holds").and_then(|holds| u32::try_from(holds).ok())?,
            left_ms: wire::number(grant, "ttl")?,
            held: ms(grant, "held"),
            note: wire::bytes(grant, "note")?.to_vec(),
            sequence: wire::number(grant, "seq")?,
            is_suspect: wire::number(grant, "suspect")? > 0,
            keepalive: ms(grant, "keepalive"),
            extended: ms(grant, "extended"),
        })
    }
}

fn waiter(waiter: &Value) -> Option<ShownWaiter> {
    Some(ShownWaiter {
        owner: name_of(wire::bytes(waiter, "owner")?).to_vec(),
        waited: ms(waiter, "waited"),
        is_turn: wire::bytes(waiter, "wants")? == b"turn",
        note: wire::bytes(waiter, "note")?.to_vec(),
        mode: wire::text(waiter, "mode")?,
        behind: wire::number(waiter, "behind").unwrap_or(0),
    })
}

fn ms(value: &Value, name: &str) -> Duration {
    Duration::from_millis(wire::number(value, name).unwrap_or(0))
}

fn command(key: &[u8], waiters: Option<usize>) -> Cmd {
    let mut command = cmd("LOCK.INFO");
    command.arg(key).arg("HOLDERS").arg(LISTED_HOLDERS_MAX);
    if let Some(count) = waiters {
        command.arg("WAITERS").arg(count);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_became_a_reader_is_one_although_a_node_has_not_heard_of_it() {
        let grant = |mode| GrantView {
            attempt: b"me".to_vec(),
            token: Token::new(1).unwrap(),
            mode,
            holds: 1,
            left_ms: 1_000,
            held: Duration::ZERO,
            note: vec![],
            sequence: 0,
            is_suspect: false,
            keepalive: Duration::ZERO,
            extended: Duration::ZERO,
        };
        let (writer, reader) = (grant(Mode::Exclusive), grant(Mode::Shared));
        for (shown, mode) in [
            ([&writer, &writer], Mode::Exclusive),
            ([&writer, &reader], Mode::Shared),
            ([&reader, &writer], Mode::Shared),
        ] {
            let shown: Vec<_> = shown.into_iter().enumerate().collect();
            assert_eq!(agreed(&shown, 3).mode, mode);
        }
    }
}
