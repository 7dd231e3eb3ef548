//! A second judge: reads the segments of histories that `judge export` prints, searches each with another checker, and
//! compares the verdicts. With the argument `one` the input is a single history.

mod model;

use std::io::{BufRead, stdin};
use std::process::ExitCode;

use porcupine::{CheckResult, Operation};
use serde::Deserialize;

use model::{Last, Lock, Op};

/// The operations of one key in a time span. Nobody holds the key at either end of the span.
#[derive(Deserialize)]
struct Segment {
    history: String,
    key: String,
    /// The verdict of the first judge, which is in Go.
    verdict: String,
    before: Vec<Last>,
    ops: Vec<Op>,
}

fn main() -> ExitCode {
    let (mut legal, mut illegal, mut differ) = (0, 0, 0);
    for (number, line) in stdin().lock().lines().enumerate() {
        let line = line.expect("the input is text");
        let segment: Segment = serde_json::from_str(&line)
            .unwrap_or_else(|why| panic!("line {} is not from `judge export`: {why}", number + 1));
        let verdict = judge(&segment);
        match verdict {
            "legal" => legal += 1,
            "illegal" => illegal += 1,
            _ => {}
        }
        if verdict != segment.verdict {
            differ += 1;
            println!("{}, key {}: {verdict} here, {} there", segment.history, segment.key, segment.verdict);
        }
    }
    println!("{legal} segments are legal, {illegal} illegal; {differ} verdicts differ");
    // A single history may have no illegal segment.
    let is_one = std::env::args().nth(1).as_deref() == Some("one");
    if differ == 0 && legal > 0 && (is_one || illegal > 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn judge(segment: &Segment) -> &'static str {
    let operation = |op: &Op| Operation {
        client_id: op.owner,
        input: op.clone(),
        call: op.call,
        output: (),
        return_time: op.answered,
    };
    let history: Vec<_> = segment.ops.iter().map(operation).collect();
    let lock = Lock { before: segment.before.clone() };
    // No time limit is given: for each limit, this checker leaves a thread behind that sleeps until then.
    match porcupine::checker::check_operations(&lock, &history, None) {
        CheckResult::Ok => "legal",
        CheckResult::Illegal => "illegal",
        CheckResult::Unknown => "undecided",
    }
}
