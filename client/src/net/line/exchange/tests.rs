use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::*;

const ALLOWED: Duration = Duration::from_millis(50);
const GIVEN: Given = Given::Within { least: ALLOWED, most: Duration::from_secs(1) };

/// A numbered caller, which may stop waiting.
#[derive(Clone, Debug)]
struct Asker(usize, Rc<Cell<bool>>);

impl Caller for Asker {
    fn is_wanted(&self) -> bool {
        self.1.get()
    }
}

fn ask(exchange: &mut Exchange<Asker>, number: usize) -> Rc<Cell<bool>> {
    let wanted = Rc::new(Cell::new(true));
    let waits = Asker(number, Rc::clone(&wanted));
    exchange.ask(
        &redis::cmd("ECHO").arg(number).get_packed_command(),
        Waiting { waits, given: GIVEN, from: None, before: None },
    );
    wanted
}

/// Writes up to this many bytes to `server`.
fn write(exchange: &mut Exchange<Asker>, now: Instant, bytes: usize, server: &mut Vec<u8>) {
    let output = exchange.output(now);
    let output = output[..bytes.min(output.len())].to_vec();
    exchange.wrote(output.len());
    server.extend(output);
}

/// Returns the answers to all complete ECHO commands: to each, the number that it sent.
fn answer(asked: &mut Vec<u8>) -> Vec<u8> {
    let mut answers = vec![];
    while let Ok(Some((Value::Array(command), length))) = frame::first(asked) {
        asked.drain(..length);
        let Some(Value::BulkString(number)) = command.last() else { continue };
        answers.extend(format!(":{}\r\n", String::from_utf8_lossy(number)).into_bytes());
    }
    answers
}

fn put(exchange: &mut Exchange<Asker>, bytes: &[u8]) {
    exchange.room()[..bytes.len()].copy_from_slice(bytes);
    exchange.read(bytes.len());
}

/// Returns the answers with their callers.
fn heard(exchange: &mut Exchange<Asker>, now: Instant) -> Vec<(Option<usize>, Value)> {
    let mut heard = vec![];
    while let Some(arrived) = exchange.next(now).unwrap() {
        match arrived {
            Arrived::Answer { waits, reply, .. } => heard.push((waits.map(|waits| waits.0), reply)),
            Arrived::Push(push) => heard.push((None, Value::Array(push.data))),
        }
    }
    heard
}

#[test]
fn each_hears_its_own_answer_however_the_bytes_are_cut() {
    let (now, answers) = (Instant::now(), b"+OK\r\n:1\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n$3\r\ntwo\r\n");
    for cut in 0..answers.len() {
        let mut exchange = Exchange::new();
        let (waits, before) = (Asker(1, Rc::new(Cell::new(true))), Some(Before::Caching));
        exchange.ask(&redis::cmd("PING").get_packed_command(), Waiting { waits, given: GIVEN, from: None, before });
        let _two = ask(&mut exchange, 2);
        let written = exchange.output(now).len();
        exchange.wrote(written);
        let mut all = vec![];
        for part in [&answers[..cut], &answers[cut..]] {
            put(&mut exchange, part);
            all.extend(heard(&mut exchange, now));
        }
        let key = Value::Array(vec![Value::Array(vec![Value::BulkString(b"k".to_vec())])]);
        let two = Value::BulkString(b"two".to_vec());
        assert_eq!(all, [(Some(1), Value::Int(1)), (None, key), (Some(2), two)], "cut at {cut}");
        assert_eq!((exchange.under_way(), exchange.check_at()), (0, None));
    }
}

#[test]
fn an_answer_to_nothing_breaks_the_connection() {
    let mut exchange = Exchange::<Asker>::new();
    put(&mut exchange, b":1\r\n");
    assert!(matches!(exchange.next(Instant::now()), Err(Why::Broken(_))));
}

#[test]
fn what_nobody_wants_is_not_sent_and_what_was_sent_keeps_its_place() {
    let (now, mut exchange, mut server) = (Instant::now(), Exchange::new(), vec![]);
    let askers: Vec<_> = (0..3).map(|number| ask(&mut exchange, number)).collect();
    askers[1].set(false);
    write(&mut exchange, now, usize::MAX, &mut server);
    let later: Vec<_> = (3..5).map(|number| ask(&mut exchange, number)).collect();
    askers[2].set(false);
    write(&mut exchange, now, usize::MAX, &mut server);
    drop(later);
    put(&mut exchange, &answer(&mut server));
    let numbers: Vec<_> = heard(&mut exchange, now).into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [0, 2, 3, 4].map(Some));
}

