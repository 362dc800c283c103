//! What the controller of a destination still does when a forced migration has succeeded, until the source has ended as well: it looks
//! at the owner record from time to time, and reports a final snapshot that the source stores when it comes back. The garden looks at
//! the Shoot for a while.

use std::time::Duration;

use kube::{Api, ResourceExt, api::Patch};
use repot_apimachinery::time::Time;
use repot_etcd::snapshot::late::LateReport;
use repot_plan::{
    ledger::{Phase, State},
    migration::{
        Side, Step,
        observed::{FinalSnapshot, MigrationMode},
    },
    status::from_status,
};
use serde_json::{Value, json};

use super::{
    api::{ControlPlaneMigration, LATE_SNAPSHOT},
    clock,
    context::Context,
    destination::late::{self, Progress},
    error::{Error, Result},
    overall::Ledger,
    record,
    seed::params,
    siblings,
};
use crate::events::EventContent;

/// From one look to the next, shortly after the success and long after it.
const PAUSES: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(300));

/// For how long a request may be on its way that the garden has given up. kube-apiserver ends one after a minute.
const LATE: Duration = Duration::from_secs(600);

/// Whether a request of before the end may still set the annotation that keeps gardenlet away from the Shoot.
pub fn may_garden_get_late_requests(cached: &ControlPlaneMigration) -> bool {
    let completed = ledger_of(cached, Side::Garden).completed;
    completed.is_some_and(|completed| clock::now().since(completed) < LATE)
}

/// Looks once; when to look again. `None` where nothing more is to come.
///
/// # Errors
/// Where the garden or the seed does not answer.
pub async fn follow_up(context: &Context, cached: &ControlPlaneMigration) -> Result<Option<Duration>> {
    let ledger = ledger_of(cached, Side::Destination);
    let is_done = cached.has_side_ended(Side::Source) && unreported(cached).is_none();
    if cached.mode() != Some(MigrationMode::Forced) || ledger.phase != Phase::Succeeded || is_done {
        return Ok(None);
    }
    if siblings::is_followed(context, cached).await? {
        return Ok(None);
    }
    if let Some(snapshot) = unreported(cached) {
        report(context, cached, &snapshot).await?;
    }
    Ok(Some(pause(&ledger, clock::now())))
}

/// The longer the success is ago, the longer it takes until the next look: seeds that are dead for good cost little.
fn pause(ledger: &Ledger, now: Time) -> Duration {
    let age = ledger.completed.map_or(Duration::ZERO, |completed| now.since(completed));
    (age / 60).clamp(PAUSES.0, PAUSES.1)
}

fn ledger_of(migration: &ControlPlaneMigration, side: Side) -> Ledger {
    from_status(migration.plans(), &record::part(migration, side)).unwrap_or_default()
}

/// The final snapshot that the source has stored since, while it is not known what it holds.
fn unreported(migration: &ControlPlaneMigration) -> Option<FinalSnapshot> {
    let source = ledger_of(migration, Side::Source);
    let is_stored = source.state(Step::FinalSnapshotTaken) == State::Succeeded;
    let state = migration.status.get(LATE_SNAPSHOT).and_then(|late| late.get("state")?.as_str());
    let is_reported = matches!(state, Some("Contained" | "Reported" | "Failed"));
    source.notes.final_snapshot.filter(|_| is_stored && !is_reported)
}

async fn report(
    context: &Context,
    migration: &ControlPlaneMigration,
    snapshot: &FinalSnapshot,
) -> Result<()> {
    let Some(shoot) = context.shoot(migration).await? else { return Ok(()) };
    let asked = late::Asked {
        namespace: &shoot.status.technical_id,
        source_seed: &migration.spec.source_seed,
        history: history(migration),
        least: ledger_of(migration, Side::Destination).notes.loss.map_or(0, |loss| loss.revision),
        snapshot,
    };
    let progress = late::advance(context, &asked).await?;
    let said = status(&asked, &progress);
    if migration.status.get(LATE_SNAPSHOT) != Some(&said) {
        write(context, migration, &said).await?;
        if let Some(event) = event(&progress) {
            context.events.publish(&kube::Resource::object_ref(migration, &()), event).await;
        }
    }
    match progress {
        Progress::Copying => Ok(()),
        Progress::Contained { .. } | Progress::Reported(_) | Progress::Failed => {
            late::clean_up(context, &asked).await
        }
    }
}

/// The history in the store of the destination is named after the migration.
fn history(migration: &ControlPlaneMigration) -> String {
    format!("late-{}", migration.uid().unwrap_or_default())
}

