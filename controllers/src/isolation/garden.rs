//! What the garden observes of an isolation, and its effects as calls.

use std::sync::atomic::Ordering;

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use repot_api::names::ISOLATED_ZONE;
use repot_plan::{
    isolation::{
        effect::Effect,
        observed::{Facts, GardenFacts, SeedNamespace},
        shown::{Direction, Progress, Shown},
    },
    named::Named,
};
use serde_json::{Value, json};

use super::{
    api::{SEED_NAME, TECHNICAL_ID, ZoneIsolation},
    names::{ANNOTATED_BY, FINALIZER, MANAGER},
    siblings,
};
use crate::{
    errors::is_not_found,
    migration::{Context, Error, Result, api::Shoot, clock},
};

/// Objects of the garden, as they were observed.
pub struct Objects {
    shoot: Option<Shoot>,
}

/// Observes the garden.
///
/// # Errors
/// [`Error::Read`].
pub async fn observe(
    context: &Context,
    isolation: &ZoneIsolation,
    shoot: Option<Shoot>,
) -> Result<(Facts, Objects)> {
    let others = siblings::others(context, isolation).await?;
    let mut earlier = others.iter().filter(|other| siblings::is_in_the_way(other, isolation));
    let migration = siblings::migration(context, isolation).await?;
    let is_untold =
        |other: &ZoneIsolation| siblings::takes_over(isolation, other) && other.continued_by().is_none();
    let obstacle =
        earlier.clone().next().map(|other| format!("ZoneIsolation {} has not ended", other.name_any()));
    let moves = || migration.map(|name| format!("ControlPlaneMigration {name} has not ended"));
    let shoot = shoot.filter(|shoot| isolation.is_of(shoot));
    let annotation = |key: &str| shoot.as_ref().and_then(|shoot| shoot.annotations().get(key).cloned());
    let facts = GardenFacts {
        obstacle: obstacle.or_else(moves),
        is_untold: earlier.any(is_untold),
        annotation: annotation(ISOLATED_ZONE),
        is_annotated_by_us: annotation(ANNOTATED_BY).is_some_and(|uid| Some(uid) == isolation.uid()),
        place: shoot.as_ref().and_then(place),
        told_place: isolation.place(),
        is_outdated: others.iter().any(|other| siblings::outdates(other, isolation)),
        can_show: !context.shows_no_isolation.load(Ordering::Relaxed),
        shown: shoot.as_ref().and_then(|shoot| shown(shoot.status.zone_isolation.as_ref()?)),
    };
    Ok((Facts::Garden(facts), Objects { shoot }))
}

fn place(shoot: &Shoot) -> Option<SeedNamespace> {
    let namespace = shoot.status.technical_id.clone();
    let seed = shoot.status.seed_name.clone().filter(|seed| !seed.is_empty() && !namespace.is_empty())?;
    Some(SeedNamespace { seed, namespace })
}

fn shown(value: &Value) -> Option<Shown> {
    let text = |field: &str| value.get(field).and_then(Value::as_str);
    Some(Shown {
        zone: text("isolatedZoneID")?.to_owned(),
        code: text("isolatedZoneCode").unwrap_or_default().to_owned(),
        direction: Direction::parse(text("phase")?)?,
        progress: Progress::parse(text("status")?)?,
    })
}

