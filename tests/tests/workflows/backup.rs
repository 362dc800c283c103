//! EtcdBackup of an etcd that somebody else's StatefulSet runs.

use anyhow::{Context, Result, ensure};
use etcd_client::Client;
use repot_etcd::digest::digest;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::{CONTROLLERS, DEADLINE, SYSTEM, TestNamespace, object};

/// A StatefulSet of one plain etcd with its Service.
fn plain_etcd() -> [Value; 2] {
    let command = [
        "etcd",
        "--name=$(POD_NAME)",
        "--data-dir=/var/lib/etcd/data",
        "--listen-client-urls=http://0.0.0.0:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--advertise-client-urls=http://$(POD_NAME).main:2379",
        "--unsafe-no-fsync",
    ];
    let container = json!({
        "name": "etcd", "image": "repot", "command": command,
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/etcd"}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 2379}, "periodSeconds": 1},
    });
    let labels = json!({"app": "main"});
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "slow", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "main"},
            "spec": {"selector": labels, "clusterIP": "None", "ports": [{"port": 2379}]},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "main"},
            "spec": {
                "serviceName": "main", "replicas": 1, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container], "terminationGracePeriodSeconds": 2},
                },
                "volumeClaimTemplates": [claim],
            },
        }),
    ]
}

fn hosted_etcd(ns: &TestNamespace) -> Value {
    let etcd = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "main"});
    let spec = json!({
        "etcdRef": etcd, "apiServerRef": {"name": "kube-apiserver"}, "backupStore": ns.backup_store(),
    });
    object("HostedEtcd", "main", spec)
}

async fn start(namespace: &str) -> Result<(TestNamespace, Client)> {
    let ns = TestNamespace::make(namespace).await?;
    ns.apply(&plain_etcd()).await?;
    ns.apply(&[hosted_etcd(&ns)]).await?;
    ns.kubectl(&["rollout", "status", "statefulset/main", "--timeout=120s"]).await?;
    let port = ns.publish("main-0.main", 2379).await?;
    let etcd = Client::connect([format!("http://127.0.0.1:{port}")], None).await.context("no client")?;
    for at in 0..50 {
        // A connection may break while Pods of other tests come and go; the same write may be sent again.
        until("a write to be taken", DEADLINE, async || {
            let key = format!("/registry/{at}");
            Ok(etcd.kv_client().put(key, vec![7; 1000], None).await.map(drop)?)
        })
        .await?;
    }
    Ok((ns, etcd))
}

#[test]
fn backup_is_taken_proved_and_deleted_with_its_object() {
    run(async |_| {
        let (ns, etcd) = start("backup-once").await?;
        let source = digest(&etcd).await?;
        let spec = json!({"clusterRef": {"name": "main"}, "deletionPolicy": "Delete"});
        ns.apply(&[object("EtcdBackup", "b", spec.clone())]).await?;
        let ended = ns.ends("etcdbackup", "b", "Succeeded").await?;
        let status = &ended["status"];
        let proof = json!({"revision": source.revision.0, "keys": source.keys, "hash": source.hash});
        ensure!(status["proof"] == proof && source.keys == 50, "{status} for {source:?}");
        ensure!(
            status["sizeBytes"].as_u64() > Some(0) && status["lastSuccessfulTime"].is_string(),
            "{status}"
        );
        let name = status["backupName"].as_str().context("no name")?.to_owned();
        ensure!(name == "b", "the backup of EtcdBackup b is called {name}");
        for record in ["backup.json", "verified.json"] {
            ensure!(ns.backups().join(&name).join(record).is_file(), "{record} of {name} is missing");
        }
        // The lock is free, and the HostedEtcd says how it is.
        let hosted = ns.until("hostedetcd", "main", "free", |hosted| {
            hosted["status"]["currentWorkflow"].is_null() && hosted["status"]["readyReplicas"] == 1
        });
        let hosted = hosted.await?;
        ensure!(hosted["status"]["lifecycleStatus"] == "apiDown", "{}", hosted["status"]);
        let shown = ns.kubectl(&["get", "etcdbackups", "-o", "wide"]).await?;
        ensure!(shown.contains("Succeeded") && shown.contains(&name), "{shown}");
        check_health_and_metrics(&ns).await?;

        // What is there is never written over: another object of that name gets none.
        let kept = std::fs::read(ns.backups().join(&name).join("backup.json"))?;
        let keep = json!({"spec": {"deletionPolicy": "Retain"}}).to_string();
        ns.kubectl(&["patch", "etcdbackup", "b", "--type=merge", "-p", &keep]).await?;
        ns.kubectl(&["delete", "etcdbackup", "b"]).await?;
        ns.until_gone("etcdbackup", "b").await?;
        ns.apply(&[object("EtcdBackup", "b", spec.clone())]).await?;
        let refused = ns.ends("etcdbackup", "b", "Failed").await?;
        ensure!(refused["status"]["reason"] == "BackupNameTaken", "{}", refused["status"]);
        ensure!(refused["status"]["backupName"].is_null(), "{}", refused["status"]);
        ensure!(std::fs::read(ns.backups().join(&name).join("backup.json"))? == kept, "it was written over");
        ns.kubectl(&["delete", "etcdbackup", "b"]).await?;
        ns.until_gone("etcdbackup", "b").await?;
        ensure!(ns.backups().join(&name).exists(), "the backup of another object is gone");

        ns.apply(&[object("EtcdBackup", "c.v1", spec)]).await?;
        ns.ends("etcdbackup", "c.v1", "Succeeded").await?;
        let name = "c.v1";
        ns.kubectl(&["delete", "etcdbackup", name]).await?;
        ns.until_gone("etcdbackup", name).await?;
        ensure!(!ns.backups().join(name).exists(), "the backup outlives its object");
        Ok(())
    });
}

