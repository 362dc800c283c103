//! The Shoots that are asked about, the question, and the policy that answers it in CEL.

use repot_api::names::{CORE_GROUP, ISOLATED_ZONE};
use serde_json::{Value, json};

/// A version of Gardener's kinds.
pub const VERSION: &str = "v1beta1";
/// Id and code of a zone.
pub const ZONE: (&str, &str) = ("euc1-az1", "eu-1a");

/// A Shoot of about so many bytes: what grows is the number of its worker pools, as it does in life.
pub fn shoot(namespace: &str, bytes: usize) -> Value {
    let mut shoot = json!({
        "apiVersion": format!("{CORE_GROUP}/{VERSION}"), "kind": "Shoot",
        "metadata": { "namespace": namespace, "name": format!("s{bytes}"), "annotations": {} },
        "spec": {
            "seedName": "a", "region": "eu", "cloudProfile": { "name": "local" }, "purpose": "production",
            "controlPlane": { "highAvailability": { "failureTolerance": { "type": "zone" } } },
            "kubernetes": { "version": "1.36.0", "kubeAPIServer": { "enableAnonymousAuthentication": false } },
            "networking": { "type": "calico", "nodes": "10.1.0.0/16", "pods": "10.2.0.0/16", "services": "10.3.0.0/16" },
            "maintenance": { "autoUpdate": { "kubernetesVersion": true, "machineImageVersion": true } },
            "provider": { "type": "local", "workers": [pool(0)] },
        },
        "status": { "seedName": "a", "lastOperation": { "type": "Reconcile", "state": "Succeeded", "progress": 100 } },
    });
    let left = bytes.saturating_sub(shoot.to_string().len());
    let pools = left / (pool(100).to_string().len() + 1);
    let more = (1..=pools).map(pool);
    if let Some(workers) = shoot.pointer_mut("/spec/provider/workers").and_then(Value::as_array_mut) {
        workers.extend(more);
    }
    shoot
}

fn pool(number: usize) -> Value {
    json!({
        "name": format!("pool-{number}"), "zones": ["eu-1a", "eu-1b"], "minimum": 1, "maximum": 3, "maxSurge": 1,
        "machine": { "type": "m5.large", "image": { "name": "gardenlinux", "version": "1877.3.0" } },
        "volume": { "type": "gp3", "size": "50Gi", "encrypted": true },
        "labels": { "team": "platform", "cost-center": "4711" },
        "taints": [{ "key": "dedicated", "value": "platform", "effect": "NoSchedule" }],
    })
}

/// The same Shoot with a zone isolated.
pub fn isolated(mut shoot: Value) -> Value {
    shoot["metadata"]["annotations"] = json!({ ISOLATED_ZONE: ZONE.0 });
    shoot
}

/// The write by which a zone is isolated.
pub fn patch() -> Value {
    json!({ "metadata": { "annotations": { ISOLATED_ZONE: ZONE.0 } } })
}

/// The same with a value that nobody lets through.
pub fn wrong_patch() -> Value {
    json!({ "metadata": { "annotations": { ISOLATED_ZONE: "Not A Zone" } } })
}

/// The question as kube-apiserver asks it.
pub fn review(bytes: usize) -> Value {
    let old = shoot("direct", bytes);
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0a4ae1a4-3b8e-4b5a-9c5e-5f2a54b0b7f1", "operation": "UPDATE", "dryRun": true,
            "kind": { "group": CORE_GROUP, "version": VERSION, "kind": "Shoot" },
            "resource": { "group": CORE_GROUP, "version": VERSION, "resource": "shoots" },
            "namespace": "direct", "name": format!("s{bytes}"),
            "userInfo": { "username": "alice", "groups": ["people", "system:authenticated"] },
            "object": isolated(old.clone()), "oldObject": old,
        },
    })
}

/// The rules about an isolated zone, as far as CEL has what it takes: no CloudProfile, no Seed.
pub fn policy(namespace_label: &str) -> [Value; 2] {
    let zone = format!("'{ISOLATED_ZONE}'");
    let new = format!("object.metadata.?annotations[?{zone}]");
    let old = format!("oldObject.metadata.?annotations[?{zone}]");
    let set = format!("!{new}.hasValue()");
    let pools = "object.spec.provider.workers";
    let code = ZONE.1;
    let rule = |expression: String, message: &str| json!({ "expression": expression, "message": message });
    let moving = "object.?spec.?seedName.orValue('') != object.?status.?seedName.orValue('') || \
        object.?status.?lastOperation.?type.orValue('') in ['Migrate', 'Restore', 'LiveMigrate']";
    let validations = [
        rule(
            format!("{set} || {new}.value().matches('^[a-z0-9]([a-z0-9._-]{{0,61}}[a-z0-9])?$')"),
            "no zone id",
        ),
        rule(
            format!("{set} || !{old}.hasValue() || {old}.value() == {new}.value()"),
            "an isolation is set and removed",
        ),
        rule(format!("{set} || !({moving})"), "the Shoot moves"),
        rule(format!("{set} || {pools}.exists(p, '{code}' in p.zones)"), "no worker is in the zone"),
        rule(
            format!("{set} || {pools}.exists(p, p.zones.exists(z, z != '{code}'))"),
            "no zone would be left",
        ),
    ];
    let api = "admissionregistration.k8s.io/v1";
    let spec = json!({
        "failurePolicy": "Fail", "validations": validations,
        "matchConstraints": { "resourceRules": [{
            "apiGroups": [CORE_GROUP], "apiVersions": [VERSION], "operations": ["UPDATE"], "resources": ["shoots"],
        }] },
    });
    let binding = json!({
        "policyName": "isolated-zone", "validationActions": ["Deny"],
        "matchResources": { "namespaceSelector": { "matchLabels": { namespace_label: "policy" } } },
    });
    [
        json!({ "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": { "name": "isolated-zone" }, "spec": spec }),
        json!({ "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": "isolated-zone" }, "spec": binding }),
    ]
}
