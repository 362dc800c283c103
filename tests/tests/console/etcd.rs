//! `repot etcd`: a backup, a restore of it, and what is refused, on a seed with the real controllers.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use repot_tests::run;
use serde_json::{Value, json};

use super::{expect, has};
use crate::workflows::control_plane::{ControlPlaneFixture, Front};

struct Seed {
    fixture: ControlPlaneFixture,
    kubeconfig: PathBuf,
}

impl Seed {
    /// Gives standard output and standard error of a command in the namespace of the control plane.
    async fn etcd(&self, code: i32, arguments: &[&str]) -> Result<(String, String)> {
        let namespace = self.fixture.ns.namespace.as_str();
        let all = [&["etcd"], arguments, &["-n", namespace]].concat();
        expect(code, &self.kubeconfig, &all).await
    }

    async fn count(&self, kind: &str) -> Result<usize> {
        Ok(self.fixture.ns.list(kind, "").await?.len())
    }
}

#[test]
fn etcd_is_backed_up_and_restored_by_commands() {
    run(async |_| {
        let fixture = ControlPlaneFixture::start("etcd-commands", 1, Front::Writer).await?;
        let kubeconfig = fixture.ns.world.garden.kubeconfig().to_owned();
        let seed = Seed { fixture, kubeconfig };
        list_and_status(&seed).await?;
        backup(&seed).await?;
        refusals(&seed).await?;
        restore(&seed).await?;
        let (status, _) = seed.etcd(0, &["status", "main"]).await?;
        has(&status, &["last backup", "1/1 members ready", "restore   ", "monday", "Succeeded"])
    });
}

async fn list_and_status(seed: &Seed) -> Result<()> {
    let (list, _) = seed.etcd(0, &["list"]).await?;
    has(&list, &["NAMESPACE", "main", "none"])?;
    let (all, _) = expect(0, &seed.kubeconfig, &["etcd", "list", "-A", "-o", "json"]).await?;
    let all: Value = serde_json::from_str(&all)?;
    let namespace = seed.fixture.ns.namespace.as_str();
    let is_here = |one: &Value| one["namespace"] == namespace && one["name"] == "main";
    ensure!(all["hostedEtcds"].as_array().is_some_and(|all| all.iter().any(is_here)), "{all}");
    let (status, _) = seed.etcd(0, &["status", "main"]).await?;
    has(&status, &["Etcd/main", "Leader", "last backup  none", "Local "])?;
    let (yaml, _) = seed.etcd(0, &["status", "main", "-o", "yaml"]).await?;
    has(&yaml, &["hostedEtcd:", "workflows: []"])?;
    let (_, error) = seed.etcd(1, &["status", "other"]).await?;
    has(&error, &["there is no HostedEtcd", "/other"])
}

async fn backup(seed: &Seed) -> Result<()> {
    let (would, _) = seed.etcd(0, &["backup", "main", "--name", "monday", "--dry-run"]).await?;
    has(&would, &["EtcdBackup", "/monday would be created"])?;
    ensure!(seed.count("etcdbackup").await? == 0, "a dry run has created something");
    let (done, told) = seed.etcd(0, &["backup", "main", "--name", "monday", "--wait"]).await?;
    has(&done, &["/monday  Succeeded in", "BackupVerified"])?;
    has(
        &told,
        &["BackupTaken Succeeded", "BackupVerified Succeeded", "monday Succeeded", "6/6 LockReleased"],
    )?;
    let (_, error) = seed.etcd(1, &["backup", "main", "--name", "monday"]).await?;
    has(&error, &["failed to create EtcdBackup", "already exists"])?;
    let (list, _) = seed.etcd(0, &["list"]).await?;
    has(&list, &["s ago"])
}

async fn refusals(seed: &Seed) -> Result<()> {
    let (_, error) = seed.etcd(2, &["restore", "main", "--backup", "monday"]).await?;
    has(
        &error,
        &["is put back to backup monday (of ", "is lost", "Add --yes", "there is no terminal to ask on"],
    )?;
    let (_, error) = seed.etcd(2, &["migrate", "main", "--storage-class", "fast"]).await?;
    has(&error, &["storage class", "becomes fast", "Add --yes"])?;
    seed.etcd(2, &["migrate", "main", "--yes"]).await?;
    seed.etcd(2, &["backup", "main", "--name", "Not A Name"]).await?;
    seed.etcd(2, &["migrate", "main", "--size", "much"]).await?;
    let (_, error) = seed.etcd(3, &["migrate", "main", "--replicas", "4", "--yes"]).await?;
    has(&error, &["an odd number of members"])?;
    let (would, _) =
        seed.etcd(0, &["migrate", "main", "--storage-class", "fast", "--dry-run", "-o", "json"]).await?;
    let would: Value = serde_json::from_str(&would)?;
    ensure!(would["spec"]["settings"]["storageClassName"] == "fast", "{would}");
    for kind in ["etcdrestore", "etcdmigration"] {
        ensure!(seed.count(kind).await? == 0, "{kind} was created");
    }
    Ok(())
}

async fn restore(seed: &Seed) -> Result<()> {
    let mut client = seed.fixture.client().await?;
    client.put("/after", "the backup", None).await?;
    let restore = ["restore", "main", "--backup", "monday", "--name", "back", "--wait", "--yes"];
    let (done, told) = seed.etcd(0, &restore).await?;
    has(&done, &["/back  Succeeded in", "API away for"])?;
    has(&told, &["ApiDown Succeeded", "ProvedEqual Succeeded", "back Succeeded"])?;
    let left = seed.fixture.client().await?.get("/after", None).await?;
    ensure!(left.kvs().is_empty(), "what was written after the backup is there");
    missing_backup(seed).await
}

/// A restore goes on when nobody waits any more. One of a backup that is not there stops nothing, and can be cancelled.
async fn missing_backup(seed: &Seed) -> Result<()> {
    let ns = &seed.fixture.ns;
    let cancel = json!({"spec": {"cancel": true}});
    let sunday = ["restore", "main", "--backup", "sunday", "--wait", "--yes"];
    let late = [&sunday[..], &["--name", "late", "--timeout", "2s"]].concat();
    let (_, told) = seed.etcd(3, &late).await?;
    has(&told, &["it has not ended in time, and goes on: repot etcd status main"])?;
    ns.merge("etcdrestore", "late", cancel.clone()).await?;
    ns.ends("etcdrestore", "late", "Cancelled").await?;

    let never = [&sunday[..], &["--name", "never"]].concat();
    let cancelled = async {
        let waits = |object: &Value| object["status"]["phase"] == "Running";
        ns.until("etcdrestore", "never", "begun", waits).await?;
        ns.merge("etcdrestore", "never", cancel).await
    };
    let (ended, _) = tokio::try_join!(seed.etcd(3, &never), cancelled)?;
    has(&ended.1, &["no EtcdBackup names backup sunday", "never Cancelled"])?;
    seed.fixture.api_is_up().await
}
