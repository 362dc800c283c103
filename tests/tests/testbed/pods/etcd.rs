use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use repot_tests::wait::until;
use repot_tests::{binaries, run, tool};
use serde_json::{Value, json};
use tokio::process::Command;

use super::world::{DEADLINE, TestNamespace};

fn objects(namespace: &str) -> [Value; 2] {
    let url = |pod: &str, port: u16| format!("http://{pod}.etcd.{namespace}.svc:{port}");
    let cluster: Vec<_> =
        (0..3).map(|n| format!("etcd-{n}=").to_owned() + &url(&format!("etcd-{n}"), 2380)).collect();
    let command = [
        "etcd".to_owned(),
        "--name=$(POD_NAME)".to_owned(),
        "--data-dir=/var/lib/etcd/data".to_owned(),
        "--listen-client-urls=http://0.0.0.0:2379".to_owned(),
        "--listen-peer-urls=http://0.0.0.0:2380".to_owned(),
        format!("--advertise-client-urls={}", url("$(POD_NAME)", 2379)),
        format!("--initial-advertise-peer-urls={}", url("$(POD_NAME)", 2380)),
        format!("--initial-cluster={}", cluster.join(",")),
        "--unsafe-no-fsync".to_owned(),
    ];
    let container = json!({
        "name": "etcd", "image": "etcd", "command": command,
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/etcd"}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 2379}, "periodSeconds": 1},
    });
    let labels = json!({"app": "etcd"});
    let apart =
        json!([{"labelSelector": {"matchLabels": labels}, "topologyKey": "topology.kubernetes.io/zone"}]);
    let spec = json!({
        "containers": [container], "terminationGracePeriodSeconds": 5,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}},
    });
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "zonal", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "etcd"},
            "spec": {
                "selector": labels, "clusterIP": "None", "publishNotReadyAddresses": true, "ports": [{"port": 2379}],
            },
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd"},
            "spec": {
                "serviceName": "etcd", "replicas": 3, "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec}, "volumeClaimTemplates": [claim],
            },
        }),
    ]
}

/// etcdctl at one member.
struct Member {
    program: PathBuf,
    port: u16,
}

impl Member {
    async fn find(place: &TestNamespace, index: usize) -> Result<Self> {
        let name = format!("etcd-{index}.etcd.{}.svc", place.namespace);
        let port = place.world.runner.publish(&name, 2379).await?;
        Ok(Self { program: binaries::find("etcdctl")?, port })
    }

    async fn ctl(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        command.args(["--endpoints", &endpoint, "--command-timeout", "3s"]).args(args);
        tool::run(command, b"").await?.text()
    }

    async fn put(&self, key: &str, value: &str) -> Result<()> {
        self.ctl(&["put", key, value]).await.map(drop)
    }

    /// Waits until the member itself has the value, whatever the others have.
    async fn has(&self, key: &str, value: &str) -> Result<()> {
        until(&format!("{key}={value}"), DEADLINE, async || {
            let seen = self.ctl(&["get", key, "--print-value-only", "--consistency=s"]).await?;
            ensure!(seen.trim() == value, "it is {seen:?}");
            Ok(())
        })
        .await
    }
}

#[test]
fn stateful_set_of_etcd_keeps_its_data_over_deletion_scaling_and_partition() {
    run(async |_| {
        let place = TestNamespace::make("etcds").await?;
        place.apply(&objects("etcds")).await?;
        place.roll_out("statefulset/etcd").await?;
        let members =
            [Member::find(&place, 0).await?, Member::find(&place, 1).await?, Member::find(&place, 2).await?];
        members[0].put("a", "1").await?;
        for member in &members {
            member.has("a", "1").await?;
        }

        replace_a_pod(&place, &members).await?;
        scale_down_and_up(&place, &members).await?;
        part_a_zone(&place, &members).await
    });
}

async fn replace_a_pod(place: &TestNamespace, members: &[Member]) -> Result<()> {
    let before = place.get("pod", "etcd-1").await?;
    place.kubectl(&["delete", "pod", "etcd-1"]).await?;
    let uid = &before["metadata"]["uid"];
    let after = place.until("pod", "etcd-1", "another one", |pod| pod["metadata"]["uid"] != *uid).await?;
    place.roll_out("statefulset/etcd").await?;
    members[1].has("a", "1").await?;
    ensure!(
        place.get("pod", "etcd-1").await?["status"]["podIP"] != before["status"]["podIP"],
        "same address"
    );
    // Its volume is in a zone, and so is it.
    ensure!(after["metadata"]["name"] == "etcd-1", "{after}");
    let node = place.get("pod", "etcd-1").await?["spec"]["nodeName"].clone();
    ensure!(node == before["spec"]["nodeName"], "it moved to {node}, away from its volume");
    Ok(())
}

async fn scale_down_and_up(place: &TestNamespace, members: &[Member]) -> Result<()> {
    place.kubectl(&["scale", "statefulset/etcd", "--replicas=2"]).await?;
    place.until_gone("pod", "etcd-2").await?;
    until("a write by two of three", DEADLINE, async || members[0].put("b", "2").await).await?;
    place.kubectl(&["scale", "statefulset/etcd", "--replicas=3"]).await?;
    place.roll_out("statefulset/etcd").await?;
    // A member that had lost its data would not have been let in again under its old name.
    members[2].has("a", "1").await?;
    members[2].has("b", "2").await
}

async fn part_a_zone(place: &TestNamespace, members: &[Member]) -> Result<()> {
    let runner = &place.world.runner;
    let mut nodes = Vec::new();
    for name in ["etcd-0", "etcd-1", "etcd-2"] {
        let pod = place.get("pod", name).await?;
        nodes.push(pod["spec"]["nodeName"].as_str().context("it is bound")?.to_owned());
    }
    let cuts = [runner.cut(&nodes[0], &nodes[1]).await?, runner.cut(&nodes[0], &nodes[2]).await?];
    until("a write by the larger side", DEADLINE, async || members[1].put("c", "3").await).await?;
    members[2].has("c", "3").await?;
    ensure!(members[0].put("c", "4").await.is_err(), "the smaller side took a write");
    for cut in cuts {
        runner.heal(cut).await?;
    }
    members[0].has("c", "3").await
}
