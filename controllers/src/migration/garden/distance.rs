//! How far the seeds of a live migration are from each other, by the region ConfigMaps of the scheduler.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::ListParams};
use repot_api::{
    gardener::shoot::{Seed, Shoot as ShootView},
    names::{ALLOW_DISTANT_REGIONS, GARDEN_NAMESPACE, PURPOSE},
};
use repot_apimachinery::value::parse_bool;
use repot_rules::{
    distance::between,
    facts::{Distances, Facts},
    region_config,
};
use serde_json::{Value, json};

use crate::{
    errors::is_forbidden,
    migration::{
        api::{ControlPlaneMigration, Shoot},
        error::{Error, Result},
    },
};

/// Why one etcd cannot live in both seeds, which come with their names. An annotation of the Shoot or of the migration allows it.
///
/// # Errors
/// [`Error::Read`].
pub async fn refusal(
    garden: &Client,
    migration: &ControlPlaneMigration,
    shoot: Option<&Shoot>,
    seeds: [(&str, Option<&Value>); 2],
) -> Result<Option<String>> {
    let [(source, Some(from)), (destination, Some(to))] = seeds else { return Ok(None) };
    let is_near = Seed(from).region().is_some() && Seed(from).region() == Seed(to).region();
    let of_shoot = shoot.and_then(|shoot| shoot.metadata.annotations.as_ref());
    if is_near || is_allowed(migration.metadata.annotations.as_ref()) || is_allowed(of_shoot) {
        return Ok(None);
    }
    let profile = shoot.and_then(Shoot::cloud_profile).unwrap_or_default();
    match region_configs(garden).await {
        Ok(configs) => Ok(objection([(source, from), (destination, to)], profile, configs)),
        // A person sees it in the status, and not in a log alone.
        Err(Error::Read { source, .. }) if is_forbidden(&source) => Ok(Some(format!(
            "the distance between the seeds cannot be determined: ConfigMaps in namespace {GARDEN_NAMESPACE} may not be listed; apply \
             deploy/webhooks/distances.yaml, or set annotation {ALLOW_DISTANT_REGIONS}=true"
        ))),
        Err(error) => Err(error),
    }
}

fn is_allowed(annotations: Option<&BTreeMap<String, String>>) -> bool {
    let value = annotations.and_then(|all| all.get(ALLOW_DISTANT_REGIONS));
    value.and_then(|value| parse_bool(value)) == Some(true)
}

fn objection(seeds: [(&str, &Value); 2], profile: &str, region_configs: Vec<Distances>) -> Option<String> {
    let [(source, _), (destination, _)] = seeds;
    let facts = Facts {
        seeds: seeds.map(|(name, seed)| (name.to_owned(), Some(Arc::new(seed.clone())))).into(),
        distances: Arc::new(region_configs),
        ..Facts::default()
    };
    let shoot = json!({"spec": {"cloudProfile": {"name": profile}}});
    let why = between(source, destination, ShootView(&shoot), &facts).objection(source, destination)?;
    Some(format!("{why}; move it in mode Classic, or set annotation {ALLOW_DISTANT_REGIONS}=true"))
}

async fn region_configs(garden: &Client) -> Result<Vec<Distances>> {
    let labels = format!("{}={}", PURPOSE.0, PURPOSE.1);
    let all = Api::<ConfigMap>::namespaced(garden.clone(), GARDEN_NAMESPACE);
    let what = || format!("ConfigMaps with label {labels} in namespace {GARDEN_NAMESPACE}");
    let found = all.list(&ListParams::default().labels(&labels)).await;
    let found = found.map_err(|source| Error::read(what())(source))?.items;
    let found: serde_json::Result<Vec<Value>> = found.iter().map(serde_json::to_value).collect();
    let found = found.map_err(|source| Error::Form { what: what(), source })?;
    let mut read: Vec<_> = found.iter().filter_map(region_config::read).collect();
    read.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(region: &str) -> Value {
        json!({"spec": {"provider": {"region": region}}})
    }

    fn found(threshold: &str, profile: &str) -> Option<String> {
        let config = region_config::read(&json!({
            "metadata": {
                "name": "regions", "labels": {PURPOSE.0: PURPOSE.1},
                "annotations": {
                    "scheduling.gardener.cloud/cloudprofiles": "local",
                    "migration.gardener.cloud/inter-seed-distance-threshold": threshold,
                },
            },
            "data": {"eu": "us: 90"},
        }));
        let (from, to) = (seed("eu"), seed("us"));
        let seeds = [("a", &from), ("b", &to)];
        objection(seeds, profile, config.into_iter().collect())
    }

    #[test]
    fn seeds_that_are_too_far_from_each_other_or_whose_distance_is_unknown_are_refused() {
        assert_eq!(found("90", "local"), None);
        let far = found("89", "local").expect("too far");
        assert!(far.contains("is 90, more than 89"), "{far}");
        assert!(far.ends_with("set annotation migration.gardener.cloud/allow-distant-regions=true"), "{far}");
        let unknown = found("90", "other").expect("unknown");
        assert!(unknown.contains("cannot be determined"), "{unknown}");
    }

    #[test]
    fn annotation_that_says_yes_allows_distant_regions() {
        let of =
            |value: &str| is_allowed(Some(&[(ALLOW_DISTANT_REGIONS.to_owned(), value.to_owned())].into()));
        assert!(of("true"));
        assert!(!of("false") && !of("") && !is_allowed(None));
    }
}
