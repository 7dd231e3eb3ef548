//! What programs and people are told: the events of tracing, and why a lock is lost.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once};

use palisade_client::{ErrorKind, Options};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::fixture::{Nodes, ms, until};

/// Events of the client in this process, each a map of its fields.
static HEARD: Mutex<Vec<Heard>> = Mutex::new(vec![]);

struct Heard {
    target: &'static str,
    fields: Fields,
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// Hears all there is, from all tests.
struct Ear;

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("palisade_client")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        HEARD.lock().unwrap().push(Heard { target: event.metadata().target(), fields });
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Listens from before any client of this process says something: whoever is told of for the first time while the listener is being
/// set is taken for good for one that nobody listens to.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Ear).unwrap());
}

/// Who runs many locks could not tell which one an event is about.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_name_the_key() {
    let nodes = Nodes::start(3);
    let (locks, other) = (nodes.client().await, nodes.client().await);
    let (key, shown) = (b"told:\x1b[2J\n\xff", "told:\\u{1b}[2J\\n\u{fffd}");
    let guard = locks.lock_with(key, &Options::new().ttl(ms(6_000))).await.unwrap();
    other.lock_with(key, &Options::new().wait(ms(1_000))).await.unwrap_err();
    let heard = |message: &str| {
        let is = |heard: &Heard| {
            let field = |name| heard.fields.0.get(name).map(String::as_str);
            field("key") == Some(shown) && field("message") == Some(message)
        };
        HEARD.lock().unwrap().iter().any(is)
    };
    until("it is extended", async || {
        assert!(!guard.is_lost());
        heard("extended")
    })
    .await;
    for key in nodes.0.iter().map(|server| server.client().send(&[b"LOCK.BREAK", key])) {
        key.as_int();
    }
    guard.lost().await;
    for message in ["not granted", "waits in the queues of the nodes", "waited", "the lock is lost"] {
        assert!(heard(message), "{message}");
    }
    locks.lock(key).await.unwrap().release().await;
    assert!(heard("released"));
    for Heard { target, fields } in HEARD.lock().unwrap().iter() {
        let about_a_lock = ["renewer", "waiting", "attempt", "locking"].iter().any(|module| target.ends_with(module));
        assert!(!about_a_lock || fields.0.contains_key("key"), "{target}: {:?}", fields.0);
    }
}

/// The holder was told that somebody else holds its lock, when nobody did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_broken_is_held_by_nobody() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    for how in ["LOCK.BREAK k", "DEL k"] {
        let guard = locks.lock_with("k", &Options::new().ttl(ms(60_000)).auto_extend(false)).await.unwrap();
        nodes.say(how);
        // At the first word of it, and when it is known.
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
