//! One fault in each step of a migration: it ends Succeeded, RolledBack or Cancelled, and nothing is missing afterwards.
//!
//! [`FAULTS`] is the table of docs/reference/etcd-faults.md; each row is played by the test that names it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::plant::{Front, Plant};
use super::table::{FAULTS, Fault};
use super::world::{CONTROLLERS, DEADLINE, Place, SYSTEM, object};

fn render() -> String {
    let mut text = "# Faults of a migration, and how each ends\n\nMade from the tests that plant them (`tests/tests/workflows/faults.rs` and `deletion.rs`). \
                    After each of them every key is there with its value, and so is every write that the API servers acknowledged. \
                    What is written then is in the next snapshot, and a restore takes that one.\n\n\
                    | in step | fault | ends as | because | what is left |\n|---|---|---|---|---|\n"
        .to_owned();
    for Fault { step, what, ends, reason, left } in FAULTS {
        let _ = writeln!(text, "| {step} | {what} | {ends} | `{reason}` | {left} |");
    }
    text
}

#[test]
fn table_of_faults_is_that_of_the_docs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/etcd-faults.md");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, render()).expect("the docs can be written");
    }
    let stored = std::fs::read_to_string(path).expect("the docs are there");
    assert_eq!(stored, render(), "UPDATE_GOLDENS=1 renews docs/reference/etcd-faults.md");
}

/// A migration with a fault.
struct Play {
    plant: Plant,
    fault: &'static Fault,
    before: Vec<(Vec<u8>, Vec<u8>, i64, i64)>,
}

impl Play {
    async fn start(namespace: &str, step: &str, what: &str) -> Result<Self> {
        Self::start_with(namespace, 1, step, what).await
    }

    async fn start_with(namespace: &str, members: u32, step: &str, what: &str) -> Result<Self> {
        let is = |fault: &&Fault| fault.step == step && fault.what.contains(what);
        let fault = FAULTS.iter().find(is).with_context(|| format!("no row for {step}: {what}"))?;
        let plant = Plant::start(namespace, members, Front::Writer).await?;
        let before = plant.data().await?;
        Ok(Self { plant, fault, before })
    }

    fn place(&self) -> &Place {
        &self.plant.place
    }

    async fn migrate(&self) -> Result<()> {
        self.plant.migrate(json!({"storageClassName": "fast", "size": "2Gi"})).await
    }

    async fn steer(&self, spec: Value) -> Result<()> {
        let patch = json!({"spec": spec}).to_string();
        self.place().kubectl(&["patch", "etcdmigration", "m", "--type=merge", "-p", &patch]).await.map(drop)
    }

    /// Begun, and held up before the row after `step`.
    async fn pause_after(&self, step: &str) -> Result<()> {
        self.migrate().await?;
        self.plant.step(step, "Running").await?;
        self.steer(json!({"paused": true})).await?;
        self.plant.step(step, "Succeeded").await?;
        let paused = |object: &Value| object["status"]["pausedTime"].is_string();
        self.place().until("etcdmigration", "m", "paused", paused).await.map(drop)
    }

    /// It ends as the table says, serves again, and nothing is missing.
    async fn ends(self) -> Result<Value> {
        let ended = self.place().ends("etcdmigration", "m", self.fault.ends).await?;
        let reason = ended["status"]["reason"].as_str().unwrap_or_default();
        ensure!(reason == self.fault.reason, "the reason is {}", ended["status"]);
        self.plant.api_is_up().await?;
        until("everything to be there", DEADLINE, async || self.plant.holds(&self.before).await).await?;
        let class = if self.fault.ends == "Succeeded" { "fast" } else { "slow" };
        until("the claims of one etcd", DEADLINE, async || {
            let claims = self.plant.claims().await?;
            let count = usize::try_from(self.plant.members)?;
            let all = claims.len() == count && claims.iter().all(|(_, of)| of == class);
            ensure!(all, "there are {claims:?}");
            Ok(())
        })
        .await?;
        let hosted = self.place().get("hostedetcd", "main").await?;
        ensure!(hosted["status"]["currentWorkflow"].is_null(), "{}", hosted["status"]);
        self.plant.is_backed_up().await.context("backups")?;
        Ok(ended)
    }
}

