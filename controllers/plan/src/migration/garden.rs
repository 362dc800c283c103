//! Rows of the garden: the Shoot, and whether the destination is fit.

use std::time::Duration;

use super::{
    context::{Context, garden, none_left},
    effect::Effect,
    ignored,
    notes::Notes,
    observed::{BackupEntrySeeds, FormerOperation, GardenFacts, MigrationMode, Operation, Quarantine},
    step::Step,
};
use crate::ledger::{Check, State};

pub(crate) fn note_begin(context: &Context, notes: &mut Notes) {
    notes.changed = true;
    notes.hibernated.get_or_insert(context.observed.request.hibernated);
    notes.workerless.get_or_insert(context.observed.request.workerless);
}

/// The last operation is noted when none runs any more.
pub(crate) fn note_start(context: &Context, notes: &mut Notes) {
    note_begin(context, notes);
    if notes.former_operation.is_none() {
        notes.former_operation = context.at_garden().and_then(|facts| former_operation(context, facts));
    }
}

/// What a rollback writes back. Where the source itself was not restored completely, it has failed: what its namespace holds is not the
/// whole state of the Shoot.
fn former_operation(context: &Context, facts: &GardenFacts) -> Option<FormerOperation> {
    let last = facts.last_operation.clone()?;
    let is_partial = last.kind == "Restore" && facts.status_seed == context.observed.request.source_seed;
    match is_unfinished_move(&last) {
        false => Some(last),
        true => {
            is_partial.then(|| FormerOperation { kind: "Reconcile".to_owned(), state: "Failed".to_owned() })
        }
    }
}

/// Whether another migration has left the Shoot in the middle of a move.
fn is_unfinished_move(last: &FormerOperation) -> bool {
    matches!(last.kind.as_str(), "Migrate" | "Restore") && last.state != "Succeeded"
}

/// What does not allow the migration to begin.
fn obstacle(context: &Context, facts: &GardenFacts) -> Option<Check> {
    let source = &context.observed.request.source_seed;
    let name = facts.other_migration.as_ref();
    let other = name
        .map(|name| format!("{name} migrates this Shoot; create a new migration when that one has ended, from the seed that serves then"));
    let other = other.map(|message| Check::blocked("AnotherMigration", message));
    // While it waits for its turn, somebody else may move the Shoot.
    let has_begun = context.notes.changed && context.ledger.state(Step::TurnTaken) != State::Running;
    let is_elsewhere = facts.status_seed != *source && !has_begun;
    other.or_else(|| {
        let message = format!("the Shoot is at seed {:?}, and not at spec.sourceSeed", facts.status_seed);
        is_elsewhere.then(|| Check::blocked("NotAtSource", message))
    })
}

pub(crate) fn are_others_superseded(context: &Context) -> Check {
    garden(context, |facts| {
        let untold = facts.superseded.iter().find(|other| !other.is_told);
        match (obstacle(context, facts), facts.superseded.first()) {
            (Some(_), _) if facts.gives_way.is_some() && !facts.refusals.is_empty() => {
                is_destination_fit(context)
            }
            (Some(_), _) if let Some(why) = &facts.gives_way => Check::waiting("OtherMayGoOn", why.clone()),
            (Some(check), _) => check,
            (None, None) => Check::Met("no other migration of this Shoot goes on".to_owned()),
            (None, Some(_)) if !context.observed.request.finalizer => {
                Check::waiting("SettingFinalizer", "the finalizer is being set on the ControlPlaneMigration")
            }
            // What is superseded is not undone at the source: not for a migration that cannot begin.
            (None, Some(_)) if untold.is_some() && !facts.refusals.is_empty() => is_destination_fit(context),
            (None, Some(first)) => match untold {
                Some(other) => Check::waiting("Superseding", format!("{} is being told to end", other.name)),
                None => {
                    Check::waiting("OtherEnds", format!("{} is removed from its destination", first.name))
                }
            },
        }
    })
}

