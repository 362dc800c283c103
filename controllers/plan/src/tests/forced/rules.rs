//! What must hold of every forced migration.

use super::{
    members::WAIT,
    observe::left_at_destination,
    world::{CONTROLLERS, DESTINATION, KUBE, MEMBERS, SOURCE, World},
};
use crate::{
    flow::Decision,
    ledger::{Phase, State},
    migration::{
        MigrationFlow, Side, Step,
        effect::Effect,
        observed::{Ignored, Operation},
    },
    tests::sim::{Sim, hold},
};

/// What holds at all times, whatever goes wrong.
pub(super) fn always(sim: &Sim<World>) -> Result<(), String> {
    let world = &sim.model;
    hold(!world.zone.went_back, "the owner record got an epoch that was there before")?;
    let loss = sim.store.ledger(Side::Destination).notes.loss.as_ref();
    if let (Some(held), Some(loss)) = (world.founded_with, loss) {
        hold(held as u64 >= loss.revision, "more is lost than was confirmed")?;
    }
    world.broken.map_or(Ok(()), |broken| Err(broken.to_owned()))
}

/// What holds of every decision of a side, before its effects are requested.
pub(super) fn decision(world: &World, side: Side, decision: &Decision<MigrationFlow>) -> Result<(), String> {
    let is_named = world.zone.record().seed == DESTINATION;
    let is_fenced = is_named && world.now > world.zone.written_at + WAIT && !world.source.members.serving;
    for effect in &decision.effects {
        match effect {
            Effect::EnsureOwner { .. } => {
                hold(world.now >= world.confirmed_at, "takes ownership before the loss is confirmed")?;
            }
            Effect::RequestInfrastructure { .. } | Effect::RequestWorkers { .. } => {
                hold(is_fenced, "restores extensions before the source is fenced")?;
            }
            Effect::RequestExtensions { .. } if side == Side::Destination => {
                hold(is_fenced, "restores extensions before the source is fenced")?;
            }
            Effect::RemoveSource => {
                hold(world.status_seed == DESTINATION, "removes the source too early")?;
            }
            _ if side == Side::Source => hold(is_named, "touches a source that is the owner")?,
            _ => {}
        }
    }
    Ok(())
}

/// When nothing happens any more.
pub(super) fn at_the_end(sim: &Sim<World>) -> Result<(), String> {
    let world = &sim.model;
    let destination = sim.store.ledger(Side::Destination);
    match destination.phase {
        Phase::Succeeded => {
            has_moved(world)?;
            // A Shoot that does not answer for long keeps it, and the row says so.
            let is_removed = destination.state(Step::TunnelMoved) == State::Succeeded;
            hold(!is_removed || !world.has_temporary_client, "a temporary client of the tunnel is left")?;
        }
        Phase::RolledBack | Phase::Cancelled => is_untouched(world)?,
        phase => return Err(format!("the destination ended as {phase:?}: {}", destination.message)),
    }
    let source = sim.store.ledger(Side::Source);
    hold(source.phase != Phase::Failed, &format!("the source failed: {}", source.message))?;
    let is_removed = source.state(Step::SourceRemoved) == State::Succeeded;
    hold(!is_removed || world.source.left().is_empty(), "something is left at the source")?;
    hold(!world.finalizer || sim.is_dead(Side::Source), "the finalizer stays for ever")
}

fn has_moved(world: &World) -> Result<(), String> {
    let site = &world.destination;
    hold(world.status_seed == DESTINATION, "succeeded, and the Shoot names the source")?;
    hold(world.entry_seed == DESTINATION, "succeeded, and the BackupEntry names the source")?;
    hold(world.ignored == Ignored::No, "succeeded, and gardenlet leaves the Shoot alone for ever")?;
    hold(world.api_at == Side::Destination, "succeeded, and clients go to the source")?;
    let holds_all = site.members.content.as_ref() == Some(&world.must);
    hold(site.members.serving && holds_all, "succeeded without all writes")?;
    hold(site.controllers.wanted == Some(CONTROLLERS), "succeeded without controllers")?;
    hold(site.kube_controllers.wanted == Some(KUBE), "succeeded without kube-controller-manager")?;
    hold(!world.machine_guard && !world.backup_entry, "succeeded, and something is left to remove")
}

fn is_untouched(world: &World) -> Result<(), String> {
    let site = &world.source;
    hold(world.spec_seed == SOURCE, "rolled back, and the Shoot names the destination")?;
    hold(world.ignored == Ignored::No, "rolled back, and gardenlet leaves the Shoot alone for ever")?;
    hold(
        world.operation == Operation::Former || world.operation == Operation::Other,
        "rolled back, and the last operation is a migration",
    )?;
    hold(left_at_destination(world).is_empty(), "rolled back, and something is left at the destination")?;
    let is_whole =
        site.members.workload.wanted == Some(MEMBERS) && site.controllers.wanted == Some(CONTROLLERS);
    hold(is_whole && !site.members.is_lost, "rolled back, and the source was touched")?;
    hold(*world.zone.record() == site.members.own, "rolled back, and the record names somebody else")
}
