//! Moves of one control plane, there and back, and what they cost.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use repot_tests::http::Api;
use repot_tests::landscape::control_plane::ControlPlane;
use repot_tests::landscape::{Landscape, memory};
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::phases::{self, Phase};
use super::probe::{self, Probe, Write};
use crate::proc;
use crate::storage::Report;

/// Where the control plane is at first, and where it moves.
pub const SEEDS: [&str; 2] = ["seed-a", "seed-b"];
/// Bytes of an object that fills the etcd, in base64 a third more.
const FILLING: usize = 700 << 10;
/// How long a client writes before a move begins, to compare with.
const BEFORE: Duration = Duration::from_secs(15);
const DEADLINE: Duration = Duration::from_secs(1_800);

/// How a control plane moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Live,
    Classic,
}

/// A control plane, and the seed where it is.
pub struct Mover<'a> {
    landscape: &'a Landscape,
    plane: &'a ControlPlane,
    garden: Api,
    at: usize,
    moves: usize,
    filled: usize,
}

/// What a move took and what a client saw.
pub struct Measured {
    mode: Mode,
    phases: Vec<Phase>,
    writes: Vec<Write>,
    outage: Value,
    /// Cores that the whole machine was busy with.
    cores: f64,
    /// The most memory of all processes of Repot, and of all etcds, in MiB.
    memory: BTreeMap<&'static str, u64>,
}

impl<'a> Mover<'a> {
    pub fn new(landscape: &'a Landscape, plane: &'a ControlPlane) -> Result<Self> {
        let garden = landscape.garden.as_ref().context("there is no garden")?.cluster.api().clone();
        Ok(Self { landscape, plane, garden, at: 0, moves: 0, filled: 0 })
    }

    /// Name of the seed where the control plane is.
    pub fn seed(&self) -> &'static str {
        SEEDS[self.at]
    }

    /// Stores ConfigMaps that compress badly, until there are so many MiB.
    pub async fn fill(&mut self, mib: usize) -> Result<()> {
        let api = &self.plane.api(&self.landscape.dns)?;
        let store = |at: usize| async move {
            let mut bytes = vec![0; FILLING];
            aws_lc_rs::rand::fill(&mut bytes)?;
            let data = json!({"value": BASE64_STANDARD.encode(&bytes)});
            let name = format!("filling-{at}");
            let object =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
            api.post("/api/v1/namespaces/default/configmaps", &object).await?.ok().map(drop)
        };
        let all = (mib << 20) / (FILLING * 4 / 3);
        let missing = stream::iter(self.filled..all).map(store).buffer_unordered(4);
        missing.try_collect::<Vec<()>>().await?;
        self.filled = self.filled.max(all);
        Ok(())
    }

    /// Moves the control plane to the other seed.
    pub async fn measure(&mut self, mode: Mode) -> Result<Measured> {
        let probe = Probe::start(self.plane.api(&self.landscape.dns)?).await?;
        let quiet = probe::now();
        tokio::time::sleep(BEFORE).await;
        let (begun, cpu) = (probe::now(), proc::machine_cpu());
        let (migration, memory) = self.migrate(mode).await?;
        let ended = probe::now();
        let cores = (proc::machine_cpu().busy - cpu.busy) / (ended - begun);
        let mut phases = vec![Phase { name: "before", from: quiet, to: begun }];
        phases.extend(phases::of(mode, &migration, (begun, ended)));
        let outage = migration["status"]["apiOutage"]["seconds"].clone();
        Ok(Measured { mode, phases, writes: probe.writes(), outage, cores, memory })
    }

    async fn migrate(&mut self, mode: Mode) -> Result<(Value, BTreeMap<&'static str, u64>)> {
        let (from, to) = (SEEDS[self.at], SEEDS[1 - self.at]);
        let (shoot, name) = (&self.plane.shoot, format!("{}-{}", self.plane.shoot.name, self.moves));
        let object = json!({
            "apiVersion": "migration.gardener.cloud/v1alpha1", "kind": "ControlPlaneMigration",
            "metadata": {"name": name},
            "spec": {
                "shootRef": {"name": shoot.name}, "sourceSeed": from, "destinationSeed": to,
                "mode": format!("{mode:?}"),
            },
        });
        let all = format!(
            "/apis/migration.gardener.cloud/v1alpha1/namespaces/{}/controlplanemigrations",
            shoot.project_namespace()
        );
        self.garden.post(&all, &object).await?.ok()?;
        let (path, most) = (format!("{all}/{name}"), parking_lot::Mutex::new(BTreeMap::new()));
        let migration = until("the move to end", DEADLINE, async || {
            note_memory(&mut most.lock())?;
            let migration = self.garden.get(&path).await?.ok()?;
            let phase = migration["status"]["phase"].as_str().unwrap_or_default();
            let has_ended = ["Succeeded", "RolledBack", "Failed", "Cancelled"].contains(&phase);
            ensure!(has_ended, "{phase}: {}", migration["status"]["message"]);
            Ok(migration)
        })
        .await?;
        ensure!(migration["status"]["phase"] == "Succeeded", "{}", migration["status"]);
        (self.at, self.moves) = (1 - self.at, self.moves + 1);
        Ok((migration, most.into_inner()))
    }
}

fn note_memory(most: &mut BTreeMap<&'static str, u64>) -> Result<()> {
    let usage = memory::usage()?;
    for name in ["repot", "etcd"] {
        let now = usage.get(name).map_or(0, |usage| usage.kib >> 10);
        let most = most.entry(name).or_default();
        *most = now.max(*most);
    }
    Ok(())
}

impl Measured {
    /// A row for the whole move, and one for each part of it.
    pub fn report(&self, report: &mut Report, what: &str) {
        let side = format!("{:?}", self.mode);
        let (from, to) = (
            self.phases.get(1).map_or(0.0, |phase| phase.from),
            self.phases.last().map_or(0.0, |phase| phase.to),
        );
        let mut whole = phases::seen(&self.writes, &Phase { name: "the whole move", from, to });
        whole["coresBusy"] = self.cores.into();
        for (program, mib) in &self.memory {
            whole[format!("{program}MiB")] = (*mib).into();
        }
        if self.mode == Mode::Classic {
            whole["outageSeconds"] = self.outage.clone();
        }
        report.add("live", &format!("{what}: the whole move"), &side, whole);
        for phase in &self.phases {
            let seen = phases::seen(&self.writes, phase);
            report.add("live", &format!("{what}: {}", phase.name), &side, seen);
        }
    }
}
