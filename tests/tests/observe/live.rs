//! Everything that dashboards and alerts ask for is exported by a real run.
//!
//! With `RENDER_PANELS=DIR` the run goes on for `RENDER_SECONDS` (600), and one panel of each dashboard is drawn into that directory by
//! `deploy/dashboards/render`: that is how the images of `docs/operate/dashboards.md` are made.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::run_large;
use repot_tests::tool;
use repot_tests::wait::until;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::sleep;

use super::files::metrics;
use super::prometheus::{Prometheus, without_variables};
use super::workload;
use super::world::{DEADLINE, World};

const DASHBOARDS: [&str; 4] = ["apiserver", "controllers", "etcd-fleet", "storage"];

/// Queries of panels that have no data in this run: dashboard, panel, legend, and the situation that is missing.
const WITHOUT_DATA: &[(&str, &str, &str, &str)] = &[
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

/// A query of a panel.
struct Query {
    dashboard: &'static str,
    panel: String,
    legend: String,
    expr: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn queries() -> Result<Vec<Query>> {
    let mut all = Vec::new();
    for dashboard in DASHBOARDS {
        let path = root().join(format!("deploy/dashboards/{dashboard}.json"));
        let content: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        for panel in content["panels"].as_array().context("no panels")? {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                all.push(Query {
                    dashboard,
                    panel: text(&panel["title"]),
                    legend: text(&target["legendFormat"]),
                    expr: without_variables(&text(&target["expr"])),
                });
            }
        }
    }
    Ok(all)
}

impl Query {
    fn is_excused(&self) -> bool {
        WITHOUT_DATA.iter().any(|(dashboard, panel, legend, _)| {
            (*dashboard, *panel, *legend) == (self.dashboard, &*self.panel, &*self.legend)
        })
    }

    async fn has_data(&self, prometheus: &Prometheus) -> Result<bool> {
        Ok(prometheus.range(&self.expr).await?.iter().any(|values| !values.is_empty()))
    }
}

/// Waits until each query has data, but for those that are excused.
async fn all_panels_have_data(prometheus: &Prometheus) -> Result<()> {
    let queries = queries()?;
    ensure!(queries.len() > 70, "only {} queries", queries.len());
    until("all panels to have data", DEADLINE, async || {
        let mut missing = Vec::new();
        for query in queries.iter().filter(|query| !query.is_excused()) {
            if !query.has_data(prometheus).await? {
                missing
                    .push(format!("{}: {} {}: {}", query.dashboard, query.panel, query.legend, query.expr));
            }
        }
        sleep(Duration::from_secs(1)).await;
        ensure!(missing.is_empty(), "without data:\n{}", missing.join("\n"));
        Ok(())
    })
    .await?;
    for query in queries.iter().filter(|query| query.is_excused()) {
        let (panel, legend) = (&query.panel, &query.legend);
        ensure!(!query.has_data(prometheus).await?, "{panel} {legend} has data, and needs no excuse");
    }
    Ok(())
}

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
            all_panels_have_data(&prometheus).await?;
            all_rules_have_samples(&prometheus).await?;
            nothing_is_damaged(&prometheus).await?;
            render(&prometheus).await
        };
        tokio::select! {
            checked = checked => checked,
            worked = workload::run(&world) => worked.context("the workload ended"),
        }
    });
}

/// Draws panels of this run, where somebody asks for it.
async fn render(prometheus: &Prometheus) -> Result<()> {
    let Some(dir) = std::env::var_os("RENDER_PANELS") else { return Ok(()) };
    let seconds = std::env::var("RENDER_SECONDS").ok().map_or(Ok(600), |text| text.parse())?;
    sleep(Duration::from_secs(seconds)).await;
    let python = repot_tests::binaries::testbed_dir().join("matplotlib/bin/python");
    let mut command = Command::new(python);
    command.arg(root().join("deploy/dashboards/render")).args(["--prometheus", prometheus.url()]);
    command.arg("--output").arg(dir).args(["--minutes", &(seconds / 60).max(1).to_string()]);
    print!("{}", tool::run(command, b"").await?.text()?);
    Ok(())
}
