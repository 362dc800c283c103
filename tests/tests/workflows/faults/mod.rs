//! One fault in each step of a migration: it ends Succeeded, RolledBack or Cancelled, and neither the etcd nor its backups miss
//! anything afterwards.
//!
//! [`FAULTS`] is the table of docs/reference/etcd-faults.md. Each row leaves a whole etcd of three members over mutual TLS, so the rows of a
//! lane are played one after the other on the same one: what a row leaves in its store is there when the next one is played.

mod lane_a;
mod lane_b;
mod lane_c;
mod lane_d;
mod soak;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use repot_plan::etcd::migration;
use repot_plan::named::Named;
use repot_tests::test_env::TestEnv;
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::control_plane::{ControlPlaneFixture, Data, Front};
use super::table::{ALL_STEPS, FAULTS, Fault, Lane};
use super::world::{DEADLINE, TestNamespace};

const MEMBERS: u32 = 3;

const HEAD: &str = "# Faults of a migration, and how each ends

Made from the table of the tests (`tests/tests/workflows/table.rs`). The tests in `faults/` next to it play each row
on an etcd of three members over mutual TLS, while a client writes all the time. After each row:

- Every key has its value and its revisions, and every write that was acknowledged is there. All members hold the same.
- A restore from the store, without a snapshot by request, holds all of that; so does one after a snapshot by request.
- The backup of the migration, where one was taken and not damaged, holds what the etcd held before.

| step | fault | ends as | reason | what is left |
|---|---|---|---|---|
";

