//! Everything that dashboards and alerts ask for is exported by a real run.
//!
//! `make panels` draws one panel of each dashboard, ten minutes of the run long.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::run_large;
use repot_tests::wait::until;

use super::files::metrics;
use super::panels::{self, Excuse};
use super::prometheus::Prometheus;
use super::workload;
use super::world::{DEADLINE, World};

const DASHBOARDS: [&str; 4] = ["apiserver", "controllers", "etcd-fleet", "storage"];

/// How much of the run is drawn.
const RENDER_TIME: Duration = Duration::from_secs(600);

/// Queries of panels that have no data in this run.
const WITHOUT_DATA: &[Excuse] = &[
    ("apiserver", "Rejected requests", "{{reason}}", "nobody sends more than its share"),
    ("controllers", "Failed steps", "{{flow}} {{step}}: {{reason}}", "every step succeeds"),
    (
        "storage",
        "Wrapped data keys",
        "{{provider}} {{key_name}}",
        "only local keys are counted, and this run has a KMS",
    ),
    ("storage", "Age of the last pass", "chunks", "the first pass begins ten minutes after the start"),
    ("storage", "Age of the last pass", "chunk store", "the same"),
];

/// Metrics of alerts that this run does not export.
const WITHOUT_SAMPLES: &[(&str, &str)] = &[
    ("apiserver_admission_webhook_fail_open_count", "every webhook answers"),
    ("repot_flow_steps_failed_total", "every step succeeds"),
    ("repot_encryption_key_wraps_total", "only local keys are counted, and this run has a KMS"),
];

/// Each rule is evaluated without an error, and its metrics are there.
async fn all_rules_have_samples(prometheus: &Prometheus) -> Result<()> {
    let rules = prometheus.rules().await?;
    ensure!(rules.len() > 20, "only {} rules", rules.len());
    let mut used = BTreeSet::new();
    for rule in &rules {
        ensure!(rule["health"] == "ok", "{rule}");
        used.extend(metrics(rule["query"].as_str().context("no query")?));
    }
    let mut missing = Vec::new();
    for name in used {
        let excused = WITHOUT_SAMPLES.iter().any(|(metric, _)| *metric == name);
        let names = ["", "_bucket", "_count"].map(|suffix| format!("{name}{suffix}")).join("|");
        let is_there = !prometheus.range(&format!("{{__name__=~\"{names}\"}}")).await?.is_empty();
        if is_there == excused {
            missing.push(name);
        }
    }
    ensure!(missing.is_empty(), "not exported, or excused without need: {missing:?}");
    Ok(())
}

/// Alerts of which this run is no example.
async fn nothing_is_damaged(prometheus: &Prometheus) -> Result<()> {
    let silent = ["RepotChunksDamaged", "RepotStoreRolledBack", "RepotStorageErrors", "RepotEtcdQuorumLost"];
    for rule in prometheus.rules().await? {
        let name = rule["name"].as_str().unwrap_or_default();
        ensure!(!silent.contains(&name) || rule["state"] == "inactive", "{rule}");
    }
    Ok(())
}

#[test]
fn panels_and_alerts_have_data_of_a_real_run() {
    run_large(async |env| {
        let world = World::start(env).await?;
        let prometheus = Prometheus::start(env, &world.jobs().await?).await?;
        let checked = async {
            until("all targets to be scraped", DEADLINE, async || {
                let targets = prometheus.targets().await?;
                ensure!(
                    targets.len() == 7 && targets.iter().all(|(_, error)| error.is_empty()),
                    "{targets:?}"
                );
                Ok(())
            })
            .await?;
            panels::have_data(&prometheus, &panels::queries(&DASHBOARDS)?, WITHOUT_DATA).await?;
            all_rules_have_samples(&prometheus).await?;
            nothing_is_damaged(&prometheus).await?;
            panels::render(&prometheus, &DASHBOARDS, RENDER_TIME).await
        };
        tokio::select! {
            checked = checked => checked,
            worked = workload::run(&world) => worked.context("the workload ended"),
        }
    });
}
