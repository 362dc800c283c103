//! What must hold of every classic migration.

use super::{
    clusters::{API, CONTROLLERS, Clusters, KUBE, Kind},
    script::Play,
    site::SeedState,
    zone::is_in,
};
use crate::{
    flow::Decision,
    ledger::{Phase, State},
    migration::{
        MigrationFlow, Side, Step,
        effect::Effect,
        observed::{ExtensionOperation, Operation},
    },
    named::Named,
    tests::sim::{NEVER, Sim, hold},
};

/// How long a migration may go on once everything that goes wrong is over, and where a side is dead: a day for what is waited for,
/// one for the rollback, and one for the end of the others.
pub(super) const LONGEST: u64 = 3 * 24 * 3600;

/// What holds at all times, whatever goes wrong.
pub(super) fn always(clusters: &Clusters) -> Result<(), String> {
    hold(!clusters.zone.went_back, "the owner record got an epoch that was there before")?;
    clusters.broken.map_or(Ok(()), |broken| Err(broken.to_owned()))
}

/// Of every decision.
pub(super) fn decision(
    sim: &Sim<Clusters>,
    side: Side,
    decision: &Decision<MigrationFlow>,
) -> Result<(), String> {
    let clusters = &sim.model;
    let is_committed = sim.store.ledger(Side::Destination).is_started(Step::MoveCommitted);
    let have_migrated = clusters.source.extensions.is_done(ExtensionOperation::Migrate, clusters.now);
    for effect in &decision.effects {
        match effect {
            Effect::RemoveSource => {
                let is_left = have_migrated || !clusters.source.exists;
                let is_moved = is_committed && clusters.status_seed == clusters.to;
                hold(is_moved && is_left, "removes the source too early")?;
            }
            Effect::EnsureOperation { operation: Operation::Migrating } => {
                // Nobody can tell gardenlet anything about a Shoot whose seed is being deleted.
                let is_defiant = clusters.trouble.defiant_gardenlet && !clusters.trouble.seed_deleted;
                hold(!is_defiant, "migrates a Shoot that gardenlet reconciles")?;
            }
            Effect::RemoveDestination => hold(!is_committed, "removes a destination that clients may use")?,
            Effect::SwitchApiDns => {
                hold(is_committed, "sends clients to the destination before the migration is committed")?;
            }
            Effect::RequestInfrastructure { .. } | Effect::RequestWorkers { .. } => {
                hold(have_migrated || !clusters.source.exists, "extension controllers of two sides act")?;
            }
            Effect::RequestExtensions { .. } if side == Side::Destination => {
                hold(have_migrated || !clusters.source.exists, "extension controllers of two sides act")?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// When nothing happens any more.
pub(super) fn at_the_end(sim: &Sim<Clusters>) -> Result<(), String> {
    let clusters = &sim.model;
    for side in Side::ALL.iter().copied().filter(|side| !sim.is_dead(*side)) {
        let ledger = sim.store.ledger(side);
        match ledger.phase {
            Phase::Succeeded => has_moved(sim)?,
            Phase::RolledBack | Phase::Cancelled => is_as_before(sim, side)?,
            Phase::Failed => {
                hold(!ledger.message.is_empty() && !ledger.reason.is_empty(), "failed without a word")?;
                hold(is_hopeless(clusters), &format!("failed although there was a way: {}", ledger.message))?;
            }
            Phase::Pending | Phase::Scheduled | Phase::Running | Phase::RollingBack => {}
        }
        let is_calm = clusters.is_calm && clusters.play.is_none();
        hold(!is_calm || ledger.phase == Phase::Succeeded, "failed for no reason")?;
    }
    let ended = clusters.ended_at.unwrap_or(clusters.now);
    hold(ended <= clusters.trouble.over_at + LONGEST, "ended too late")?;
    let have_all_ended = Side::ALL.iter().all(|side| !sim.is_dead(*side));
    hold(!have_all_ended || !clusters.finalizer, "the finalizer stays for ever")
}

fn has_moved(sim: &Sim<Clusters>) -> Result<(), String> {
    let clusters = &sim.model;
    let site = &clusters.destination;
    let is_ignored = sim.is_dead(Side::Garden) || clusters.is_ignored_as_before();
    hold(is_ignored, "succeeded, and gardenlet is told something else than before")?;
    hold(
        clusters.status_seed == clusters.to || sim.is_dead(Side::Garden),
        "succeeded, and the Shoot names the source",
    )?;
    hold(
        clusters.entry_seed == clusters.to || sim.is_dead(Side::Garden),
        "succeeded, and the BackupEntry names the source",
    )?;
    // Where a person has stopped it, it still holds them.
    let is_there = clusters.by_hand.destination && site.etcd.content() == Some(&clusters.must);
    hold(is_there || serves_all(clusters, site), "succeeded without all writes")?;
    hold(
        clusters.zone.api() == Side::Destination || !clusters.is_awake(),
        "succeeded, and clients go to the source",
    )?;
    hold(
        clusters.by_hand.controllers || site.controllers.wanted.unwrap_or_default() == controllers(clusters),
        "succeeded without controllers",
    )?;
    let wanted = if clusters.is_awake() { KUBE } else { 0 };
    hold(
        site.kube_controllers.wanted.unwrap_or_default() == wanted,
        "succeeded without kube-controller-manager",
    )?;
    hold(site.machines == clusters.vms, "succeeded with other Machines than VMs")?;
    let last = clusters.source.extension_state;
    hold(site.extension_state == last, "succeeded without the last state of extensions")?;
    let is_removed = sim.store.ledger(Side::Source).state(Step::SourceRemoved) != State::Succeeded;
    hold(is_removed || clusters.source.left().is_empty(), "succeeded, and something is left at the source")?;
    // A request of a destination that has succeeded may arrive after its controller has died for good.
    let is_guarded = clusters.machine_guard && !sim.is_dead(Side::Destination);
    hold(!is_guarded, "succeeded, and Machines cannot be deleted")
}

fn controllers(clusters: &Clusters) -> u32 {
    if clusters.is_awake() { CONTROLLERS } else { 0 }
}

/// Whether a side serves all that was acknowledged; one that is hibernated does so when it wakes.
fn serves_all(clusters: &Clusters, site: &SeedState) -> bool {
    match clusters.kind {
        Kind::Awake | Kind::Workerless | Kind::OneMember => {
            // Members that a person has restarted wait until DNS answers.
            let is_silent = is_in(clusters.zone.silent, clusters.now);
            (site.etcd.serving || is_silent) && site.etcd.content() == Some(&clusters.must)
        }
        // What it restores when it wakes.
        Kind::Hibernated => {
            site.etcd.content().or(site.etcd.fill.as_ref()) == Some(&clusters.must)
                && clusters.zone.owner() == Some(&site.etcd.own)
        }
    }
}

fn is_as_before(sim: &Sim<Clusters>, side: Side) -> Result<(), String> {
    let (clusters, site) = (&sim.model, &sim.model.source);
    match side {
        Side::Garden => {
            let record = sim.store.ledger(side).steps.get(&Step::MigrationRecorded).cloned();
            let is_recorded = record.is_some_and(|record| record.started.is_some());
            let wanted = if is_recorded { Operation::Former } else { Operation::Other };
            let is_back = clusters.spec_seed == clusters.from && clusters.operation == wanted;
            hold(
                is_back || sim.store.ledger(side).steps.is_empty(),
                "rolled back, and the Shoot names the destination",
            )?;
            hold(
                clusters.is_ignored_as_before(),
                "rolled back, and gardenlet is told something else than before",
            )
        }
        Side::Source => {
            let by_hand = clusters.by_hand;
            let awake = |replicas| if clusters.is_awake() { Some(replicas) } else { Some(0) };
            hold(by_hand.api || site.api.wanted == awake(API), "rolled back without API servers")?;
            hold(
                by_hand.controllers || site.controllers.wanted == awake(CONTROLLERS),
                "rolled back without controllers",
            )?;
            hold(site.kube_controllers.wanted == awake(KUBE), "rolled back without kube-controller-manager")?;
            hold(
                by_hand.etcd || site.etcd.members.wanted == awake(clusters.members),
                "rolled back with other members",
            )?;
            hold(by_hand.etcd || serves_all(clusters, site), "rolled back without all writes")?;
            hold(site.machines == clusters.vms, "rolled back with other Machines than VMs")?;
            // Where no API server runs, nobody asks for the name.
            let is_asleep = !clusters.is_awake();
            hold(
                is_asleep || clusters.zone.api() == Side::Source,
                "rolled back, and clients go to the destination",
            )?;
            // What is left undone is said in the status.
            let is_skipped = sim.store.ledger(side).state(Step::ApiTtlRestored) == State::Skipped;
            hold(
                by_hand.ttl || clusters.api_ttl == clusters.former_ttl || is_skipped,
                "rolled back with another TTL",
            )?;
            let owner = clusters.zone.owner();
            hold(owner == Some(&site.etcd.own), "rolled back, and the owner record names somebody else")?;
            hold(
                site.dns_records.last != Some(ExtensionOperation::Migrate),
                "rolled back without DNS controllers",
            )
        }
        Side::Destination => {
            hold(
                clusters.destination.left().is_empty(),
                "rolled back, and something is left at the destination",
            )?;
            hold(
                !clusters.machine_guard && !clusters.source_backup_entry,
                "rolled back, and something is left",
            )
        }
    }
}

/// A side was cut off for longer than others wait for it, or what is waited for without a way back did not come in time.
fn is_hopeless(clusters: &Clusters) -> bool {
    let is_dead = clusters.faults.cut_off.is_some_and(|(_, _, until)| until == NEVER);
    let is_refused = clusters.play.as_ref().is_some_and(Play::is_without_end);
    // What a person stops or deletes after it was reached is not made again.
    let is_stopped_by_hand = clusters.by_hand.namespace || clusters.by_hand.etcd || clusters.by_hand.api;
    is_refused || is_dead || clusters.trouble.never_ends() || is_stopped_by_hand
}
