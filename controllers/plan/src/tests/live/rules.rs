//! What must hold of every live migration.

use super::{
    etcd::MEMBERS,
    observe::left_at_destination,
    world::{API, CONTROLLERS, Case, DESTINATION, KUBE, SOURCE, TTL, TUNNEL, World},
};
use crate::{
    flow::Decision,
    ledger::Phase,
    migration::{
        MigrationFlow, Side,
        effect::Effect,
        observed::{ExtensionOperation, Ignored, Operation, Replicas},
    },
    tests::sim::{Sim, hold},
};

/// What holds of every decision of a side, before its effects are requested.
pub(super) fn decision(world: &World, side: Side, decision: &Decision<MigrationFlow>) -> Result<(), String> {
    let is_none = |replicas: &Replicas| replicas.values().all(|replicas| *replicas == 0);
    for effect in &decision.effects {
        match effect {
            Effect::EnsureApi { replicas, .. } if side == Side::Source && is_none(replicas) => {
                let is_left = world.zone.api() == Side::Destination || world.is_given_up;
                hold(is_left, "stops the API to which clients are led")?;
            }
            Effect::EnsureApi { replicas, .. } if side == Side::Destination => {
                let is_first = replicas.values().max() <= Some(&1);
                let has_first = world.destination.api.wanted >= Some(1);
                hold(is_first || has_first || world.is_given_up, "starts several kube-apiservers at once")?;
            }
            Effect::StopDestination { .. } => {
                let is_left = world.zone.api() == Side::Source || world.deaths.is_superseded;
                hold(is_left, "stops the API to which clients are led")?;
            }
            Effect::EnsureOwner { .. } => {
                hold(world.etcd.of(Side::Source) == 0, "takes ownership while the source has members")?;
            }
            Effect::RemoveSourceMembers { .. } => {
                let is_free = world.source.api.running == 0 || world.is_given_up;
                hold(is_free, "removes members that kube-apiservers use")?;
            }
            Effect::RequestInfrastructure { operation: ExtensionOperation::Restore } => {
                let is_alone = world.etcd.of(Side::Source) == 0;
                hold(is_alone, "restores the infrastructure while the source has members")?;
            }
            Effect::RemoveSource => {
                let is_free = world.status_seed == DESTINATION && world.etcd.of(Side::Source) == 0;
                hold(is_free, "removes the source too early")?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// When nothing happens any more.
pub(super) fn at_the_end(sim: &Sim<World>) -> Result<(), String> {
    let world = &sim.model;
    let phases = [Side::Garden, Side::Source, Side::Destination].map(|side| sim.store.ledger(side).phase);
    if world.case == Case::DestinationDiesLate && world.deaths.destination_since.is_some() {
        return match world.deaths.is_superseded {
            true => has_begun_anew(world, phases),
            false => may_be_continued(world, phases[0]),
        };
    }
    if world.deaths.destination_since.is_some() {
        hold(
            phases[..2].iter().all(|phase| phase.is_rollback() && phase.is_end()),
            "a side has not gone back",
        )?;
        return is_untouched(world);
    }
    match phases[2] {
        Phase::RolledBack if world.deaths.source_since.is_some() => return has_given_way(world, phases[0]),
        Phase::Succeeded => has_moved(world)?,
        Phase::RolledBack | Phase::Cancelled => is_untouched(world)?,
        phase => {
            let message = &sim.store.ledger(Side::Destination).message;
            return Err(format!("the destination ended as {phase:?}: {message}"));
        }
    }
    hold(
        phases.iter().all(|phase| phase.is_end() && *phase != Phase::Failed),
        "a side has failed, or not ended",
    )?;
    hold(world.answered > 20, "nobody has asked the API")?;
    hold(!world.finalizer, "the finalizer stays for ever")
}

fn has_moved(world: &World) -> Result<(), String> {
    let is_told = world.live.len() == 8 && world.live.iter().all(|condition| condition.status == "True");
    hold(is_told, "succeeded, and the status of the Shoot does not say so")?;
    let site = &world.destination;
    hold(world.status_seed == DESTINATION, "succeeded, and the Shoot names the source")?;
    hold(world.entry_seed == DESTINATION, "succeeded, and the BackupEntry names the source")?;
    hold(world.ignored == Ignored::No, "succeeded, and gardenlet leaves the Shoot alone for ever")?;
    hold(world.zone.api() == Side::Destination, "succeeded, and clients go to the source")?;
    hold(world.zone.owner().is_some_and(|owner| owner.seed == DESTINATION), "succeeded without ownership")?;
    let members = (world.etcd.of(Side::Source), world.etcd.of(Side::Destination));
    hold(members == (0, MEMBERS as usize), "succeeded with other members")?;
    hold(world.is_api_ready(Side::Destination), "succeeded, and the API does not serve")?;
    hold(!site.etcd.is_exposed && site.etcd.exposure.is_none(), "succeeded, and members are exposed")?;
    hold(world.has_snapshot, "succeeded without a snapshot")?;
    hold(world.tunnel_clients.is_usual(), "succeeded, and a temporary client of the tunnel is left")?;
    hold(site.tunnel.wanted == Some(TUNNEL), "succeeded without the tunnel")?;
    hold(site.api.wanted == Some(API), "succeeded without all kube-apiservers")?;
    hold(site.controllers.wanted == Some(CONTROLLERS), "succeeded without controllers")?;
    hold(site.kube_controllers.wanted == Some(KUBE), "succeeded without kube-controller-manager")?;
    hold(world.source.left().is_empty(), "succeeded, and something is left at the source")?;
    hold(!world.machine_guard, "succeeded, and something is left to remove")
}

/// The source is dead, and another migration may begin at the destination.
fn has_given_way(world: &World, garden: Phase) -> Result<(), String> {
    hold(world.deaths.is_superseded, "went back before somebody asked for another migration")?;
    hold(garden == Phase::RolledBack, "the garden has not given way")?;
    let (left, pods) = (left_at_destination(world), world.destination.etcd.pods.running);
    hold(left.is_empty() && pods == 0, "gave way, and something is left at the destination")?;
    hold(world.etcd.of(Side::Source) == MEMBERS as usize, "gave way, and members of the source have left")
}

/// The destination is dead, and the newest state is in its bucket: another migration begins from there. The garden may have seen all rows
/// reached before.
fn may_be_continued(world: &World, garden: Phase) -> Result<(), String> {
    let has_failed = garden == Phase::Failed && world.deaths.is_continued;
    hold(has_failed || garden == Phase::Succeeded, "another migration goes on, and this one has not ended")?;
    let names = [&world.status_seed, &world.entry_seed];
    hold(names.iter().all(|seed| *seed == DESTINATION), "continued, and the Shoot names the source")?;
    hold(world.has_snapshot, "continued from a bucket without a snapshot")?;
    hold(world.source.left().is_empty(), "continued, and something is left at the source")
}

/// The destination is dead, and the newest state is in the bucket of the source: another migration begins there once more.
fn has_begun_anew(world: &World, phases: [Phase; 3]) -> Result<(), String> {
    let are_back = phases[..2].iter().all(|phase| phase.is_rollback() && phase.is_end());
    hold(are_back, "another migration goes on, and a side has not gone back")?;
    let seeds = (world.spec_seed.as_str(), world.status_seed.as_str());
    hold(seeds == (SOURCE, SOURCE), "begins anew, and the Shoot names the destination")?;
    hold(world.source.exists, "begins anew, and the source is removed")?;
    let is_removed = left_at_destination(world).is_empty();
    hold(is_removed || !world.deaths.comes_back, "begins anew, and something is left at the destination")
}

fn is_untouched(world: &World) -> Result<(), String> {
    let is_told = !world.live.iter().any(|condition| condition.reason == "Progressing");
    hold(is_told, "rolled back, and the status of the Shoot tells of steps that run")?;
    let site = &world.source;
    hold(world.spec_seed == SOURCE, "rolled back, and the Shoot names the destination")?;
    hold(world.ignored == Ignored::No, "rolled back, and gardenlet leaves the Shoot alone for ever")?;
    let is_former = matches!(world.operation, Operation::Former | Operation::Other);
    hold(is_former, "rolled back, and the last operation is a migration")?;
    let is_removed = left_at_destination(world).is_empty() || world.deaths.destination_since.is_some();
    hold(is_removed, "rolled back, and something is left at the destination")?;
    let members = (world.etcd.of(Side::Source), world.etcd.of(Side::Destination));
    hold(members == (MEMBERS as usize, 0), "rolled back with other members")?;
    hold(!site.etcd.is_exposed && site.etcd.exposure.is_none(), "rolled back, and members are exposed")?;
    hold(world.zone.api() == Side::Source, "rolled back, and clients go to the destination")?;
    hold(world.is_api_ready(Side::Source), "rolled back, and the API does not serve")?;
    hold(world.tunnel_clients.is_usual(), "rolled back, and a temporary client of the tunnel is left")?;
    hold(site.tunnel.wanted == Some(TUNNEL), "rolled back without the tunnel")?;
    let is_whole = site.api.wanted == Some(API) && site.controllers.wanted == Some(CONTROLLERS);
    hold(is_whole, "rolled back, and the source is not as it was")?;
    hold(world.api_ttl == TTL, "rolled back, and the TTL is another one")
}