/// Tries all orders of asking, giving up, writing a few bytes, answering and reading: each remaining caller gets its
/// own answer.
#[test]
fn nobody_is_forgotten_in_any_order() {
    const STEPS: u32 = 7;
    let now = Instant::now();
    for order in 0..4_u32.pow(STEPS) {
        let (mut exchange, mut server, mut way_back) = (Exchange::new(), vec![], vec![]);
        let (mut askers, mut all) = (vec![], vec![]);
        for step in 0..STEPS {
            match order / 4_u32.pow(step) % 4 {
                0 => askers.push(ask(&mut exchange, askers.len())),
                1 => write(&mut exchange, now, 7, &mut server),
                2 => {
                    way_back.extend(answer(&mut server));
                    let some = way_back.len().div_ceil(2);
                    put(&mut exchange, &way_back.drain(..some).collect::<Vec<_>>());
                    all.extend(heard(&mut exchange, now));
                }
                _ => askers.last().into_iter().for_each(|asker| asker.set(false)),
            }
        }
        while exchange.is_blocked() || !exchange.asking.is_empty() {
            write(&mut exchange, now, usize::MAX, &mut server);
        }
        way_back.extend(answer(&mut server));
        put(&mut exchange, &way_back);
        all.extend(heard(&mut exchange, now));
        assert!(all.iter().all(|(number, reply)| *reply == Value::Int(number.unwrap() as i64)), "{order}: {all:?}");
        for (number, asker) in askers.iter().enumerate().filter(|(_, asker)| asker.get()) {
            let times = all.iter().filter(|(heard, _)| *heard == Some(number)).count();
            assert_eq!((times, asker.get()), (1, true), "{order}: {number}");
        }
        assert_eq!(exchange.under_way(), 0);
    }
}

#[test]
fn who_waits_too_long_is_told_and_a_connection_without_a_word_is_given_up() {
    let (start, pace) = (Instant::now(), Pace::default());
    let (mut exchange, mut server) = (Exchange::new(), vec![]);
    let _askers: Vec<_> = (0..2).map(|number| ask(&mut exchange, number)).collect();
    write(&mut exchange, start, usize::MAX, &mut server);
    assert_eq!(exchange.check_at(), Some(start + ALLOWED));
    let check = |exchange: &mut Exchange<Asker>, after: Duration| {
        let Checked { late, is_dead, .. } = exchange.check(start + after, &pace);
        (late.into_iter().map(|asker| asker.0).collect::<Vec<_>>(), is_dead)
    };
    assert_eq!(check(&mut exchange, ALLOWED - Duration::from_millis(1)), (vec![], false));
    // The node answers one request, so it is at work, and the other request's time starts again.
    put(&mut exchange, b":0\r\n");
    assert_eq!(heard(&mut exchange, start + Duration::from_millis(40)).len(), 1);
    assert_eq!(check(&mut exchange, ALLOWED), (vec![], false));
    assert_eq!(check(&mut exchange, Duration::from_millis(90)), (vec![1], false));
    assert_eq!(exchange.check_at(), Some(start + Duration::from_millis(40) + SILENCE));
    assert_eq!(check(&mut exchange, Duration::from_millis(40) + SILENCE), (vec![], true));
}

#[test]
fn a_process_that_overslept_gives_the_node_its_time_again() {
    let (start, pace) = (Instant::now(), Pace::default());
    let (mut exchange, mut server) = (Exchange::new(), vec![]);
    let _asker = ask(&mut exchange, 0);
    write(&mut exchange, start, usize::MAX, &mut server);
    let mut now = start;
    for times in 0..=OVERSLEPT_TIMES {
        now += ALLOWED + OVERSLEPT * 2;
        let late = exchange.check(now, &pace).late.len();
        assert_eq!(late, usize::from(times == OVERSLEPT_TIMES), "{times}");
    }
}

#[test]
fn what_a_burst_took_is_given_back() {
    let (now, mut exchange, mut server) = (Instant::now(), Exchange::new(), vec![]);
    let askers: Vec<_> = (0..20_000).map(|number| ask(&mut exchange, number)).collect();
    write(&mut exchange, now, usize::MAX, &mut server);
    let answers = answer(&mut server);
    for part in answers.chunks(16 * 1024) {
        put(&mut exchange, part);
        heard(&mut exchange, now);
    }
    exchange.room();
    let Exchange { asked, asking, output, input, slots, .. } = &exchange;
    assert!([asked.capacity(), output.capacity(), input.capacity()].iter().all(|bytes| *bytes <= BUFFER_KEPT));
    assert!(
        slots.capacity() <= SLOTS_KEPT && asking.capacity() <= SLOTS_KEPT,
        "{} slots, after {}",
        slots.capacity(),
        askers.len()
    );
}
