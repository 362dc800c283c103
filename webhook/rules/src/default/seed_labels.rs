//! Labels by which gardenlets find the Shoots that concern them.

use std::collections::BTreeMap;

use repot_api::{gardener::shoot::Shoot, names::SEED_LABEL_PREFIX};
use repot_apimachinery::value::at;
use serde_json::Value;

use crate::{
    change::Change,
    facts::Facts,
    finding::{PatchOp, set_entries},
};

/// One for the seed of the spec and one for that of the status, and no other.
pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<PatchOp> {
    let shoot = Shoot(&change.new);
    // A write of the Shoot itself may come without its status; what counts is what the API server keeps.
    let status = shoot.status_seed().or(Shoot(&change.old).status_seed());
    let present = at(&change.new, "/metadata/labels").and_then(Value::as_object);
    let stale = present.into_iter().flatten().filter(|(key, _)| key.starts_with(SEED_LABEL_PREFIX));
    let mut wanted: BTreeMap<String, Option<String>> = stale.map(|(key, _)| (key.clone(), None)).collect();
    for seed in [shoot.spec_seed(), status].into_iter().flatten() {
        wanted.insert(format!("{SEED_LABEL_PREFIX}{seed}"), Some("true".to_owned()));
    }
    set_entries(&change.new, "labels", &wanted.into_iter().collect::<Vec<_>>())
}