fn render() -> String {
    let mut text = HEAD.to_owned();
    for Fault { step, what, ends, reason, left, .. } in FAULTS {
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

#[test]
fn every_step_of_a_migration_has_a_fault() {
    let steps: BTreeSet<&str> = migration::PLAN.forward.iter().map(|row| row.step.name()).collect();
    let faults: BTreeSet<&str> =
        FAULTS.iter().map(|fault| fault.step).filter(|step| *step != ALL_STEPS).collect();
    assert_eq!(faults, steps);
}

/// A control plane on which the rows of a lane are played.
struct LaneRun<'a> {
    env: &'a TestEnv,
    lane: Lane,
    fixture: ControlPlaneFixture,
    step_timeout: &'static str,
    played: Vec<&'static str>,
}

impl<'a> LaneRun<'a> {
    async fn start(env: &'a TestEnv, lane: Lane, step_timeout: &'static str) -> Result<Self> {
        let start = Instant::now();
        let namespace = format!("lane-{lane:?}").to_lowercase();
        let fixture = ControlPlaneFixture::start(&namespace, MEMBERS, Front::Writer).await?;
        println!("lane {lane:?} started in {:.0?}", start.elapsed());
        Ok(Self { env, lane, fixture, step_timeout, played: Vec::new() })
    }

    /// Plays a row, which ends with [`FaultRun::ends`].
    async fn play(&mut self, name: &str, row: impl AsyncFnOnce(&FaultRun<'_>) -> Result<()>) -> Result<()> {
        let start = Instant::now();
        let fault = FAULTS.iter().find(|fault| fault.name == name && fault.lane == self.lane);
        let fault = fault.with_context(|| format!("lane {:?} has no row {name}", self.lane))?;
        let run = FaultRun::start(self, fault).await.with_context(|| format!("before row {name}"))?;
        row(&run).await.with_context(|| format!("row {name}"))?;
        println!("row {name} took {:.0?}", start.elapsed());
        self.played.push(fault.name);
        Ok(())
    }

    /// Checks that all rows of the lane were played.
    fn ends(self) -> Result<()> {
        let rows = FAULTS.iter().filter(|fault| fault.lane == self.lane).map(|fault| fault.name);
        let missed: Vec<_> = rows.filter(|name| !self.played.contains(name)).collect();
        ensure!(missed.is_empty(), "lane {:?} does not play {missed:?}", self.lane);
        Ok(())
    }
}

/// What a rollback has to lead back to.
struct Before {
    data: Data,
    acknowledged: u64,
    claims: Vec<(String, String)>,
    etcd: Value,
}

/// A migration with a fault.
struct FaultRun<'a> {
    env: &'a TestEnv,
    fixture: &'a ControlPlaneFixture,
    fault: &'static Fault,
    step_timeout: &'static str,
    /// The name of the migration.
    migration: String,
    before: Before,
}

/// What a migration changes of an Etcd.
async fn etcd_spec(ns: &TestNamespace) -> Result<Value> {
    let spec = ns.get("etcd", "main").await?["spec"].clone();
    let fields = ["replicas", "storageClass", "storageCapacity", "volumeClaimTemplate"];
    Ok(fields.iter().map(|field| ((*field).to_owned(), spec[field].clone())).collect())
}

impl<'a> FaultRun<'a> {
    async fn start(lane: &'a LaneRun<'_>, fault: &'static Fault) -> Result<Self> {
        let fixture = &lane.fixture;
        let before = Before {
            data: fixture.data().await?,
            acknowledged: fixture.acknowledged()?,
            claims: fixture.claims().await?,
            etcd: etcd_spec(&fixture.ns).await?,
        };
        let migration = format!("m-{}", fault.name);
        Ok(Self { env: lane.env, fixture, fault, step_timeout: lane.step_timeout, migration, before })
    }

    fn ns(&self) -> &TestNamespace {
        &self.fixture.ns
    }

    /// Settings that differ from those that the etcd has.
    fn settings(&self) -> Value {
        let class = if self.before.etcd["storageClass"] == "fast" { "slow" } else { "fast" };
        json!({"storageClassName": class, "size": "2Gi"})
    }

    async fn migrate(&self) -> Result<()> {
        self.migrate_to(self.settings()).await
    }

    async fn migrate_to(&self, settings: Value) -> Result<()> {
        self.fixture.migrate_as(&self.migration, settings, self.step_timeout).await
    }

    /// Migrates with time enough for several Jobs in a step, one after the other.
    async fn migrate_slowly(&self) -> Result<()> {
        self.fixture.migrate_as(&self.migration, self.settings(), "1m").await
    }

    async fn step(&self, step: &str, state: &str) -> Result<Value> {
        self.fixture.step_of(&self.migration, step, state).await
    }

    /// Changes the spec of the migration.
    async fn change(&self, spec: Value) -> Result<()> {
        self.ns().merge("etcdmigration", &self.migration, json!({"spec": spec})).await.map(drop)
    }

    /// Starts the migration, and pauses it after a step.
    async fn pause_after(&self, step: &str) -> Result<()> {
        self.migrate().await?;
        self.step(step, "Running").await?;
        self.change(json!({"paused": true})).await?;
        self.step(step, "Succeeded").await?;
        let paused = |object: &Value| object["status"]["pausedTime"].is_string();
        self.ns().until("etcdmigration", &self.migration, "paused", paused).await.map(drop)
    }

    /// Checks that the migration ends as the table says, that the etcd serves again, and that nothing is missing, in backups either.
    async fn ends(&self) -> Result<Value> {
        let ended = self.ns().ends("etcdmigration", &self.migration, self.fault.ends).await?;
        let reason = ended["status"]["reason"].as_str().unwrap_or_default();
        ensure!(reason == self.fault.reason, "the reason is {}", ended["status"]);
        self.fixture.api_is_up().await?;
        self.fixture.is_sound(self.env, &self.before.data).await?;
        self.backup_holds(&ended).await.context("the backup of the migration")?;
        self.etcd_is_left(&ended).await?;
        self.ns()
            .until("hostedetcd", "main", "free", |hosted| {
                hosted["status"]["currentWorkflow"].is_null() && hosted["metadata"]["finalizers"].is_null()
            })
            .await?;
        Ok(ended)
    }

    async fn backup_holds(&self, ended: &Value) -> Result<()> {
        let steps = ended["status"]["steps"].as_array().context("no steps")?;
        let taken = steps.iter().find(|step| step["name"] == "BackupTaken");
        // A rollback changes the state of all steps but of those that failed.
        if !taken.is_some_and(|step| step["state"] == "Succeeded" || step["state"] == "RolledBack") {
            return Ok(());
        }
        if self.fault.reason == "BackupCorrupt" {
            return self.fixture.backup_is_refused(self.env, ended).await;
        }
        let Before { data, acknowledged, .. } = &self.before;
        self.fixture.backup_of(self.env, ended, data, *acknowledged).await
    }

    /// Checks that the etcd has the settings and the volumes that follow from the end, and no others are left.
    async fn etcd_is_left(&self, ended: &Value) -> Result<()> {
        let (mut etcd, mut claims) = (self.before.etcd.clone(), self.before.claims.clone());
        if self.fault.ends == "Succeeded" {
            let settings = self.settings();
            let volumes = ended["status"]["newVolumes"].as_str().context("status.newVolumes is empty")?;
            let class = settings["storageClassName"].as_str().context("no class")?;
            etcd["storageClass"] = class.into();
            etcd["storageCapacity"] = settings["size"].clone();
            etcd["volumeClaimTemplate"] = volumes.into();
            claims = (0..MEMBERS).map(|at| (format!("{volumes}-main-{at}"), class.to_owned())).collect();
        }
        let is = etcd_spec(self.ns()).await?;
        ensure!(is == etcd, "the Etcd has {is}, and not {etcd}");
        let settings = self.ns().get("hostedetcd", "main").await?["spec"]["settings"].clone();
        let fields =
            [("replicas", "replicas"), ("storageClassName", "storageClass"), ("size", "storageCapacity")];
        for (field, of_etcd) in fields.into_iter().filter(|(field, _)| !settings[field].is_null()) {
            ensure!(
                settings[field] == etcd[of_etcd],
                "the HostedEtcd has the settings {settings}, the Etcd {etcd}"
            );
        }
        until("the claims of one etcd", DEADLINE, async || {
            let left = self.fixture.claims().await?;
            ensure!(left == claims, "there are {left:?}, and not {claims:?}");
            Ok(())
        })
        .await
    }
}
