//! A server beside the nodes, to which one thing happens and nothing else: what it then grants nobody can excuse. And what is done both to such
//! servers and to nodes.

use std::sync::Arc;

use tempfile::TempDir;

use super::dice::{Dice, pause};
use crate::campaign::exam::say_as;
use crate::campaign::faults::On;
use crate::campaign::machine::{Durability, Machine};
use crate::campaign::world::{NODES, World};

/// A new server that serves, and its folder. That it does not start is a finding.
pub async fn server(world: &World, dice: &mut Dice, durability: Durability) -> Option<(TempDir, Machine)> {
    let folder = tempfile::Builder::new().prefix("palisade-chaos-alone-").tempdir().ok()?;
    let name = format!("alone-{}", dice.below(1_000_000_000));
    let mut machine = Machine::new(&world.common, name, folder.path().to_owned(), durability).ok()?;
    if let Err(why) = machine.start(&world.common, None).await {
        world.log.found(why);
        return None;
    }
    // It is new: nobody holds anything on it.
    say_as("", &machine.socket(), &["LOCK.GUARD", "LIFT"]).await;
    Some((folder, machine))
}

/// Something that is done to one server.
pub trait Change: Copy + Send + Sync + 'static {
    /// In turn, so that each comes about also in short storms.
    const ALL: &'static [Self];

    fn name(self) -> &'static str;

    /// Whether it may be done to this node now.
    fn may_be_done(self, world: &World, machine: &Machine) -> bool;

    /// What a server beside the nodes keeps to which it is done.
    fn durability(self, dice: &mut Dice) -> Durability;

    /// Does it to the server that is called `who`.
    fn run(self, world: &World, who: &str, machine: &mut Machine, dice: &mut Dice) -> impl Future<Output = ()> + Send;
}

/// Does it to one node at a time.
pub async fn change_nodes<C: Change>(world: Arc<World>, mut dice: Dice) {
    for turn in dice.below(C::ALL.len()).. {
        pause(&world, dice.ms(300, 2_000)).await;
        if !world.storms() {
            return;
        }
        let (node, change) = (dice.below(NODES), C::ALL[turn % C::ALL.len()]);
        let Some(mut machine) = world.take_machine(node).await else { continue };
        if change.may_be_done(&world, &machine) {
            let _fault = world.log.begin(change.name(), On::Node(node), machine.durability.name());
            change.run(&world, &format!("node {}", node + 1), &mut machine, &mut dice).await;
        }
    }
}

/// Does it to one new server after the other.
pub async fn change_others<C: Change>(world: Arc<World>, mut dice: Dice) {
    for turn in dice.below(C::ALL.len()).. {
        if !world.storms() {
            return;
        }
        let change = C::ALL[turn % C::ALL.len()];
        let durability = change.durability(&mut dice);
        let Some((_folder, mut machine)) = server(&world, &mut dice, durability).await else { return };
        let fault = world.log.begin(change.name(), On::Others, durability.name());
        let who = machine.name().to_owned();
        change.run(&world, &who, &mut machine, &mut dice).await;
        drop(fault);
        machine.kill().await;
        pause(&world, dice.ms(50, 2_000)).await;
    }
}