/// First the finalizer: a migration that is deleted now would leave the Shoot without any.
pub(crate) fn supersede(context: &Context) -> Vec<Effect> {
    let Some(facts) = context.at_garden() else { return Vec::new() };
    if !context.observed.request.finalizer {
        return vec![Effect::EnsureFinalizer { present: true }];
    }
    let is_untold = facts.superseded.iter().any(|other| !other.is_told);
    (is_untold && facts.refusals.is_empty()).then_some(Effect::SupersedeOthers).into_iter().collect()
}

/// They may be deleted from now on, and no epoch may be used twice.
pub(crate) fn note_epoch_of_others(context: &Context, notes: &mut Notes) {
    notes.owner_epoch = notes.owner_epoch.max(context.at_garden().and_then(|facts| facts.highest_epoch));
}

/// Whether the operator has configured a command that takes credentials of seeds away.
pub(crate) fn has_quarantine_command(context: &Context) -> bool {
    context.at_garden().is_some_and(|facts| facts.quarantine != Quarantine::NotConfigured)
}

pub(crate) fn is_source_quarantined(context: &Context) -> Check {
    // Nobody revokes credentials of a seed that somebody may have repaired meanwhile.
    let is_fenced = context.observed.request.source_stopped
        || context.is_reached(Step::SourceControllersStopped)
        || context.is_settled(Step::SourceControllersFenced);
    garden(context, |facts| match &facts.quarantine {
        Quarantine::Revoked => Check::Met("the command says that they are revoked".to_owned()),
        Quarantine::NotConfigured => Check::blocked("NoQuarantineCommand", "there is no command any more"),
        Quarantine::Open(_) if is_fenced => {
            Check::blocked("SourceFencedOtherwise", "the controllers of the source cannot act without it")
        }
        Quarantine::Open(why) => Check::waiting("CredentialsNotRevoked", why.clone()),
    })
}

pub(crate) fn revoke_credentials(_: &Context) -> Vec<Effect> {
    vec![Effect::RevokeSourceCredentials]
}

/// From here on a migration that goes back writes the name of the source into `spec.seedName`, which somebody may have changed to ask for
/// the migration.
pub(crate) fn note_turn(_: &Context, notes: &mut Notes) {
    notes.changed = true;
}

/// Whoever moves a thousand Shoots away from a seed waits for days.
pub(crate) fn turn_limit(context: &Context) -> Duration {
    let is_queued = context.at_garden().is_some_and(|facts| facts.queued.is_some());
    Duration::from_secs(if is_queued { 7 * 24 * 3600 } else { 24 * 3600 })
}

pub(crate) fn ensure_finalizer(context: &Context) -> Vec<Effect> {
    let has_finalizer = context.observed.request.finalizer;
    (!has_finalizer).then_some(Effect::EnsureFinalizer { present: true }).into_iter().collect()
}

pub(crate) fn is_turn_taken(context: &Context) -> Check {
    garden(context, |facts| match obstacle(context, facts) {
        Some(check) => check,
        None if !context.observed.request.finalizer => {
            Check::waiting("SettingFinalizer", "the finalizer is being set on the ControlPlaneMigration")
        }
        None => match &facts.queued {
            Some(why) => Check::waiting("Queued", why.clone()),
            None => Check::Met("it is the turn of this migration".to_owned()),
        },
    })
}

pub(crate) fn is_ignored(context: &Context) -> Check {
    garden(context, |facts| match obstacle(context, facts) {
        Some(check) => check,
        None if !context.observed.request.finalizer => {
            Check::waiting("SettingFinalizer", "the finalizer is being set on the ControlPlaneMigration")
        }
        None if facts.is_seed_deleted => {
            Check::Met("the Seed is being deleted, so Gardener takes no annotation of the Shoot".to_owned())
        }
        None if facts.ignored.is_in_force() => {
            Check::Met("shoot.gardener.cloud/ignore is set on the Shoot".to_owned())
        }
        None => match operation_before(context, facts) {
            Some(operation) => Check::waiting(
                "OperationRequested",
                format!("gardenlet has not taken up the operation {operation} that somebody has requested"),
            ),
            None => Check::waiting("SettingIgnore", "shoot.gardener.cloud/ignore is being set on the Shoot"),
        },
    })
}

