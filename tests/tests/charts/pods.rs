//! Pods of the charts: the Pod Security Standard *restricted*, and what lets them be replaced without a failed request.

use std::collections::BTreeSet;

use serde_json::Value;

use super::render;

/// A workload, with the spec of its Pods.
struct Workload {
    name: String,
    spec: Value,
    pod: Value,
}

fn workloads(objects: &[Value]) -> Vec<Workload> {
    let is_workload = |object: &&Value| object["kind"] == "Deployment" || object["kind"] == "StatefulSet";
    let found = objects.iter().filter(is_workload).map(|object| Workload {
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        spec: object["spec"].clone(),
        pod: object["spec"]["template"]["spec"].clone(),
    });
    found.collect()
}

/// Fails when Pods of this spec break the standard, or mount what is not there.
pub(super) fn assert_restricted(name: &str, pod: &Value, claims: &BTreeSet<String>) {
    let context = &pod["securityContext"];
    assert_eq!(context["runAsNonRoot"], true, "{name}");
    assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault", "{name}");
    let volumes = pod["volumes"].as_array().cloned().unwrap_or_default();
    for volume in &volumes {
        let allowed = ["secret", "configMap", "emptyDir"];
        assert!(allowed.iter().any(|kind| volume[kind].is_object()), "{name}: {volume}");
    }
    let mut known: BTreeSet<String> = volumes.iter().map(|volume| text(&volume["name"])).collect();
    known.extend(claims.iter().cloned());
    for container in pod["containers"].as_array().expect("containers") {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]), "{name}");
        assert!(container["resources"]["requests"]["memory"].is_string(), "{name} requests no memory");
        assert!(container["command"].is_null(), "{name}: the image has an entrypoint and no shell");
        let mounts: Vec<String> =
            container["volumeMounts"].as_array().into_iter().flatten().map(mounted).collect();
        assert!(mounts.iter().all(|mount| known.contains(mount)), "{name}: {mounts:?} of {known:?}");
    }
}

fn mounted(mount: &Value) -> String {
    text(&mount["name"])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Names of the volumes that a StatefulSet has beside those of its Pods.
pub(super) fn claims(spec: &Value) -> BTreeSet<String> {
    let claims = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
    claims.map(|claim| text(&claim["metadata"]["name"])).collect()
}

const ETCD: [&str; 2] = ["storage.type=etcd", "storage.etcd.servers={https://etcd:2379}"];

#[test]
fn pods_are_replaced_one_after_the_other() {
    for chart in super::CHARTS {
        let workloads = workloads(&render(chart, &ETCD));
        let names: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(
            names,
            ["repot-apiserver", "repot-certs", "repot-controllers", "repot-webhook"],
            "{chart}"
        );
        for Workload { name, spec, .. } in &workloads {
            assert_eq!(spec["replicas"], 2, "{name}");
            assert_eq!(spec["strategy"]["rollingUpdate"]["maxUnavailable"], 0, "{name}");
            assert_eq!(spec["strategy"]["rollingUpdate"]["maxSurge"], 1, "{name}");
        }
    }
}

/// The kubelet kills a Pod that has not ended in time: flags and grace period belong together.
#[test]
fn servers_have_time_to_end() {
    let workloads = workloads(&render(
        "repot-garden",
        &[&ETCD[..], &["apiserver.shutdownDelaySeconds=70", "webhook.shutdownDelaySeconds=80"]].concat(),
    ));
    for (name, flags, grace) in [
        (
            "repot-apiserver",
            &[
                "--shutdown-delay-duration=70s",
                "--shutdown-watch-termination-grace-period=15s",
                "--shutdown-send-retry-after",
            ][..],
            70 + 15 + 60,
        ),
        ("repot-webhook", &["--shutdown-delay-duration=80s"], 80 + 30),
    ] {
        let found = workloads.iter().find(|workload| workload.name == name).expect(name);
        let args = &found.pod["containers"][0]["args"];
        for flag in flags {
            assert!(args.as_array().is_some_and(|args| args.iter().any(|arg| arg == flag)), "{name}: {args}");
        }
        let seconds = found.pod["terminationGracePeriodSeconds"].as_u64().expect("a number");
        assert!(seconds > grace, "{name} has {seconds} s, and needs more than {grace}");
    }
}

#[test]
fn servers_say_when_they_are_ready() {
    for workload in workloads(&render("repot-garden", &[])) {
        let container = &workload.pod["containers"][0];
        let port = &container["ports"][0]["containerPort"];
        for (probe, path) in
            [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
        {
            let get = &container[probe]["httpGet"];
            assert_eq!(get["path"], path, "{} {probe}", workload.name);
            assert_eq!(get["port"], *port, "{} {probe}", workload.name);
        }
    }
}

/// What is kept when the chart is uninstalled, and survives an upgrade to a chart of another version.
#[test]
fn the_volume_stays_and_its_claim_never_changes() {
    let objects = render("repot-garden", &[]);
    let found = objects.iter().find(|object| object["kind"] == "StatefulSet").expect("a StatefulSet");
    let spec = &found["spec"];
    assert_eq!(spec["replicas"], 1, "an embedded store is open to one process");
    let kept = serde_json::json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
    assert_eq!(spec["persistentVolumeClaimRetentionPolicy"], kept);
    let claim = spec["volumeClaimTemplates"][0].to_string();
    assert!(!claim.contains("helm.sh") && !claim.contains("version"), "{claim}");
    let selector = spec["selector"].to_string();
    assert!(!selector.contains("version") && !selector.contains("instance"), "{selector}");
    let kept = ["repot-encryption", "repot-authorities", "repot-apiserver-tls", "repot-webhook-tls"];
    let managed = objects.iter().find(|object| kept.iter().any(|name| object["metadata"]["name"] == *name));
    assert_eq!(managed, None, "Helm would delete it");
}
