//! The kinds through kubectl: tables, explain, wait, patch and edit of the status, discovery.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{self, MERGE_PATCH, World, condition, path};

/// The kinds of the group, as kubectl sorts them.
const KINDS: [&str; 6] = [
    "controlplanemigrations",
    "etcdbackups",
    "etcdmigrations",
    "etcdrestores",
    "hostedetcds",
    "zoneisolations",
];

#[test]
fn kubectl_works_on_every_kind() {
    run(async |env| scenario(&World::dev(env).await?).await);
}

#[test]
fn kubectl_works_on_every_kind_behind_a_garden() {
    run(async |env| scenario(&World::garden(env).await?).await);
}

async fn scenario(world: &World) -> Result<()> {
    discovery(world).await?;
    create(world).await?;
    status_by_patch_and_edit(world).await?;
    tables(world).await?;
    selectors(world).await?;
    waiting(world).await?;
    explain(world).await?;
    delete(world).await
}

async fn kubectl(world: &World, args: &str) -> Result<String> {
    world.kubectl.run(args.split(' ')).await?.text()
}

async fn discovery(world: &World) -> Result<()> {
    let document = world.api.get(&format!("/apis/{}/{}", world::GROUP, world::VERSION)).await?.ok()?;
    let resources = document["resources"].as_array().context("resources")?.clone();
    let mut hashes = std::collections::BTreeSet::new();
    for plural in KINDS {
        let find = |name: &str| {
            resources.iter().find(|r| r["name"] == name).with_context(|| format!("{name} in {document}"))
        };
        let (main, status) = (find(plural)?, find(&format!("{plural}/status"))?);
        ensure!(main["categories"] == json!(["repot"]) && main["kind"] == status["kind"], "{main} {status}");
        ensure!(
            status["verbs"] == json!(["get", "patch", "update"]) && status["namespaced"] == true,
            "{status}"
        );
        hashes.insert(main["storageVersionHash"].as_str().context("a hash")?.to_owned());
    }
    ensure!(hashes.len() == KINDS.len(), "kinds share a storage version: {hashes:?}");
    let listed = kubectl(world, "api-resources --categories=repot -o name").await?;
    let listed: Vec<&str> =
        listed.lines().filter_map(|line| line.strip_suffix(".migration.gardener.cloud")).collect();
    ensure!(listed == KINDS, "{listed:?}");
    Ok(())
}

async fn create(world: &World) -> Result<()> {
    let objects = [
        world::hosted_etcd("main"),
        world::backup("once", "main"),
        world::scheduled_backup("hourly", "main"),
        world::restore("back", "main"),
        world::migration("faster", "main"),
        world::control_plane_migration("to-seed-b"),
        world::zone_isolation("crazy-botany-1"),
    ];
    let list = objects.map(|object| object.to_string()).join("\n");
    let created = world.kubectl.run_with(["create", "-f", "-"], list.as_bytes()).await?.text()?;
    ensure!(created.lines().count() == 7, "{created}");
    Ok(())
}