/// What somebody has requested of gardenlet and gardenlet does first. Nobody waits for the gardenlet of a dead seed.
fn operation_before<'a>(context: &Context, facts: &'a GardenFacts) -> Option<&'a str> {
    let waits = context.observed.request.mode != MigrationMode::Forced;
    facts.requested_operation.as_deref().filter(|_| waits)
}

pub(crate) fn ignore(context: &Context) -> Vec<Effect> {
    if !context.observed.request.finalizer {
        return vec![Effect::EnsureFinalizer { present: true }];
    }
    let is_free = context.at_garden().is_some_and(|facts| operation_before(context, facts).is_none());
    is_free.then_some(Effect::EnsureIgnored { ignored: true }).into_iter().collect()
}

pub(crate) fn is_recorded(context: &Context) -> Check {
    garden(context, |facts| match obstacle(context, facts) {
        Some(check) => check,
        None if !context.observed.request.finalizer => {
            Check::waiting("SettingFinalizer", "the finalizer is being set on the ControlPlaneMigration")
        }
        None if facts.spec_seed != context.observed.request.destination_seed => {
            Check::waiting("SettingSeedName", "spec.seedName of the Shoot is being written")
        }
        None if facts.operation != Operation::Migrating => {
            Check::waiting("RecordingOperation", "status.lastOperation of the Shoot is being written")
        }
        None => Check::Met("status.lastOperation of the Shoot is Migrate".to_owned()),
    })
}

pub(crate) fn record(context: &Context) -> Vec<Effect> {
    let Some(facts) = context.at_garden() else { return Vec::new() };
    let mut effects = Vec::new();
    if !context.observed.request.finalizer {
        effects.push(Effect::EnsureFinalizer { present: true });
    }
    let (source, seed) = (&context.observed.request.source_seed, &context.observed.request.destination_seed);
    let is_held =
        facts.operation == Operation::Other && facts.last_operation.as_ref().is_some_and(is_unfinished_move);
    if facts.spec_seed != *seed && is_held {
        // While the last operation is a migration that runs, the seed cannot be changed.
        effects.push(Effect::EnsureOperation { operation: Operation::Former });
    } else if facts.spec_seed != *seed && facts.spec_seed != *source {
        // What is on its way to one seed does not turn to another one.
        effects.push(Effect::EnsureSpecSeed { seed: source.clone() });
    } else if facts.spec_seed != *seed {
        effects.push(Effect::EnsureSpecSeed { seed: seed.clone() });
    } else if facts.operation != Operation::Migrating {
        effects.push(Effect::EnsureOperation { operation: Operation::Migrating });
    }
    effects
}

pub(crate) fn is_destination_fit(context: &Context) -> Check {
    garden(context, |facts| {
        none_left(
            &facts.refusals,
            "DestinationUnfit",
            "the destination cannot host the Shoot",
            "the rules allow the migration",
        )
    })
}

pub(crate) fn is_status_moved(context: &Context) -> Check {
    let destination = &context.observed.request.destination_seed;
    garden(context, |facts| {
        let is_at = |seeds: &BackupEntrySeeds| seeds.spec == *destination && seeds.status == *destination;
        if facts.status_seed != *destination {
            Check::waiting("MovingStatus", "status.seedName of the Shoot is being written")
        } else if facts.backup_entry.as_ref().is_some_and(|seeds| !is_at(seeds)) {
            Check::waiting("MovingBackupEntry", "the BackupEntry of the Shoot is being written")
        } else if facts.operation != Operation::Restoring {
            Check::waiting("RecordingOperation", "status.lastOperation of the Shoot is being written")
        } else {
            Check::Met(format!("status.seedName of the Shoot is {destination}"))
        }
    })
}

