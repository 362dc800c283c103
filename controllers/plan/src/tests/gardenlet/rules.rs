//! What must hold of every forced migration by gardenlet.

use super::world::{DESTINATION, SOURCE, World};
use crate::{
    flow::Decision,
    gardenlet::{GardenletMigration, Step, effect::Effect},
    ledger::{Ledger, Phase},
    migration::Side,
    tests::sim::{Sim, hold},
};

/// What holds of every decision, before its effects are requested.
pub(super) fn decision(sim: &Sim<World>, decision: &Decision<GardenletMigration>) -> Result<(), String> {
    let world = &sim.model;
    let is_forward = !sim.store.ledger(Side::Garden).phase.is_rollback();
    for effect in &decision.effects {
        match effect {
            Effect::BindShoot { .. } if is_forward => may_bind(sim)?,
            Effect::RequestRestore { .. } => {
                hold(is_forward, "requests a restore in a rollback")?;
                hold(
                    world.shoot.spec.as_deref() == Some(DESTINATION),
                    "requests a restore of a Shoot that is not bound",
                )?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn may_bind(sim: &Sim<World>) -> Result<(), String> {
    let world = &sim.model;
    hold(world.now >= world.off_confirmed_at, "binds before the source is confirmed to be off")?;
    hold(world.now >= world.loss_confirmed_at, "binds before the loss is confirmed")?;
    let destination = sim.store.ledger(Side::Destination);
    let loss = destination.notes.loss.as_ref().map(|loss| loss.revision);
    hold(loss.is_some() && world.target >= loss, "binds without the backups")?;
    hold(world.states.1.is_some_and(|gardener| gardener >= world.states.0), "binds without the ShootState")?;
    // What the source writes after the last look is found by nobody.
    let looked = destination.steps.get(&Step::SnapshotsCopied).and_then(|record| record.completed);
    let is_newer = loss.is_some_and(|loss| world.newest.0 > loss);
    let is_seen = looked.is_some_and(|looked| looked.0 > world.newest.1);
    hold(!is_newer || !is_seen, "binds although the source writes")
}

/// When nothing happens any more.
pub(super) fn at_the_end(sim: &Sim<World>) -> Result<(), String> {
    let world = &sim.model;
    let garden = sim.store.ledger(Side::Garden);
    match garden.phase {
        Phase::Succeeded => {
            hold(world.shoot.is_at(DESTINATION), "succeeded, and the Shoot is elsewhere")?;
            hold(world.entry.is_at(DESTINATION), "succeeded, and the BackupEntry is elsewhere")?;
            hold(world.gardenlet.is_api_ready, "succeeded without an API server")?;
        }
        Phase::RolledBack | Phase::Cancelled => {
            hold(world.shoot.is_at(SOURCE), "rolled back, and the Shoot names the destination")?;
            hold(world.entry.is_at(SOURCE), "rolled back, and the BackupEntry names the destination")?;
            hold(!world.gardenlet.has_begun(), "rolled back, and gardenlet restores")?;
        }
        phase => return Err(format!("the garden ended as {phase:?}: {}", garden.message)),
    }
    hold(world.copy.is_none(), "the namespace of the copy stays for ever")?;
    hold(!world.finalizer, "the finalizer stays for ever")?;
    let is_good = garden.phase == Phase::Succeeded;
    hold(!world.is_calm || is_good, &format!("failed for no reason: {}", reason(garden)))
}

fn reason<S: Ord, N>(ledger: &Ledger<S, N>) -> &str {
    &ledger.message
}
