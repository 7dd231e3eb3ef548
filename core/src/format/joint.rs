//! Version 2 of a record: a joint lock, or one change of it, or an exclusive lock whose note was replaced.
//!
//! All integers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0 | version, 2 |
//! | 1 | 0: the whole lock; 1: one grant that joined or changed; 2: one grant that ended |
//! | 2..4 | 0 |
//! | 4..8 | number of grants that follow |
//! | 8..16 | time of writing, microseconds on the boot clock |
//! | 16..32 | id of the boot that this clock belongs to |
//! | 32.. | the grants, the oldest first |
//!
//! A grant:
//!
//! | bytes | content |
//! |---|---|
//! | 0 | flags: bit 0 suspect, bit 1 the note was replaced, bit 2 adopted; the others 0 |
//! | 1 | mode: 1 shared, 2 permit, 3 exclusive: the only grant of a whole lock, whose note was replaced |
//! | 2..4 | permit number; 0 for another mode |
//! | 4..6 | limit of the permit; 0 for another mode |
//! | 6..8 | length of the owner, 1 to 256 |
//! | 8..10 | length of the note, 0 to 1024 |
//! | 10..12 | 0 |
//! | 12..16 | full ttl in milliseconds |
//! | 16..20 | holds |
//! | 20..28 | token |
//! | 28..36 | time of the grant, microseconds on the boot clock |
//! | 36..44 | deadline, likewise |
//! | 44.. | owner, note; 8 more bytes if the note was replaced: its sequence number, which is not 0 |
//!
//! Changes are only in the AOF and on the replication stream, because with whole locks each of a thousand readers would
//! be written a thousand times. Files store the whole lock. Times have the meaning of version 1.

use super::fields::{ADOPTED, Fields, Here, SUSPECT, Written, flags};
use crate::lock::Lock;
use crate::lock::grant::Grant;
use crate::lock::holders::Holders;
use crate::refusal::Damaged;
use crate::request::{NoteSequence, Owner};
use crate::values::limits::HOLDERS_MAX;
use crate::values::mode::{Mode, Permit};
use crate::values::time::{BootId, BootTime};

/// The first byte of records of this version.
pub const VERSION: u8 = 2;

const HEAD_BYTES: usize = 32;
const GRANT_BYTES: usize = 44;

pub(super) const WHOLE: u8 = 0;
pub(super) const CHANGED: u8 = 1;
pub(super) const ENDED: u8 = 2;

const RENOTED: u8 = 2;
const MODE_SHARED: u8 = 1;
const MODE_PERMIT: u8 = 2;
const MODE_EXCLUSIVE: u8 = 3;

/// The content of a record of a change: one grant is new or different, or one has ended.
#[derive(Debug)]
pub enum Change {
    /// A grant that joined the lock, or that has changed.
    Grant(Mode, Grant),
    /// A grant that ended, while other grants are left.
    Ended(Grant),
}

/// Appends all grants of a lock, as they are at `now`.
pub(super) fn encode(holders: &Holders, now: BootTime, boot: BootId, out: &mut Vec<u8>) {
    head(WHOLE, holders.len() as u32, now, boot, out);
    holders.iter().for_each(|(mode, held)| grant(mode, held, out));
}

/// Appends a record about one grant, as it is at `now`. `what` is the record's second byte.
pub(super) fn encode_one(what: u8, mode: Mode, of: &Grant, now: BootTime, boot: BootId, out: &mut Vec<u8>) {
    head(what, 1, now, boot, out);
    grant(mode, of, out);
}

fn head(what: u8, grants: u32, now: BootTime, boot: BootId, out: &mut Vec<u8>) {
    out.reserve(HEAD_BYTES + grants as usize * GRANT_BYTES);
    out.extend_from_slice(&[VERSION, what, 0, 0]);
    out.extend_from_slice(&grants.to_le_bytes());
    out.extend_from_slice(&now.as_us().to_le_bytes());
    out.extend_from_slice(&boot.0);
}

fn grant(mode: Mode, grant: &Grant, out: &mut Vec<u8>) {
    let (mode, number, limit) = match mode {
        Mode::Permit(permit) => (MODE_PERMIT, permit.number(), permit.limit()),
        Mode::Shared => (MODE_SHARED, 0, 0),
        Mode::Exclusive => (MODE_EXCLUSIVE, 0, 0),
    };
    let is_renoted = grant.note_sequence() > NoteSequence::FIRST;
    out.extend_from_slice(&[flags(grant) | if is_renoted { RENOTED } else { 0 }, mode]);
    for number in [number, limit, grant.owner().len() as u16, grant.note().len() as u16, 0] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&grant.ttl_ms().to_le_bytes());
    out.extend_from_slice(&grant.holds().to_le_bytes());
    out.extend_from_slice(&grant.token().get().to_le_bytes());
    for time in [grant.granted(), grant.deadline()] {
        out.extend_from_slice(&time.as_us().to_le_bytes());
    }
    out.extend_from_slice(grant.owner());
    out.extend_from_slice(grant.note());
    if is_renoted {
        out.extend_from_slice(&grant.note_sequence().get().to_le_bytes());
    }
}

