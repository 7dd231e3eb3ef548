//! Changes of who holds a lock, for whoever wants to know.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_core::quorum::{NodeId, first_as, majority, token_of};
use tokio::sync::mpsc;

use crate::nodes::Nodes;
use crate::pace::Given;
use crate::watching::{self, State, What};
use crate::{Holder, wire};

/// Who holds the lock on one node: the owner, the number of its note, and what is told of it.
type View = Option<(Vec<u8>, u64, Holder)>;

/// What was told last: the owner and the number of its note, or that it is free.
type Last = Option<Option<(Vec<u8>, u64)>>;

/// Tells changes until nobody listens, in whichever version of the set.
pub async fn watch(nodes: Arc<Nodes>, key: Arc<[u8]>, given: Given, tell: mpsc::Sender<Option<Holder>>) {
    let (mut nodes, mut last) = (nodes.latest(), None);
    loop {
        tokio::select! {
            biased;
            () = nodes.superseded() => {}
            () = watch_version(&nodes, &key, given, &tell, &mut last) => return,
        }
        nodes = nodes.latest();
    }
}

async fn watch_version(
    nodes: &Arc<Nodes>,
    key: &Arc<[u8]>,
    given: Given,
    tell: &mpsc::Sender<Option<Holder>>,
    last: &mut Last,
) {
    let mut views: Vec<Option<View>> = vec![None; nodes.len()];
    let mut ids: Vec<Option<NodeId>> = vec![None; nodes.len()];
    let ask = |node, known, after| watching::ask(Arc::clone(nodes), Arc::clone(key), node, known, given, after);
    let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(|node| ask(node, None, Duration::ZERO)).collect();
    while let Some(told) = asked.next().await {
        let (known, after) = told.next();
        // Asked again before anything is told: the next change is not missed meanwhile.
        asked.push(ask(told.node, known, after));
        ids[told.node] = told.what.id();
        match told.what {
            What::Says { state: State::Free, .. } => views[told.node] = Some(None),
            What::Says { state: State::Held(info), .. } => {
                let owner = wire::bytes(&info, "owner").map(<[u8]>::to_vec);
                let sequence = wire::number(&info, "seq").unwrap_or(0);
                let holder = wire::holder(&info);
                views[told.node] = owner.zip(holder).map(|(owner, holder)| Some((owner, sequence, holder)));
            }
            What::Says { state: State::Guarded, .. } | What::Silent(_) => views[told.node] = None,
            What::Same { .. } => {}
        }
        let Some(agreed) = agreed(&ids, &views) else { continue };
        let present = agreed.as_ref().map(|(owner, sequence, _)| (owner.clone(), *sequence));
        if last.as_ref() != Some(&present) {
            if tell.send(agreed.map(|(_, _, holder)| holder)).await.is_err() {
                return;
            }
            *last = Some(present);
        }
    }
}

/// What a majority says, each server once, with the grant's token and the newest note; `None`: they do not agree.
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
        const FREE: Option<View> = Some(None);
        let agreed = |views: &[Option<View>]| agreed(&[1, 2, 3].map(|id| Some(NodeId(id))), views);
        assert_eq!(agreed(&[FREE, FREE, None]), Some(None));
        assert_eq!(agreed(&[FREE, None, None]), None, "too few answer");
        assert_eq!(agreed(&[FREE, held("me", 0, 7), held("you", 0, 8)]), None, "nobody has it");
        let (owner, sequence, holder) = agreed(&[held("me", 0, 9), held("me", 3, 7), FREE]).flatten().unwrap();
        assert_eq!((&*owner, sequence, holder.token, &*holder.note), (&b"me"[..], 3, 7, "note 3"));
    }

    #[test]
    fn one_server_with_two_names_is_no_majority() {
        let ids = [1, 1, 2].map(|id| Some(NodeId(id)));
        assert_eq!(agreed(&ids, &[Some(None), Some(None), held("me", 0, 7)]), None);
        assert_eq!(agreed(&ids, &[Some(None), Some(None), Some(None)]), Some(None));
    }
}