/// The controllers say that they are ready, and have counted the backup that a test has taken.
async fn check_health_and_metrics(ns: &TestNamespace) -> Result<()> {
    let port = ns.world.runner.publish(&format!("{CONTROLLERS}.{SYSTEM}.svc"), 8081).await?;
    let get = async |path: &str| {
        let response = reqwest::get(format!("http://127.0.0.1:{port}{path}")).await?;
        anyhow::Ok((response.status().as_u16(), response.text().await?))
    };
    for path in ["/healthz", "/livez", "/readyz"] {
        ensure!(get(path).await? == (200, "ok\n".to_owned()), "{path}: {:?}", get(path).await?);
    }
    let (code, metrics) = get("/metrics").await?;
    ensure!(code == 200, "{code}: {metrics}");
    for name in [
        r#"repot_controller_reconciles_total{controller="etcdbackup",result="success"} "#,
        r#"repot_controller_reconcile_duration_seconds_count{controller="hostedetcd"} "#,
        r#"repot_flow_step_duration_seconds_count{flow="EtcdBackup",step="BackupVerified"} "#,
        r#"repot_leader{name="repot-controllers"} "#,
    ] {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        let value: f64 = value.with_context(|| format!("{name} is not in {metrics}"))?.parse()?;
        ensure!(value >= 1.0, "{name} is {value}");
    }
    Ok(())
}

#[test]
#[ignore = "minutes, in make soak"]
fn backups_are_taken_by_schedule_and_only_so_many_are_kept() {
    run(async |_| {
        let (ns, _) = start("backup-schedule").await?;
        let spec = json!({
            "clusterRef": {"name": "main"}, "schedule": "* * * * *", "retention": {"policy": "LimitBased", "limit": 1},
        });
        ns.apply(&[object("EtcdBackup", "every", spec)]).await?;
        let first = |backup: &Value| {
            backup["status"]["phase"] == "Scheduled" && backup["status"]["lastSuccessfulTime"].is_string()
        };
        let first = ns.until("etcdbackup", "every", "taken once", first).await?;
        ensure!(first["status"]["nextScheduleTime"].is_string(), "{}", first["status"]);
        let time = first["status"]["lastSuccessfulTime"].clone();
        ns.until("etcdbackup", "every", "taken again", |backup| {
            backup["status"]["phase"] == "Scheduled" && backup["status"]["lastSuccessfulTime"] != time
        })
        .await?;
        until("one backup to be left", DEADLINE, async || {
            let left = std::fs::read_dir(ns.backups())?.count();
            ensure!(left == 1, "{left} are there");
            Ok(())
        })
        .await?;
        ns.kubectl(&["delete", "etcdbackup", "every"]).await?;
        ns.until_gone("etcdbackup", "every").await?;
        ensure!(std::fs::read_dir(ns.backups())?.count() == 1, "a backup that is to be kept is gone");
        Ok(())
    });
}

#[test]
fn migration_of_a_stateful_set_that_is_not_ours_is_refused_before_anything_is_stopped() {
    run(async |_| {
        let (ns, _) = start("unmanaged").await?;
        let spec = json!({"clusterRef": {"name": "main"}, "settings": {"storageClassName": "fast"}});
        ns.apply(&[object("EtcdMigration", "m", spec)]).await?;
        let ended = ns.ends("etcdmigration", "m", "Failed").await?;
        ensure!(ended["status"]["reason"] == "NotManaged", "{}", ended["status"]);
        ensure!(ended["status"]["steps"].as_array().is_none_or(Vec::is_empty), "{}", ended["status"]);
        Ok(())
    });
}
