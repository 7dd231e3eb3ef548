//! A server beside the nodes to which only one thing happens, so nothing can excuse its wrong grants. Also the changes
//! that are made both to such servers and to nodes.

use std::sync::Arc;

use tempfile::TempDir;

use super::dice::{Dice, pause};
use crate::campaign::exam::say_as;
use crate::campaign::faults::On;
use crate::campaign::machine::{Durability, Machine};
use crate::campaign::world::{NODES, World};

/// Starts a new server, and returns it with its folder. A failure to start is a finding.
pub async fn server(world: &World, dice: &mut Dice, durability: Durability) -> Option<(TempDir, Machine)> {
    let folder = tempfile::Builder::new().prefix("palisade-chaos-alone-").tempdir().ok()?;
    let name = format!("alone-{}", dice.below(1_000_000_000));
    let mut machine = Machine::new(&world.common, name, folder.path().to_owned(), durability).ok()?;
    if let Err(why) = machine.start(&world.common, None).await {
        world.log.found(why);
        return None;
    }
    // The server is new: nobody holds anything on it.
    say_as("", &machine.socket(), &["LOCK.GUARD", "LIFT"]).await;
    Some((folder, machine))
}

/// A change that is made to one server.
pub trait Change: Copy + Send + Sync + 'static {
    /// Every change, in order, so that each occurs even in short storms.
    const ALL: &'static [Self];

    fn name(self) -> &'static str;

    /// Returns true if the change may be made to this node now.
    fn may_be_done(self, world: &World, machine: &Machine) -> bool;

    /// Returns the durability of a server beside the nodes to which the change is made.
    fn durability(self, dice: &mut Dice) -> Durability;

    /// Makes the change to the server that is called `who`.
    fn run(self, world: &World, who: &str, machine: &mut Machine, dice: &mut Dice) -> impl Future<Output = ()> + Send;
}

/// Makes the change to one node at a time.
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

/// Makes the change to one new server after the other.
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
