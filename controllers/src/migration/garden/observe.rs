//! What the garden observes: the Shoot, other migrations of it, and both Seeds.

use kube::{
    Api, Client, ResourceExt,
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use repot_api::{gardener::shoot::Seed, names::CORE_GROUP};
use repot_plan::migration::observed::{
    Facts, FormerOperation, GardenFacts, MigrationMode, MigrationRequest, Observed, Quarantine,
};
use serde_json::Value;

use super::{backup_entry, distance, ignored, live, objects::Objects, operation};
use crate::{
    isolation::siblings as isolations,
    migration::{
        api::{ControlPlaneMigration, Shoot},
        context::Context,
        error::{Error, Result},
        pass::{self, Observation},
        siblings,
    },
};

/// Observes the garden.
///
/// # Errors
/// Where its API servers do not answer.
pub async fn observe(
    context: &Context,
    migration: &ControlPlaneMigration,
    shoot: Option<Shoot>,
    request: MigrationRequest,
) -> Result<Observation> {
    let garden = context.garden_client();
    let spec = &migration.spec;
    let (others, source, destination) = futures::try_join!(
        siblings::of(context, migration),
        seed(garden, &spec.source_seed),
        seed(garden, &spec.destination_seed),
    )?;
    let backup_entry = match &shoot {
        Some(shoot) => backup_entry::find(garden, shoot).await?,
        None => None,
    };
    let seeds = [(&*spec.source_seed, source.as_ref()), (&*spec.destination_seed, destination.as_ref())];
    let refusals: Vec<String> = match request.mode {
        MigrationMode::Classic => refusals_between(seeds[0], seeds[1]),
        MigrationMode::Live => {
            let distant = distance::refusal(garden, migration, shoot.as_ref(), seeds).await?;
            refusals_between(seeds[0], seeds[1]).into_iter().chain(distant).collect()
        }
        // What the garden knows of a dead source is old.
        MigrationMode::Forced => refusals_of(seeds[1]),
    };
    let isolated = match request.mode {
        MigrationMode::Classic | MigrationMode::Live => isolations::refusal(context, migration).await?,
        MigrationMode::Forced => None,
    };
    let status = shoot.as_ref().map(|shoot| &shoot.status);
    let facts = GardenFacts {
        other_migration: siblings::obstacle(&others, migration),
        // What waits for an isolation takes no turn.
        queued: isolated.clone().or_else(|| context.turns.why_queued(migration)),
        gives_way: siblings::may_give_way(&others, migration),
        followed_by: siblings::follower(&others, migration),
        superseded: siblings::in_the_way(&others, migration),
        highest_epoch: others.iter().filter_map(ControlPlaneMigration::owner_epoch).max(),
        quarantine: quarantine(context, migration),
        refusals: refusals.into_iter().chain(isolated).collect(),
        live: status.map(live::read).unwrap_or_default(),
        spec_seed: shoot.as_ref().and_then(|shoot| shoot.spec.seed_name.clone()).unwrap_or_default(),
        status_seed: status.and_then(|status| status.seed_name.clone()).unwrap_or_default(),
        backup_entry: backup_entry.as_ref().map(backup_entry::seeds),
        last_operation: status
            .and_then(|status| status.last_operation.as_ref())
            .map(|last| FormerOperation { kind: last.kind.clone(), state: last.state.clone() }),
        ignored: shoot
            .as_ref()
            .map(|shoot| ignored::read(shoot, &request.uid, &siblings::uids(&others)))
            .unwrap_or_default(),
        requested_operation: shoot.as_ref().and_then(ignored::requested_operation),
        is_seed_deleted: is_seed_deleted(shoot.as_ref(), seeds),
        is_operation_by_repot: operation::is_by_repot(
            status.and_then(|status| status.last_operation.as_ref()),
        ),
        generation: shoot
            .as_ref()
            .and_then(|shoot| shoot.metadata.generation)
            .unwrap_or_default()
            .unsigned_abs(),
        observed_generation: status.map(|status| status.observed_generation).unwrap_or_default(),
        operation: operation::read(
            status.and_then(|status| status.last_operation.as_ref()),
            &migration.name_any(),
        ),
    };
    let facts = Observed { request, facts: Facts::Garden(Box::new(facts)) };
    Ok(Observation { facts, objects: pass::Objects::Garden(Box::new(Objects { shoot, backup_entry })) })
}

/// Whether the Seed that `spec.seedName` of the Shoot names is being deleted, or gone: Gardener refuses annotations of the Shoot then. Of
/// another Seed than those of the migration nothing is known.
fn is_seed_deleted(shoot: Option<&Shoot>, seeds: [(&str, Option<&Value>); 2]) -> bool {
    let named = shoot.and_then(|shoot| shoot.spec.seed_name.as_deref());
    let seed = seeds.into_iter().find(|(name, _)| Some(*name) == named);
    seed.is_some_and(|(_, seed)| seed.is_none_or(|seed| !seed["metadata"]["deletionTimestamp"].is_null()))
}

/// What the command of the operator says, from when the owner record names the destination: nothing is done to a source before.
fn quarantine(context: &Context, migration: &ControlPlaneMigration) -> Quarantine {
    match &context.quarantine {
        None => Quarantine::NotConfigured,
        Some(command) if migration.is_source_to_be_quarantined() => {
            command.check(&migration.spec.source_seed)
        }
        Some(_) => Quarantine::Open("it is not asked yet".to_owned()),
    }
}

/// A Seed as JSON; `None` where there is none of that name.
///
/// # Errors
/// [`Error::Read`].
pub async fn seed(garden: &Client, name: &str) -> Result<Option<Value>> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(CORE_GROUP, "v1beta1", "Seed"));
    let all = Api::<DynamicObject>::all_with(garden.clone(), &kind);
    let found = all.get_opt(name).await.map_err(Error::read(format!("Seed {name}")))?;
    let form = |source| Error::Form { what: format!("Seed {name}"), source };
    found.map(|seed| serde_json::to_value(seed).map_err(form)).transpose()
}

