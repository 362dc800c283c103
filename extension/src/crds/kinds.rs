//! What is particular to each kind.

use serde_json::{Value, json};

use super::schema::*;

/// One kind: names, columns and the fields that only it has.
pub(super) struct KindSchema {
    pub(super) name: &'static str,
    pub(super) plural: &'static str,
    pub(super) short_names: &'static [&'static str],
    pub(super) scope: &'static str,
    /// Names and paths; a column `Age` is a date.
    pub(super) columns: &'static [(&'static str, &'static str)],
    /// Required fields of the spec beside `type`.
    pub(super) required: &'static [&'static str],
    pub(super) spec: fn() -> Value,
    /// `None` for Cluster, which has no status.
    pub(super) status: Option<fn() -> Value>,
}

const AGE: (&str, &str) = ("Age", ".metadata.creationTimestamp");
const TYPE: (&str, &str) = ("Type", ".spec.type");
const REGION: (&str, &str) = ("Region", ".spec.region");
const STATUS: (&str, &str) = ("Status", ".status.lastOperation.state");
const STATE: (&str, &str) = ("State", ".status.lastOperation.state");
const NAMESPACED: &str = "Namespaced";

fn nothing() -> Value {
    json!({})
}

pub(super) const KINDS: &[KindSchema] = &[
    KindSchema {
        name: "BackupBucket",
        plural: "backupbuckets",
        short_names: &["bb"],
        scope: "Cluster",
        columns: &[TYPE, REGION, STATE, AGE],
        required: &["region", "secretRef"],
        spec: || json!({"region": string(), "secretRef": secret_ref()}),
        status: Some(|| json!({"generatedSecretRef": secret_ref()})),
    },
    KindSchema {
        name: "BackupEntry",
        plural: "backupentries",
        short_names: &["be"],
        scope: "Cluster",
        columns: &[TYPE, REGION, ("Bucket", ".spec.bucketName"), STATE, AGE],
        required: &["bucketName", "region", "secretRef"],
        spec: || {
            json!({
                "region": string(), "secretRef": secret_ref(), "bucketName": string(),
                "backupBucketProviderStatus": raw(),
            })
        },
        status: Some(nothing),
    },
    KindSchema {
        name: "Cluster",
        plural: "clusters",
        short_names: &[],
        scope: "Cluster",
        columns: &[AGE],
        required: &["cloudProfile", "shoot"],
        spec: || json!({"cloudProfile": raw(), "seed": raw(), "shoot": raw()}),
        status: None,
    },
    KindSchema {
        name: "ContainerRuntime",
        plural: "containerruntimes",
        short_names: &["cr"],
        scope: NAMESPACED,
        columns: &[TYPE, STATUS, AGE],
        required: &["binaryPath", "workerPool"],
        spec: || json!({"binaryPath": string(), "workerPool": runtime_pool()}),
        status: Some(nothing),
    },
    KindSchema {
        name: "ControlPlane",
        plural: "controlplanes",
        short_names: &["cp"],
        scope: NAMESPACED,
        columns: &[TYPE, STATUS, AGE],
        required: &["region", "secretRef"],
        spec: || json!({"region": string(), "secretRef": secret_ref(), "infrastructureProviderStatus": raw()}),
        status: Some(nothing),
    },
    KindSchema {
        name: "DNSRecord",
        plural: "dnsrecords",
        short_names: &["dns"],
        scope: NAMESPACED,
        columns: &[TYPE, ("Domain Name", ".spec.name"), ("Record Type", ".spec.recordType"), STATUS, AGE],
        required: &["name", "recordType", "secretRef", "values"],
        spec: || {
            json!({
                "name": string(), "recordType": string(), "values": strings(), "secretRef": secret_ref(),
                "region": string(), "zone": string(), "ttl": int64(),
            })
        },
        status: Some(|| json!({"zone": string()})),
    },
    KindSchema {
        name: "Extension",
        plural: "extensions",
        short_names: &["ext"],
        scope: NAMESPACED,
        columns: &[TYPE, STATUS, AGE],
        required: &[],
        spec: nothing,
        status: Some(nothing),
    },
    KindSchema {
        name: "Infrastructure",
        plural: "infrastructures",
        short_names: &["infra"],
        scope: NAMESPACED,
        columns: &[TYPE, REGION, STATUS, AGE],
        required: &["region", "secretRef"],
        spec: || json!({"region": string(), "secretRef": secret_ref(), "sshPublicKey": bytes()}),
        status: Some(|| {
            let networking = json!({"pods": strings(), "nodes": strings(), "services": strings()});
            json!({"nodesCIDR": string(), "egressCIDRs": strings(), "networking": object(networking, &[])})
        }),
    },
    KindSchema {
        name: "Network",
        plural: "networks",
        short_names: &[],
        scope: NAMESPACED,
        columns: &[TYPE, ("Pod CIDR", ".spec.podCIDR"), ("Service CIDR", ".spec.serviceCIDR"), STATUS, AGE],
        required: &["podCIDR", "serviceCIDR"],
        spec: || json!({"podCIDR": string(), "serviceCIDR": string(), "ipFamilies": strings()}),
        status: Some(|| json!({"ipFamilies": strings()})),
    },
    KindSchema {
        name: "OperatingSystemConfig",
        plural: "operatingsystemconfigs",
        short_names: &["osc"],
        scope: NAMESPACED,
        columns: &[TYPE, ("Purpose", ".spec.purpose"), STATUS, AGE],
        required: &["purpose"],
        spec: || {
            json!({
                "purpose": string(), "units": list(unit()), "files": list(file()), "criConfig": cri_config(),
                "inPlaceUpdates": raw(),
            })
        },
        status: Some(|| {
            let config = object(json!({"secretRef": secret_ref()}), &["secretRef"]);
            json!({
                "extensionUnits": list(unit()), "extensionFiles": list(file()), "cloudConfig": config,
                "inPlaceUpdates": raw(),
            })
        }),
    },
    KindSchema {
        name: "SubnetIsolation",
        plural: "subnetisolations",
        short_names: &["si"],
        scope: NAMESPACED,
        columns: &[TYPE, ("Zone", ".spec.isolatedZoneID"), STATUS, AGE],
        required: &["isolatedZoneID"],
        spec: || {
            json!({
                "isolatedZoneID": string(), "region": string(), "secretRef": secret_ref(),
                "infrastructureProviderStatus": raw(),
            })
        },
        status: Some(nothing),
    },
    KindSchema {
        name: "Worker",
        plural: "workers",
        short_names: &[],
        scope: NAMESPACED,
        columns: &[TYPE, REGION, STATUS, AGE],
        required: &["pools", "region", "secretRef"],
        spec: || {
            json!({
                "region": string(), "secretRef": secret_ref(), "sshPublicKey": bytes(), "pools": list(pool()),
                "infrastructureProviderStatus": raw(), "isolatedZoneID": string(),
            })
        },
        status: Some(|| {
            json!({
                "machineDeployments": list(machine_deployment()), "machineDeploymentsLastUpdateTime": time(),
                "inPlaceUpdates": raw(), "isolatedZoneCode": string(),
            })
        }),
    },
];

