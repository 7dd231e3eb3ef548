//! The faults that the nemesis (the part that injects faults) injected, and findings other than the referee's.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::journal::now_us;
use crate::history::TimeUs;

/// The target of a fault. Nodes and clients are numbered from 0, and shown from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum On {
    /// A node.
    Node(usize),
    /// A client process.
    Client(usize),
    /// An agent.
    Agent(usize),
    /// The connection of a client to a node.
    Link { client: usize, node: usize },
    /// All nodes at once.
    AllNodes,
    /// Servers that are not nodes of the campaign.
    Others,
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {}", node + 1),
            Self::Client(client) => write!(f, "client {}", client + 1),
            Self::Agent(agent) => write!(f, "agent {}", agent + 1),
            Self::Link { client, node } => write!(f, "client {} to node {}", client + 1, node + 1),
            Self::AllNodes => write!(f, "all nodes"),
            Self::Others => write!(f, "servers beside the nodes"),
        }
    }
}

/// A fault that was injected.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    /// The name in the report.
    pub kind: &'static str,
    /// The part of the campaign that the fault affects.
    pub on: On,
    /// The moment at which the fault began.
    pub from: TimeUs,
    /// The moment at which the fault ended; `None` while it lasts.
    pub until: Option<TimeUs>,
    /// A remark for the report, such as a length.
    pub note: String,
}

/// An event that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The moment at which the event was noticed.
    pub at: TimeUs,
    /// The lock; `None` if the fault concerns no lock in particular.
    pub key: Option<u32>,
    /// A sentence for the report that says what happened.
    pub what: String,
}

/// All faults and findings of a run, in the order in which they began.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<(Vec<Fault>, Vec<Wrong>)>>);

/// A fault that lasts until this value is dropped.
#[derive(Debug)]
#[must_use = "a fault is healed when this is dropped"]
pub struct Lasting<'a> {
    log: &'a Log,
    number: usize,
}

impl Drop for Lasting<'_> {
    fn drop(&mut self) {
        self.log.with(|(faults, _)| faults[self.number].until = Some(now_us()));
    }
}

impl Log {
    /// Begins a fault that lasts.
    pub fn begin(&self, kind: &'static str, on: On, note: impl Into<String>) -> Lasting<'_> {
        let fault = Fault { kind, on, from: now_us(), until: None, note: note.into() };
        let number = self.with(|(faults, _)| {
            faults.push(fault);
            faults.len() - 1
        });
        Lasting { log: self, number }
    }

    /// Records a momentary fault.
    pub fn moment(&self, kind: &'static str, on: On, note: impl Into<String>) {
        drop(self.begin(kind, on, note));
    }

    /// Records a finding.
    pub fn found(&self, what: impl Into<String>) {
        let finding = Wrong { at: now_us(), key: None, what: what.into() };
        self.with(|(_, findings)| findings.push(finding));
    }

    /// Returns all faults so far.
    pub fn faults(&self) -> Vec<Fault> {
        self.with(|(faults, _)| faults.clone())
    }

    /// Returns all findings so far.
    pub fn findings(&self) -> Vec<Wrong> {
        self.with(|(_, findings)| findings.clone())
    }

    fn with<T>(&self, body: impl FnOnce(&mut (Vec<Fault>, Vec<Wrong>)) -> T) -> T {
        body(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
