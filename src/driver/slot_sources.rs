//! When slots of the cluster come from another server, asks that server which grants it has forgotten. Answers such
//! questions of other servers.
//!
//! A guarded master may have forgotten a held lock. If its slot moves to another node, that node cannot know of the lock
//! either, so it asks, over the cluster's bus. The answer also says which tokens the master may have issued.

use std::cell::Cell;
use std::ffi::CString;

use palisade_core::{
    ASK_AGAIN_MS, BootTime, MigrationId, ServerId, SlotSet, SourceAnswer, SourceQuestion, StripeCeiling, TokenBounds,
};

use crate::durability::{incarnation, promotion};
use crate::ffi::{CallReply, Context, Message, is_poisoned, send, warn};
use crate::{clock, state};

/// The first bytes of each message, with its version. A message of another module has others.
const MARK: [u8; 8] = *b"palisad6";

thread_local! {
    /// True while a timer runs, at whose end the sources are asked again.
    static ASKS_AGAIN: Cell<bool> = const { Cell::new(false) };
    /// True once the log says that a server has not answered in time.
    static IS_LOGGED: Cell<bool> = const { Cell::new(false) };
}

/// If slots come from other servers, asks those which grants they have forgotten. Asks nothing if no question is due.
pub fn ask(ctx: Context<'_>) {
    if !ctx.is_cluster() {
        return;
    }
    let now = clock::boot_now();
    let sources = state::with(|node| node.ask_sources(now));
    for (source, question) in sources {
        send(&source, Message::Asks, &question_message(now.as_us(), &question));
    }
    let (awaits, is_late) = state::with(|node| (node.slots().await_answers(now), node.slots().has_silent_source(now)));
    // The source may not have heard yet that a slot has left it. The tick would ask it again only after 0.1 s.
    if awaits && !ASKS_AGAIN.replace(true) {
        ctx.start_timer(ASK_AGAIN_MS.into(), |ctx| {
            ASKS_AGAIN.set(false);
            ask(ctx);
        });
    }
    if is_late && !IS_LOGGED.get() {
        warn(
            "a server from which slots of the cluster came does not say whether it has forgotten locks: it cannot be \
             reached, it has restarted, its lock module is older or missing, it kept such a slot for a moment after a \
             failed move, or slots moved in one step although the cluster has several databases. Nothing is granted in these slots until the longest lease would have ended. LOCK.GUARD LIFT \
             ends that if you know that nobody holds a lock there",
        );
    }
    IS_LOGGED.set(is_late);
}

/// Answers the question of the server `from`. A server that does not know what it has forgotten answers nothing: it has
/// not judged its start, is a replica, or a panic was caught in it.
pub fn answer(ctx: Context<'_>, from: &ServerId, question: &[u8]) {
    let Some((asked, question)) = parse_question(question).filter(|_| ctx.is_master() && !is_poisoned()) else {
        return;
    };
    let changes = || state::with(|node| node.tokens().stripe_changes());
    let (before, now) = (changes(), clock::now());
    let has = with_keys(ctx, &question.taken);
    if let Some(answer) = state::with(|node| node.source_answer(from, &question, &has, now)) {
        send(from, Message::Answers, &message(asked, &answer));
    }
    if before != changes() {
        incarnation::save(now);
    }
}

/// Returns these of the `slots` in which the server has keys.
fn with_keys(ctx: Context<'_>, slots: &SlotSet) -> SlotSet {
    let mut has = SlotSet::default();
    for slot in slots.iter() {
        let number = CString::new(slot.to_string()).expect("digits");
        let count = CallReply::of_words(ctx, c"CLUSTER", c"COUNTKEYSINSLOT", &number);
        if count.and_then(|count| count.value().integer()) != Some(0) {
            has.insert(slot..=slot);
        }
    }
    has
}

/// Builds the message with a question of the time `asked`.
fn question_message(asked: u64, SourceQuestion { taken, issued }: &SourceQuestion) -> Vec<u8> {
    let head = [asked, issued.highest].into_iter().chain(taken.bits().iter().copied());
    let numbers = head.chain(stripe_numbers(&issued.stripes));
    MARK.into_iter().chain(numbers.flat_map(u64::to_le_bytes)).collect()
}

/// Parses such a message. Returns the time of the question, and the question.
fn parse_question(message: &[u8]) -> Option<(u64, SourceQuestion)> {
    let numbers = numbers(message)?;
    let (&[asked, highest], rest) = numbers.split_first_chunk()?;
    let (taken, stripes) = rest.split_at_checked(SlotSet::WORDS)?;
    let issued = TokenBounds { highest, stripes: stripes_of(stripes)? };
    Some((asked, SourceQuestion { taken: SlotSet::from_bits(taken)?, issued }))
}

fn stripe_numbers(stripes: &[StripeCeiling]) -> impl Iterator<Item = u64> {
    stripes.iter().flat_map(|stripe| [stripe.stripe.into(), stripe.ceiling])
}

fn stripes_of(numbers: &[u64]) -> Option<Vec<StripeCeiling>> {
    let (stripes, rest) = numbers.as_chunks();
    let stripe = |&[stripe, ceiling]: &[u64; 2]| Some(StripeCeiling { stripe: stripe.try_into().ok()?, ceiling });
    if rest.is_empty() { stripes.iter().map(stripe).collect() } else { None }
}

