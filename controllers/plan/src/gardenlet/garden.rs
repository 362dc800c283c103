//! Rows of the garden: the Shoot, its BackupEntry, and what gardenlet reports.

use repot_api::{
    gardener::gardenlet::{self, Operation},
    names::CONFIRM_SOURCE_OFF,
};

use super::{
    effect::Effect,
    flow::{Context, garden},
    notes::{FormerSeeds, Notes},
    observed::{BackupEntryFacts, GardenFacts, LastOperation, ShootFacts},
};
use crate::ledger::{Check, NOT_CONFIRMED};

/// What does not allow the migration to begin.
fn obstacle(context: &Context, facts: &GardenFacts) -> Option<Check> {
    let request = &context.observed.request;
    let (source, destination) = (request.source_seed.as_str(), request.destination_seed.as_str());
    if let Some(other) = &facts.other_migration {
        let message = format!("{other} migrates this Shoot; create a new migration when that one has ended");
        return Some(Check::blocked("AnotherMigration", message));
    }
    let (spec, status) = (facts.shoot.spec_seed.as_deref(), facts.shoot.status_seed.as_deref());
    if status != Some(source) {
        let at = status.unwrap_or("none");
        let message = format!("the Shoot is at seed {at:?}, and not at spec.sourceSeed");
        return Some(Check::blocked("NotAtSource", message));
    }
    let is_elsewhere = spec.is_none_or(|spec| spec != source && spec != destination);
    is_elsewhere.then(|| {
        let to = spec.unwrap_or("none");
        let message =
            format!("the Shoot is on its way to seed {to:?}; bind it to {source} or to {destination} first");
        Check::blocked("OnItsWayElsewhere", message)
    })
}

pub(super) fn is_recorded(context: &Context) -> Check {
    garden(context, |facts| match obstacle(context, facts) {
        Some(check) => check,
        None if !context.observed.request.finalizer => {
            Check::waiting("SettingFinalizer", "the finalizer is being set on the ControlPlaneMigration")
        }
        None => Check::Met("no other migration of this Shoot goes on".to_owned()),
    })
}

pub(super) fn record(context: &Context) -> Vec<Effect> {
    let is_missing = !context.observed.request.finalizer;
    is_missing.then_some(Effect::EnsureFinalizer { present: true }).into_iter().collect()
}

pub(super) fn is_destination_ready(context: &Context) -> Check {
    garden(context, |facts| match facts.refusals.as_slice() {
        [] => Check::Met("the destination is ready, and the source does not answer".to_owned()),
        some => Check::waiting("Refused", some.join("; ")),
    })
}

pub(super) fn is_source_off(context: &Context) -> Check {
    let request = &context.observed.request;
    match request.source_off {
        true => Check::Met("somebody has confirmed that nothing of the Shoot runs at the source".to_owned()),
        false => Check::waiting(
            NOT_CONFIRMED,
            format!(
                "nobody fences the source: an etcd, API server or controller that runs there would act beside those of the destination; \
                 switch its nodes off, or take its credentials away, and confirm it by annotation {CONFIRM_SOURCE_OFF}={}",
                request.source_seed
            ),
        ),
    }
}

/// Before anything of the Shoot is written.
pub(super) fn note_former_seeds(context: &Context, notes: &mut Notes) {
    let Some(facts) = context.at_garden() else { return };
    notes.changed = true;
    let entry = facts.backup_entry.clone().unwrap_or_default();
    notes.former_seeds.get_or_insert(FormerSeeds {
        shoot: facts.shoot.spec_seed.clone(),
        backup_entry: entry.spec_seed,
        backup_entry_status: entry.status_seed,
    });
}

pub(super) fn is_bound(context: &Context) -> Check {
    let destination = &context.observed.request.destination_seed;
    garden(context, |facts| match facts.shoot.spec_seed.as_ref() == Some(destination) {
        true => Check::Met(format!("spec.seedName of the Shoot is {destination}")),
        false => Check::waiting("Binding", "spec.seedName of the Shoot is being written"),
    })
}

