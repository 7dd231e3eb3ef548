//! Reports to programs and people: trace events, and the reasons of losses.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once};

use palisade_client::by_owner::Take;
use palisade_client::{ErrorKind, Options};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::by_owner::take;
use crate::fixture::{Nodes, ms, until};
use crate::proxy::{Proxy, proxied};

/// Events and spans of the client in this process, each a map of its fields. A span's message is its name.
static HEARD: Mutex<Vec<Heard>> = Mutex::new(vec![]);

#[derive(Clone, Debug)]
struct Heard {
    target: &'static str,
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

impl Heard {
    fn of(metadata: &'static Metadata<'static>) -> Self {
        let fields = BTreeMap::from([("message", metadata.name().to_owned())]);
        Self { target: metadata.target(), level: *metadata.level(), fields }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

impl Visit for Heard {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

/// A subscriber that records the events and spans of all tests.
struct Ear;

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("palisade_client")
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut heard = Heard::of(span.metadata());
        span.record(&mut heard);
        let mut all = HEARD.lock().unwrap();
        all.push(heard);
        Id::from_u64(all.len() as u64)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut HEARD.lock().unwrap()[span.into_u64() as usize - 1]);
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut heard = Heard::of(event.metadata());
        event.record(&mut heard);
        HEARD.lock().unwrap().push(heard);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Installs the subscriber before any client of this process emits an event. A callsite that is first used while the
/// subscriber is being set would stay disabled.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Ear).unwrap());
}

fn heard_so_far() -> Vec<Heard> {
    HEARD.lock().unwrap().clone()
}

/// Returns the events about this key with this message.
fn told_of(key: &str, message: &str) -> Vec<Heard> {
    let is = |heard: &&Heard| heard.field("key") == Some(key) && heard.field("message") == Some(message);
    heard_so_far().into_iter().filter(|heard| is(&heard)).collect()
}

/// With many locks, an event did not show to which lock or token it belongs: each now names both, and the number of
/// nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_step_names_the_key_the_token_and_the_nodes() {
    let nodes = Nodes::start(3);
    let (proxies, locks) = proxied(&nodes).await;
    let other = nodes.client().await;
    let (key, shown) = (b"told:\x1b[2J\n\xff", "told:\\u{1b}[2J\\n\u{fffd}");
    let heard = |message: &str| !told_of(shown, message).is_empty();
    // The lease outlasts the time for which nodes are cut off, also on a busy machine.
    let options = Options::new().ttl(ms(60_000));
    let guard = locks.with(&options).lock(key).await.unwrap();
    let token = guard.token().to_string();
    other.with(&Options::new().wait(ms(1_000))).lock(key).await.unwrap_err();
    guard.extend().await.unwrap();
    assert!(heard("extended"));
    // Two nodes are cut off for a moment.
    proxies[1..].iter().for_each(Proxy::cut);
    guard.extend().await.unwrap_err();
    assert!(heard("not extended, tried again while it is valid"));
    proxies[1..].iter().for_each(Proxy::pass);
    until("it is extended again", async || guard.extend().await.is_ok()).await;
    for reply in nodes.0.iter().map(|server| server.client().send(&[b"LOCK.BREAK", key])) {
        reply.as_int();
    }
    guard.lost().await;
    until("it is said to be lost", async || heard("the lock is lost")).await;
    locks.with(&options).lock(key).await.unwrap().release().await;
    until("it is said to be released", async || heard("released")).await;
    drop(locks.with(&options).lock(key).await.unwrap());
    let dropped = "its last guard was dropped: it is released in the background";
    until("it is said to be dropped", async || heard(dropped)).await;

