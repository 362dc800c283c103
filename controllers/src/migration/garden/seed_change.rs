//! A ControlPlaneMigration for each Shoot whose seed was changed: `spec.seedName` differs from `status.seedName`.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, PostParams, TypeMeta},
    core::ObjectMeta,
    runtime::{
        Controller, WatchStreamExt,
        controller::Action,
        reflector::{self, ObjectRef},
        watcher::{self, watcher},
    },
};
use repot_api::gardener::shoot::{Shoot as Asked, Trigger};
use tokio_util::sync::CancellationToken;

use crate::{
    errors::{causes, is_conflict},
    events::EventContent,
    migration::{
        api::{ControlPlaneMigration, MigrationSpec, Shoot, ShootRef},
        context::Context,
        error::{Error, Result},
        names::MANAGER,
    },
    reconciler,
};

/// How often a Shoot is looked at where nothing changes.
const RESYNC: Duration = Duration::from_secs(600);

/// Creates migrations until `stop`. Only for gardens where nobody else moves a Shoot whose seed was changed.
pub async fn run(context: Context, stop: CancellationToken) {
    let context = Arc::new(context);
    let garden = context.garden_client().clone();
    // A migration that has ended, or was deleted, may make room for the next one.
    let shoot_of = |migration: ControlPlaneMigration| {
        let namespace = migration.namespace().unwrap_or_default();
        Some(ObjectRef::<Shoot>::new(&migration.spec.shoot_ref.name).within(&namespace))
    };
    let (reader, writer) = reflector::store();
    let shoots = watcher(Api::<Shoot>::all(garden.clone()), watcher::Config::default())
        .default_backoff()
        .modify(drop_large_fields)
        .reflect(writer)
        .applied_objects();
    let migrations = Api::<ControlPlaneMigration>::all(garden);
    let controller =
        Controller::for_stream(shoots, reader).watches(migrations, watcher::Config::default(), shoot_of);
    reconciler::run(context.controller("shoot"), controller, reconcile, context, stop).await;
}

/// A garden has thousands of Shoots, and nothing but their seeds is looked at.
fn drop_large_fields(shoot: &mut Shoot) {
    shoot.managed_fields_mut().clear();
    shoot.annotations_mut().clear();
    shoot.spec.provider.workers.clear();
}

async fn reconcile(cached: Arc<Shoot>, context: Arc<Context>) -> Result<Action> {
    if change(&cached).is_none() {
        return Ok(Action::await_change());
    }
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    let garden = context.garden_client();
    let migrations = Api::<ControlPlaneMigration>::namespaced(garden.clone(), &namespace);
    // Migrations first: one that was rolled back has written the seed of the Shoot before it ended.
    let found = migrations.list(&ListParams::default()).await;
    let found = found.map_err(Error::read(format!("ControlPlaneMigrations of {namespace}")))?;
    let shoots = Api::<Shoot>::namespaced(garden.clone(), &namespace);
    let shoot = shoots.get_opt(&name).await.map_err(Error::read(format!("Shoot {namespace}/{name}")))?;
    if let Some(shoot) = shoot
        && let Some(migration) = wanted(&shoot, &found.items)
    {
        create(&context, &migrations, &shoot, &migration).await?;
    }
    Ok(Action::requeue(RESYNC))
}

async fn create(
    context: &Context,
    migrations: &Api<ControlPlaneMigration>,
    shoot: &Shoot,
    migration: &ControlPlaneMigration,
) -> Result<()> {
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let name = migration.name_any();
    let event = match migrations.create(&params, migration).await {
        Ok(_) => {
            let (from, to) = (&migration.spec.source_seed, &migration.spec.destination_seed);
            tracing::info!(migration = name, from, to, "the seed of a Shoot was changed");
            let message = format!("ControlPlaneMigration {name} moves the control plane from {from} to {to}");
            EventContent::normal("Migrate", "MigrationCreated", message)
        }
        // Created before; its answer was lost.
        Err(error) if is_conflict(&error) => return Ok(()),
        Err(error) => {
            let message = format!("the control plane does not move: {}", causes(&error));
            let event = EventContent::warning("Migrate", "MigrationRefused", message);
            context.events.publish(&shoot.object_ref(&()), event).await;
            return Err(Error::write(format!("create ControlPlaneMigration {name}"))(error));
        }
    };
    context.events.publish(&shoot.object_ref(&()), event).await;
    Ok(())
}

/// From which seed to which one the Shoot is to move; `None` where it is where it is to be, or has no place yet, or goes.
fn change(shoot: &Shoot) -> Option<(&str, &str)> {
    let from = shoot.status.seed_name.as_deref().filter(|name| !name.is_empty())?;
    let to = shoot.spec.seed_name.as_deref().filter(|name| !name.is_empty())?;
    (from != to && shoot.metadata.deletion_timestamp.is_none()).then_some((from, to))
}