/// Builds the message with the answer to the question of the time `asked`.
fn message(asked: u64, answer: &SourceAnswer) -> Vec<u8> {
    let stripes = stripe_numbers(&answer.tokens.stripes);
    let slots = [&answer.forgotten, &answer.doubted, &answer.kept, &answer.unsettled, &answer.exported];
    let slots = slots.into_iter().flat_map(SlotSet::bits).copied();
    let head = [answer.ended.len() as u64, asked, answer.forgotten_ms.into(), answer.tokens.highest];
    let numbers = head.into_iter().chain(slots).chain(stripes).flat_map(u64::to_le_bytes);
    MARK.into_iter().chain(numbers).chain(answer.ended.iter().flatten().copied()).collect()
}

/// Parses such a message. Returns the time of the question, and the answer.
fn parse(message: &[u8]) -> Option<(u64, SourceAnswer)> {
    let ended_count = message.strip_prefix(&MARK)?.first_chunk().copied().map(u64::from_le_bytes)?;
    let ids_len = usize::try_from(ended_count).ok()?.checked_mul(size_of::<MigrationId>())?;
    let (head, ids) = message.split_at_checked(message.len().checked_sub(ids_len)?)?;
    let numbers = numbers(head)?;
    let (&[_, asked, forgotten_ms, highest], rest) = numbers.split_first_chunk()?;
    let (forgotten, rest) = rest.split_at_checked(SlotSet::WORDS)?;
    let (doubted, rest) = rest.split_at_checked(SlotSet::WORDS)?;
    let (kept, rest) = rest.split_at_checked(SlotSet::WORDS)?;
    let (unsettled, rest) = rest.split_at_checked(SlotSet::WORDS)?;
    let (exported, stripes) = rest.split_at_checked(SlotSet::WORDS)?;
    let forgotten_ms = u32::try_from(forgotten_ms).unwrap_or(u32::MAX);
    let stripes = stripes_of(stripes)?;
    let answer = SourceAnswer {
        forgotten_ms,
        forgotten: SlotSet::from_bits(forgotten)?,
        doubted: SlotSet::from_bits(doubted)?,
        kept: SlotSet::from_bits(kept)?,
        unsettled: SlotSet::from_bits(unsettled)?,
        exported: SlotSet::from_bits(exported)?,
        ended: ids.as_chunks().0.to_vec(),
        tokens: TokenBounds { highest, stripes },
    };
    Some((asked, answer))
}

/// Takes the answer of the server `from`.
pub fn on_answer(from: &ServerId, answer: &[u8]) {
    let Some((asked, answer)) = parse(answer) else { return };
    let (asked, now) = (BootTime::from_us(asked), clock::now());
    let tokens = || state::with(|node| (node.tokens().floor(), node.tokens().stripe_changes()));
    let before = tokens();
    let (guarded, open) = state::with(|node| node.on_source_answer(*from, asked, answer, now.boot));
    if guarded > 0 {
        warn(&format!(
            "{guarded} slots of the cluster came from a server that may have forgotten locks in them, or still has some: \
             nothing is granted there while somebody may hold one. LOCK.GUARD LIFT ends that if you know that nobody does"
        ));
    }
    // A later incarnation does not ask again, so it must begin above the tokens of that server.
    if guarded > 0 || before != tokens() {
        incarnation::save_at_once(now);
    } else if open > 0 {
        incarnation::save(now);
    }
    if guarded + open > 0 {
        promotion::send_soon();
    }
}

/// Parses the numbers of a message; `None` if it is another module's, or of another version.
fn numbers(message: &[u8]) -> Option<Vec<u64>> {
    let (numbers, rest) = message.strip_prefix(&MARK)?.as_chunks();
    rest.is_empty().then(|| numbers.iter().copied().map(u64::from_le_bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_another_module_or_length_says_nothing() {
        let stripes = vec![StripeCeiling { stripe: 3, ceiling: u64::MAX }];
        let [mut forgotten, mut doubted, mut kept, mut unsettled, mut exported] = [(); 5].map(|()| SlotSet::default());
        forgotten.insert(1..=2);
        doubted.insert(2..=2);
        kept.insert(3..=3);
        unsettled.insert(0..=0);
        exported.insert(64..=64);
        let (ended, tokens) = (vec![[b'm'; 40], [b'n'; 40]], TokenBounds { highest: 11, stripes });
        let answer = SourceAnswer { forgotten_ms: 9, forgotten, doubted, kept, unsettled, exported, ended, tokens };
        let bytes = message(7, &answer);
        let numbers = numbers(&bytes).unwrap();
        assert_eq!((&numbers[..6], numbers.len()), (&[2, 7, 9, 11, 6, 0][..], 4 + 5 * SlotSet::WORDS + 2 + 10));
        assert_eq!(parse(&bytes), Some((7, answer)));
        let mut taken = SlotSet::default();
        taken.insert(9..=9);
        let issued = TokenBounds { highest: 5, stripes: vec![StripeCeiling { stripe: 2, ceiling: 6 }] };
        let question = SourceQuestion { taken, issued };
        assert_eq!(parse_question(&question_message(4, &question)), Some((4, question)));
        let all = bytes.len();
        for wrong in [&bytes[..12], &bytes[..20], &bytes[..48], &bytes[..all - 8], &bytes[..all - 3], &bytes[1..], b""]
        {
            assert_eq!(parse(wrong), None);
        }
    }
}
