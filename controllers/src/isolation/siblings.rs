//! The Shoot of an isolation, and other isolations and migrations of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use repot_plan::{isolation::IsolationSide, migration::observed::MigrationMode};
use serde_json::json;

use super::{
    api::{CONTINUED_BY, ZoneIsolation},
    names::MANAGER,
};
use crate::{
    errors::is_not_found,
    migration::{
        api::{ControlPlaneMigration, Shoot},
        context::Context,
        error::{Error, Result},
    },
};

/// The Shoot of an isolation; `None` where there is none of its name.
///
/// # Errors
/// [`Error::Read`].
pub async fn shoot(context: &Context, isolation: &ZoneIsolation) -> Result<Option<Shoot>> {
    let (namespace, name) = (isolation.namespace().unwrap_or_default(), &isolation.spec.shoot_ref.name);
    let found = Api::<Shoot>::namespaced(context.garden_client().clone(), &namespace).get_opt(name).await;
    found.map_err(Error::read(format!("Shoot {namespace}/{name}")))
}

/// Other isolations of the same Shoot.
///
/// # Errors
/// [`Error::Read`].
pub async fn others(context: &Context, own: &ZoneIsolation) -> Result<Vec<ZoneIsolation>> {
    let namespace = own.namespace().unwrap_or_default();
    let all = Api::<ZoneIsolation>::namespaced(context.garden_client().clone(), &namespace);
    let found = all.list(&ListParams::default()).await;
    let mut found = found.map_err(Error::read(format!("ZoneIsolations of {namespace}")))?.items;
    found.retain(|other| other.spec.shoot_ref.name == own.spec.shoot_ref.name && other.uid() != own.uid());
    Ok(found)
}

/// Whether another isolation of the same Shoot was created before, and has not ended.
pub fn is_in_the_way(other: &ZoneIsolation, own: &ZoneIsolation) -> bool {
    age(other) < age(own) && !other.has_ended()
}

/// Whether another isolation of the Shoot is of the same zone, and has not ended. What is left out, cordoned and cut off is its own then.
pub fn follows(other: &ZoneIsolation, own: &ZoneIsolation) -> bool {
    other.spec.zone == own.spec.zone && !other.has_ended()
}

/// Whether another isolation of the Shoot was created later and has begun, so that the status of the Shoot tells of that one.
pub fn outdates(other: &ZoneIsolation, own: &ZoneIsolation) -> bool {
    age(other) > age(own) && other.part(IsolationSide::Garden)["begun"] == true
}

fn age(isolation: &ZoneIsolation) -> (Option<Time>, Option<String>) {
    (isolation.creation_timestamp(), isolation.uid())
}

/// Whether an isolation goes on from where another one stands: the same zone is to be left again before it is used again.
pub fn takes_over(own: &ZoneIsolation, other: &ZoneIsolation) -> bool {
    other.spec.zone == own.spec.zone && other.is_failing_back()
}

/// Why a control plane cannot move by its source: a zone of the Shoot is isolated, or comes back.
///
/// # Errors
/// [`Error::Read`].
pub async fn refusal(context: &Context, migration: &ControlPlaneMigration) -> Result<Option<String>> {
    let namespace = migration.namespace().unwrap_or_default();
    let all = Api::<ZoneIsolation>::namespaced(context.garden_client().clone(), &namespace);
    let found = match all.list(&ListParams::default()).await {
        Err(error) if is_not_found(&error) => return Ok(None),
        found => found.map_err(Error::read(format!("ZoneIsolations of {namespace}")))?.items,
    };
    let shoot = &migration.spec.shoot_ref.name;
    let is_open = |one: &&ZoneIsolation| one.spec.shoot_ref.name == *shoot && !one.has_ended();
    Ok(found.iter().find(is_open).map(|one| {
        let (name, zone) = (one.name_any(), &one.spec.zone);
        format!("ZoneIsolation {name} of zone {zone} has not ended; use the zone again, and wait for that")
    }))
}

