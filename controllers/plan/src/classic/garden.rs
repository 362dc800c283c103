//! Rows of the garden: the Shoot, and whether the destination is fit.

use super::{
    context::{Context, garden, none_left},
    effect::Effect,
    notes::Notes,
    observed::Operation,
};
use crate::ledger::Check;

pub(crate) fn note_start(context: &Context, notes: &mut Notes) {
    notes.changed = true;
    notes.hibernated.get_or_insert(context.observed.request.hibernated);
    notes.workerless.get_or_insert(context.observed.request.workerless);
    if notes.former_operation.is_none() {
        notes.former_operation = context.at_garden().and_then(|facts| facts.last_operation.clone());
    }
}

pub(crate) fn is_recorded(context: &Context) -> Check {
    garden(context, |facts| match &facts.other_migration {
        Some(name) => Check::blocked(
            "AnotherMigration",
            format!("{name} migrates this Shoot; create a new migration when that one has ended"),
        ),
        None if facts.status_seed != context.observed.request.source_seed && !context.notes.changed => {
            Check::blocked(
                "NotAtSource",
                format!("the Shoot is at seed {:?}, and not at spec.sourceSeed", facts.status_seed),
            )
        }
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
    let seed = &context.observed.request.destination_seed;
    if facts.spec_seed != *seed {
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
        if facts.status_seed != *destination {
            Check::waiting("MovingStatus", "status.seedName of the Shoot is being written")
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
        Some(facts) if facts.status_seed != seed => vec![Effect::EnsureStatusSeed { seed }],
        Some(_) => vec![Effect::EnsureOperation { operation: Operation::Restoring }],
        None => Vec::new(),
    }
}

pub(crate) fn has_succeeded(context: &Context) -> Check {
    garden(context, |facts| match facts.operation {
        Operation::Restored => {
            Check::Met("status.lastOperation of the Shoot is Restore, Succeeded".to_owned())
        }
        _ => Check::waiting("RecordingOperation", "status.lastOperation of the Shoot is being written"),
    })
}

pub(crate) fn report_success(_: &Context) -> Vec<Effect> {
    vec![Effect::EnsureOperation { operation: Operation::Restored }]
}

pub(crate) fn is_seed_name_restored(context: &Context) -> Check {
    let source = &context.observed.request.source_seed;
    garden(context, |facts| {
        if facts.spec_seed != *source {
            Check::waiting("RestoringSeedName", "spec.seedName of the Shoot is being written")
        } else if facts.operation != Operation::Former {
            Check::waiting("RecordingOperation", "status.lastOperation of the Shoot is being written")
        } else {
            Check::Met(format!("spec.seedName of the Shoot is {source}"))
        }
    })
}

pub(crate) fn restore_seed_name(context: &Context) -> Vec<Effect> {
    let seed = context.observed.request.source_seed.clone();
    match context.at_garden() {
        // While the last operation is a migration that runs, the seed cannot be changed.
        Some(facts) if facts.operation != Operation::Former => {
            vec![Effect::EnsureOperation { operation: Operation::Former }]
        }
        Some(_) => vec![Effect::EnsureSpecSeed { seed }],
        None => Vec::new(),
    }
}