pub(super) fn bind(context: &Context) -> Vec<Effect> {
    vec![Effect::BindShoot { seed: context.observed.request.destination_seed.clone() }]
}

/// gardenlet sets the status to its own seed when it begins.
fn is_entry_moved(entry: &BackupEntryFacts, destination: &str) -> bool {
    entry.spec_seed.as_deref() == Some(destination)
        && gardenlet::responsible_seed(entry.spec_seed.as_deref(), entry.status_seed.as_deref())
            == Some(destination)
}

pub(super) fn is_backup_entry_moved(context: &Context) -> Check {
    let destination = &context.observed.request.destination_seed;
    garden(context, |facts| match &facts.backup_entry {
        None => {
            Check::blocked("NoBackupEntry", "the Shoot has no BackupEntry, so gardenlet restores no etcd")
        }
        Some(entry) if is_entry_moved(entry, destination) => {
            Check::Met(format!("the gardenlet of {destination} is responsible for the BackupEntry"))
        }
        Some(_) => Check::waiting("MovingBackupEntry", "the BackupEntry is being written"),
    })
}

/// The spec first, as gardenlet does: a change of the spec alone wakes a gardenlet, and that of the source would be the dead one.
pub(super) fn move_backup_entry(context: &Context) -> Vec<Effect> {
    let seed = context.observed.request.destination_seed.clone();
    match context.at_garden().and_then(|facts| facts.backup_entry.as_ref()) {
        Some(entry) if entry.spec_seed.as_ref() != Some(&seed) => vec![Effect::BindBackupEntry { seed }],
        Some(_) => vec![Effect::SetBackupEntryStatus { seed: None }],
        None => Vec::new(),
    }
}

/// Somebody has bound the Shoot to another seed: what is written now would make a gardenlet migrate it there.
pub(super) fn is_bound_elsewhere(context: &Context, shoot: &ShootFacts) -> Option<Check> {
    let destination = &context.observed.request.destination_seed;
    let found = shoot.spec_seed.as_deref().unwrap_or("none");
    (found != destination).then(|| {
        let message = format!("somebody has set spec.seedName of the Shoot to {found:?}");
        Check::blocked("BoundElsewhere", message)
    })
}

pub(super) fn is_restore_requested(context: &Context) -> Check {
    let destination = context.observed.request.destination_seed.as_str();
    garden(context, |facts| match is_bound_elsewhere(context, &facts.shoot) {
        Some(check) => check,
        None if facts.shoot.status_seed.as_deref() != Some(destination) => {
            Check::waiting("RequestingRestore", "the status of the Shoot is being written")
        }
        None => Check::Met(match gardenlet::operation(&facts.shoot.view()) {
            Operation::Restore => format!("the gardenlet of {destination} restores the Shoot"),
            operation => format!("the gardenlet of {destination} is past the restore: {operation:?}"),
        }),
    })
}

pub(super) fn request_restore(context: &Context) -> Vec<Effect> {
    let seed = context.observed.request.destination_seed.clone();
    match context.at_garden() {
        Some(facts) if facts.shoot.responsible() != Some(&seed) => vec![Effect::RequestRestore { seed }],
        Some(_) | None => Vec::new(),
    }
}

pub(super) fn has_restore_succeeded(context: &Context) -> Check {
    garden(context, |facts| {
        let shoot = &facts.shoot;
        match (is_bound_elsewhere(context, shoot), &shoot.last_operation) {
            (Some(check), _) => check,
            (None, Some(last)) => restored(context, shoot, last),
            (None, None) => Check::waiting("NoOperation", "the Shoot has no last operation"),
        }
    })
}

/// The last operation of the Shoot in words, with its errors.
pub(super) fn said(shoot: &ShootFacts, last: &LastOperation) -> String {
    let LastOperation { kind, state, progress, description } = last;
    let errors = if shoot.last_errors.is_empty() {
        String::new()
    } else {
        format!("; errors: {}", shoot.last_errors.join(", "))
    };
    format!("gardenlet says {kind}, {state}, {progress} %: {description}{errors}")
}