/// Name of a migration of the same Shoot that is under way, if there is one. One that waits for its turn waits for the isolation, too.
///
/// # Errors
/// [`Error::Read`].
pub async fn migration(context: &Context, own: &ZoneIsolation) -> Result<Option<String>> {
    let namespace = own.namespace().unwrap_or_default();
    let all = Api::<ControlPlaneMigration>::namespaced(context.garden_client().clone(), &namespace);
    let found = all.list(&ListParams::default()).await;
    let found = found.map_err(Error::read(format!("ControlPlaneMigrations of {namespace}")))?.items;
    let mut running = found.iter().filter(|one| {
        let is_over = one.has_ended() || one.superseded_by().is_some() || one.continued_by().is_some();
        let waits = one.mode().is_some_and(|mode| mode != MigrationMode::Forced) && !one.has_taken_turn();
        one.spec.shoot_ref.name == own.spec.shoot_ref.name && !is_over && !waits
    });
    Ok(running.next().map(ResourceExt::name_any))
}

/// Writes into the status of earlier isolations that this one goes on from where they stand.
///
/// # Errors
/// [`Error::Write`]; a conflict where one of them went on meanwhile. The next pass looks again.
pub async fn take_over(context: &Context, own: &ZoneIsolation) -> Result<()> {
    let namespace = own.namespace().unwrap_or_default();
    let all = Api::<ZoneIsolation>::namespaced(context.garden_client().clone(), &namespace);
    let others = others(context, own).await?;
    let is_untold = |other: &&ZoneIsolation| {
        is_in_the_way(other, own) && takes_over(own, other) && other.continued_by().is_none()
    };
    for other in others.iter().filter(is_untold) {
        let patch = json!({
            "metadata": {"resourceVersion": other.resource_version()},
            "status": {CONTINUED_BY: own.name_any()},
        });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let name = other.name_any();
        let outcome = all.patch_status(&name, &params, &Patch::Merge(patch)).await;
        outcome.map_err(Error::write(format!("go on from ZoneIsolation {name}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn isolation(name: &str, at: &str, status: &serde_json::Value) -> ZoneIsolation {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": at},
            "spec": {"shootRef": {"name": "s"}, "isolatedZoneID": "z1"}, "status": status,
        }))
        .expect("an isolation")
    }

    #[test]
    fn open_one_of_the_same_zone_follows_one_that_has_ended() {
        let (ended, time) = (json!({"phase": "Succeeded"}), "2026-05-01T06:30:00Z");
        let own = isolation("a", time, &json!({"garden": ended, "seed": ended}));
        let mut next = isolation("b", time, &json!({}));
        assert!(follows(&next, &own) && !outdates(&next, &own));
        next.status.insert("garden".to_owned(), json!({"begun": true}));
        assert!(outdates(&next, &own) && !outdates(&own, &next));
        next.spec.zone = "z2".to_owned();
        assert!(!follows(&next, &own));
        assert!(!follows(&isolation("c", time, &json!({"garden": ended, "seed": ended})), &own));
    }

    #[test]
    fn earlier_one_stands_in_the_way_until_both_sides_have_ended() {
        let own = isolation("b", "2026-05-01T06:30:00Z", &json!({}));
        let ended = |garden: &str, seed: &str| {
            let status = json!({"garden": {"phase": garden}, "seed": {"phase": seed}, "phase": "Failback"});
            isolation("a", "2026-05-01T06:29:00Z", &status)
        };
        assert!(is_in_the_way(&ended("Succeeded", "Running"), &own));
        assert!(takes_over(&own, &ended("Succeeded", "Running")));
        assert!(!is_in_the_way(&ended("Succeeded", "Failed"), &own));
        assert!(!is_in_the_way(&own, &ended("Running", "Running")));
        assert!(!takes_over(&own, &isolation("a", "2026-05-01T06:29:00Z", &json!({"phase": "Failover"}))));
    }
}
