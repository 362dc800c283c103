//! What a ControlPlaneMigration and its Shoot ask for. Pure.

use std::time::Duration;

use kube::ResourceExt;
use repot_api::{
    conditions::Reason,
    names::{ABORT_LIVE_MIGRATION, CONFIRM_FORCED_MIGRATION, CONFIRM_SOURCE_STOPPED, FORCE_SHRINK_ETCD},
};
use repot_apimachinery::{duration, value::parse_bool};
use repot_plan::{
    flow::Abort,
    migration::observed::{MigrationMode, MigrationRequest},
};

use super::{
    api::{ControlPlaneMigration, Shoot},
    names::FINALIZER,
};

/// How long a step may take where nothing else is said.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);

/// What is asked for; `shoot` is `None` where there is none of that name. What other migrations change is asked afterwards.
#[must_use]
pub fn request(migration: &ControlPlaneMigration, shoot: Option<&Shoot>) -> MigrationRequest {
    let spec = &migration.spec;
    let shrinks = asked_by_shoot(migration, shoot, FORCE_SHRINK_ETCD);
    MigrationRequest {
        uid: migration.uid().unwrap_or_default(),
        mode: migration.mode().unwrap_or_default(),
        confirmed: migration.annotations().get(CONFIRM_FORCED_MIGRATION) == Some(&spec.source_seed),
        source_stopped: migration.annotations().get(CONFIRM_SOURCE_STOPPED) == Some(&spec.source_seed),
        finalizer: migration.finalizers().iter().any(|finalizer| finalizer == FINALIZER),
        paused: spec.paused.unwrap_or_default(),
        abort: abort(migration, asked_by_shoot(migration, shoot, ABORT_LIVE_MIGRATION)),
        abandoned: abandoned(migration, shoot),
        superseded: None,
        forced_instead: None,
        destination_lost: false,
        continued: migration.continued_by().map(str::to_owned),
        retry: spec.retry.map_or(0, |retry| u32::try_from(retry.max(0)).unwrap_or(u32::MAX)),
        force_shrink: spec.force_shrink_etcd == Some(true) || shrinks.and_then(parse_bool) == Some(true),
        step_timeout: spec.step_timeout.as_deref().and_then(duration::parse).unwrap_or(STEP_TIMEOUT),
        source_seed: spec.source_seed.clone(),
        source_identity: spec.source_seed.clone(),
        destination_seed: spec.destination_seed.clone(),
        destination_identity: spec.destination_seed.clone(),
        hibernated: shoot.is_some_and(Shoot::is_hibernated),
        workerless: shoot.is_some_and(Shoot::is_workerless),
    }
}

/// What an annotation of the Shoot asks of a live migration; nothing in other modes. Webhooks rule on when it may be set, and clear it
/// when the migration is over.
fn asked_by_shoot<'a>(
    migration: &ControlPlaneMigration,
    shoot: Option<&'a Shoot>,
    annotation: &str,
) -> Option<&'a str> {
    let shoot = shoot.filter(|_| migration.mode() == Some(MigrationMode::Live))?;
    shoot.annotations().get(annotation).map(String::as_str)
}

fn abort(migration: &ControlPlaneMigration, annotation: Option<&str>) -> Abort {
    match migration.spec.abort.as_deref() {
        None if migration.is_destination_lost() => Abort::Abort,
        _ if annotation == Some("force") => Abort::Force,
        Some("Force") => Abort::Force,
        Some(_) => Abort::Abort,
        None if annotation == Some("true") => Abort::Abort,
        None if migration.metadata.deletion_timestamp.is_some() => Abort::Abort,
        None => Abort::None,
    }
}

fn abandoned(migration: &ControlPlaneMigration, shoot: Option<&Shoot>) -> Option<Reason> {
    let meant = &migration.spec.shoot_ref;
    let Some(shoot) = shoot else {
        return Some(Reason::new("ShootMissing", format!("there is no Shoot {}", meant.name)));
    };
    if !meant.uid.is_empty() && shoot.uid().as_deref() != Some(&meant.uid) {
        let message = format!("the Shoot {} is another one than that of the migration", meant.name);
        return Some(Reason::new("AnotherShoot", message));
    }
    let message = format!("the Shoot {} is being deleted", meant.name);
    shoot.metadata.deletion_timestamp.as_ref().map(|_| Reason::new("ShootDeleted", message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn migration(extra: serde_json::Value) -> ControlPlaneMigration {
        let mut object = json!({
            "metadata": {"name": "m", "uid": "u"},
            "spec": {"shootRef": {"name": "s", "uid": "1"}, "sourceSeed": "a", "destinationSeed": "b"},
        });
        for (path, value) in extra.as_object().expect("an object") {
            *object.pointer_mut(path).expect("a path") = value.clone();
        }
        serde_json::from_value(object).expect("a migration")
    }

    fn shoot(metadata: serde_json::Value) -> Shoot {
        serde_json::from_value(json!({"metadata": metadata})).expect("a Shoot")
    }

    #[test]
    fn deletion_asks_to_abort_and_force_is_stronger() {
        let deleted = json!({"name": "m", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let spec =
            json!({"shootRef": {"name": "s"}, "sourceSeed": "a", "destinationSeed": "b", "abort": "Force"});
        let of = |extra| request(&migration(extra), None).abort;
        assert_eq!(of(json!({})), Abort::None);
        assert_eq!(of(json!({"/metadata": deleted})), Abort::Abort);
        assert_eq!(of(json!({"/metadata": deleted, "/spec": spec})), Abort::Force);
    }

    #[test]
    fn annotations_of_the_shoot_abort_and_force_live_migrations_alone() {
        let asked = |mode: &str, key: &str, value: &str| {
            let mut migration = migration(json!({}));
            migration.spec.mode = mode.to_owned();
            let shoot = shoot(json!({"uid": "1", "annotations": {key: value}}));
            let request = request(&migration, Some(&shoot));
            (request.abort, request.force_shrink)
        };
        let abort = "migration.shoot.gardener.cloud/abort-live-migration";
        let shrink = "migration.gardener.cloud/force-shrink-etcd";
        assert_eq!(asked("Live", abort, "true"), (Abort::Abort, false));
        assert_eq!(asked("Live", abort, "force"), (Abort::Force, false));
        assert_eq!(asked("Live", abort, "false"), (Abort::None, false));
        assert_eq!(asked("Classic", abort, "force"), (Abort::None, false));
        assert_eq!(asked("Live", shrink, "true"), (Abort::None, true));
        assert_eq!(asked("Live", shrink, "false"), (Abort::None, false));
        assert_eq!(asked("Forced", shrink, "true"), (Abort::None, false));
    }

    #[test]
    fn migration_that_is_continued_stays_so() {
        let mut continued = migration(json!({}));
        assert_eq!(request(&continued, None).continued, None);
        // Whether the other one still exists, or how it ended, does not matter: this one was over when it began.
        continued.status.insert("continuedBy".to_owned(), "n".into());
        assert_eq!(request(&continued, None).continued.as_deref(), Some("n"));
    }

    #[test]
    fn migration_without_its_shoot_is_abandoned() {
        let of =
            |shoot: Option<&Shoot>| request(&migration(json!({})), shoot).abandoned.map(|why| why.reason);
        assert_eq!(of(None), Some("ShootMissing"));
        assert_eq!(of(Some(&shoot(json!({"uid": "2"})))), Some("AnotherShoot"));
        let deleted = json!({"uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(of(Some(&shoot(deleted))), Some("ShootDeleted"));
        assert_eq!(of(Some(&shoot(json!({"uid": "1"})))), None);
    }
}