/// Decodes the lock from `fields`, the record after its version. Its grants are compatible, and no owner has two.
pub(super) fn decode(fields: Fields<'_>, here: Here) -> Result<Lock, Damaged> {
    let (what, count, grants) = body(fields)?;
    if what != WHOLE {
        return Err(Damaged::Field("kind"));
    }
    if count == 0 || count as usize > HOLDERS_MAX {
        return Err(Damaged::Field("number of grants"));
    }
    let mut holders = Holders::default();
    let mut grants = grants;
    for _ in 0..count {
        let (mode, grant) = grants.next(here)?;
        if mode == Mode::Exclusive {
            if count > 1 {
                return Err(Damaged::Field("mode"));
            }
            grants.end()?;
            return Ok(Lock::Exclusive(grant));
        }
        if holders.find(Owner::new(grant.owner()).map_err(|_| Damaged::Field("owner"))?).is_some() {
            return Err(Damaged::Field("owner"));
        }
        if !holders.modes().admits(mode) {
            return Err(Damaged::Field("mode"));
        }
        holders.join(mode, grant);
    }
    grants.end()?;
    Ok(Lock::Joint(Box::new(holders)))
}

/// Decodes the change from `fields`, the record after its version. `None` if the record is of a whole lock.
pub(super) fn decode_change(fields: Fields<'_>, here: Here) -> Result<Option<Change>, Damaged> {
    let (what, count, mut grants) = body(fields)?;
    if what == WHOLE {
        return Ok(None);
    }
    if count != 1 {
        return Err(Damaged::Field("number of grants"));
    }
    let (mode, grant) = grants.next(here)?;
    grants.end()?;
    match what {
        _ if mode == Mode::Exclusive => Err(Damaged::Field("mode")),
        CHANGED => Ok(Some(Change::Grant(mode, grant))),
        ENDED => Ok(Some(Change::Ended(grant))),
        _ => Err(Damaged::Field("kind")),
    }
}

fn body(mut fields: Fields<'_>) -> Result<(u8, u32, Grants<'_>), Damaged> {
    let [what] = fields.take()?;
    let reserved = fields.u16()?;
    let count = fields.u32()?;
    let at = fields.time()?;
    let boot = BootId(fields.take()?);
    if reserved != 0 { Err(Damaged::Field("reserved part")) } else { Ok((what, count, Grants { fields, at, boot })) }
}

/// The grants of a record that have not been read yet.
struct Grants<'a> {
    fields: Fields<'a>,
    at: BootTime,
    boot: BootId,
}

impl Grants<'_> {
    fn next(&mut self, here: Here) -> Result<(Mode, Grant), Damaged> {
        let fields = &mut self.fields;
        let [flags, mode] = fields.take()?;
        let (number, limit) = (fields.u16()?, fields.u16()?);
        let (owner_len, note_len) = (fields.u16()?, fields.u16()?);
        let reserved = fields.u16()?;
        let (ttl_ms, holds) = (fields.u32()?, fields.u32()?);
        let token = fields.u64()?;
        let (granted, deadline) = (fields.time()?, fields.time()?);
        let (owner, note) = (fields.bytes(owner_len)?, fields.bytes(note_len)?);
        if flags & !(SUSPECT | RENOTED | ADOPTED) != 0 || reserved != 0 {
            return Err(Damaged::Field("reserved part"));
        }
        let sequence = if flags & RENOTED == 0 { 0 } else { fields.u64()? };
        if flags & RENOTED != 0 && sequence == 0 {
            return Err(Damaged::Field("sequence number of the note"));
        }
        let mode = match mode {
            MODE_SHARED if number == 0 && limit == 0 => Mode::Shared,
            MODE_EXCLUSIVE if number == 0 && limit == 0 && sequence != 0 => Mode::Exclusive,
            // With a limit of 1 there is one permit, which is stored as an exclusive lock.
            MODE_PERMIT if limit > 1 => {
                Mode::Permit(Permit::new(number, limit).ok_or(Damaged::Field("number of the permit"))?)
            }
            MODE_PERMIT => return Err(Damaged::Field("limit")),
            _ => return Err(Damaged::Field("mode")),
        };
        let (at, is_same_boot) = (self.at, self.boot == here.boot);
        let written =
            Written { owner, note, sequence, flags, ttl_ms, holds, token, granted, deadline, at, is_same_boot };
        Ok((mode, written.read(here)?))
    }

    fn end(self) -> Result<(), Damaged> {
        if self.fields.0.is_empty() { Ok(()) } else { Err(Damaged::Length) }
    }
}
