//! Reports changes of a lock's holder.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_quorum::{NodeId, first_as, majority, token_of};
use tokio::sync::mpsc;

use crate::Holder;
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::net::wire;
use crate::run::watching::{self, Observation, State};

/// The holder that one node shows: the owner, the sequence number of its note, and the part that callers may see.
type View = Option<(Vec<u8>, u64, Holder)>;

/// A change of the lock, as the nodes show it.
pub enum Change {
    /// A majority has this holder, or none.
    Holder(Option<Holder>),
    /// A majority may no longer have the last holder, and there is none on which it agrees: of several holders, each
    /// node shows the one that it granted the lock first.
    Disagreement,
}

impl Change {
    /// Returns the holder, if nodes agree on one or on none.
    pub fn holder(self) -> Option<Option<Holder>> {
        if let Self::Holder(holder) = self { Some(holder) } else { None }
    }
}

/// Sends what `report` makes of each change of the holder, until the receiver is dropped, also when the set of nodes
/// changes. Changes for which it returns `None` are not reported.
pub async fn watch<T>(
    nodes: Arc<Nodes>,
    key: Arc<[u8]>,
    given: Given,
    tell: mpsc::Sender<T>,
    report: fn(Change) -> Option<T>,
) {
    let (mut nodes, mut last) = (nodes.latest(), None);
    loop {
        tokio::select! {
            biased;
            () = nodes.superseded() => {}
            () = watch_version(&nodes, &key, given, (&tell, report), &mut last) => return,
        }
        nodes = nodes.latest();
    }
}

async fn watch_version<T>(
    nodes: &Arc<Nodes>,
    key: &Arc<[u8]>,
    given: Given,
    (tell, report): (&mpsc::Sender<T>, fn(Change) -> Option<T>),
    last: &mut Option<View>,
) {
    // A disagreement at first is news too: the receiver may know a holder that has just left.
    let mut is_agreed = true;
    let mut views: Vec<Option<View>> = vec![None; nodes.len()];
    let mut ids: Vec<Option<NodeId>> = vec![None; nodes.len()];
    let ask = |node, known, after| watching::ask(Arc::clone(nodes), Arc::clone(key), node, known, given, after);
    let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(|node| ask(node, None, Duration::ZERO)).collect();
    while let Some(told) = asked.next().await {
        let (known, after) = told.next();
        // The next request is sent before the change is passed on, so that the next change is not missed.
        asked.push(ask(told.node, known, after));
        ids[told.node] = told.what.id();
        let is_news = matches!(told.what, Observation::Shows { .. });
        match told.what {
            Observation::Shows { state: State::Free, .. } => views[told.node] = Some(None),
            Observation::Shows { state: State::Held(info), .. } => {
                let owner = wire::bytes(&info, "owner").map(<[u8]>::to_vec);
                let sequence = wire::number(&info, "seq").unwrap_or(0);
                let holder = wire::holder(&info);
                views[told.node] = owner.zip(holder).map(|(owner, holder)| Some((owner, sequence, holder)));
            }
            Observation::Shows { state: State::Guarded, .. } | Observation::Silent(_) => views[told.node] = None,
            Observation::Same { .. } => {}
        }
        let (change, told) = match agreed(&ids, &views) {
            Some(now) => {
                is_agreed = true;
                let Some(news) = news(last.as_ref(), now) else { continue };
                (Change::Holder(news.as_ref().map(|(_, _, holder)| holder.clone())), Some(news))
            }
            None if (is_agreed || is_news) && views.iter().flatten().count() >= majority(views.len()) => {
                is_agreed = false;
                (Change::Disagreement, None)
            }
            None => continue,
        };
        if let Some(report) = report(change)
            && tell.send(report).await.is_err()
        {
            return;
        }
        // If the set changes while a slow receiver is awaited, the next version reports this state.
        if told.is_some() {
            *last = told;
        }
    }
}

