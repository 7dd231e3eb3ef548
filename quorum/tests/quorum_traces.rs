//! Replays the traces of `conformance/quorum` on the machines of this crate. Authors of other clients replay them on
//! theirs. A trace says what each node answers and when. It also says what the client must conclude and send.

use std::path::Path;

use palisade_quorum::{Acquire, Answer, Ask, Call, Held, NodeId, Progress, Release, Released};
use palisade_quorum::{BootTime, Token};
use serde_json::{Map, Value, json};

/// The state machine of a client, at one point of a trace.
enum Client {
    Asks(Acquire),
    Holds(Box<Held>),
    Releases(Release),
    Ended(&'static str),
}

fn traces() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/quorum");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read =
        |path: &std::path::PathBuf| -> Value { serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap() };
    files.iter().flat_map(|path| read(path)["scenarios"].as_array().unwrap().clone()).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn token(value: &Value) -> Token {
    Token::new(number(value)).expect("a token")
}

fn ttl_ms(value: &Value) -> u32 {
    u32::try_from(number(value)).unwrap()
}

/// The moment at which a trace begins; the trace's own times start at 0.
const BEGAN: BootTime = BootTime::from_us(1_000_000_000);

fn at(ms: u64) -> BootTime {
    BEGAN.plus_us(ms * 1_000)
}

fn ask(asked: &Value, ttl_ms: u32) -> Ask {
    let of = |name: &str| asked.get(name).map(token);
    if let Some(proposal) = of("acquire") {
        Ask::Acquire { ttl_ms, proposal, retry: false }
    } else if let Some(proposal) = of("retry") {
        Ask::Acquire { ttl_ms, proposal, retry: true }
    } else if let Some(token) = of("fence") {
        Ask::Fence { token }
    } else {
        Ask::Extend { ttl_ms, token: of("extend").expect("a request") }
    }
}

fn told(call: &Call) -> Value {
    let (name, of) = match call.ask {
        Ask::Acquire { proposal, retry: false, .. } => ("acquire", proposal),
        Ask::Acquire { proposal, retry: true, .. } => ("retry", proposal),
        Ask::Fence { token } => ("fence", token),
        Ask::Extend { token, .. } => ("extend", token),
        Ask::Share => panic!("no trace is about it"),
    };
    let mut told = json!({"node": call.node, name: of.get()});
    if call.after_ms > 0 {
        told["after_ms"] = json!(call.after_ms);
    }
    told
}

fn answer(says: &Value) -> Answer {
    match says {
        Value::Null => Answer::No,
        Value::Number(_) => Answer::Token(token(says)),
        Value::String(_) => Answer::Failed,
        _ => match says.get("guarded_ms") {
            Some(ms) => Answer::Guarded { ms: number(ms) },
            None => Answer::NotYet { ms: u32::try_from(number(&says["not_yet_ms"])).unwrap() },
        },
    }
}

/// Replays a trace. The error names the first difference from what the trace says.
fn replay(trace: &Value) -> Result<(), String> {
    let nodes = number(&trace["nodes"]) as usize;
    let mut ttl = ttl_ms(&trace["ttl_ms"]);
    let (acquire, calls) = Acquire::begin(nodes, ttl, token(&trace["proposal"]), BEGAN);
    let asked: Vec<_> = calls.iter().map(told).collect();
    let all: Vec<_> = (0..nodes).map(|node| json!({"node": node, "acquire": trace["proposal"]})).collect();
    assert_eq!(asked, all, "all nodes are asked at once");
    let mut client = Client::Asks(acquire);
    for event in trace["events"].as_array().unwrap() {
        let now = at(number(&event["at_ms"]));
        let node = event.get("node").map(|node| number(node) as usize);
        let id = match (event.get("server").and_then(Value::as_i64), node) {
            (Some(-1), _) => None,
            (Some(id), _) => Some(NodeId(id as u128)),
            (None, node) => node.map(|node| NodeId(node as u128)),
        };
        let mut sends = vec![];
        client = match client {
            Client::Asks(mut acquire) => {
                let asked = ask(&event["to"], ttl);
                match acquire.on_answer(node.unwrap(), id, asked, answer(&event["says"]), now) {
                    Progress::Goes(calls) => {
                        sends = calls;
                        Client::Asks(acquire)
                    }
                    Progress::Held(held) => Client::Holds(Box::new(held)),
                    Progress::TooLate => Client::Ended("too late"),
                    Progress::Impossible => Client::Ended("impossible"),
                }
            }
            Client::Holds(_) if event.get("release").is_some() => Client::Releases(Release::begin(nodes)),
            Client::Releases(mut release) => {
                let held = match &event["says"] {
                    Value::String(_) => None,
                    says => Some(!says.is_null()),
                };
                release.on_answer(node.unwrap(), held);
                Client::Releases(release)
            }
            Client::Holds(mut held) => {
                if let Some(extend) = event.get("extend") {
                    ttl = ttl_ms(extend);
                    sends = held.extend(ttl, now);
                } else if let Some(missing) = event.get("missing") {
                    let missing = number(missing) as usize;
                    sends = held.on_missing(missing, Some(NodeId(missing as u128)), token(&event["token"]), now);
                } else {
                    let round = event.get("round").map_or(held.round(), number);
                    let asked = ask(&event["to"], ttl);
                    sends = held.on_answer(round, node.unwrap(), id, asked, answer(&event["says"]), now);
                }
                Client::Holds(held)
            }
            Client::Ended(how) => return Err(format!("it had ended: {how}")),
        };
        let Some(then) = event.get("then").and_then(Value::as_object) else { continue };
        compare(then, &client, &sends).map_err(|why| format!("after {event}: {why}"))?;
    }
    Ok(())
}

/// Compares the outcome of an event with what the trace says (`then`).
fn compare(then: &Map<String, Value>, client: &Client, sends: &[Call]) -> Result<(), String> {
    let mut is = json!({"is": match client {
        Client::Asks(_) => "asking",
        Client::Holds(held) if held.is_lost() => "lost",
        Client::Holds(_) => "held",
        Client::Releases(release) => match release.outcome() {
            Released::Released => "freed",
            Released::NotHeld => "was not held",
            Released::Unknown if release.is_complete() => "cannot tell",
            Released::Unknown => "releasing",
        },
        Client::Ended(how) => how,
    }});
    let mut told: Vec<_> = sends.iter().map(told).collect();
    told.sort_by_key(Value::to_string);
    is["sends"] = json!(told);
    if let Client::Holds(held) = client {
        is["token"] = json!(held.token().get());
        is["valid_until_ms"] = json!(held.valid_until().us_since(BEGAN) / 1_000);
        is["extended"] = json!(held.outcome());
    }
    for (name, expected) in then {
        let mut expected = expected.clone();
        if let Some(list) = expected.as_array_mut() {
            list.sort_by_key(Value::to_string);
        }
        if is.get(name) != Some(&expected) {
            return Err(format!("{name} must be {expected}, and is {}", is[name]));
        }
    }
    Ok(())
}

#[test]
fn traces_are_what_the_machines_do() {
    let traces = traces();
    assert!(traces.len() > 30, "the traces are there");
    let fails = |trace: &Value| {
        let why = replay(trace).err()?;
        Some(format!("{}: {why}; why it matters: {}", trace["name"], trace["why"]))
    };
    let failed: Vec<_> = traces.iter().filter_map(fails).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Returns a different value of the same type, for a change that the replay must notice.
fn other(name: &str, value: &Value) -> Value {
    match (name, value) {
        ("is", value) => json!(if value == "held" { "impossible" } else { "held" }),
        ("extended", value) => json!(value != &json!(true)),
        ("sends", Value::Array(list)) if list.is_empty() => json!([{"node": 0, "fence": 1}]),
        ("sends", Value::Array(list)) => json!(list[1..]),
        (_, value) => json!(number(value) + 1),
    }
}

/// Changes each statement of a trace, one after the other. Each time the replay must fail.
#[test]
fn traces_that_say_otherwise_fail() {
    for trace in traces() {
        for (n, event) in trace["events"].as_array().unwrap().iter().enumerate() {
            for (name, value) in event.get("then").and_then(Value::as_object).into_iter().flatten() {
                let mut wrong = trace.clone();
                wrong["events"][n]["then"][name] = other(name, value);
                assert!(replay(&wrong).is_err(), "{}: event {n}: nobody notices {name}", trace["name"]);
            }
        }
    }
}
