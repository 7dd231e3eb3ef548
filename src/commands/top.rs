//! `LOCK.TOP [COUNT n] [RESET]`

use palisade_core::limits::LOG_LISTED_DEFAULT;
use palisade_core::{Contention, Refusal, Top as Counts};

use super::declaration::arguments;
use super::values::ListedEntries;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, state};

arguments! {
    /// What is asked.
    struct Asked {
        [COUNT n] count: ListedEntries,
        [RESET] reset,
    }
}

/// Which keys are contended most?
pub struct Top;

impl Command for Top {
    const SPEC: Spec = Spec {
        name: c"LOCK.TOP",
        summary: c"Answers the keys that most requests waited for on this node, and those that most were refused at once, each count with \
                   its error; with RESET counts anew from then on. For operators.",
        complexity: c"O(N) where N is the number of keys",
        since: c"0.2.0",
        flags: c"admin allow-loading allow-stale",
        acl: AclGroup::Admin,
        key: None,
        arguments: Asked::ARGUMENTS,
        master_only: false,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { count, reset } = Asked::read(call)?;
        let count = count.map_or(LOG_LISTED_DEFAULT, |ListedEntries(count)| count);
        let now = clock::now();
        state::with(|node| {
            let Contention { since, waited, refused } = node.history().contention();
            let ago_us = now.boot.us_since(*since);
            let reply = Reply::Map(vec![
                ("since", Reply::Integer(now.wall_us.saturating_sub(ago_us) / 1_000)),
                ("waits", Reply::Integer(waited.total())),
                ("waited", keys(waited, count)),
                ("refusals", Reply::Integer(refused.total())),
                ("refused", keys(refused, count)),
            ]);
            if reset {
                node.reset_contention(now.boot);
            }
            Ok(reply)
        })
    }
}

fn keys(counts: &Counts, count: usize) -> Reply {
    let row = |counted: &palisade_core::Counted| {
        Reply::Map(vec![
            ("db", Reply::Integer(counted.db.into())),
            ("key", Reply::Bytes(counted.name.to_vec())),
            ("count", Reply::Integer(counted.count)),
            ("error", Reply::Integer(counted.error)),
        ])
    };
    Reply::List(counts.keys().take(count).map(row).collect())
}