pub(crate) fn move_status(context: &Context) -> Vec<Effect> {
    let seed = context.observed.request.destination_seed.clone();
    match context.at_garden() {
        // First, so that the destination at no time takes the part that it has for the whole state of the Shoot.
        Some(facts) if facts.operation != Operation::Restoring => {
            vec![Effect::EnsureOperation { operation: Operation::Restoring }]
        }
        Some(facts) if facts.status_seed != seed => vec![Effect::EnsureStatusSeed { seed }],
        // Gardenlets move their part of it by themselves, and find it moved; where none runs, nobody else does.
        Some(_) => vec![Effect::EnsureBackupEntrySeed { seed }],
        None => Vec::new(),
    }
}

pub(crate) fn has_succeeded(context: &Context) -> Check {
    garden(context, |facts| match facts.operation {
        Operation::Restored => ignored::is_ignore_ended(facts).unwrap_or_else(|| {
            Check::Met("status.lastOperation of the Shoot is Restore, Succeeded".to_owned())
        }),
        _ => Check::waiting("RecordingOperation", "status.lastOperation of the Shoot is being written"),
    })
}

/// First the operation: gardenlet takes a Shoot that is restored as it is.
pub(crate) fn report_success(context: &Context) -> Vec<Effect> {
    match context.at_garden() {
        Some(facts) if facts.operation == Operation::Restored => {
            ignored::end_ignore(facts).into_iter().collect()
        }
        Some(_) | None => vec![Effect::EnsureOperation { operation: Operation::Restored }],
    }
}

/// Whether the last operation of the Shoot may tell of this migration. Before, it is that of gardenlet, and stays so.
fn has_written_operation(context: &Context) -> bool {
    let record = context.ledger.steps.get(&Step::MigrationRecorded);
    record.is_some_and(|record| record.started.is_some())
}

pub(crate) fn is_seed_name_restored(context: &Context) -> Check {
    let source = &context.observed.request.source_seed;
    let is_written = has_written_operation(context);
    garden(context, |facts| {
        if has_been_moved(context, facts) {
            Check::Met(format!("somebody else has moved the Shoot to seed {:?}", facts.status_seed))
        } else if facts.spec_seed != *source {
            Check::waiting("RestoringSeedName", "spec.seedName of the Shoot is being written")
        } else if is_written && facts.operation != Operation::Former {
            Check::waiting("RecordingOperation", "status.lastOperation of the Shoot is being written")
        } else {
            let met = || Check::Met(format!("spec.seedName of the Shoot is {source}"));
            ignored::is_ignore_ended(facts).unwrap_or_else(met)
        }
    })
}

/// Whether the Shoot has left the source before this migration was recorded: what was written then is not taken back.
fn has_been_moved(context: &Context, facts: &GardenFacts) -> bool {
    let is_recorded = context.ledger.is_started(Step::MigrationRecorded);
    !is_recorded && facts.status_seed != context.observed.request.source_seed
}

pub(crate) fn restore_seed_name(context: &Context) -> Vec<Effect> {
    let seed = context.observed.request.source_seed.clone();
    match context.at_garden().filter(|facts| !has_been_moved(context, facts)) {
        // While the last operation is a migration that runs, the seed cannot be changed.
        Some(facts) if has_written_operation(context) && facts.operation != Operation::Former => {
            vec![Effect::EnsureOperation { operation: Operation::Former }]
        }
        Some(facts) if facts.spec_seed != seed => vec![Effect::EnsureSpecSeed { seed }],
        Some(facts) => ignored::end_ignore(facts).into_iter().collect(),
        None => Vec::new(),
    }
}
