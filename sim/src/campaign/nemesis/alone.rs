//! A server that is not a node of the campaign. It suffers one kind of fault only, so no other fault can be the cause
//! of a wrong grant. A [`Change`] is a fault that happens to such servers and also to nodes.

use std::sync::Arc;

use tempfile::TempDir;

use super::dice::{Dice, pause};
use crate::campaign::exam::say_as;
use crate::campaign::faults::On;
use crate::campaign::machine::{Durability, Machine};
use crate::campaign::world::{NODES, World};

/// Starts a new server, and returns it with its folder. A failure is a finding.
pub async fn server(world: &World, dice: &mut Dice, durability: Durability) -> Option<(TempDir, Machine)> {
    let folder = tempfile::Builder::new().prefix("palisade-chaos-alone-").tempdir().ok()?;
    let name = format!("alone-{}", dice.below(1_000_000_000));
    let mut machine = Machine::new(&world.common, name, folder.path().to_owned(), durability).ok()?;
    if let Err(why) = machine.start(&world.common, None).await {
        world.log.found(why);
        return None;
    }
    // The server is new, so no lock is held on it.
    say_as("", &machine.socket(), &["LOCK.GUARD", "LIFT"]).await;
    Some((folder, machine))
}

/// A fault that changes one server.
pub trait Change: Copy + Send + Sync + 'static {
    /// Every change, in the order of use, so that each occurs even in a short storm.
    const ALL: &'static [Self];

    fn name(self) -> &'static str;

    /// Returns true if this fault may happen to the node now.
    fn may_be_done(self, world: &World, machine: &Machine) -> bool;

    /// Returns the durability of a new server that is to be changed.
    fn durability(self, dice: &mut Dice) -> Durability;

    /// Causes this fault on one server, `machine`, named `who`.
    fn run(self, world: &World, who: &str, machine: &mut Machine, dice: &mut Dice) -> impl Future<Output = ()> + Send;
}

/// Makes a change to one node at a time.
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

/// Causes one change after another, each on a new server.
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