/// The migration that is missing; `None` where nothing is to move, another migration runs, or the last one to this seed has failed and
/// waits for a person.
fn wanted(shoot: &Shoot, migrations: &[ControlPlaneMigration]) -> Option<ControlPlaneMigration> {
    let (from, to) = change(shoot)?;
    let (name, uid) = (shoot.name_any(), shoot.uid().unwrap_or_default());
    let is_of_shoot = |one: &&ControlPlaneMigration| {
        let meant = &one.spec.shoot_ref;
        meant.name == name && (meant.uid.is_empty() || meant.uid == uid)
    };
    // One that is superseded may never end, where its destination is dead; the one that goes on in place of it counts.
    let goes_on = |one: &ControlPlaneMigration| {
        !one.has_ended() && one.superseded_by().is_none() && one.continued_by().is_none()
    };
    let holds = |one: &ControlPlaneMigration| {
        goes_on(one) || (one.has_failed() && one.continued_by().is_none() && one.spec.destination_seed == to)
    };
    if migrations.iter().filter(is_of_shoot).any(holds) {
        return None;
    }
    // Each change of the seed raises the generation: a request that is repeated finds the migration that it has made.
    let generation = shoot.metadata.generation.unwrap_or_default();
    Some(ControlPlaneMigration {
        types: Some(TypeMeta::resource::<ControlPlaneMigration>()),
        metadata: ObjectMeta {
            name: Some(format!("{name}-{generation}")),
            namespace: shoot.namespace(),
            ..ObjectMeta::default()
        },
        spec: MigrationSpec {
            shoot_ref: ShootRef { name, uid },
            source_seed: from.to_owned(),
            destination_seed: to.to_owned(),
            mode: mode(shoot).to_owned(),
            ..MigrationSpec::default()
        },
        ..ControlPlaneMigration::default()
    })
}

/// Live where the Shoot asks for it by an annotation; the field stays empty otherwise, which is Classic.
fn mode(shoot: &Shoot) -> &'static str {
    let is_live = |shoot: &serde_json::Value| Asked(shoot).trigger() == Trigger::Live;
    if serde_json::to_value(shoot).is_ok_and(|shoot| is_live(&shoot)) { "Live" } else { "" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shoot(spec: &str, status: &str) -> Shoot {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "n", "uid": "1", "generation": 7},
            "spec": {"seedName": spec}, "status": {"seedName": status},
        }))
        .expect("a Shoot")
    }

    fn migration(shoot: &str, to: &str, phase: &str) -> ControlPlaneMigration {
        serde_json::from_value(json!({
            "metadata": {"name": "m"}, "status": {"phase": phase},
            "spec": {"shootRef": {"name": shoot, "uid": "1"}, "sourceSeed": "a", "destinationSeed": to},
        }))
        .expect("a migration")
    }

    #[test]
    fn changed_seed_makes_a_migration_with_the_generation_in_its_name() {
        let made = wanted(&shoot("b", "a"), &[migration("s", "b", "RolledBack")]).expect("a migration");
        assert_eq!(made.name_any(), "s-7");
        let form = serde_json::to_value(&made).expect("JSON");
        assert_eq!(form["kind"], "ControlPlaneMigration");
        assert_eq!(form["apiVersion"], "migration.gardener.cloud/v1alpha1");
        let spec = (&*made.spec.source_seed, &*made.spec.destination_seed, &*made.spec.shoot_ref.uid);
        assert_eq!(spec, ("a", "b", "1"));
    }

    #[test]
    fn annotation_of_the_shoot_asks_for_a_live_migration() {
        let mode = |annotations: serde_json::Value| {
            let mut shoot = shoot("b", "a");
            shoot.metadata.annotations = serde_json::from_value(annotations).expect("annotations");
            wanted(&shoot, &[]).expect("a migration").spec.mode
        };
        assert_eq!(mode(json!({})), "");
        assert_eq!(mode(json!({"gardener.cloud/operation": "reconcile"})), "");
        assert_eq!(mode(json!({"gardener.cloud/operation": "live-migrate"})), "Live");
        assert_eq!(mode(json!({"migration.gardener.cloud/live-migrate": "true"})), "Live");
    }

    #[test]
    fn shoot_that_is_where_it_is_to_be_or_has_no_place_or_goes_is_left_alone() {
        for (spec, status) in [("a", "a"), ("a", ""), ("", "a"), ("", "")] {
            assert_eq!(wanted(&shoot(spec, status), &[]), None, "{spec} {status}");
        }
        let mut deleted = shoot("b", "a");
        deleted.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
        assert_eq!(wanted(&deleted, &[]), None);
    }

    #[test]
    fn migration_that_runs_or_has_failed_to_go_there_holds_the_next_one() {
        let of = |one| wanted(&shoot("b", "a"), &[one]).is_some();
        for phase in ["", "Pending", "Running", "RollingBack"] {
            assert!(!of(migration("s", "c", phase)), "{phase}");
        }
        assert!(!of(migration("s", "b", "Failed")));
        assert!(of(migration("s", "c", "Failed")));
        assert!(of(migration("s", "b", "Cancelled")));
        assert!(of(migration("other", "b", "Running")));
    }
}
