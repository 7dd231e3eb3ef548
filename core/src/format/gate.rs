//! The record of a gate: in the RDB file, in the AOF, on the replication stream, in a DUMP payload. All integers are
//! little-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | version, 4 |
//! | 1 | 0: all tokens that the gate knows; 1: one token that has passed |
//! | 2..7 | the first bytes of the id of the boot that the clock belongs to |
//! | 7..15 | time of writing, microseconds on the boot clock; the end, if that is earlier |
//! | 15..23 | end, likewise; all bits set for a gate that stays |
//! | 23.. | the largest token of each kind, 10 bytes each |
//!
//! A token's bytes: 0 exclusive, 1 shared, 2 permit; the permit's number in two bytes, otherwise 0; the token in seven.
//! They are in the order of kinds and numbers.
//!
//! Within that boot the end is exact. After another boot, or on another machine, the gate lasts as long as was left
//! when the record was written. That can only be too long, which refuses late writers for longer. A gate that ended too
//! early would let them write.

use palisade_quorum::floors::{Floors, Kind};

use super::fields::{Arrival, Fields, Here};
use super::fresh::{BootTag, tag};
use crate::gate::{Gate, KEEP_MAX_US};
use crate::refusal::Damaged;
use crate::values::time::{BootId, BootTime};
use crate::values::token::Token;

/// The first byte of a gate's record.
pub const VERSION: u8 = 4;

const WHOLE: u8 = 0;
const ONE_MORE: u8 = 1;

const HEAD_BYTES: usize = 23;
const TOKEN_BYTES: usize = 10;

/// Appends the whole `gate` as it is at `now` to `out`.
pub fn encode(gate: &Gate, now: BootTime, boot: BootId, out: &mut Vec<u8>) {
    out.reserve(HEAD_BYTES + (2 + gate.seen().permits()) * TOKEN_BYTES);
    head(WHOLE, gate, now, boot, out);
    gate.seen().iter().for_each(|(kind, token)| of_kind(kind, token, out));
}

/// Appends a change of `gate` to `out`: a grant of `kind` passed. If the gate knows tokens of this kind only, the
/// record is the whole gate, which replaces the earlier state.
pub fn encode_passed(gate: &Gate, kind: Kind, now: BootTime, boot: BootId, out: &mut Vec<u8>) {
    if gate.seen().iter().nth(1).is_none() {
        return encode(gate, now, boot, out);
    }
    head(ONE_MORE, gate, now, boot, out);
    of_kind(kind, gate.seen().largest(kind), out);
}

fn head(form: u8, gate: &Gate, now: BootTime, boot: BootId, out: &mut Vec<u8>) {
    out.extend_from_slice(&[VERSION, form]);
    out.extend_from_slice(&tag(boot));
    let end = gate.end().unwrap_or(BootTime::MAX);
    // A gate whose end has passed may not have been deleted yet.
    for time in [now.min(end), end] {
        out.extend_from_slice(&time.as_us().to_le_bytes());
    }
}

fn of_kind(kind: Kind, token: u64, out: &mut Vec<u8>) {
    let (code, number) = match kind {
        Kind::Exclusive => (0, 0),
        Kind::Shared => (1, 0),
        Kind::Permit(number) => (2, number),
    };
    out.push(code);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&token.to_le_bytes()[..7]);
}

/// Decodes a whole gate from `bytes`, which are read in the circumstances `here`. The result is always a possible gate.
pub fn decode(bytes: &[u8], here: Here) -> Result<Gate, Damaged> {
    match read(bytes, here)? {
        (WHOLE, gate) => Ok(gate),
        _ => Err(Damaged::Field("form")),
    }
}

/// Applies a gate's record. Changes `kept`, the gate in the key; if the key has none, returns the gate of the record,
/// which the caller has to store.
pub fn apply(bytes: &[u8], here: Here, kept: Option<&mut Gate>) -> Result<Option<Gate>, Damaged> {
    let (form, told) = read(bytes, here)?;
    let Some(gate) = kept else { return Ok(Some(told)) };
    match form {
        WHOLE => _ = gate.replace(told),
        _ => gate.join(&told),
    }
    Ok(None)
}

