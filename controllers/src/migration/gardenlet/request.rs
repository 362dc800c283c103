//! What a ControlPlaneMigration and its Shoot ask for. Pure.

use kube::ResourceExt;
use repot_api::{conditions::Reason, names::CONFIRM_SOURCE_OFF};
use repot_plan::{
    gardenlet::{Step, observed::MigrationRequest},
    migration::{Side, observed::MigrationMode},
    named::Named as _,
};

use crate::migration::{
    api::{ControlPlaneMigration, Shoot},
    request,
};

/// What is asked for; `shoot` is `None` where there is none of that name.
#[must_use]
pub fn request(
    migration: &ControlPlaneMigration,
    mode: MigrationMode,
    shoot: Option<&Shoot>,
) -> MigrationRequest {
    let all = request::request(migration, shoot);
    MigrationRequest {
        uid: all.uid,
        mode,
        confirmed: all.confirmed,
        source_off: migration.annotations().get(CONFIRM_SOURCE_OFF) == Some(&all.source_seed),
        finalizer: all.finalizer,
        paused: all.paused,
        abort: all.abort,
        released: (mode == MigrationMode::Classic).then(|| released(migration)).flatten(),
        abandoned: all.abandoned,
        retry: all.retry,
        step_timeout: all.step_timeout,
        source_seed: all.source_seed,
        destination_seed: all.destination_seed,
        hibernated: all.hibernated,
    }
}

/// Repot only watches once the Shoot is bound, so nobody has to wait for it then: a forced migration may begin.
fn released(migration: &ControlPlaneMigration) -> Option<Reason> {
    let garden = migration.status.get(Side::Garden.name())?;
    let mut steps = garden.get("steps")?.as_array()?.iter();
    let bound = steps.find(|step| step["name"] == Step::SeedBound.name())?;
    let is_released = migration.spec.abort.as_deref() == Some("Force") && bound["state"] == "Succeeded";
    let message =
        "spec.abort is Force, and the Shoot is bound: gardenlet goes on alone, and nobody watches it";
    is_released.then(|| Reason::new("Released", message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn source_is_off_only_when_the_confirmation_names_it() {
        for (name, is_off) in [("a", true), ("b", false), ("true", false)] {
            let migration: ControlPlaneMigration = serde_json::from_value(json!({
                "metadata": {"name": "m", "annotations": {CONFIRM_SOURCE_OFF: name}},
                "spec": {"shootRef": {"name": "s"}, "sourceSeed": "a", "destinationSeed": "b"},
            }))
            .expect("a migration");
            let request = request(&migration, MigrationMode::Forced, None);
            assert_eq!(request.source_off, is_off, "{name}");
        }
    }

    #[test]
    fn migration_is_released_when_the_shoot_is_bound_and_force_is_asked_for() {
        let released_by = |abort: &str, state: &str, mode| {
            let migration: ControlPlaneMigration = serde_json::from_value(json!({
                "metadata": {"name": "m"},
                "spec": {"shootRef": {"name": "s"}, "sourceSeed": "a", "destinationSeed": "b", "abort": abort},
                "status": {"garden": {"steps": [{"name": "SeedBound", "state": state}]}},
            }))
            .expect("a migration");
            request(&migration, mode, None).released.is_some()
        };
        assert!(released_by("Force", "Succeeded", MigrationMode::Classic));
        assert!(!released_by("Abort", "Succeeded", MigrationMode::Classic));
        assert!(!released_by("Force", "Running", MigrationMode::Classic));
        assert!(!released_by("Force", "Succeeded", MigrationMode::Forced));
    }
}
