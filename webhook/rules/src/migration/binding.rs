//! The way a seed is changed: by the subresource made for it, and by itself.

use serde_json::{Map, Value};

use crate::{
    change::Change, facts::Facts, finding::Finding, migration::SEED_NAME, shoot::Shoot, travel::Travel,
};

/// So many changed fields are named one by one.
const MOST_FIELDS: usize = 8;

/// Where the subresource exists, permissions hang on it.
pub(crate) fn only(change: &Change, facts: &Facts) -> Vec<Finding> {
    let changes = !matches!(Travel::of(change), Travel::Stay | Travel::Schedule | Travel::Unset { .. });
    if !changes || !facts.binding || change.target.subresource == "binding" {
        return Vec::new();
    }
    let seed = |object| Shoot(object).spec_seed().unwrap_or_default().to_owned();
    let reason = format!(
        "the seed cannot be changed from {:?} to {:?} by writing the Shoot itself",
        seed(&change.old),
        seed(&change.new)
    );
    vec![Finding::refuse(SEED_NAME, reason, "write the subresource shoots/binding")]
}

/// A spec that changes on the way leaves things behind that nobody deletes.
pub(crate) fn alone(change: &Change, _: &Facts) -> Vec<Finding> {
    let binding = change.target.subresource == "binding";
    if Travel::start(change).is_none() && !(binding && change.old.is_object()) {
        return Vec::new();
    }
    let refuse = |field: String| {
        let reason = "only spec.seedName can change when a Shoot is moved";
        Finding::refuse(field, reason, "change it before, or after the migration")
    };
    changed_fields(change).map(refuse).collect()
}

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

fn spec(object: &Value) -> Option<&Map<String, Value>> {
    object.get("spec")?.as_object()
}
