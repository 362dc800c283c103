//! Rows of the destination: backups and ShootState are brought where gardenlet looks for them.

use super::{
    effect::Effect,
    flow::{Context, destination},
    notes::Notes,
    observed::{DestinationFacts, StateFacts, StoredState},
    step::Step,
};
use crate::{
    ledger::Check,
    migration::{Loss, lost, observed::SourceSnapshot},
};

/// More than gardener-apiserver takes in one request; etcd takes less by default.
const STATE_LIMIT: u64 = 3 << 20;
/// What etcd takes in one request by default.
const ETCD_LIMIT: u64 = 3 << 19;

pub(super) fn note_change(_: &Context, notes: &mut Notes) {
    notes.changed = true;
}

pub(super) fn is_bucket_readable(context: &Context) -> Check {
    destination(context, |facts| match (facts.missing_rights.as_slice(), &facts.bucket_problem) {
        ([], None) => Check::Met("the bucket of the source answers".to_owned()),
        ([], Some(problem)) => Check::waiting("BucketUnreadable", problem.clone()),
        (missing, _) => Check::waiting("MissingRights", missing.join("; ")),
    })
}

pub(super) fn ensure_copy_namespace(_: &Context) -> Vec<Effect> {
    vec![Effect::EnsureCopyNamespace]
}

pub(super) fn is_loss_confirmed(context: &Context) -> Check {
    let request = &context.observed.request;
    destination(context, |facts| {
        let Some(newest) = &facts.source_newest else {
            return Check::waiting("NoSnapshot", "the newest snapshot of the source is not known");
        };
        lost::is_confirmed(newest, "is lost", (request.confirmed, &request.source_seed), context.now)
    })
}

pub(super) fn note_loss(context: &Context, notes: &mut Notes) {
    let newest = context.at_destination().and_then(|facts| facts.source_newest.as_ref());
    notes.loss = newest.map(|newest| Loss {
        snapshot: newest.name.clone(),
        revision: newest.revision,
        time: newest.created.to_rfc3339(),
        epoch: 0,
    });
}

/// A snapshot that was stored since somebody confirmed that the source is off.
fn written_since(newest: &SourceSnapshot, loss: &Loss) -> Option<Check> {
    (newest.name != loss.snapshot).then(|| {
        let message = format!(
            "the source is not off: it has stored {} since {} was confirmed as its last one; stop it, and create a new migration",
            newest.name, loss.snapshot
        );
        Check::blocked("SourceWrites", message)
    })
}

pub(super) fn are_snapshots_copied(context: &Context) -> Check {
    let Some(loss) = &context.notes.loss else { return Check::waiting("NoLoss", "no loss is recorded") };
    destination(context, |facts| {
        let written = facts.source_newest.as_ref().and_then(|newest| written_since(newest, loss));
        match (written, &facts.source_newest, facts.copied) {
            (Some(check), ..) => check,
            (None, Some(_), Some(revision)) if revision >= loss.revision => {
                Check::Met(format!("copied and verified up to revision {revision}"))
            }
            (None, _, Some(revision)) => {
                Check::waiting("Copying", format!("copied up to revision {revision} of {}", loss.revision))
            }
            (None, _, None) => Check::waiting("Copying", "the copying Job has not ended"),
        }
    })
}

/// What the source stores later is copied by etcd-druid, which leaves out what is there.
pub(super) fn are_snapshots_copied_ahead(context: &Context) -> Check {
    destination(context, |facts| match (facts.copied, &facts.bucket_problem) {
        (Some(revision), _) => Check::Met(format!("copied and verified up to revision {revision}")),
        (None, Some(problem)) => Check::waiting("BucketUnreadable", problem.clone()),
        (None, None) => Check::waiting("Copying", "the copying Job has not ended"),
    })
}

pub(super) fn copy_snapshots(_: &Context) -> Vec<Effect> {
    vec![Effect::EnsureCopyNamespace, Effect::CopySnapshots]
}

/// Whether Gardener's ShootState is at least as new as that of Repot.
fn is_as_new(states: &StateFacts) -> bool {
    match (&states.own, &states.gardener) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(own), Some(gardener)) => gardener.written >= own.written,
    }
}

