//! The bounds of the models of locks in a set of nodes that changes.

use crate::checker::Bounded;
use crate::rules::Rule;

pub(super) const TICK_MS: u32 = 100;

/// The bounds of a model.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The members of each version from 1 on. Each number is a node.
    pub(super) versions: Vec<Vec<u8>>,
    pub(super) nodes: u8,
    /// The token that each client proposes. A client asks once.
    pub(super) proposals: Vec<u64>,
    pub(super) ttl_ticks: u8,
    /// The number of rounds of extension of each client.
    pub(super) extensions: u8,
    pub(super) ticks: u8,
    /// The number of restarts of nodes.
    pub(super) restarts: u8,
    /// The number of times that a node loses its memory.
    pub(super) amnesias: u8,
    /// True if any majority decides a version in a single step, without the steps of an attempt.
    pub(super) at_once: bool,
    pub(super) without: Option<Rule>,
}

/// Returns the models with every rule on, each with its subject.
pub fn sound() -> Vec<Bounded<&'static str>> {
    let three =
        Bounds { versions: vec![vec![0, 1, 2], vec![0, 1, 2, 3], vec![1, 2, 3]], nodes: 4, ..Bounds::default() };
    let (more, fewer) =
        (vec![vec![0, 1], vec![0, 1, 2], vec![0, 1, 2, 3]], vec![vec![0, 1, 2, 3], vec![1, 2, 3], vec![2, 3]]);
    let all = [
        ("a set of one, its node is replaced, two clients", Bounds { at_once: false, ..Bounds::default() }),
        ("a set of one, its node is replaced, a restart", Bounds { restarts: 1, ..Bounds::default() }),
        ("a set of one, its node is replaced, a node loses its memory", Bounds { amnesias: 1, ..Bounds::default() }),
        (
            "a set of one, its node is replaced, holders extend",
            Bounds { extensions: 2, ttl_ticks: 2, ..Bounds::default() },
        ),
        ("a set of three, a node is replaced, two clients", Bounds { at_once: false, ..three.clone() }),
        ("a set of three, a node is replaced, two clients, a version at once", three.clone()),
        ("a set of three, a node is replaced, holders extend", Bounds { extensions: 2, ttl_ticks: 2, ..three.clone() }),
        (
            "a set of three, a node is replaced, a restart and a lost memory",
            Bounds { restarts: 1, amnesias: 1, ..three.clone() },
        ),
        ("a set of two becomes one of four", Bounds { versions: more, ..three.clone() }),
        ("a set of four becomes one of two", Bounds { versions: fewer, ..three }),
    ];
    all.map(|(about, bounds)| Bounded::new(about, move || Checked(bounds.clone()))).into()
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            versions: vec![vec![0], vec![0, 1], vec![1]],
            nodes: 2,
            proposals: vec![7, 3],
            ttl_ticks: 1,
            extensions: 0,
            ticks: 4,
            restarts: 0,
            amnesias: 0,
            at_once: true,
            without: None,
        }
    }
}

impl Bounds {
    pub(super) fn without(rule: Rule) -> Self {
        use Rule::*;
        let bounds = Self { ticks: 2, without: Some(rule), ..Self::default() };
        match rule {
            OneNodeAtATime => Self { versions: vec![vec![0], vec![1]], ..bounds },
            VersionIsKept => Self { restarts: 1, ..bounds },
            MembersHaveIds => Self { amnesias: 1, ticks: 4, ..bounds },
            HeldByTheNewMajority => Self { extensions: 2, ttl_ticks: 2, ticks: 3, ..bounds },
            _ => bounds,
        }
    }

    pub(super) fn ttl_ms(&self) -> u32 {
        u32::from(self.ttl_ticks) * TICK_MS
    }
}

/// A model within its bounds; its actions are in [`super::locks`].
pub(super) struct Checked(pub(super) Bounds);