fn read(bytes: &[u8], Here { arrival, now, boot }: Here) -> Result<(u8, Gate), Damaged> {
    let mut fields = Fields(bytes);
    let [version, form] = fields.take()?;
    if version != VERSION {
        return Err(Damaged::Version { found: version, known: VERSION });
    }
    let is_same_boot = fields.take::<{ size_of::<BootTag>() }>()? == tag(boot);
    let (at, end) = (fields.time()?, fields.time()?);
    let stays = end == BootTime::MAX;
    if !stays && (end < at || end.us_since(at) > KEEP_MAX_US) {
        return Err(Damaged::Field("end"));
    }
    if is_same_boot && arrival == Arrival::Payload && at > now {
        return Err(Damaged::Field("time of writing"));
    }
    let end = match stays || is_same_boot {
        true => end,
        false => now.plus_us(end.us_since(at)),
    };
    let seen = tokens(fields)?;
    match form {
        WHOLE => {}
        ONE_MORE if seen.iter().count() == 1 => {}
        _ => return Err(Damaged::Field("form")),
    }
    Ok((form, Gate::new(seen, end)))
}

fn tokens(mut fields: Fields<'_>) -> Result<Floors, Damaged> {
    let (mut seen, mut last) = (Floors::default(), None);
    while !fields.0.is_empty() {
        let [code] = fields.take()?;
        let (number, token) = (fields.u16()?, fields.short::<7>()?);
        let kind = match (code, number) {
            (0, 0) => Kind::Exclusive,
            (1, 0) => Kind::Shared,
            (2, 1..) => Kind::Permit(number),
            _ => return Err(Damaged::Field("kind")),
        };
        let token = Token::new(token).ok_or(Damaged::Field("token"))?;
        if last.replace(kind) >= Some(kind) {
            return Err(Damaged::Field("order of kinds"));
        }
        seen.add(kind, token.get());
    }
    if last.is_none() { Err(Damaged::Length) } else { Ok(seen) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{ms, token};
    use crate::format::fixture::{ARRIVALS, ELSEWHERE, HERE, edited};

    const KINDS: [Kind; 4] = [Kind::Exclusive, Kind::Shared, Kind::Permit(1), Kind::Permit(65_535)];

    /// Returns a gate that tokens of every kind have passed at 1 s after boot. With a `keep_ms` of 8 000 it lasts until
    /// 10 s after boot; without `keep_ms` it stays.
    fn sample(keep_ms: Option<u64>) -> Gate {
        let mut gate = Gate::default();
        for (n, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(gate.pass(kind, token(70 + n as u64), keep_ms, ms(1_000)), Ok(true));
        }
        gate
    }

    fn written(gate: &Gate, at_ms: u64) -> Vec<u8> {
        let mut bytes = vec![];
        encode(gate, ms(at_ms), HERE, &mut bytes);
        bytes
    }

    fn here(arrival: Arrival, at_ms: u64, boot: BootId) -> Here {
        Here { arrival, now: ms(at_ms), boot }
    }

    #[test]
    fn layout_is_as_documented() {
        let bytes = written(&sample(Some(8_000)), 2_000);
        assert_eq!(bytes[..7], [4, 0, 1, 1, 1, 1, 1]);
        assert_eq!(bytes[7..15], 2_000_000_u64.to_le_bytes());
        assert_eq!(bytes[15..23], 10_000_000_u64.to_le_bytes());
        assert_eq!(bytes[23..43], [0, 0, 0, 70, 0, 0, 0, 0, 0, 0, 1, 0, 0, 71, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[43..], [2, 1, 0, 72, 0, 0, 0, 0, 0, 0, 2, 255, 255, 73, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn reads_as_it_was_written_and_elsewhere_lasts_for_what_was_left() {
        for arrival in ARRIVALS {
            for gate in [sample(Some(8_000)), sample(None)] {
                assert_eq!(decode(&written(&gate, 2_000), here(arrival, 3_000, HERE)).as_ref(), Ok(&gate));
                let over = written(&gate, 11_000);
                assert_eq!(decode(&over, here(arrival, 12_000, HERE)).as_ref(), Ok(&gate), "also if it was over");
                let read = decode(&written(&gate, 2_000), here(arrival, 500, ELSEWHERE)).unwrap();
                assert_eq!((read.seen(), read.end()), (gate.seen(), gate.end().map(|_| ms(8_500))));
            }
        }
    }

    /// A replica applies the record of every change. It always has the master's gate, also after the gate ended and a
    /// new one began.
    #[test]
    fn changes_make_the_same_gate_elsewhere() {
        let (mut gate, mut replica) = (Gate::default(), None);
        let later = [
            (Kind::Shared, 80, Some(1), 20_000),
            (Kind::Permit(3), 81, Some(1), 20_001),
            (Kind::Shared, 82, None, 20_001),
        ];
        let passings = KINDS.into_iter().map(|kind| (kind, 70, Some(800), 1_000)).chain(later);
        for (kind, number, keep_ms, at_ms) in passings {
            let Ok(is_changed) = gate.pass(kind, token(number), keep_ms, ms(at_ms)) else { continue };
            assert!(is_changed);
            let mut bytes = vec![];
            encode_passed(&gate, kind, ms(at_ms), HERE, &mut bytes);
            if let Some(anew) = apply(&bytes, here(Arrival::Stream, at_ms, HERE), replica.as_mut()).unwrap() {
                assert_eq!(replica.replace(anew), None);
            }
            assert_eq!(replica.as_ref(), Some(&gate));
        }
        assert_eq!(
            (gate.seen().largest(Kind::Permit(3)), gate.seen().largest(Kind::Exclusive), gate.end()),
            (81, 0, None)
        );
    }

    #[test]
    fn impossible_ones_are_refused() {
        let good = written(&sample(Some(8_000)), 2_000);
        let edit = |at, with: &[u8]| edited(&good, at, with);
        let cases = [
            (edit(0, &[5]), Damaged::Version { found: 5, known: 4 }),
            (edit(1, &[2]), Damaged::Field("form")),
            (edit(1, &[1]), Damaged::Field("form")),
            (edit(15, &1_999_999_u64.to_le_bytes()), Damaged::Field("end")),
            (edit(15, &(2_000_001 + KEEP_MAX_US).to_le_bytes()), Damaged::Field("end")),
            (edit(23, &[3]), Damaged::Field("kind")),
            (edit(24, &[1]), Damaged::Field("kind")),
            (edit(44, &[0]), Damaged::Field("kind")),
            (edit(26, &[0]), Damaged::Field("token")),
            (edit(26, &[0, 0, 0, 0, 0, 0, 0x20]), Damaged::Field("token")),
            (edit(33, &[0]), Damaged::Field("order of kinds")),
            (good[..23].to_vec(), Damaged::Length),
        ];
        for (bytes, damaged) in cases {
            for arrival in ARRIVALS {
                assert_eq!(decode(&bytes, here(arrival, 2_000, HERE)), Err(damaged), "{bytes:?}");
            }
        }
        let early = decode(&good, here(Arrival::Payload, 1_999, HERE));
        assert_eq!(early, Err(Damaged::Field("time of writing")));
        for len in (0..good.len()).filter(|len| *len < 33 || (len - 23) % TOKEN_BYTES != 0) {
            assert!(decode(&good[..len], here(Arrival::Storage, 2_000, HERE)).is_err(), "{len}");
        }
    }

    proptest! {
        /// Any bytes decode to a possible gate, or are refused with an error; nothing panics.
        #[test]
        fn any_bytes_decode_or_are_refused(text in prop::collection::vec(any::<u8>(), 0..60), now in any::<u64>()) {
            let (bytes, now) = ([vec![VERSION], text].concat(), BootTime::from_us(now));
            for arrival in ARRIVALS {
                let here = Here { arrival, now, boot: HERE };
                if let Ok(gate) = decode(&bytes, here) {
                    prop_assert!(gate.seen().iter().count() > 0);
                    let mut again = vec![];
                    encode(&gate, now, HERE, &mut again);
                    prop_assert_eq!(again.len(), bytes.len());
                }
            }
        }
    }
}