fn restored(context: &Context, shoot: &ShootFacts, last: &LastOperation) -> Check {
    let seed = &context.observed.request.destination_seed;
    let LastOperation { kind, state, .. } = last;
    let says = said(shoot, last);
    match (kind.as_str(), state.as_str()) {
        // It may be that of an earlier migration.
        ("Restore", _) if shoot.status_seed.as_ref() != Some(seed) => Check::waiting("NotBegun", says),
        ("Restore", "Succeeded") => Check::Met("gardenlet reports Restore, Succeeded".to_owned()),
        ("Restore", "Failed") => Check::waiting(
            "RestoreFailed",
            format!("{says}; it tries again with annotation gardener.cloud/operation=retry on the Shoot"),
        ),
        ("Restore", _) => Check::waiting("Restoring", says),
        ("Migrate", "Succeeded" | "Aborted") => Check::waiting(
            "NotBegun",
            format!("the gardenlet of {seed} has not begun to restore; see whether it runs"),
        ),
        ("Migrate", _) => Check::waiting("NotRestoring", says),
        // It comes after a restore that succeeded, and nowhere else.
        _ => Check::Met(format!("gardenlet is past the restore: {kind}, {state}")),
    }
}

fn former(context: &Context) -> FormerSeeds {
    context.notes.former_seeds.clone().unwrap_or_default()
}

pub(super) fn is_backup_entry_restored(context: &Context) -> Check {
    garden(context, |facts| match &facts.backup_entry {
        None => Check::Met("the Shoot has no BackupEntry".to_owned()),
        Some(entry) if restore_entry(context, entry).is_none() => {
            Check::Met("the BackupEntry names the seeds that it named before".to_owned())
        }
        Some(_) => Check::waiting("RestoringBackupEntry", "the BackupEntry is being written"),
    })
}

pub(super) fn restore_backup_entry(context: &Context) -> Vec<Effect> {
    let entry = context.at_garden().and_then(|facts| facts.backup_entry.as_ref());
    entry.and_then(|entry| restore_entry(context, entry)).into_iter().collect()
}

/// What the BackupEntry still needs: the fence first, so that no earlier write of this migration arrives behind the others.
fn restore_entry(context: &Context, entry: &BackupEntryFacts) -> Option<Effect> {
    let (fence, former) = (context.rollback_fence(), former(context));
    if entry.fence != fence {
        return Some(Effect::FenceBackupEntry { fence });
    }
    if entry.status_seed != former.backup_entry_status {
        return Some(Effect::SetBackupEntryStatus { seed: former.backup_entry_status });
    }
    let seed = former.backup_entry.filter(|seed| entry.spec_seed.as_ref() != Some(seed));
    seed.map(|seed| Effect::BindBackupEntry { seed })
}

pub(super) fn is_seed_name_restored(context: &Context) -> Check {
    garden(context, |facts| match restore_shoot(context, &facts.shoot) {
        None => Check::Met("spec.seedName of the Shoot is what it was before".to_owned()),
        Some(_) => Check::waiting("RestoringSeedName", "spec.seedName of the Shoot is being written"),
    })
}

pub(super) fn restore_seed_name(context: &Context) -> Vec<Effect> {
    let facts = context.at_garden();
    facts.and_then(|facts| restore_shoot(context, &facts.shoot)).into_iter().collect()
}

fn restore_shoot(context: &Context, shoot: &ShootFacts) -> Option<Effect> {
    let fence = context.rollback_fence();
    if shoot.fence != fence {
        return Some(Effect::FenceShoot { fence });
    }
    let seed = former(context).shoot.filter(|seed| shoot.spec_seed.as_ref() != Some(seed));
    seed.map(|seed| Effect::BindShoot { seed })
}