/// Why the destination cannot host any Shoot. It comes with its name.
#[must_use]
pub fn refusals_of((name, seed): (&str, Option<&Value>)) -> Vec<String> {
    let Some(seed) = seed.map(Seed) else { return vec![format!("there is no Seed {name}")] };
    let mut all: Vec<String> =
        seed.health_problems().into_iter().map(|problem| format!("Seed {name}: {problem}")).collect();
    all.extend((!seed.has_backup()).then(|| format!("Seed {name} has no backup bucket")));
    all
}

/// Why the destination cannot host the Shoot. Both seeds come with their names.
#[must_use]
pub fn refusals_between(source: (&str, Option<&Value>), destination: (&str, Option<&Value>)) -> Vec<String> {
    let missing = source.1.is_none().then(|| format!("there is no Seed {}", source.0));
    let mut all: Vec<String> = missing.into_iter().chain(refusals_of(destination)).collect();
    let (Some(from), Some(to)) = (source.1.map(Seed), destination.1.map(Seed)) else { return all };
    let name = destination.0;
    for (what, before, after) in [
        ("type of provider", from.provider(), to.provider()),
        ("version of gardenlet", from.version(), to.version()),
    ] {
        if before != after {
            let (before, after) = (before.unwrap_or("unknown"), after.unwrap_or("unknown"));
            all.push(format!("the {what} differs: {before} at {}, {after} at {name}", source.0));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn healthy(version: &str) -> Value {
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        let kinds =
            ["GardenletReady", "SeedSystemComponentsHealthy", "BackupBucketsReady", "ExtensionsReady"];
        json!({
            "metadata": {"generation": 1},
            "spec": {"provider": {"type": "local"}, "backup": {}},
            "status": {
                "observedGeneration": 1, "gardener": {"version": version},
                "conditions": kinds.map(condition),
            },
        })
    }

    fn refused(source: Option<&Value>, destination: Option<&Value>) -> Vec<String> {
        refusals_between(("a", source), ("b", destination))
    }

    #[test]
    fn equal_and_healthy_seeds_are_fit() {
        let seed = healthy("1.150.0");
        assert_eq!(refused(Some(&seed), Some(&seed)), Vec::<String>::new());
    }

    #[test]
    fn seed_that_is_missing_ill_or_other_is_refused() {
        let seed = healthy("1.150.0");
        assert_eq!(refused(Some(&seed), None), ["there is no Seed b"]);
        let other = refused(Some(&seed), Some(&healthy("1.149.0")));
        assert_eq!(other, ["the version of gardenlet differs: 1.150.0 at a, 1.149.0 at b"]);
        let mut ill = healthy("1.150.0");
        ill["status"]["conditions"][0]["status"] = "False".into();
        assert_eq!(refused(Some(&seed), Some(&ill)), ["Seed b: condition GardenletReady is False"]);
    }
}