/// Returns the report of `now` after `last`; `None` if nothing has changed. The reported token of one owner never
/// falls, although the nodes with its larger token may not answer at present.
fn news(last: Option<&View>, mut now: View) -> Option<View> {
    if let (Some(Some((before, noted, told))), Some((owner, sequence, holder))) = (last, &mut now)
        && before == owner
    {
        if *sequence <= *noted && holder.token <= told.token {
            return None;
        }
        holder.token = holder.token.max(told.token);
    } else if let (Some(None), None) = (last, &now) {
        return None;
    }
    Some(now)
}

/// Returns the holder that a majority agrees on, each server counted once, with its token and newest note; `None` if
/// the nodes disagree.
fn agreed(ids: &[Option<NodeId>], views: &[Option<View>]) -> Option<View> {
    let mut by_owner: HashMap<Option<&[u8]>, Vec<&View>> = HashMap::new();
    let counted = views.iter().enumerate().filter(|(node, _)| first_as(ids, *node).is_none());
    for view in counted.filter_map(|(_, view)| view.as_ref()) {
        by_owner.entry(view.as_ref().map(|(owner, ..)| &**owner)).or_default().push(view);
    }
    let same = by_owner.into_values().find(|same| same.len() >= majority(views.len()))?;
    let Some((owner, sequence, newest)) = same.iter().filter_map(|view| view.as_ref()).max_by_key(|view| view.1) else {
        return Some(None);
    };
    let tokens = same.iter().filter_map(|view| view.as_ref()).map(|(_, _, holder)| holder.token);
    let token = token_of(majority(views.len()), tokens).unwrap_or(newest.token);
    Some(Some((owner.clone(), *sequence, Holder { token, ..newest.clone() })))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Option<View> = Some(None);

    fn held(owner: &str, sequence: u64, token: u64) -> Option<View> {
        let (note, zero) = (format!("note {sequence}"), Duration::ZERO);
        Some(Some((
            owner.into(),
            sequence,
            Holder { owner: owner.into(), note, held_for: zero, lease_left: zero, token },
        )))
    }

    #[test]
    fn only_what_a_majority_says_is_told() {
        let agreed = |views: &[Option<View>]| agreed(&[1, 2, 3].map(|id| Some(NodeId(id))), views);
        assert_eq!(agreed(&[FREE, FREE, None]), Some(None));
        assert_eq!(agreed(&[FREE, None, None]), None, "too few answer");
        assert_eq!(agreed(&[FREE, held("me", 0, 7), held("you", 0, 8)]), None, "nobody has it");
        let (owner, sequence, holder) = agreed(&[held("me", 0, 9), held("me", 3, 7), FREE]).flatten().unwrap();
        assert_eq!((&*owner, sequence, holder.token, &*holder.note), (&b"me"[..], 3, 7, "note 3"));
    }

    #[test]
    fn a_newer_note_and_a_larger_token_are_news_of_one_owner() {
        let told = |last: &Option<View>, now: Option<View>| {
            news(last.as_ref(), now.unwrap()).map(|view| view.map(|(_, sequence, holder)| (sequence, holder.token)))
        };
        let last = held("me", 3, 7);
        assert_eq!(told(&None, FREE), Some(None));
        assert_eq!(told(&FREE, FREE), None, "free, as it was");
        assert_eq!(told(&last, FREE), Some(None));
        assert_eq!(told(&FREE, held("me", 0, 5)), Some(Some((0, 5))));
        assert_eq!(told(&last, held("me", 3, 7)), None);
        assert_eq!(told(&last, held("me", 3, 9)), Some(Some((3, 9))), "its token was raised");
        assert_eq!(told(&last, held("me", 2, 6)), None, "a node that had more is away");
        assert_eq!(told(&last, held("me", 4, 6)), Some(Some((4, 7))), "a token does not fall");
        assert_eq!(told(&last, held("me", 0, 9)), Some(Some((0, 9))), "granted anew");
        assert_eq!(told(&last, held("you", 0, 6)), Some(Some((0, 6))));
    }

    #[test]
    fn one_server_with_two_names_is_no_majority() {
        let ids = [1, 1, 2].map(|id| Some(NodeId(id)));
        assert_eq!(agreed(&ids, &[Some(None), Some(None), held("me", 0, 7)]), None);
        assert_eq!(agreed(&ids, &[Some(None), Some(None), Some(None)]), Some(None));
    }
}
