//! EtcdMigration and EtcdRestore from end to end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::{encryption, run};
use serde_json::{Value, json};

use super::control_plane::{ControlPlaneFixture, Front, LARGE};
use super::world::object;

/// For what moves more than a test should.
pub const LONG: Duration = Duration::from_secs(1200);

#[test]
fn three_members_move_to_another_storage_class_behind_a_kube_apiserver() {
    run(async |_| {
        let fixture = ControlPlaneFixture::start("migration", 3, Front::KubeApiserver).await?;
        let ns = &fixture.ns;
        let before = fixture.data().await?;
        let mut watch = ns.watch(&["get", "etcdmigrations", "-w", "-o", "wide"])?;
        fixture.migrate(json!({"storageClassName": "fast", "size": "2Gi"})).await?;
        let ended = ns.ends("etcdmigration", "m", "Succeeded").await?;
        ensure!(fixture.data().await? == before, "keys, values or revisions differ");
        let down = ended["status"]["apiDownSeconds"].as_u64().context("the outage is not told")?;
        println!("{} keys moved, API down for {down} s", before.len());
        fixture.api_is_up().await?;

        let volumes = ended["status"]["newVolumes"].as_str().context("no volumes")?;
        let expected: Vec<_> = (0..3).map(|at| (format!("{volumes}-main-{at}"), "fast".to_owned())).collect();
        ensure!(fixture.claims().await? == expected, "{:?}", fixture.claims().await?);
        let hosted = ns.get("hostedetcd", "main").await?;
        let settings = json!({"replicas": 3, "size": "2Gi", "storageClassName": "fast"});
        ensure!(hosted["spec"]["settings"] == settings, "{}", hosted["spec"]);
        ensure!(hosted["status"]["currentWorkflow"].is_null(), "{}", hosted["status"]);
        fixture.backup_name(&ended)?;
        tells_the_story(&watch.text().await?)?;
        let events =
            ns.kubectl(&["get", "events", "--field-selector", "involvedObject.kind=EtcdMigration"]).await?;
        for reason in ["BackupVerified", "EtcdDeleted", "ProvedEqual", "Succeeded"] {
            ensure!(events.contains(reason), "no event {reason}:\n{events}");
        }
        Ok(())
    });
}

#[test]
#[ignore = "takes minutes: make soak"]
fn three_members_with_200_megabytes_move_while_somebody_writes() {
    run(async |_| {
        let fixture = ControlPlaneFixture::start_with("migration-200", 3, Front::Writer, LARGE).await?;
        let before = fixture.data().await?;
        ensure!(before.iter().map(|pair| pair.1.len()).sum::<usize>() == 200_000_000, "less is there");
        fixture.migrate_as("m", json!({"storageClassName": "fast", "size": "2Gi"}), "5m").await?;
        let ended = fixture.ns.ends_within("etcdmigration", "m", "Succeeded", LONG).await?;
        let down = ended["status"]["apiDownSeconds"].as_u64().context("the outage is not told")?;
        println!("{} keys moved, API down for {down} s; {}", before.len(), ended["status"]["steps"]);
        fixture.api_is_up().await?;
        fixture.holds(&before).await
    });
}

/// The steps are seen in their order by whoever watches.
fn tells_the_story(shown: &str) -> Result<()> {
    println!("{shown}");
    let mut rest = shown;
    for word in
        ["ApiDown", "BackupTaken", "BackupVerified", "EtcdDeleted", "EtcdRestored", "ApiUp", "Succeeded"]
    {
        let at = rest.find(word).with_context(|| format!("{word} is not seen in its place:\n{shown}"))?;
        rest = &rest[at..];
    }
    Ok(())
}

#[test]
fn etcd_is_put_back_to_a_backup() {
    run(async |env| {
        let fixture = ControlPlaneFixture::start("restore", 1, Front::Writer).await?;
        let ns = &fixture.ns;
        let before = fixture.data().await?;
        ns.apply(&[object("EtcdBackup", "b", json!({"clusterRef": {"name": "main"}}))]).await?;
        let backup = ns.ends("etcdbackup", "b", "Succeeded").await?;
        let mut kv = fixture.client().await?.kv_client();
        kv.delete("/data/00007", None).await?;
        kv.put("/data/later", "is gone afterwards", None).await?;
        let name: &Value = &backup["status"]["backupName"];
        let spec =
            json!({"clusterRef": {"name": "main"}, "source": {"backupName": name}, "stepTimeout": "1m"});
        // Twice: the second one has to count for more than what was written after the first.
        ns.apply(&[object("EtcdRestore", "earlier", spec.clone())]).await?;
        ns.ends("etcdrestore", "earlier", "Succeeded").await?;
        fixture.client().await?.kv_client().put("/data/between", "is gone afterwards", None).await?;
        fixture.is_backed_up(env, &fixture.data().await?).await?;
        ns.apply(&[object("EtcdRestore", "r", spec)]).await?;
        let ended = ns.ends("etcdrestore", "r", "Succeeded").await?;
        ensure!(fixture.data().await? == before, "it is not what the backup holds");
        fixture.is_backed_up(env, &before).await?;
        ensure!(ended["status"]["revision"] == backup["status"]["revision"], "{}", ended["status"]);
        ensure!(ended["status"]["apiDownSeconds"].is_u64(), "{}", ended["status"]);
        fixture.api_is_up().await
    });
}

#[test]
fn etcd_whose_snapshots_are_sealed_moves_to_another_storage_class() {
    run(async |_| {
        let config = encryption::config(&[&encryption::provider("aesgcm", "one")?]);
        let fixture = ControlPlaneFixture::start_sealed("sealed", &config).await?;
        let before = fixture.data().await?;
        fixture.migrate(json!({"storageClassName": "fast", "size": "2Gi"})).await?;
        fixture.ns.ends("etcdmigration", "m", "Succeeded").await?;
        fixture.holds(&before).await?;
        let mut sealed = 0;
        for backup in std::fs::read_dir(fixture.ns.backups())? {
            let backup = backup?.path();
            ensure!(!backup.join("v2").exists(), "a snapshot in {} rests in clear", backup.display());
            sealed += std::fs::read_dir(backup.join("sealed"))?.count();
        }
        ensure!(sealed > 0, "there is no backup");
        let backups = fixture.ns.backups();
        let own = backups.parent().context("no store")?;
        ensure!(
            !own.join("v2").exists() && own.join("sealed").exists(),
            "the agent's snapshots rest in clear"
        );
        Ok(())
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn restore_of_a_backup_that_is_not_there_stops_nothing() {
    run(async |_| {
        let fixture = ControlPlaneFixture::start("no-backup", 1, Front::Writer).await?;
        let ns = &fixture.ns;
        let spec =
            json!({"clusterRef": {"name": "main"}, "source": {"backupName": "none"}, "stepTimeout": "30s"});
        ns.apply(&[object("EtcdRestore", "r", spec)]).await?;
        let ended = ns.ends("etcdrestore", "r", "RolledBack").await?;
        ensure!(ended["status"]["reason"] == "BackupNotFound", "{}", ended["status"]);
        ensure!(ended["status"]["apiDownSeconds"].is_null(), "{}", ended["status"]);
        fixture.api_is_up().await
    });
}
