//! The machines of a Shoot: the real machine-controller-manager over the counting cloud, and the worker pools.

use anyhow::Result;
use serde_json::{Value, json};

use super::cloud;
use super::control_plane::{ControlPlane, secret};
use super::kubernetes::{container, deployment, file, kubeconfig_of};
use super::seed::Seed;

/// The Deployment of the controllers, and the name of its ServiceAccount and Role.
pub const MANAGER: &str = "machine-controller-manager";
const GROUP: &str = "machine.sapcloud.io";
/// The Secret of all MachineClasses, with the user data of machines.
const USER_DATA: &str = "machine-user-data";

/// The Deployment of Gardener: one container for MachineDeployments and MachineSets, one with the driver for Machines.
pub(super) fn controllers(plane: &ControlPlane, seed: &Seed) -> Result<Vec<Value>> {
    let namespace = plane.shoot.technical_id();
    let common = [
        "--control-kubeconfig=inClusterConfig".to_owned(),
        format!("--target-kubeconfig={}", file("kubeconfig")),
        format!("--namespace={namespace}"),
        "--kube-api-qps=100".to_owned(),
        "--kube-api-burst=200".to_owned(),
        "--v=3".to_owned(),
    ];
    let with = |first: &[String], more: &[String]| [first, &common, more].concat();
    let sets = with(&[], &["--port=10258".to_owned()]);
    let machines = [
        "--port=10259".to_owned(),
        format!("--machine-safety-orphan-vms-period={}s", plane.options.orphan_period.as_secs()),
        format!("--cloud={}", seed.cloud_url()),
        format!("--by={}", seed.name),
    ];
    let machines = with(&["run".to_owned()], &machines);
    let containers = json!([container(MANAGER, sets), container(cloud::PROGRAM, machines)]);
    let mut deployment = deployment(MANAGER, 1, containers);
    let pod = &mut deployment["spec"]["template"]["spec"];
    pod["serviceAccountName"] = MANAGER.into();
    pod["automountServiceAccountToken"] = true.into();
    let kubeconfig = kubeconfig_of(plane, &format!("gardener.cloud:{MANAGER}"), &["system:masters"])?;
    let mut objects = rights(&namespace).to_vec();
    objects.extend([secret(MANAGER, &[("kubeconfig", &kubeconfig)]), deployment]);
    Ok(objects)
}

/// What the controllers may do in the seed: everything about machines, in their namespace only.
fn rights(namespace: &str) -> [Value; 3] {
    let rbac = "rbac.authorization.k8s.io";
    let rules = json!([
        {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets", "configmaps", "events", "endpoints"], "verbs": ["*"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
    ]);
    let metadata = json!({"name": MANAGER});
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": MANAGER},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": MANAGER}],
        }),
    ]
}

/// A MachineClass and a MachineDeployment for each pool.
pub(super) fn workers(plane: &ControlPlane) -> Vec<Value> {
    let user_data = secret(USER_DATA, &[("userData", &format!("join https://{}", plane.shoot.api_domain()))]);
    let pools = plane.options.pools.iter().flat_map(|(pool, machines)| worker_pool(plane, pool, *machines));
    std::iter::once(user_data).chain(pools).collect()
}

/// Names end as in Gardener: `-z1` for the first zone of the pool, and a hash of the machine's properties in the class.
fn worker_pool(plane: &ControlPlane, pool: &str, machines: u32) -> [Value; 2] {
    let id = plane.shoot.technical_id();
    let (name, class) = (format!("{id}-{pool}-z1"), format!("{id}-{pool}-z1-1a2b3"));
    let labels = json!({"name": name});
    let node = json!({"metadata": {"labels": {"worker.gardener.cloud/pool": pool, "node.kubernetes.io/role": "node"}}});
    [
        json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "MachineClass", "metadata": {"name": class},
            "provider": "counting", "providerSpec": {"cluster": id},
            "secretRef": {"name": USER_DATA, "namespace": id},
            "nodeTemplate": {
                "capacity": {"cpu": "2", "memory": "8Gi", "gpu": "0"}, "instanceType": "local", "region": "eu",
                "zone": "eu-1a",
            },
        }),
        json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "MachineDeployment", "metadata": {"name": name},
            "spec": {
                "replicas": machines, "minReadySeconds": 5, "selector": {"matchLabels": labels},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"class": {"kind": "MachineClass", "name": class}, "nodeTemplate": node},
                },
            },
        }),
    ]
}