#[test]
fn called_off_while_another_workflow_has_the_lock() {
    run(async |_| {
        let play = Play::start("f-lock", "LockTaken", "lock").await?;
        let spec = json!({"clusterRef": {"name": "main"}, "settings": {"size": "3Gi"}, "paused": true});
        play.place().apply(&[object("EtcdMigration", "other", spec)]).await?;
        // It takes the lock, since only what comes after is paused; if it does not, the backup will.
        let owner = json!({"status": {"currentWorkflow": {"kind": "EtcdMigration", "name": "other", "uid": play.place()
            .get("etcdmigration", "other").await?["metadata"]["uid"]}}});
        let patch =
            ["patch", "hostedetcd", "main", "--subresource=status", "--type=merge", "-p", &owner.to_string()];
        play.place().kubectl(&patch).await?;
        play.migrate().await?;
        play.place()
            .until("etcdmigration", "m", "waiting for the other", |object| {
                object["status"]["reason"] == "AnotherWorkflow"
            })
            .await?;
        play.steer(json!({"cancel": true})).await?;
        let off = json!({"spec": {"cancel": true}}).to_string();
        play.place().kubectl(&["patch", "etcdmigration", "other", "--type=merge", "-p", &off]).await?;
        let free = |object: &Value| object["status"]["currentWorkflow"].is_null();
        play.place().until("hostedetcd", "main", "free", free).await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn etcd_out_of_quorum() {
    run(async |_| {
        let play = Play::start("f-quorum", "EtcdServes", "quorum").await?;
        let frozen = play.plant.freeze()?;
        play.migrate().await?;
        let ended = |object: &Value| object["status"]["completionTime"].is_string();
        play.place().until("etcdmigration", "m", "over", ended).await?;
        drop(frozen);
        play.ends().await.map(drop)
    });
}

#[test]
fn api_server_does_not_end() {
    run(async |_| {
        let play = Play::start("f-api", "ApiDown", "does not end").await?;
        let pods = ["get", "pods", "-l", "app=kube-apiserver", "-o", "name"];
        play.plant.make_stubborn().await?;
        let pod = play.place().kubectl(&pods).await?.trim().to_owned();
        play.migrate().await?;
        play.plant.step("ApiDown", "Failed").await?;
        play.place().kubectl(&["delete", &pod, "--force", "--grace-period=0"]).await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn store_cannot_be_written() {
    run(async |_| {
        let play = Play::start("f-store", "BackupTaken", "cannot be written").await?;
        // A file where the directory should be.
        let place = play.place().backups();
        std::fs::create_dir_all(place.parent().context("no parent")?)?;
        std::fs::write(&place, "in the way")?;
        play.migrate().await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn job_is_deleted() {
    run(async |_| {
        let play = Play::start("f-job", "BackupTaken", "deleted").await?;
        play.migrate().await?;
        let first = until("a Job", DEADLINE, async || {
            let jobs = play.place().kubectl(&["get", "jobs", "-o", "name"]).await?;
            jobs.lines().next().map(str::to_owned).context("there is none")
        });
        let first = first.await?;
        play.place().kubectl(&["delete", &first, "--cascade=background"]).await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn snapshot_is_damaged() {
    run(async |_| {
        let play = Play::start("f-damage", "BackupVerified", "damaged").await?;
        play.pause_after("BackupTaken").await?;
        for backup in std::fs::read_dir(play.place().backups())? {
            for snapshot in std::fs::read_dir(backup?.path().join("v2"))? {
                let path = snapshot?.path();
                let mut bytes = std::fs::read(&path)?;
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(path, bytes)?;
            }
        }
        play.steer(json!({"paused": false})).await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn api_servers_come_back() {
    run(async |_| {
        let play = Play::start("f-back", "BackupVerified", "scales").await?;
        play.pause_after("BackupTaken").await?;
        play.place().kubectl(&["scale", "deployment/kube-apiserver", "--replicas=1"]).await?;
        play.plant.api_is_up().await?;
        play.steer(json!({"paused": false})).await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn member_does_not_end() {
    run(async |_| {
        let play = Play::start("f-member", "EtcdDeleted", "does not end").await?;
        let hold = json!({"metadata": {"finalizers": ["tests.repot.dev/hold"]}}).to_string();
        play.place().kubectl(&["patch", "pod", "main-0", "--type=merge", "-p", &hold]).await?;
        play.migrate().await?;
        play.plant.step("EtcdDeleted", "Failed").await?;
        let free = json!({"metadata": {"finalizers": null}}).to_string();
        play.place().kubectl(&["patch", "pod", "main-0", "--type=merge", "-p", &free]).await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn called_off_when_the_etcd_is_deleted() {
    run(async |_| {
        let play = Play::start("f-cancel", "SettingsApplied", "called off").await?;
        play.pause_after("EtcdDeleted").await?;
        play.steer(json!({"cancel": true})).await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn storage_class_is_missing() {
    run(async |_| {
        let play = Play::start("f-class", "EtcdRestored", "StorageClass").await?;
        play.plant.migrate_within(json!({"storageClassName": "none-such"}), "30s").await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn disk_is_full() {
    run(async |_| {
        let play = Play::start("f-disk", "EtcdRestored", "full").await?;
        play.plant.migrate_within(json!({"storageClassName": "limited", "size": "2Mi"}), "30s").await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn agent_is_killed() {
    run(async |_| {
        let play = Play::start("f-agent", "EtcdRestored", "agent").await?;
        play.migrate().await?;
        play.plant.step("EtcdRestored", "Running").await?;
        let runner = &play.place().world.runner;
        until("the agent to be killed", DEADLINE, async || {
            let pod = play.place().get("pod", "main-0").await?;
            ensure!(pod["status"]["containerStatuses"][0]["state"]["running"].is_object(), "it does not run");
            runner.kill(&play.place().namespace, "main-0", "etcd")
        })
        .await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn somebody_writes_to_the_new_etcd() {
    run(async |_| {
        let play = Play::start("f-write", "ProvedEqual", "writes").await?;
        play.pause_after("EtcdRestored").await?;
        play.plant.client().await?.kv_client().put("/data/intruder", "was here", None).await?;
        play.steer(json!({"paused": false})).await?;
        play.ends().await.map(drop)
    });
}

#[test]
fn new_member_is_killed() {
    run(async |_| {
        let play = Play::start("f-new", "ApiUp", "killed").await?;
        play.migrate().await?;
        play.plant.step("ApiUp", "Running").await?;
        play.place().world.runner.kill(&play.place().namespace, "main-0", "etcd")?;
        play.ends().await.map(drop)
    });
}

#[test]
fn old_claim_is_held() {
    run(async |_| {
        let play = Play::start("f-claim", "OldVolumesReleased", "finalizer").await?;
        let hold =
            json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection", "tests.repot.dev/hold"]}});
        let claim = "data-main-0";
        play.place().kubectl(&["patch", "pvc", claim, "--type=merge", "-p", &hold.to_string()]).await?;
        play.migrate().await?;
        let (namespace, place) = (play.place().namespace.clone(), play.place().world);
        play.ends().await?;
        let free = json!({"metadata": {"finalizers": null}}).to_string();
        let patch = ["patch", "pvc", claim, "-n", &namespace, "--type=merge", "-p", &free];
        place.garden.kubectl(patch).await?.text().map(drop)
    });
}

/// Each takes the time of a Lease.
#[test]
#[ignore = "takes minutes: make soak"]
fn controllers_are_killed_in_each_step() {
    run(async |_| {
        let play = Play::start_with("f-controllers", 3, "all of them", "controllers").await?;
        let pod = pod_of_controllers(play.place()).await?;
        let running =
            r#"-o=custom-columns=R:.status.steps[?(@.state=="Running")].name,E:.status.completionTime"#;
        // Each state that is written is shown, however short it lasts.
        let mut watch = play.place().watch(&["get", "etcdmigrations", "-w", "--no-headers", running])?;
        play.migrate().await?;
        let killed = async {
            let mut steps: Vec<String> = Vec::new();
            loop {
                let line = watch.line().await?;
                let [running, ended] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                    bail!("{line}")
                };
                if ended != "<none>" {
                    return Ok::<_, anyhow::Error>(steps);
                }
                let begun = running.split(',').filter(|step| *step != "<none>");
                let begun: Vec<_> = begun
                    .filter(|step| !steps.iter().any(|known| known == step))
                    .map(str::to_owned)
                    .collect();
                if !begun.is_empty() {
                    play.place().world.runner.kill(SYSTEM, &pod, "controllers")?;
                    steps.extend(begun);
                }
            }
        };
        let killed = tokio::time::timeout(Duration::from_secs(900), killed).await??;
        println!("killed in {killed:?}");
        let ended = play.ends().await?;
        let all = ended["status"]["steps"].as_array().context("steps")?;
        let left: Vec<_> = all
            .iter()
            .filter_map(|step| step["name"].as_str())
            .filter(|name| !killed.iter().any(|step| step == name))
            .collect();
        // What these wait for is there already: nobody sees them run, and nobody is killed in them.
        let quick = ["EtcdServes", "ProvedEqual"];
        let missed = left.iter().any(|step| !quick.contains(step));
        ensure!(!missed && all.len() == 12, "not killed in {left:?} of {}", all.len());
        Ok(())
    });
}

async fn pod_of_controllers(place: &Place) -> Result<String> {
    let listed = ["get", "pods", "-n", SYSTEM, "-l", "app=repot-controllers", "-o", "name"];
    let pods = place.world.garden.kubectl(listed).await?.text()?;
    let pod = pods.lines().next().context("there are no controllers")?.trim_start_matches("pod/").to_owned();
    ensure!(pod.starts_with(CONTROLLERS), "{pod}");
    Ok(pod)
}