/// Carries out an effect of the garden, under the versions of the objects that were observed.
///
/// # Errors
/// [`Error`]. The next pass looks again.
pub async fn act(
    context: &Context,
    isolation: &ZoneIsolation,
    objects: &Objects,
    effect: &Effect,
) -> Result<()> {
    let Some(shoot) = &objects.shoot else {
        return match effect {
            Effect::EnsureFinalizer { present } => finalizer(context, isolation, None, *present).await,
            _ => Ok(()),
        };
    };
    match effect {
        Effect::EnsureFinalizer { present } => finalizer(context, isolation, Some(shoot), *present).await,
        Effect::TakeOver => siblings::take_over(context, isolation).await,
        Effect::EnsureAnnotation { zone } => {
            let annotations = json!({ISOLATED_ZONE: zone, ANNOTATED_BY: isolation.uid()});
            annotate(context, shoot, annotations).await
        }
        Effect::RemoveAnnotation => {
            let annotations = json!({ISOLATED_ZONE: null, ANNOTATED_BY: null});
            annotate(context, shoot, annotations).await
        }
        Effect::TellPlace { place } => tell_place(context, isolation, place).await,
        Effect::Tell { shown } => tell(context, shoot, shown).await,
        _ => Ok(()),
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

fn under(version: Option<String>, mut patch: Value) -> Patch<Value> {
    patch["metadata"]["resourceVersion"] = version.into();
    Patch::Merge(patch)
}

fn shoots(context: &Context, shoot: &Shoot) -> Api<Shoot> {
    Api::namespaced(context.garden_client().clone(), &shoot.namespace().unwrap_or_default())
}

async fn annotate(context: &Context, shoot: &Shoot, annotations: Value) -> Result<()> {
    let patch = under(shoot.resource_version(), json!({"metadata": {"annotations": annotations}}));
    let outcome = shoots(context, shoot).patch(&shoot.name_any(), &params(), &patch).await;
    outcome.map(drop).map_err(Error::write("annotate the Shoot"))
}

async fn tell_place(context: &Context, isolation: &ZoneIsolation, place: &SeedNamespace) -> Result<()> {
    let status = json!({SEED_NAME: place.seed, TECHNICAL_ID: place.namespace});
    let patch = under(isolation.resource_version(), json!({"status": status}));
    let namespace = isolation.namespace().unwrap_or_default();
    let all = Api::<ZoneIsolation>::namespaced(context.garden_client().clone(), &namespace);
    let outcome = all.patch_status(&isolation.name_any(), &params(), &patch).await;
    outcome.map(drop).map_err(Error::write("say where the control plane is"))
}

/// Gardener's API server does not know the field, and drops it without a word.
async fn tell(context: &Context, shoot: &Shoot, shown: &Shown) -> Result<()> {
    let patch = json!({"status": {"zoneIsolation": {
        "isolatedZoneID": shown.zone,
        "isolatedZoneCode": if shown.code.is_empty() { Value::Null } else { shown.code.clone().into() },
        "phase": shown.direction.name(),
        "status": shown.progress.name(),
        "lastUpdateTime": clock::now().to_rfc3339(),
    }}});
    let patch = under(shoot.resource_version(), patch);
    let stored = shoots(context, shoot).patch_status(&shoot.name_any(), &params(), &patch).await;
    let stored = stored.map_err(Error::write("write the status of the Shoot"))?;
    if stored.status.zone_isolation.is_none() {
        tracing::info!("Shoots of this garden have no status.zoneIsolation; the ZoneIsolation has the same");
        context.shows_no_isolation.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Sets or removes our finalizer. With it comes the UID of the Shoot, where the user has left it out.
async fn finalizer(
    context: &Context,
    isolation: &ZoneIsolation,
    shoot: Option<&Shoot>,
    present: bool,
) -> Result<()> {
    let mut finalizers = isolation.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    if present {
        finalizers.push(FINALIZER.to_owned());
    }
    let mut patch = json!({"metadata": {"finalizers": finalizers}});
    if let Some(uid) = shoot.and_then(ResourceExt::uid).filter(|_| isolation.spec.shoot_ref.uid.is_empty()) {
        patch["spec"]["shootRef"]["uid"] = uid.into();
    }
    let namespace = isolation.namespace().unwrap_or_default();
    let all = Api::<ZoneIsolation>::namespaced(context.garden_client().clone(), &namespace);
    let patch = under(isolation.resource_version(), patch);
    match all.patch(&isolation.name_any(), &params(), &patch).await {
        // With its last finalizer the object goes.
        Err(error) if !present && is_not_found(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write("set the finalizer")),
    }
}