pub(super) fn is_state_ensured(context: &Context) -> Check {
    let said = |state: &StoredState| {
        let age = state.written.map_or_else(
            || "of unknown age".to_owned(),
            |written| format!("{} s old", context.now.since(written).as_secs()),
        );
        format!("{} bytes, {age}", state.bytes)
    };
    destination(context, |facts| {
        let Some(states) = &facts.states else {
            return Check::waiting("StateUnknown", "the ShootStates are being read");
        };
        match (&states.own, &states.gardener) {
            (_, Some(found)) if is_as_new(states) => {
                Check::Met(format!("the ShootState that gardenlet reads has {}", said(found)))
            }
            (None, _) => Check::waiting("NoState", "there is no ShootState, so gardenlet cannot restore"),
            (Some(own), _) if own.bytes > STATE_LIMIT => Check::blocked(
                "StateTooLarge",
                format!("the ShootState has {}, and gardener-apiserver takes {STATE_LIMIT} bytes", said(own)),
            ),
            (Some(own), _) => Check::waiting(
                "WritingState",
                format!("the ShootState of Repot, {}, is being written", said(own)),
            ),
        }
    })
}

/// gardenlet writes the ShootState in the middle of its migration: where that is refused, the migration stops half-way.
pub(super) fn does_state_fit(context: &Context) -> Check {
    destination(context, |facts| {
        let Some(states) = &facts.states else {
            return match &facts.states_problem {
                Some(problem) => Check::waiting("StateUnreadable", problem.clone()),
                None => Check::waiting("StateUnknown", "the ShootStates are being read"),
            };
        };
        let bytes = [states.own, states.gardener].into_iter().flatten().map(|state| state.bytes).max();
        match bytes {
            None => Check::Met("no ShootState is known yet; gardenlet writes it".to_owned()),
            Some(bytes) if bytes > STATE_LIMIT => Check::blocked(
                "StateTooLarge",
                format!("the ShootState has {bytes} bytes, and gardener-apiserver takes {STATE_LIMIT}"),
            ),
            Some(bytes) if bytes > ETCD_LIMIT => Check::Met(format!(
                "the ShootState has {bytes} bytes; an etcd of the garden with default settings takes {ETCD_LIMIT}"
            )),
            Some(bytes) => Check::Met(format!("the ShootState has {bytes} bytes")),
        }
    })
}

pub(super) fn ensure_state(context: &Context) -> Vec<Effect> {
    let states = context.at_destination().and_then(|facts| facts.states.as_ref());
    let is_writable = states.is_some_and(|states| states.own.is_some() && !is_as_new(states));
    is_writable.then_some(Effect::EnsureState).into_iter().collect()
}

/// gardenlet deletes its task and creates it again when it tries again, so tasks are marked until the restore has succeeded.
pub(super) fn has_copy_task_ended(context: &Context) -> Check {
    if context.is_settled(Step::RestoreSucceeded) {
        return Check::Met("gardenlet has restored the Shoot".to_owned());
    }
    destination(context, |facts| {
        let other = facts.copy_tasks.iter().find_map(|task| task.difference.as_ref());
        match (other, unmarked(facts).next()) {
            (Some(difference), _) => Check::waiting(
                "OtherStores",
                format!(
                    "etcd-druid copies by itself, since the EtcdCopyBackupsTask has other stores: {difference}"
                ),
            ),
            (None, Some(_)) => {
                Check::waiting("Marking", "the EtcdCopyBackupsTask of gardenlet is being marked")
            }
            (None, None) if facts.copy_tasks.is_empty() => {
                Check::waiting("NoTask", "gardenlet has no EtcdCopyBackupsTask now")
            }
            (None, None) => {
                Check::waiting("Marked", "the EtcdCopyBackupsTask of gardenlet is marked as succeeded")
            }
        }
    })
}

fn unmarked(facts: &DestinationFacts) -> impl Iterator<Item = &str> {
    let tasks = facts.copy_tasks.iter().filter(|task| !task.is_marked && task.difference.is_none());
    tasks.map(|task| task.uid.as_str())
}

pub(super) fn mark_copy_tasks(context: &Context) -> Vec<Effect> {
    let Some(facts) = context.at_destination() else { return Vec::new() };
    unmarked(facts).map(|uid| Effect::MarkCopyTask { uid: uid.to_owned() }).collect()
}

pub(super) fn does_api_serve(context: &Context) -> Check {
    destination(context, |facts| match facts.api_ready {
        true => Check::Met("a kube-apiserver of the destination is ready".to_owned()),
        false => Check::waiting("ApiStarting", "no kube-apiserver of the destination is ready"),
    })
}

pub(super) fn is_copy_removed(context: &Context) -> Check {
    destination(context, |facts| match facts.copy_namespace {
        false => Check::Met("the namespace of the copy does not exist".to_owned()),
        true => Check::waiting("RemovingCopy", "the namespace of the copy is being deleted"),
    })
}

pub(super) fn remove_copy(_: &Context) -> Vec<Effect> {
    vec![Effect::RemoveCopy]
}
