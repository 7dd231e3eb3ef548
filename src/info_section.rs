//! INFO lock: what a person or a monitor sees of the node.

use std::ffi::CStr;

use crate::ffi::{InfoSection, is_poisoned, locks_in_memory};
use crate::{config, state};

/// The module's section.
pub struct Section;

impl InfoSection for Section {
    fn fields() -> Vec<(&'static CStr, u64)> {
        state::with(|node| {
            let counters = &node.counters;
            vec![
                (c"held", locks_in_memory() as u64),
                (c"grants", counters.grants),
                (c"contended", counters.contended),
                (c"releases", counters.releases),
                (c"expiries", counters.expiries),
                (c"breaks", counters.breaks),
                (c"extensions", counters.extensions),
                (c"reentries", counters.reentries),
                (c"token_high", node.tokens.high()),
                (c"deadlines", node.deadlines.len() as u64),
                (c"max_ttl_ms", config::max_ttl_ms().into()),
                (c"poisoned", is_poisoned().into()),
            ]
        })
    }
}
