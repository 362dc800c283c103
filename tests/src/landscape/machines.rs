//! The real machine-controller-manager of a Shoot over the counting cloud. The local provider makes its MachineDeployments.

use anyhow::Result;
use serde_json::{Value, json};

use super::carry;
use super::cloud;
use super::control_plane::{ControlPlane, secret};
use super::kubernetes::{container, deployment, file, kubeconfig_of};
use super::seed::Seed;

/// The Deployment of the controllers, and the name of its ServiceAccount and Role.
pub const MANAGER: &str = "machine-controller-manager";
const GROUP: &str = "machine.sapcloud.io";
/// The Secret of all MachineClasses, with the user data of machines.
pub const USER_DATA: &str = "machine-user-data";
/// The key of the user data in [`USER_DATA`].
pub const USER_DATA_KEY: &str = "userData";
/// Number of the container with the driver.
const DRIVER: usize = 1;

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
    let bindings = driver_bindings(&deployment);
    carry::bind(&mut deployment, &bindings);
    let user_data = format!("join https://{}", plane.shoot.api_domain());
    let mut objects = rights(&namespace).to_vec();
    objects.extend([
        secret(MANAGER, &[("kubeconfig", &kubeconfig)]),
        secret(USER_DATA, &[(USER_DATA_KEY, &user_data)]),
        deployment,
    ]);
    Ok(objects.into_iter().map(carry::carried).collect())
}

/// The arguments of the driver that name the seed. The address of the cloud is the same in all seeds.
fn driver_bindings(deployment: &Value) -> Vec<(String, &'static str)> {
    let path = format!("/spec/template/spec/containers/{DRIVER}/args");
    let args = deployment.pointer(&path).and_then(Value::as_array);
    let args = args.map(Vec::as_slice).unwrap_or_default();
    let of_seed = args.iter().position(|arg| arg.as_str().is_some_and(|arg| arg.starts_with("--by=")));
    of_seed.map(|at| (format!("{path}/{at}"), "--by=${seed.name}")).into_iter().collect()
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