fn bytes() -> Value {
    json!({"type": "string", "format": "byte"})
}

fn runtime_pool() -> Value {
    let expression = json!({"key": string(), "operator": string(), "values": strings()});
    let expressions = list(object(expression, &["key", "operator"]));
    let selector = json!({"matchLabels": map(string()), "matchExpressions": expressions});
    object(json!({"name": string(), "selector": object(selector, &[])}), &["name", "selector"])
}

fn unit() -> Value {
    let drop_in = object(json!({"name": string(), "content": string()}), &["content", "name"]);
    object(
        json!({
            "name": string(), "command": string(), "enable": boolean(), "content": string(),
            "dropIns": list(drop_in), "filePaths": strings(),
        }),
        &["name"],
    )
}

fn file() -> Value {
    let inline = object(json!({"encoding": string(), "data": string()}), &["data", "encoding"]);
    let secret = object(json!({"name": string(), "dataKey": string()}), &["dataKey", "name"]);
    let image =
        object(json!({"image": string(), "filePathInImage": string()}), &["filePathInImage", "image"]);
    let content =
        json!({"inline": inline, "secretRef": secret, "imageRef": image, "transmitUnencoded": boolean()});
    object(
        json!({
            "path": string(), "permissions": int32(), "hostName": string(), "content": object(content, &[]),
        }),
        &["content", "path"],
    )
}

fn cri_config() -> Value {
    let name = json!({
        "type": "string", "enum": ["containerd"],
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
    });
    object(json!({"name": name, "cgroupDriver": string(), "containerd": raw()}), &["name"])
}

fn pool() -> Value {
    let image = object(json!({"name": string(), "version": string()}), &["name", "version"]);
    let user_data = object(json!({"name": string(), "key": string(), "optional": boolean()}), &["key"]);
    let taint = json!({"key": string(), "value": string(), "effect": string(), "timeAdded": time()});
    object(
        json!({
            "name": string(), "machineType": string(), "minimum": int32(), "maximum": int32(),
            "maxSurge": int_or_string(), "maxUnavailable": int_or_string(), "annotations": map(string()),
            "labels": map(string()), "taints": list(object(taint, &["effect", "key"])), "machineImage": image,
            "nodeAgentSecretName": string(), "providerConfig": raw(), "userDataSecretRef": user_data,
            "volume": volume(&["size"]), "dataVolumes": list(volume(&["name", "size"])),
            "kubeletDataVolumeName": string(), "zones": strings(), "machineControllerManager": raw(),
            "kubernetesVersion": string(), "kubeletConfig": raw(), "nodeTemplate": raw(), "architecture": string(),
            "clusterAutoscaler": raw(), "priority": int32(), "updateStrategy": string(),
        }),
        &["machineType", "maxSurge", "maxUnavailable", "maximum", "minimum", "name", "userDataSecretRef"],
    )
}

fn volume(required: &[&str]) -> Value {
    object(json!({"name": string(), "type": string(), "size": string(), "encrypted": boolean()}), required)
}

fn machine_deployment() -> Value {
    object(
        json!({
            "name": string(), "minimum": int32(), "maximum": int32(), "priority": int32(),
            "autoPreserveFailedMachineMax": int32(),
        }),
        &["maximum", "minimum", "name"],
    )
}
