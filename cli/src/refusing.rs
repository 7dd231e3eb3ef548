//! Why a server that answers refuses every lock, as its INFO shows. Its guard is another matter, because that ends by itself.

use std::collections::HashMap;

use palisade_client::direct::ServerLink;
use serde::Serialize;

use crate::info::Info;
use crate::settings;

/// Why a server refuses every lock, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusing {
    /// The first word of the error that clients receive (docs/errors.md).
    pub code: &'static str,
    pub found: String,
    pub advice: &'static str,
}

/// The settings of the server that decide in some cases whether it refuses.
const SETTINGS: [&str; 3] = ["min-replicas-to-write", "save", "stop-writes-on-bgsave-error"];

impl Refusing {
    /// Reads from a server's INFO whether it refuses every lock. Asks for settings if they decide.
    pub async fn ask(link: &mut ServerLink, info: &Info) -> Option<Self> {
        let is_undecided = needs_replicas(info) || has_failed_snapshot(info);
        let settings = if is_undecided { settings::ask(link, &SETTINGS).await } else { None }.unwrap_or_default();
        Self::of(info, &settings)
    }

    /// Returns the reason in INFO. Settings that are not known have their defaults.
    pub fn of(info: &Info, settings: &HashMap<String, String>) -> Option<Self> {
        let setting = |name| settings.get(name).map(String::as_str);
        let is = |name, value| info.word(name) == value;
        let because = |code, found: &str, advice| Some(Self { code, found: found.to_owned(), advice });
        if info.number("lock_poisoned") > 0 {
            let advice = "report the line in its log, and restart it";
            return because("LOCKPANIC", "the module failed, and grants nothing", advice);
        }
        if info.number("lock_state_file_failing") > 0 {
            let found = "its state file cannot be written: grants stop within seconds";
            return because("NOTYET", found, "see to its disk");
        }
        // A replica takes no writes of clients anyway.
        if is("role", "slave") {
            return None;
        }
        let needed: Option<u64> = setting("min-replicas-to-write").and_then(|needed| needed.parse().ok());
        let in_step = info.number("min_slaves_good_slaves");
        if needs_replicas(info) && in_step < needed.unwrap_or(1) {
            let needed = needed.map_or("asks for more".to_owned(), |needed| format!("is {needed}"));
            let found = format!(
                "{in_step} replicas are in step, and min-replicas-to-write {needed}: it grants, extends and releases nothing"
            );
            let advice = "see to its replicas (with a smaller min-replicas-to-write, a master that was replaced may go on granting)";
            return because("NOREPLICAS", &found, advice);
        }
        if info.number("aof_enabled") > 0 && is("aof_last_write_status", "err") {
            let found = "its AOF cannot be written: it grants, extends and releases nothing";
            return because("MISCONF", found, "see to its disk");
        }
        let needs_snapshots = setting("save").is_none_or(|times| !times.is_empty())
            && setting("stop-writes-on-bgsave-error") != Some("no");
        if has_failed_snapshot(info) && needs_snapshots {
            let found = "its last snapshot (RDB) failed: it grants, extends and releases nothing";
            let advice = "see its log and its disk; or CONFIG SET stop-writes-on-bgsave-error no";
            return because("MISCONF", found, advice);
        }
        let (used, limit) = (info.number("used_memory"), info.number("maxmemory"));
        let counted = used.saturating_sub(info.number("mem_not_counted_for_evict"));
        if limit > 0 && counted > limit && is("maxmemory_policy", "noeviction") {
            let found = format!("its memory is full: {counted} bytes, and maxmemory is {limit}: it grants nothing");
            return because("OOM", &found, "raise maxmemory, or delete other data there");
        }
        None
    }
}

/// Returns whether the server needs replicas in step to write. INFO does not say how many.
fn needs_replicas(info: &Info) -> bool {
    !info.word("min_slaves_good_slaves").is_empty()
}

fn has_failed_snapshot(info: &Info) -> bool {
    info.word("rdb_last_bgsave_status") == "err"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(info: &str, settings: &[(&str, &str)]) -> Option<&'static str> {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Refusing::of(&Info::of(info), &settings).map(|refusing| refusing.code)
    }

    #[test]
    fn each_reason_is_that_of_the_server() {
        let full = "maxmemory:100\nmaxmemory_policy:noeviction\n";
        let failed = "rdb_last_bgsave_status:err";
        for (info, settings, expected) in [
            ("", &[][..], None),
            ("lock_poisoned:1", &[], Some("LOCKPANIC")),
            ("lock_state_file_failing:1", &[], Some("NOTYET")),
            ("min_slaves_good_slaves:0", &[], Some("NOREPLICAS")),
            ("min_slaves_good_slaves:1", &[], None),
            ("role:slave\nmin_slaves_good_slaves:0", &[], None),
            ("min_slaves_good_slaves:1", &[("min-replicas-to-write", "2")], Some("NOREPLICAS")),
            ("aof_enabled:1\naof_last_write_status:err", &[], Some("MISCONF")),
            ("aof_enabled:0\naof_last_write_status:err", &[], None),
            (failed, &[], Some("MISCONF")),
            (failed, &[("save", "")], None),
            (failed, &[("save", "3600 1"), ("stop-writes-on-bgsave-error", "no")], None),
            (failed, &[("save", "3600 1"), ("stop-writes-on-bgsave-error", "yes")], Some("MISCONF")),
            (&format!("{full}used_memory:101"), &[], Some("OOM")),
            (&format!("{full}used_memory:101\nmem_not_counted_for_evict:1"), &[], None),
            ("maxmemory:0\nmaxmemory_policy:noeviction\nused_memory:101", &[], None),
            ("maxmemory:100\nmaxmemory_policy:allkeys-lru\nused_memory:101", &[], None),
        ] {
            assert_eq!(code(info, settings), expected, "{info} {settings:?}");
        }
    }
}
