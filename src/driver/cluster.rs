//! Finds out which slots of a cluster this node serves, and which other node serves a key.
//!
//! Slots that come with their locks are open once their source has said what it forgot ([`slot_sources`]). A slot may
//! also come without its locks, so [`read_slots`] compares the slots that the node serves with those that it served. It
//! does so ten times a second (less often if that takes long), right after a CLUSTER command that gives or takes slots,
//! and before anything is promised in an unknown slot. A slot can return only in three ways: by such a command, by a
//! migration in one step, whose end the server reports, or by a promotion, which guards the node. So no slot leaves and
//! returns unseen.
//!
//! The server redirects commands, but not blocked clients. So before a lock is handed over, the node checks that its
//! slot is still here. Otherwise the lock could be granted here and on the node that the slot moved to.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use palisade_core::{BootTime, Gained, MigrationId, Moves, Now, Refusal, ServerId, SlotSet};

use super::slot_sources;
use crate::durability::incarnation;
use crate::ffi::{CallReply, Context, KeyName, warn};
use crate::{clock, state};

/// The length of the pause after a read of the slots, as a multiple of the processor time that the read took. So reads
/// take at most 1 % of the time. For each read the server writes out its whole map of the cluster. That takes 2 ms if a
/// hundred nodes have slots in many ranges.
const REST: u64 = 99;

/// The longest pause between two reads of the slots, in microseconds.
const REST_US_MAX: u64 = 1_000_000;