    // These events occur before there is a token, and with one.
    for message in ["lock", "not granted", "waits in the queues of the nodes", "waited"] {
        assert!(told_of(shown, message).iter().all(|heard| heard.field("nodes") == Some("3")), "{message}");
        assert!(heard(message), "{message}");
    }
    let with_token = ["granted", "held", "extended", "not extended, tried again while it is valid", "the lock is lost"];
    for message in with_token.into_iter().chain(["released", dropped]) {
        let told = told_of(shown, message);
        assert!(!told.is_empty(), "{message}");
        for heard in told {
            assert_eq!(heard.field("nodes"), Some("3"), "{heard:?}");
            assert!(heard.field("token").is_some_and(|token| token.parse::<u64>().is_ok()), "{heard:?}");
        }
    }
    for message in ["lock", "granted", "held"] {
        assert!(told_of(shown, message).iter().any(|heard| heard.field("token") == Some(&token)), "{message}");
    }
    // The events name the nodes, and the reasons.
    let failed = &told_of(shown, "not extended, tried again while it is valid")[0];
    assert!(proxies[1..].iter().all(|cut| failed.field("error").unwrap().contains(&cut.name())), "{failed:?}");
    let lost = &told_of(shown, "the lock is lost")[0];
    assert!(lost.field("reason").unwrap().contains("somebody took it away"), "{lost:?}");

    for heard in heard_so_far() {
        let about_a_lock = ["renewer", "waiting", "attempt", "locking", "choosing", "proclaiming", "client"]
            .iter()
            .any(|module| heard.target.split("::").nth(1) == Some(module));
        let of_nodes = heard.field("nodes").or(heard.field("node"));
        assert!(!about_a_lock || (heard.field("key").is_some() && of_nodes.is_some()), "{heard:?}");
    }
}

/// Anyone who knows an owner's name can release its lock, and many people read traces. So no event has an owner or a
/// password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_owner_and_no_password_is_told() {
    let nodes = Nodes::start(3);
    nodes.say("ACL SETUSER app on >told-password ~* +@all");
    let locks = palisade_client::Client::new(nodes.addresses_as_app("told-password")).unwrap();
    let by_owner = locks.by_owner();
    let take = Take { key: b"told:by-owner".to_vec(), note: b"for people".to_vec(), ..take("told-owner") };
    by_owner.take(take.clone()).await.unwrap().unwrap();
    let second = Take { owner: b"told-owner-2".to_vec(), wait: ms(300), ..take.clone() };
    assert!(by_owner.take(second).await.unwrap().is_none());
    let guard = locks.lock("told:random").await.unwrap();
    let owner = guard.owner().to_vec();
    nodes.say("LOCK.BREAK told:random");
    guard.extend().await.unwrap_err();
    by_owner.release(b"told:by-owner", b"told-owner", Some(1), None).await.unwrap();
    nodes.say("ACL SETUSER app resetpass");
    nodes.say("CLIENT KILL TYPE normal SKIPME yes");
    until("that is told", async || {
        heard_so_far().iter().any(|heard| heard.level == Level::DEBUG && heard.field("failure").is_some())
    })
    .await;
    assert!(!told_of("told:by-owner", "granted").is_empty());
    let hex: String = owner.iter().map(|byte| format!("{byte:02x}")).collect();
    let forms = [hex, format!("{owner:?}"), owner.escape_ascii().to_string(), String::from_utf8_lossy(&owner).into()];
    for heard in heard_so_far() {
        for value in heard.fields.values() {
            assert!(!value.contains("told-owner") && !value.contains("told-password"), "{heard:?}");
            assert!(!forms.iter().any(|form| value.contains(form)), "{heard:?}");
        }
    }
}

/// The holder of a lock that was broken gets an error that it no longer has the lock. The error used to say that
/// another owner holds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_broken_is_held_by_nobody() {
    let (nodes, locks) = Nodes::with_client(3).await;
    for how in ["LOCK.BREAK k", "DEL k"] {
        let guard = locks.with(&Options::new().ttl(ms(60_000)).auto_extend(false)).lock("k").await.unwrap();
        nodes.say(how);
        // Two cases: at the first answer, and once the loss is known.
        let first = guard.extend().await.unwrap_err();
        guard.lost().await;
        let (extend, reenter) = (guard.extend().await.unwrap_err(), guard.reenter().await.unwrap_err());
        assert_eq!([extend.kind(), reenter.kind()], [ErrorKind::Lost; 2]);
        for error in [first, extend, reenter] {
            assert!(error.to_string().contains("it does not have the lock any more"), "{error}");
            assert!(!error.to_string().contains("somebody else"), "{error}");
        }
        until("it is free", async || nodes.holding("k") == 0).await;
    }
}
