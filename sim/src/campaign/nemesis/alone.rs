//! A server beside the nodes, to which one thing happens and nothing else: what it then grants nobody can excuse.

use tempfile::TempDir;

use super::dice::Dice;
use crate::campaign::exam::say_as;
use crate::campaign::machine::{Durability, Machine};
use crate::campaign::world::World;

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
