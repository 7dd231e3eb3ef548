//! `LOCK.TOP [COUNT n] [RESET]`

use palisade_core::limits::LOG_LISTED_DEFAULT;
use palisade_core::request::{self, ListedEntries};
use palisade_core::{Contention, Refusal, Top as Counts};

use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, state};

/// LOCK.TOP: shows the most contended keys.
pub struct Top;

impl Command for Top {
    const SPEC: Spec = Spec::new(request::Top::SPEC, AclGroup::Admin, "1.0.0", "O(N) where N is the number of keys");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Top { count, reset } = request::Top::read(call.words(), config::bounds())?;
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
                node.history_mut().reset_contention(now.boot);
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