thread_local! {
    /// The end of the pause after the last read of the slots: [`tick`] reads them only after it.
    static RESTS_UNTIL: Cell<BootTime> = const { Cell::new(BootTime::from_us(0)) };
    /// True if the server's cluster has several databases. (Valkey can, from version 9 on.)
    static HAS_DATABASES: Cell<bool> = const { Cell::new(false) };
    /// True while a timer runs that reads the slots.
    static READS_SOON: Cell<bool> = const { Cell::new(false) };
    /// The number of times that clients had emptied a slot (CLUSTER FLUSHSLOT) when it was last read from the server;
    /// `None` if this server has no such command.
    static FLUSHES: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Reads the slots when the module is loaded. The locks of the node's present slots were loaded at the start, or the
/// node is guarded.
pub fn begin(ctx: Context<'_>) {
    if ctx.is_cluster() {
        state::with(|node| node.begin_in_cluster());
        FLUSHES.set(ctx.is_valkey().then(|| flushes(ctx)));
        let databases = ctx.parameter(c"cluster-databases").and_then(|count| count.parse().ok());
        HAS_DATABASES.set(databases.is_some_and(|count: u32| count > 1));
        read_slots(ctx);
    }
}

/// Reads the slots, if the pause after the last read is over. If slots come from other nodes, asks those which grants
/// they have forgotten. Called ten times a second.
pub fn tick(ctx: Context<'_>) {
    if clock::boot_now() >= RESTS_UNTIL.get() {
        read_slots(ctx);
    } else {
        slot_sources::ask(ctx);
    }
}

/// Returns the pause after a read that took `took_us` microseconds of the processor. (The time on the clock says
/// little: the machine may have run something else meanwhile.)
fn rest_us(took_us: u64) -> u64 {
    took_us.saturating_mul(REST).min(REST_US_MAX)
}

/// Reads which slots the node serves, and which of them move. Slots that came without their locks are guarded, as are
/// those that were not moved away to the end. Later tokens are larger than any that the other node can have issued.
pub fn read_slots(ctx: Context<'_>) {
    if !ctx.is_cluster() {
        return;
    }
    let start_us = clock::thread_cpu_us();
    confirm_slot_flush(ctx);
    let nodes = nodes(ctx);
    let slots = nodes.as_deref().and_then(slots_of_myself);
    let now = clock::now();
    RESTS_UNTIL.set(now.boot.plus_us(rest_us(clock::thread_cpu_us().saturating_sub(start_us))));
    let Some((owned, moves)) = slots else { return };
    let gained = state::with(|node| node.update_slots(&owned, moves, now));
    on_gained(gained, now);
    slot_sources::ask(ctx);
}

/// Saves what a later incarnation must know of gained slots, and logs those that are guarded.
fn on_gained(gained: Gained, now: Now) {
    if gained.guarded > 0 {
        let guard_ms = state::with(|node| node.guard_ms(now.boot));
        warn(&format!(
            "{} slots of the cluster came to this node without their locks, or were not moved away to the end, so somebody \
             may hold locks that it does not know: nothing is granted in them for {guard_ms} ms. LOCK.GUARD LIFT ends \
             that if you know that nobody does",
            gained.guarded
        ));
    }
    if gained.guarded > 0 {
        incarnation::save_at_once(now);
    } else if gained.unknown > 0 {
        incarnation::save(now);
    }
}

/// Returns the server's list of the cluster's nodes.
fn nodes(ctx: Context<'_>) -> Option<String> {
    CallReply::of_word(ctx, c"CLUSTER", c"NODES").and_then(|reply| reply.value().text())
}

/// Reads the slots if the node may not know whether it serves the slot of the lock `name`. Called before something is
/// promised about that lock.
pub fn ensure_known(ctx: Context<'_>, name: &[u8]) {
    if !ctx.is_cluster() {
        return;
    }
    let (has_dropped, is_known) = state::with(|node| (node.slots().has_dropped(name), node.slots().is_known(name)));
    if !is_known {
        read_slots(ctx);
    } else if has_dropped {
        confirm_slot_flush(ctx);
    }
}

/// Returns for how long nothing is granted in the slot of the lock `name`, in milliseconds.
pub fn slot_guard_ms(ctx: Context<'_>, name: &[u8]) -> u64 {
    ensure_known(ctx, name);
    match state::with(|node| node.slots().ensure_open(name, clock::boot_now())) {
        Err(Refusal::SlotGuarded { left_ms }) => left_ms,
        _ => 0,
    }
}

/// Refuses to vouch for grants of the lock of `key` while another owner may hold that lock. Reads the slots first, if
/// they may have changed.
pub fn ensure_vouched(ctx: Context<'_>, key: KeyName<'_>) -> Result<(), Refusal> {
    if state::with(|node| node.slots().may_be_elsewhere(key.bytes(), clock::boot_now())) {
        read_slots(ctx);
    }
    state::with(|node| node.slots().ensure_vouched(key.bytes(), clock::boot_now()))
}

/// Notes that the server deleted the live lock `name`, whose lease would have ended at `end`. If it turns out that the
/// server emptied the whole slot, the slot is guarded.
pub fn on_dropped(name: &[u8], end: BootTime) {
    if end >= clock::boot_now() {
        state::with(|node| node.on_dropped_in_slot(name, end));
    }
}

/// Called after a lock with the key `name` was deleted. If its slot moves away, the slots are read as soon as the present
/// command is done. If the slot is still here then, MIGRATE or a client deleted the lock, and not the server, which deletes
/// what is left in a slot that another node took over.
pub fn on_deleted(ctx: Context<'_>, name: &[u8]) {
    let may_be_left = state::with(|node| node.slots().exports(name) && node.slots().has_dropped(name));
    if may_be_left && !READS_SOON.replace(true) {
        ctx.start_timer(0, |ctx| {
            READS_SOON.set(false);
            read_slots(ctx);
        });
    }
}

/// Notes that these slots are coming in one step with their locks, by the migration `by`, from the node that serves the
/// first of them.
pub fn on_arriving(ctx: Context<'_>, slots: &[RangeInclusive<u16>], by: MigrationId) {
    let nodes = nodes(ctx).unwrap_or_default();
    if let Some(from) = slots.first().and_then(|slots| owner_of(&nodes, *slots.start())) {
        state::with(|node| slots.iter().for_each(|slots| node.on_slots_arriving(slots.clone(), from, by)));
    }
}

/// Notes that the migration `by` of these slots to this node has failed.
pub fn on_not_arriving(slots: &[RangeInclusive<u16>], by: MigrationId) {
    state::with(|node| slots.iter().for_each(|slots| node.on_slots_not_arriving(slots.clone(), by)));
}

/// Notes that the migration `id` of slots to another node, in one step, has ended well. With several databases it does not
/// count as such, so that its target guards the slots: Valkey 9.1 then loses writes, or brings them to a wrong database.
pub fn on_left(id: MigrationId) {
    if !HAS_DATABASES.get() {
        state::with(|node| node.on_slots_left(id, clock::boot_now()));
    }
}

/// Notes that these slots have come to this node with their locks, by the migration `by`.
pub fn on_arrived(ctx: Context<'_>, slots: &[RangeInclusive<u16>], by: MigrationId) {
    let now = clock::now();
    let mut all = Gained::default();
    for slots in slots {
        let gained = state::with(|node| node.on_slots_arrived(slots.clone(), by, now));
        all = Gained { unknown: all.unknown + gained.unknown, guarded: all.guarded + gained.guarded };
    }
    on_gained(all, now);
    slot_sources::ask(ctx);
}

/// Finds out whether recently deleted live locks were deleted with their whole slots (CLUSTER FLUSHSLOT). The key
/// events look like those of single deletions, so the server's count of CLUSTER FLUSHSLOT decides.
pub fn confirm_slot_flush(ctx: Context<'_>) {
    let count = FLUSHES.get().map(|_| flushes(ctx));
    let flushed = FLUSHES.replace(count) != count;
    let guarded = state::with(|node| node.confirm_slot_flush(flushed));
    if guarded > 0 {
        warn(&format!(
            "CLUSTER FLUSHSLOT dropped held locks: nothing is granted in {guarded} slots until the last of them would have ended"
        ));
        incarnation::save_at_once(clock::now());
    }
}

/// Returns how often a client has emptied a slot since the server's statistics were last reset.
fn flushes(ctx: Context<'_>) -> u64 {
    let stat = ctx.info_text(c"commandstats", c"cmdstat_cluster|flushslot");
    let calls = stat.as_deref().and_then(|stat| stat.strip_prefix("calls=")?.split(',').next()?.parse().ok());
    calls.unwrap_or(0)
}

/// Parses the node's own line of CLUSTER NODES. Returns the slots that the node serves, and those that move key by key.
fn slots_of_myself(nodes: &str) -> Option<(SlotSet, Moves)> {
    let mut sources: BTreeMap<&str, Option<SlotSet>> = BTreeMap::new();
    let mut serves = |id, slot| {
        sources.entry(id).or_insert_with(|| served_by(nodes, id)).as_ref().is_some_and(|slots| slots.contains(slot))
    };
    let myself = nodes.lines().find(|node| flags(node).any(|flag| flag == "myself"))?;
    let (mut owned, mut moves) = (SlotSet::default(), Moves::default());
    for field in fields_of_slots(myself) {
        let Some(moving) = field.strip_prefix('[') else {
            owned.insert(range(field)?);
            continue;
        };
        let moving = moving.trim_end_matches(']');
        if let Some((slot, from)) = moving.split_once("-<-") {
            let slot = slot.parse().ok()?;
            moves.imported.insert(slot, serves(from, slot).then(|| from.as_bytes().try_into()).transpose().ok()?);
        } else if let Some((slot, to)) = moving.split_once("->-") {
            moves.exported.insert(slot.parse().ok()?, to.as_bytes().try_into().ok()?);
        }
    }
    Some((owned, moves))
}

/// Returns the slots that the node `id` serves; `None` if it is not known, or cannot be reached.
fn served_by(nodes: &str, id: &str) -> Option<SlotSet> {
    let node = nodes.lines().find(|node| node.split(' ').next() == Some(id))?;
    let mut slots = SlotSet::default();
    fields_of_slots(node).filter_map(range).for_each(|range| slots.insert(range));
    (!flags(node).any(|flag| flag.starts_with("fail"))).then_some(slots)
}

/// Returns the node that serves `slot`.
fn owner_of(nodes: &str, slot: u16) -> Option<ServerId> {
    let serves = |field| range(field).is_some_and(|slots| slots.contains(&slot));
    let owner = nodes.lines().find(|node| fields_of_slots(node).any(serves))?;
    owner.split(' ').next()?.as_bytes().try_into().ok()
}

/// Iterates over the fields about slots in a node's line of CLUSTER NODES.
fn fields_of_slots(node: &str) -> impl Iterator<Item = &str> {
    node.split(' ').skip(8)
}

/// Parses a range of slots; `None` if the field is about a slot that moves.
fn range(field: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = field.split_once('-').unwrap_or((field, field));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// Returns the flags in the line that CLUSTER NODES has for a node.
fn flags(node: &str) -> impl Iterator<Item = &str> {
    node.split(' ').nth(2).unwrap_or_default().split(',')
}

/// Returns the error for clients that wait for the lock of `key`, which is absent here. `None` if the key is served
/// here, and its slot is not migrating to another node.
pub fn redirect(ctx: Context<'_>, key: KeyName<'_>) -> Option<String> {
    // UNLINK on an absent key does nothing, but the server refuses it if it would redirect a client, or accepts no
    // writes.
    if CallReply::of_key(ctx, c"UNLINK", key).is_some() {
        return None;
    }
    let slot = CallReply::of_word_and_key(ctx, c"CLUSTER", c"KEYSLOT", key).and_then(|reply| reply.value().integer());
    let slot = slot.unwrap_or(-1);
    let slots = CallReply::of_word(ctx, c"CLUSTER", c"SLOTS");
    let myself = CallReply::of_word(ctx, c"CLUSTER", c"MYID").and_then(|reply| reply.value().text());
    let info = CallReply::of_word(ctx, c"CLUSTER", c"INFO").and_then(|reply| reply.value().text());
    let is_up = info.is_some_and(|info| info.contains("cluster_state:ok"));
    let owner = slots.as_ref().and_then(|slots| {
        slots.value().elements().find_map(|range| {
            let end = |n| range.element(n)?.integer();
            if !(end(0)?..=end(1)?).contains(&slot) {
                return None;
            }
            let master = range.element(2)?;
            // The server's own redirects, too, leave the host empty if it is unknown.
            Some((
                master.element(0)?.text().unwrap_or_default(),
                master.element(1)?.integer()?,
                master.element(2)?.text()?,
            ))
        })
    });
    Some(match owner {
        Some((host, port, id)) if myself.as_ref() != Some(&id) => format!("MOVED {slot} {host}:{port}"),
        Some(_) if !is_up => "CLUSTERDOWN The cluster is down".to_owned(),
        Some(_) => "TRYAGAIN the slot of this lock is moving to another node: ask again".to_owned(),
        None => "CLUSTERDOWN Hash slot not served".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_takes_little_of_the_time_and_is_not_put_off_for_long() {
        for (took_us, rest) in [(0, 0), (100, 9_900), (2_000, 198_000), (20_000, 1_000_000), (u64::MAX, 1_000_000)] {
            assert_eq!(rest_us(took_us), rest, "{took_us}");
        }
    }

    #[test]
    fn the_line_of_the_node_itself_says_what_it_serves() {
        let [aa, bb, cc, dd] = ["a", "b", "c", "d"].map(|letter| letter.repeat(40));
        let nodes = format!(
            "{aa} 127.0.0.1:1@2 master - 0 1 1 connected 0-5\n\
             {bb} 127.0.0.1:3@4,host myself,master - 0 1 2 connected 7 9-11 [12->-{aa}] [3-<-{aa}] [13-<-{aa}] [14-<-{cc}] [15-<-{dd}]\n\
             {cc} 127.0.0.1:5@6 master,fail - 0 1 3 disconnected\n"
        );
        let (owned, moves) = slots_of_myself(&nodes).unwrap();
        let of = |set: &SlotSet| (0..20).filter(|&slot| set.contains(slot)).collect::<Vec<_>>();
        assert_eq!(of(&owned), [7, 9, 10, 11]);
        let imported = [(3, Some([b'a'; 40])), (13, None), (14, None), (15, None)].into();
        let expected = Moves { imported, exported: [(12, [b'a'; 40])].into() };
        assert_eq!(moves, expected, "a source that does not serve the slot, failed, or is not known");
        let owners = [5, 6, 7, 10, 12].map(|slot| owner_of(&nodes, slot).map(|owner| owner[0]));
        assert_eq!(owners, [Some(b'a'), None, Some(b'b'), Some(b'b'), None]);
        assert_eq!(slots_of_myself("aa 127.0.0.1:1@2 master - 0 1 1 connected 0-5\n"), None);
        assert_eq!(slots_of_myself("bb :0@0 myself,master - 0 0 0 connected\n"), Some(Default::default()));
        assert_eq!(slots_of_myself("not the list\n"), None);
    }
}