/// `status.lateSnapshot`.
fn status(asked: &late::Asked<'_>, progress: &Progress) -> Value {
    let FinalSnapshot { name, revision, .. } = asked.snapshot;
    let mut said = json!({"name": name, "revision": revision});
    match progress {
        Progress::Copying => said["state"] = "Copying".into(),
        Progress::Contained { held } => {
            (said["state"], said["heldRevision"]) = ("Contained".into(), (*held).into());
        }
        Progress::Failed => {
            said["state"] = "Failed".into();
            said["message"] = "the Job that copies it was given up; see the log of its Pod".into();
        }
        Progress::Reported(report) => {
            let LateReport { revision, held_revision, created, updated, deleted, keys, message, .. } = report;
            said = json!({
                "state": "Reported", "name": name, "revision": revision, "heldRevision": held_revision,
                "history": asked.history, "created": created, "updated": updated, "deleted": deleted,
                "keys": keys, "message": message,
            });
        }
    }
    said
}

fn event(progress: &Progress) -> Option<EventContent> {
    match progress {
        Progress::Reported(report) => {
            let LateReport { name, created, updated, deleted, .. } = report;
            let message = format!(
                "the source has stored {name}, of which the destination does not hold {created} keys that were created, {updated} \
                 that were updated and {deleted} that were deleted; see status.lateSnapshot"
            );
            Some(EventContent::warning("Reconcile", "LateSnapshot", message))
        }
        Progress::Failed => {
            Some(EventContent::warning("Reconcile", "LateSnapshotFailed", "it is not copied"))
        }
        Progress::Contained { .. } | Progress::Copying => None,
    }
}

/// Under the version that was read: what was stored meanwhile is looked at first.
async fn write(context: &Context, migration: &ControlPlaneMigration, late: &Value) -> Result<()> {
    let namespace = migration.namespace().unwrap_or_default();
    let all = Api::<ControlPlaneMigration>::namespaced(context.garden_client().clone(), &namespace);
    let patch = json!({
        "metadata": {"resourceVersion": migration.resource_version()}, "status": {LATE_SNAPSHOT: late},
    });
    let outcome = all.patch_status(&migration.name_any(), &params(), &Patch::Merge(patch)).await;
    outcome.map(drop).map_err(Error::write("report the late snapshot"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migration(source: Value, late: Value) -> ControlPlaneMigration {
        serde_json::from_value(json!({
            "metadata": {"name": "m", "uid": "5c1f"},
            "spec": {"shootRef": {"name": "s"}, "sourceSeed": "a", "destinationSeed": "b", "mode": "Forced"},
            "status": {"source": source, LATE_SNAPSHOT: late},
        }))
        .expect("a migration")
    }

    fn stored(state: &str) -> Value {
        let step = json!({"name": "FinalSnapshotTaken", "state": state});
        let snapshot = json!({"name": "Full-1", "revision": 7, "epoch": 1});
        json!({"phase": "Running", "planVersion": 1, "steps": [step], "finalSnapshot": snapshot})
    }

    #[test]
    fn snapshot_is_reported_once() {
        let is_open = |source, late| unreported(&migration(source, late)).is_some();
        assert!(is_open(stored("Succeeded"), json!({})));
        assert!(is_open(stored("Succeeded"), json!({"state": "Copying"})));
        for state in ["Contained", "Reported", "Failed"] {
            assert!(!is_open(stored("Succeeded"), json!({"state": state})), "{state}");
        }
        assert!(!is_open(stored("Running"), json!({})));
        assert!(!is_open(json!({}), json!({})));
    }

    #[test]
    fn seeds_that_are_dead_for_long_are_looked_for_rarely() {
        let ledger = Ledger { completed: Some(Time(1_000)), ..Ledger::default() };
        let after = |seconds: u64| pause(&ledger, Time(1_000 + seconds)).as_secs();
        assert_eq!([after(0), after(1_200), after(1_000_000)], [15, 20, 300]);
    }

    #[test]
    fn status_says_what_the_destination_does_not_hold() {
        let snapshot = FinalSnapshot { name: "Full-1".to_owned(), revision: 7, epoch: 1 };
        let asked = late::Asked {
            namespace: "n",
            source_seed: "a",
            history: history(&migration(json!({}), json!({}))),
            least: 0,
            snapshot: &snapshot,
        };
        let report = LateReport {
            name: "Full-1".to_owned(),
            revision: 7,
            held_revision: 5,
            created: 1,
            keys: vec!["/k".to_owned()],
            ..LateReport::default()
        };
        let said = status(&asked, &Progress::Reported(report));
        assert_eq!(said["history"], "late-5c1f");
        assert_eq!((&said["keys"], &said["heldRevision"]), (&json!(["/k"]), &json!(5)));
        assert_eq!(status(&asked, &Progress::Contained { held: 9 })["state"], "Contained");
    }
}
