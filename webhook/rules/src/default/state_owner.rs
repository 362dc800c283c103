//! A ShootState goes with its Shoot.

use repot_apimachinery::value::{items_at, text_at};
use serde_json::{Value, json};

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::PatchOp,
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<PatchOp> {
    let Some(shoot) = facts.shoot.as_deref().filter(|_| change.operation == Operation::Create) else {
        return Vec::new();
    };
    let (Some(name), Some(uid)) = (text_at(shoot, "/metadata/name"), text_at(shoot, "/metadata/uid")) else {
        return Vec::new();
    };
    let own = items_at(&change.new, "/metadata/ownerReferences");
    let owned = own.iter().any(|owner| {
        text_at(owner, "/uid") == Some(uid) || owner.get("controller") == Some(&Value::Bool(true))
    });
    if owned || !change.new.get("metadata").is_some_and(Value::is_object) {
        return Vec::new();
    }
    let version = text_at(shoot, "/apiVersion").unwrap_or("core.gardener.cloud/v1beta1");
    let owner = json!({
        "apiVersion": version, "kind": "Shoot", "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true,
    });
    let path = "/metadata/ownerReferences".to_owned();
    match own.is_empty() {
        true => vec![PatchOp::Add { path, value: json!([owner]) }],
        false => vec![PatchOp::Add { path: path + "/-", value: owner }],
    }
}