async fn status_by_patch_and_edit(world: &World) -> Result<()> {
    let steps = json!([
        {"name": "ApiDown", "state": "Succeeded"},
        {"name": "BackupTaken", "state": "Running", "reason": "BackupRetried", "attempts": 2},
        {"name": "EtcdDeleted", "state": "Pending"},
    ]);
    let status =
        json!({"status": {"phase": "Running", "reason": "Uploading", "backupName": "m-4x7", "steps": steps}});
    let args = ["patch", "emig", "faster", "--subresource=status", "--type=merge", "-p", &status.to_string()];
    world.kubectl.run(args).await?.text()?;

    let status = json!({"status": {
        "phase": "Running", "apiOutage": {"seconds": 12},
        "source": {"steps": [{"name": "StateSynced", "state": "Succeeded"}, {"name": "SourceApiStopped", "state": "Running"}]},
    }});
    let args =
        ["patch", "cpm", "to-seed-b", "--subresource=status", "--type=merge", "-p", &status.to_string()];
    world.kubectl.run(args).await?.text()?;

    // An editor that is a script: it changes the status, and the spec, which does not count here.
    let args = ["edit", "hetcd", "main", "--subresource=status", "-o", "json"];
    let mut command = world.kubectl.command(args);
    let status = r#"    "status": {"lifecycleStatus": "running", "message": "edited"},"#;
    let script = format!(r#"sed -i -e 's/"kube-apiserver"/"another"/; s/^    "spec"/{status}\n&/'"#);
    command.env("EDITOR", script);
    let output = command.output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = world.api.get(&path("hostedetcds", "main")).await?.ok()?;
    ensure!(read["status"]["message"] == "edited" && read["metadata"]["generation"] == 1, "{read}");
    let shown =
        kubectl(world, "get hetcd main --subresource=status -o jsonpath={.status.lifecycleStatus}").await?;
    ensure!(shown == "running", "{shown}");
    Ok(())
}

/// Heading and rows of a table, cell by cell: columns are apart by three blanks.
fn cells(table: &str) -> Vec<Vec<&str>> {
    table
        .lines()
        .map(|line| line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect()
}

async fn tables(world: &World) -> Result<()> {
    let table = kubectl(world, "get etcdmigrations").await?;
    let rows = cells(&table);
    ensure!(rows[0] == ["NAME", "CLUSTER", "PHASE", "STEP", "REASON", "AGE"], "{table}");
    ensure!(rows[1][..5] == ["faster", "main", "Running", "BackupTaken", "Uploading"], "{table}");
    let table = kubectl(world, "get etcdbackups -o wide").await?;
    let rows = cells(&table);
    let heading = ["NAME", "CLUSTER", "SCHEDULE", "PHASE", "REASON", "AGE", "BACKUP", "REVISION", "MESSAGE"];
    let mut sorted = (rows[0].clone(), heading.to_vec());
    sorted.0.sort_unstable();
    sorted.1.sort_unstable();
    ensure!(sorted.0 == sorted.1, "{table}");
    ensure!(table.contains("0 * * * *") && table.contains("once"), "{table}");
    let table = kubectl(world, "get cpm").await?;
    let rows = cells(&table);
    let heading = ["NAME", "SHOOT", "MODE", "FROM", "TO", "PHASE", "STEP", "OUTAGE", "AGE"];
    ensure!(rows[0] == heading, "{table}");
    let row =
        ["to-seed-b", "crazy-botany", "Classic", "seed-a", "seed-b", "Running", "SourceApiStopped", "12s"];
    ensure!(rows[1][..8] == row, "{table}");
    let table = kubectl(world, "get zi").await?;
    let rows = cells(&table);
    ensure!(
        rows[0] == ["NAME", "SHOOT", "ZONE", "CODE", "PHASE", "STATUS", "STEP", "EXPIRES", "AGE"],
        "{table}"
    );
    ensure!(rows[1][..3] == ["crazy-botany-1", "crazy-botany", "euc1-az1"], "{table}");
    let all = kubectl(world, "get repot -o name").await?;
    ensure!(all.lines().count() == 7, "{all}");
    Ok(())
}

async fn selectors(world: &World) -> Result<()> {
    world.create("etcdmigrations", &world::migration("other", "second")).await?;
    let names = async |resource: &str, selector: &str| -> Result<Vec<String>> {
        let args = format!("get {resource} -o name --field-selector={selector}");
        let text = kubectl(world, &args).await?;
        Ok(text.lines().filter_map(|line| Some(line.rsplit_once('/')?.1.to_owned())).collect())
    };
    ensure!(names("emig", "spec.clusterRef.name=second").await? == ["other"]);
    ensure!(names("emig", "status.phase=Running").await? == ["faster"]);
    ensure!(names("emig", "status.phase!=Running,metadata.name!=x").await? == ["other"]);
    ensure!(names("hetcd", "status.lifecycleStatus=running").await? == ["main"]);
    let refused = world.kubectl.run(["get", "emig", "--field-selector=spec.settings.size=1"]).await?;
    ensure!(refused.text().is_err_and(|e| e.to_string().contains("field label not supported")));
    // In a watch an object leaves the selection when its status does.
    let query = "watch=true&fieldSelector=status.phase%3DRunning&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=60";
    let response = world
        .api
        .request(reqwest::Method::GET, &format!("{}?{query}", world::collection("etcdmigrations")))
        .send()
        .await?;
    let (mut seen, mut response) = (String::new(), response);
    let mut next = async |wanted: &str| -> Result<()> {
        while !seen.contains(wanted) {
            let chunk = tokio::time::timeout(Duration::from_secs(30), response.chunk()).await??;
            seen += &String::from_utf8_lossy(&chunk.context("the watch ended")?);
        }
        Ok(())
    };
    next("initial-events-end").await?;
    let status = format!("{}/status", path("etcdmigrations", "faster"));
    world.api.patch(&status, MERGE_PATCH, &json!({"status": {"phase": "Succeeded"}})).await?.ok()?;
    next(r#"{"type":"DELETED""#).await?;
    Ok(())
}

/// `kubectl wait` sees a condition come.
async fn waiting(world: &World) -> Result<()> {
    let args = ["wait", "etcdbackup/once", "--for=condition=Complete", "--timeout=60s"];
    let mut waiter = world.kubectl.command(args);
    let waiter = waiter.kill_on_drop(true).stdout(std::process::Stdio::piped()).spawn()?;
    let status =
        json!({"status": {"phase": "Succeeded", "conditions": [condition("Complete", "True", "Uploaded")]}});
    let at = format!("{}/status", path("etcdbackups", "once"));
    world.api.patch(&at, MERGE_PATCH, &status).await?.ok()?;
    let output = waiter.wait_with_output().await?;
    ensure!(output.status.success(), "{output:?}");
    let phase =
        kubectl(world, "wait emig/faster --for=jsonpath={.status.phase}=Succeeded --timeout=60s").await?;
    ensure!(phase.contains("condition met"), "{phase}");
    Ok(())
}

async fn explain(world: &World) -> Result<()> {
    for (field, words) in [
        (
            "hostedetcd.status.conditions",
            &["lastTransitionTime", "What holds at the moment", "-required-"][..],
        ),
        ("hostedetcd.status.lifecycleStatus", &["ENUM", "etcdDeleted", "a restore may begin"]),
        ("hostedetcd.spec.etcdRef.kind", &["Etcd where it is left out"]),
        ("etcdbackup.spec.schedule", &["cron", "UTC"]),
        ("etcdrestore.spec.source", &["backupName", "store", "Exactly one"]),
        ("controlplanemigration.spec.mode", &["ENUM", "Classic", "Forced", "Live"]),
        ("controlplanemigration.status.source.finalSnapshot", &["revision", "epoch"]),
        ("etcdmigration.status.steps", &["docs/reference/etcd-workflows.md", "attempts", "reason"]),
    ] {
        let text = kubectl(world, &format!("explain {field}")).await?;
        // kubectl wraps lines.
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            ensure!(flat.contains(word), "explain {field} lacks {word:?}: {text}");
        }
    }
    Ok(())
}

async fn delete(world: &World) -> Result<()> {
    for resource in KINDS {
        kubectl(world, &format!("delete {resource} --all")).await?;
        let left: Value = world.api.get(&world::collection(resource)).await?.ok()?;
        ensure!(left["items"] == json!([]), "{left}");
    }
    Ok(())
}
