//! Versions stay while a zone is isolated: another one rolls the nodes of the zones that are left. It is what maintenance does by itself.

use std::collections::BTreeMap;

use repot_api::gardener::shoot::Shoot;
use repot_apimachinery::value::text_at;
use serde_json::Value;

use crate::{change::Change, facts::Facts, finding::Finding};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let Some(zone) = Shoot(&change.new).isolated_zone() else { return Vec::new() };
    let (before, after) = (versions(&change.old), versions(&change.new));
    // A pool that is new has no nodes yet.
    let changed = after.iter().filter_map(|(field, version)| {
        let former = before.get(field).filter(|former| *former != version)?;
        Some((field, former, version))
    });
    let refuse = |(field, former, version): (&String, &String, &String)| {
        let reason = format!(
            "nodes would be rolled from {former:?} to {version:?}, and there is no maintenance while zone {zone:?} is isolated"
        );
        Finding::refuse(
            field,
            reason,
            "change it after the failback; maintenance tries again in its next time window",
        )
    };
    changed.map(refuse).collect()
}

/// Versions that nodes are made of, by their fields.
fn versions(shoot: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value, path: &str| text_at(value, path).unwrap_or_default().to_owned();
    let mut all =
        BTreeMap::from([("spec.kubernetes.version".to_owned(), text(shoot, "/spec/kubernetes/version"))]);
    let pools = shoot.pointer("/spec/provider/workers").and_then(Value::as_array);
    for pool in pools.into_iter().flatten() {
        let field = |end: &str| format!("spec.provider.workers[{}].{end}", text(pool, "/name"));
        let image = [text(pool, "/machine/image/name"), text(pool, "/machine/image/version")].join(" ");
        all.insert(field("machine.image"), image);
        all.insert(field("kubernetes.version"), text(pool, "/kubernetes/version"));
    }
    all
}
