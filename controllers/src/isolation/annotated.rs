//! A ZoneIsolation for each Shoot whose annotation names a zone.

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
use repot_api::names::ISOLATED_ZONE;
use tokio_util::sync::CancellationToken;

use super::{
    api::{IsolationSpec, ZoneIsolation},
    names::{ANNOTATED_BY, BY_ANNOTATION, MANAGER},
};
use crate::{
    errors::{causes, is_conflict},
    events::EventContent,
    migration::{
        Context, Error, Result,
        api::{Shoot, ShootRef},
    },
    reconciler,
};

/// How often a Shoot is looked at where nothing changes.
const RESYNC: Duration = Duration::from_secs(600);

/// Creates isolations until `stop`.
pub async fn run(context: Context, stop: CancellationToken) {
    let context = Arc::new(context);
    let garden = context.garden_client().clone();
    // One that has ended may make room for the next one.
    let shoot_of = |isolation: ZoneIsolation| {
        let namespace = isolation.namespace().unwrap_or_default();
        Some(ObjectRef::<Shoot>::new(&isolation.spec.shoot_ref.name).within(&namespace))
    };
    let (reader, writer) = reflector::store();
    let shoots = watcher(Api::<Shoot>::all(garden.clone()), watcher::Config::default())
        .default_backoff()
        .modify(drop_large_fields)
        .reflect(writer)
        .applied_objects();
    let isolations = Api::<ZoneIsolation>::all(garden);
    let controller =
        Controller::for_stream(shoots, reader).watches(isolations, watcher::Config::default(), shoot_of);
    reconciler::run(context.controller("isolatedshoot"), controller, reconcile, context, stop).await;
}

/// A garden has thousands of Shoots, and nothing but this annotation is looked at.
fn drop_large_fields(shoot: &mut Shoot) {
    shoot.managed_fields_mut().clear();
    shoot.annotations_mut().retain(|key, _| key == ISOLATED_ZONE);
    shoot.spec.provider.workers.clear();
}

async fn reconcile(cached: Arc<Shoot>, context: Arc<Context>) -> Result<Action> {
    if !cached.annotations().contains_key(ISOLATED_ZONE) {
        return Ok(Action::await_change());
    }
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    let garden = context.garden_client();
    let isolations = Api::<ZoneIsolation>::namespaced(garden.clone(), &namespace);
    // Isolations first: one that fails back has removed the annotation before.
    let found = isolations.list(&ListParams::default()).await;
    let found = found.map_err(Error::read(format!("ZoneIsolations of {namespace}")))?;
    let shoots = Api::<Shoot>::namespaced(garden.clone(), &namespace);
    let shoot = shoots.get_opt(&name).await.map_err(Error::read(format!("Shoot {namespace}/{name}")))?;
    if let Some(shoot) = shoot
        && let Some(isolation) = wanted(&shoot, &found.items)
    {
        create(&context, &isolations, &shoot, &isolation).await?;
    }
    Ok(Action::requeue(RESYNC))
}

async fn create(
    context: &Context,
    isolations: &Api<ZoneIsolation>,
    shoot: &Shoot,
    isolation: &ZoneIsolation,
) -> Result<()> {
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let (name, zone) = (isolation.name_any(), &isolation.spec.zone);
    match isolations.create(&params, isolation).await {
        Ok(_) => {
            tracing::info!(isolation = name, zone, "a zone of a Shoot is to be isolated");
            let message = format!("ZoneIsolation {name} isolates zone {zone}");
            let event = EventContent::normal("Isolate", "IsolationCreated", message);
            context.events.publish(&shoot.object_ref(&()), event).await;
            Ok(())
        }
        // Created before; its answer was lost.
        Err(error) if is_conflict(&error) => Ok(()),
        Err(error) => {
            let message = format!("zone {zone} is not isolated: {}", causes(&error));
            let event = EventContent::warning("Isolate", "IsolationRefused", message);
            context.events.publish(&shoot.object_ref(&()), event).await;
            Err(Error::write(format!("create ZoneIsolation {name}"))(error))
        }
    }
}

/// The isolation that is missing; `None` where nothing is to be isolated, or one is on its way or done.
fn wanted(shoot: &Shoot, all: &[ZoneIsolation]) -> Option<ZoneIsolation> {
    let zone = shoot.annotations().get(ISOLATED_ZONE)?;
    let annotated_by = shoot.annotations().get(ANNOTATED_BY);
    if shoot.metadata.deletion_timestamp.is_some() {
        return None;
    }
    // One that fails back has removed the annotation, so this is a new request, unless it has set the annotation itself and late.
    let serves = |one: &&ZoneIsolation| {
        let is_late = annotated_by.is_some() && one.uid().as_ref() == annotated_by;
        !one.has_ended() && (!one.is_failing_back() || is_late)
    };
    let own = || all.iter().filter(|one| one.is_of(shoot));
    if own().any(|one| serves(&one)) {
        return None;
    }
    let name = shoot.name_any();
    let number = |one: &ZoneIsolation| one.name_any().strip_prefix(&format!("{name}-"))?.parse::<u64>().ok();
    let next = all.iter().filter_map(number).max().unwrap_or_default() + 1;
    Some(ZoneIsolation {
        types: Some(TypeMeta::resource::<ZoneIsolation>()),
        metadata: ObjectMeta {
            name: Some(format!("{name}-{next}")),
            namespace: shoot.namespace(),
            annotations: Some([(BY_ANNOTATION.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: IsolationSpec {
            shoot_ref: ShootRef { name, uid: shoot.uid().unwrap_or_default() },
            zone: zone.clone(),
            ..IsolationSpec::default()
        },
        ..ZoneIsolation::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shoot(annotations: &Value) -> Shoot {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "n", "uid": "1", "annotations": annotations},
        }))
        .expect("a Shoot")
    }

    fn isolation(name: &str, status: &Value) -> ZoneIsolation {
        let spec = json!({"shootRef": {"name": "s", "uid": "1"}, "isolatedZoneID": "z1"});
        serde_json::from_value(
            json!({"metadata": {"name": name, "uid": name}, "spec": spec, "status": status}),
        )
        .expect("an isolation")
    }

    #[test]
    fn annotation_makes_one_isolation_and_the_same_again_another_one() {
        let asked = shoot(&json!({ISOLATED_ZONE: "z1"}));
        let named = |all: &[ZoneIsolation]| wanted(&asked, all).map(|made| (made.name_any(), made.spec.zone));
        assert_eq!(named(&[]), Some(("s-1".to_owned(), "z1".to_owned())));
        assert_eq!(named(&[isolation("s-1", &json!({}))]), None);
        assert_eq!(named(&[isolation("s-1", &json!({"phase": "Failover"}))]), None);
        let back = isolation("s-1", &json!({"phase": "Failback", "seed": {"phase": "Running"}}));
        assert_eq!(named(std::slice::from_ref(&back)), Some(("s-2".to_owned(), "z1".to_owned())));
        assert_eq!(wanted(&shoot(&json!({})), &[]), None);
        // A request that was on its way when the isolation ended is no new request.
        let late = shoot(&json!({ISOLATED_ZONE: "z1", ANNOTATED_BY: "s-1"}));
        assert_eq!(wanted(&late, &[back]), None);
    }
}
