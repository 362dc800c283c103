//! Annotations by which controllers mark where the life of an etcd stands.

use std::collections::BTreeSet;

use repot_api::names::{CONFIRM_TAKEOVER, SUSPEND_ETCD, UNPROTECT_ETCD, WITHOUT_GATEWAYS};
use repot_apimachinery::value::{at, raw_annotation_of};
use serde_json::Value;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::{Finding, annotation_path},
    state::by_controllers,
};

const OURS: &str = "migration.gardener.cloud/";
/// Annotations of ours that people set: controllers only read them.
const OF_PEOPLE: &[&str] = &[WITHOUT_GATEWAYS];

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    // A new HostedEtcd may come from a backup of its manifest; a new Etcd may be one that was deleted to get past this rule.
    let made = change.operation == Operation::Create && change.target.resource == "etcds";
    if !(made || change.operation == Operation::Update) {
        return Vec::new();
    }
    let keys = |object: &Value| {
        let all = at(object, "/metadata/annotations").and_then(Value::as_object);
        all.into_iter().flatten().map(|(key, _)| key.clone()).collect::<BTreeSet<_>>()
    };
    let ours = |key: &&String| {
        key.starts_with(OURS) && !OF_PEOPLE.contains(&key.as_str())
            || matches!(key.as_str(), SUSPEND_ETCD | UNPROTECT_ETCD)
    };
    // One that goes frees the etcd: that is left to everybody.
    let changed = |key: &&String| {
        key.as_str() != CONFIRM_TAKEOVER
            && raw_annotation_of(&change.new, key) != raw_annotation_of(&change.old, key)
    };
    let finding = |key: &String| {
        let was = raw_annotation_of(&change.old, key).map_or("not set", |_| "set by a controller");
        let reason = format!("the annotation steers the life of an etcd and was {was}");
        by_controllers(
            change,
            facts,
            &annotation_path(key),
            &reason,
            "use an EtcdBackup, EtcdRestore or EtcdMigration",
        )
    };
    keys(&change.new).iter().filter(ours).filter(changed).filter_map(finding).collect()
}
