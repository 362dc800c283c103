//! Which members form one cluster.

use repot_apimachinery::value::at;
use serde_json::Value;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
    state::by_controllers,
};

/// Fields that decide which members form one cluster, in the spellings of the paper and of etcd-druid.
const MEMBERSHIP: &[&str] = &[
    "additionalAdvertisePeerURLs",
    "additionalAdvertisePeerUrls",
    "bootstrapWithExistingCluster",
    "lostMembers",
];

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    if change.operation == Operation::Delete || change.target.resource != "etcds" {
        return Vec::new();
    }
    let of = |object: &Value, field: &str| at(object, &format!("/spec/etcd/{field}")).cloned();
    let changed = MEMBERSHIP.iter().filter(|field| of(&change.old, field) != of(&change.new, field));
    let finding = |field: &&str| {
        let reason = "the field decides which members form one etcd: a wrong value splits it";
        by_controllers(change, facts, &format!("spec.etcd.{field}"), reason, "leave it to the live migration")
    };
    changed.filter_map(finding).collect()
}
