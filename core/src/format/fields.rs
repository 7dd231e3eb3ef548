//! The fields of records, and the checks by which only valid grants are read.

use crate::lock::grant::Grant;
use crate::refusal::Damaged;
use crate::request::{Note, NoteSequence, Owner, Ttl};
use crate::values::limits::{HOLDS_MAX, MAX_TTL_LIMIT_MS};
use crate::values::time::{BootId, BootTime};
use crate::values::token::Token;

/// The way by which a record reached this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A live replication stream: the record was written a moment ago.
    Stream,
    /// This node's own files, or a full synchronisation: nobody knows when the record was written.
    Storage,
    /// A client's payload (RESTORE, MIGRATE): anybody may have made it, so nothing in the record is believed.
    Payload,
}

/// The circumstances in which a record is read.
#[derive(Clone, Copy, Debug)]
pub struct Here {
    /// The way by which the record reached this node.
    pub arrival: Arrival,
    /// The time at which the record is read.
    pub now: BootTime,
    /// The id of this machine's present boot.
    pub boot: BootId,
}

/// The part of a record that has not been read yet.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(Damaged::Length)?;
        self.0 = rest;
        Ok(*field)
    }

    pub fn u16(&mut self) -> Result<u16, Damaged> {
        self.take().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Damaged> {
        self.take().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Damaged> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads an integer of N bytes, at most eight.
    pub fn short<const N: usize>(&mut self) -> Result<u64, Damaged> {
        let field = self.take::<N>()?;
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(&field);
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn time(&mut self) -> Result<BootTime, Damaged> {
        self.u64().map(BootTime::from_us)
    }

    pub fn bytes(&mut self, len: u16) -> Result<&'a [u8], Damaged> {
        let (bytes, rest) = self.0.split_at_checked(len.into()).ok_or(Damaged::Length)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// The flag of a suspect grant, which came from outside.
pub(super) const SUSPECT: u8 = 1;

/// The flag of a grant that another process of its owner continues. Versions of this module that do not know the flag
/// refuse records with it.
pub(super) const ADOPTED: u8 = 4;

/// Returns the flags of `grant` that all versions of a record share.
pub(super) fn flags(grant: &Grant) -> u8 {
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    flag(grant.is_from_outside(), SUSPECT) | flag(grant.is_adopted(), ADOPTED)
}

/// A grant with the values that its record has, before they are checked.
pub(super) struct Written<'a> {
    pub owner: &'a [u8],
    pub note: &'a [u8],
    /// The note's sequence number; 0 for the first note.
    pub sequence: u64,
    /// The flags [`SUSPECT`] and [`ADOPTED`]; others are ignored.
    pub flags: u8,
    pub ttl_ms: u32,
    pub holds: u32,
    pub token: u64,
    pub granted: BootTime,
    pub deadline: BootTime,
    /// The time at which the record was written.
    pub at: BootTime,
    /// True if the record's times belong to the boot in which it is read.
    pub is_same_boot: bool,
}

impl Written<'_> {
    /// Converts the record to the grant that it stands for, in the circumstances [`Here`]. The result is always valid:
    /// every field is within its bounds, and at most the full ttl is left.
    pub fn read(self, Here { arrival, now, .. }: Here) -> Result<Grant, Damaged> {
        let owner = Owner::new(self.owner).map_err(|_| Damaged::Field("owner"))?;
        let note = Note::new(self.note).map_err(|_| Damaged::Field("note"))?;
        let sequence =
            NoteSequence::new(Some(self.sequence)).map_err(|_| Damaged::Field("sequence number of the note"))?;
        let ttl = Ttl::new(Some(self.ttl_ms.into()), MAX_TTL_LIMIT_MS).map_err(|_| Damaged::Field("ttl"))?;
        let token = Token::new(self.token).ok_or(Damaged::Field("token"))?;
        if self.holds == 0 || self.holds > HOLDS_MAX {
            return Err(Damaged::Field("number of holds"));
        }
        if self.granted > self.at {
            return Err(Damaged::Field("time of the grant"));
        }
        if self.deadline > self.at.plus_ms(self.ttl_ms) || self.deadline < self.granted {
            return Err(Damaged::Field("deadline"));
        }
        let latest = now.plus_ms(self.ttl_ms);
        if self.is_same_boot && arrival == Arrival::Payload && (self.at > now || self.deadline > latest) {
            return Err(Damaged::Field("deadline"));
        }
        let (granted, deadline) = if self.is_same_boot {
            // The clock of one boot never goes back, unless a machine is reset to a snapshot.
            (self.granted.min(now), self.deadline.min(latest))
        } else {
            let granted = BootTime::from_us(now.us_since(BootTime::from_us(self.at.us_since(self.granted))));
            let deadline = match arrival {
                Arrival::Stream => now.plus_us(self.deadline.us_since(self.at)),
                Arrival::Storage | Arrival::Payload => latest,
            };
            (granted, deadline)
        };
        let grant = Grant::new(owner, Note::default(), token, now, ttl);
        let mut grant = grant.restored(self.holds, granted, deadline);
        if self.flags & SUSPECT != 0 {
            grant.mark_suspect();
        }
        if self.flags & ADOPTED != 0 {
            grant.mark_adopted();
        }
        grant.set_note(note, sequence);
        Ok(grant)
    }
}
