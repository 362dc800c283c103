//! What a ControlPlaneMigration and its Shoot ask for. Pure.

use kube::ResourceExt;
use repot_api::names::CONFIRM_SOURCE_OFF;
use repot_plan::{gardenlet::observed::MigrationRequest, migration::observed::MigrationMode};

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
        abandoned: all.abandoned,
        retry: all.retry,
        step_timeout: all.step_timeout,
        source_seed: all.source_seed,
        destination_seed: all.destination_seed,
        hibernated: all.hibernated,
    }
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
}
