//! Migration (GEP-7): a change of `spec.seedName` of a Shoot that exists.

pub(crate) mod access_restrictions;
pub(crate) mod backup_configured;
pub(crate) mod binding_only;
pub(crate) mod created_first;
pub(crate) mod default_domain;
pub(crate) mod destination_exists;
pub(crate) mod destination_has_capacity;
pub(crate) mod destination_healthy;
pub(crate) mod different_seed;
pub(crate) mod enough_zones;
pub(crate) mod ha_reconciled;
pub(crate) mod internal_domain;
pub(crate) mod networks_disjoint;
pub(crate) mod no_bastions;
pub(crate) mod no_deletion_while_migrating;
pub(crate) mod no_leftover_markers;
pub(crate) mod no_move_while_deleted;
pub(crate) mod one_migration;
pub(crate) mod pinned_zones;
pub(crate) mod provider_and_labels;
pub(crate) mod region_offered;
pub(crate) mod requested_at_true;
pub(crate) mod rotation_settled;
pub(crate) mod same_gardenlet_version;
pub(crate) mod seed_alone;
pub(crate) mod seed_stays_named;
pub(crate) mod spec_immutable_while_migrating;
pub(crate) mod taints_tolerated;

use repot_api::gardener::shoot::{Seed, Shoot};
use serde_json::{Map, Value};

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, Verdict},
};

/// So many changed fields are named one by one.
const MOST_FIELDS: usize = 8;

/// The field that all these rules are about.
pub(crate) const SEED_NAME: &str = "spec.seedName";

/// Fields of the spec that differ, beside the seed.
pub(crate) fn changed_fields(change: &Change) -> impl Iterator<Item = String> {
    let (old, new) = (spec(&change.old), spec(&change.new));
    let mut all: Vec<&String> = [old, new].into_iter().flatten().flat_map(Map::keys).collect();
    all.sort_unstable();
    all.dedup();
    let differs = move |key: &&String| {
        *key != "seedName" && old.and_then(|spec| spec.get(*key)) != new.and_then(|spec| spec.get(*key))
    };
    all.into_iter().filter(differs).take(MOST_FIELDS).map(|key| format!("spec.{key}"))
}

/// What a seed that exists suffers from.
pub(crate) fn health_problems(facts: &Facts, name: &str) -> Option<String> {
    let health_problems = Seed(facts.seed(name)?).health_problems();
    (!health_problems.is_empty()).then(|| health_problems.join(", "))
}

/// Whether nobody works for a seed any more: it does not exist, or its gardenlet is not known to be alive.
pub(crate) fn is_dead(facts: &Facts, name: &str) -> bool {
    match facts.seeds.get(name) {
        Some(Some(seed)) => Seed(seed).condition("GardenletReady") != "True",
        Some(None) => true,
        None => false,
    }
}

/// What a source that is dead cannot mend must not keep a Shoot on it: the refusal becomes a warning.
pub(crate) fn unless_dead(facts: &Facts, source: &str, finding: Finding) -> Finding {
    if !is_dead(facts, source) {
        return finding;
    }
    let advice = format!("source seed {source:?} does not answer, so the Shoot may leave it all the same");
    Finding { verdict: Verdict::Warn, advice, ..finding }
}

/// The seed to which a Shoot is sent, where it exists, and its name.
pub(crate) fn destination<'a>(change: &'a Change, facts: &'a Facts) -> Option<(&'a Value, &'a str)> {
    let (_, to) = change.seed_change().heads()?;
    Some((facts.seed(to)?, to))
}

/// The zones of that seed, and its name.
pub(crate) fn destination_zones<'a>(change: &'a Change, facts: &'a Facts) -> Option<(Vec<&'a str>, &'a str)> {
    let (_, to) = change.seed_change().heads()?;
    Some((Seed(facts.seed(to)?).zones(), to))
}

/// From where to where a Shoot moves, for messages.
pub(crate) fn describe_way(shoot: Shoot<'_>) -> String {
    let (kind, state) = shoot.last_operation();
    match (shoot.status_seed(), shoot.spec_seed()) {
        (Some(from), Some(to)) if from != to => format!("from seed {from:?} to seed {to:?}"),
        _ => format!("{kind} {state}"),
    }
}

fn spec(object: &Value) -> Option<&Map<String, Value>> {
    object.get("spec")?.as_object()
}
