//! EtcdMigration and EtcdRestore from end to end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::{encryption, run};
use serde_json::{Value, json};

use super::plant::{Front, LARGE, Plant};
use super::world::object;

/// For what moves more than a test should.
const LONG: Duration = Duration::from_secs(1200);

#[test]
fn three_members_move_to_another_storage_class_behind_a_kube_apiserver() {
    run(async |_| {
        let plant = Plant::start("migration", 3, Front::KubeApiserver).await?;
        let place = &plant.place;
        let before = plant.data().await?;
        let mut watch = place.watch(&["get", "etcdmigrations", "-w", "-o", "wide"])?;
        plant.migrate(json!({"storageClassName": "fast", "size": "2Gi"})).await?;
        let ended = place.ends("etcdmigration", "m", "Succeeded").await?;
        ensure!(plant.data().await? == before, "keys, values or revisions differ");
        let down = ended["status"]["apiDownSeconds"].as_u64().context("the outage is not told")?;
        println!("{} keys moved, API down for {down} s", before.len());
        plant.api_is_up().await?;

        let volumes = ended["status"]["newVolumes"].as_str().context("no volumes")?;
        let expected: Vec<_> = (0..3).map(|at| (format!("{volumes}-main-{at}"), "fast".to_owned())).collect();
        ensure!(plant.claims().await? == expected, "{:?}", plant.claims().await?);
        let hosted = place.get("hostedetcd", "main").await?;
        let settings = json!({"replicas": 3, "size": "2Gi", "storageClassName": "fast"});
        ensure!(hosted["spec"]["settings"] == settings, "{}", hosted["spec"]);
        ensure!(hosted["status"]["currentWorkflow"].is_null(), "{}", hosted["status"]);
        tells_the_story(&watch.text().await?)?;
        let events = place
            .kubectl(&["get", "events", "--field-selector", "involvedObject.kind=EtcdMigration"])
            .await?;
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
        let plant = Plant::start_with("migration-200", 3, Front::Writer, LARGE).await?;
        let before = plant.data().await?;
        ensure!(before.iter().map(|pair| pair.1.len()).sum::<usize>() == 200_000_000, "less is there");
        plant.migrate_within(json!({"storageClassName": "fast", "size": "2Gi"}), "5m").await?;
        let ended = plant.place.ends_within("etcdmigration", "m", "Succeeded", LONG).await?;
        let down = ended["status"]["apiDownSeconds"].as_u64().context("the outage is not told")?;
        println!("{} keys moved, API down for {down} s; {}", before.len(), ended["status"]["steps"]);
        plant.api_is_up().await?;
        plant.holds(&before).await
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
    run(async |_| {
        let plant = Plant::start("restore", 1, Front::Writer).await?;
        let place = &plant.place;
        let before = plant.data().await?;
        place.apply(&[object("EtcdBackup", "b", json!({"clusterRef": {"name": "main"}}))]).await?;
        let backup = place.ends("etcdbackup", "b", "Succeeded").await?;
        let mut kv = plant.client().await?.kv_client();
        kv.delete("/data/00007", None).await?;
        kv.put("/data/later", "is gone afterwards", None).await?;
        let name: &Value = &backup["status"]["backupName"];
        let spec =
            json!({"clusterRef": {"name": "main"}, "source": {"backupName": name}, "stepTimeout": "1m"});
        // Twice: the second one has to count for more than what was written after the first.
        place.apply(&[object("EtcdRestore", "earlier", spec.clone())]).await?;
        place.ends("etcdrestore", "earlier", "Succeeded").await?;
        plant.client().await?.kv_client().put("/data/between", "is gone afterwards", None).await?;
        plant.is_backed_up().await?;
        place.apply(&[object("EtcdRestore", "r", spec)]).await?;
        let ended = place.ends("etcdrestore", "r", "Succeeded").await?;
        ensure!(plant.data().await? == before, "it is not what the backup holds");
        plant.is_backed_up().await?;
        ensure!(ended["status"]["revision"] == backup["status"]["revision"], "{}", ended["status"]);
        ensure!(ended["status"]["apiDownSeconds"].is_u64(), "{}", ended["status"]);
        plant.api_is_up().await
    });
}

#[test]
fn etcd_whose_snapshots_are_sealed_moves_to_another_storage_class() {
    run(async |_| {
        let config = encryption::config(&[&encryption::provider("aesgcm", "one")?]);
        let plant = Plant::start_sealed("sealed", &config).await?;
        let before = plant.data().await?;
        plant.migrate(json!({"storageClassName": "fast", "size": "2Gi"})).await?;
        plant.place.ends("etcdmigration", "m", "Succeeded").await?;
        plant.holds(&before).await?;
        let mut sealed = 0;
        for backup in std::fs::read_dir(plant.place.backups())? {
            let backup = backup?.path();
            ensure!(!backup.join("v2").exists(), "a snapshot in {} rests in clear", backup.display());
            sealed += std::fs::read_dir(backup.join("sealed"))?.count();
        }
        ensure!(sealed > 0, "there is no backup");
        let backups = plant.place.backups();
        let own = backups.parent().context("no store")?;
        ensure!(
            !own.join("v2").exists() && own.join("sealed").exists(),
            "the agent's snapshots rest in clear"
        );
        Ok(())
    });
}

#[test]
fn restore_of_a_backup_that_is_not_there_stops_nothing() {
    run(async |_| {
        let plant = Plant::start("no-backup", 1, Front::Writer).await?;
        let place = &plant.place;
        let spec =
            json!({"clusterRef": {"name": "main"}, "source": {"backupName": "none"}, "stepTimeout": "30s"});
        place.apply(&[object("EtcdRestore", "r", spec)]).await?;
        let ended = place.ends("etcdrestore", "r", "RolledBack").await?;
        ensure!(ended["status"]["reason"] == "BackupNotFound", "{}", ended["status"]);
        ensure!(ended["status"]["apiDownSeconds"].is_null(), "{}", ended["status"]);
        plant.api_is_up().await
    });
}
