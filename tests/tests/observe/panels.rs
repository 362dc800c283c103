//! Panels of dashboards: their queries, whether a run has data for them, and pictures of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::tool;
use repot_tests::wait::until;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::sleep;

use super::prometheus::{Prometheus, without_variables};
use super::world::DEADLINE;

/// A query that has no data in a run: dashboard, panel, legend, and the situation that is missing.
pub type Excuse = (&'static str, &'static str, &'static str, &'static str);

/// A query of a panel.
pub struct Query {
    dashboard: &'static str,
    panel: String,
    legend: String,
    expr: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The queries of all panels of these dashboards.
pub fn queries(dashboards: &[&'static str]) -> Result<Vec<Query>> {
    let mut all = Vec::new();
    for dashboard in dashboards {
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
    fn is_excused(&self, excuses: &[Excuse]) -> bool {
        excuses.iter().any(|(dashboard, panel, legend, _)| {
            (*dashboard, *panel, *legend) == (self.dashboard, &*self.panel, &*self.legend)
        })
    }

    async fn has_data(&self, prometheus: &Prometheus) -> Result<bool> {
        Ok(prometheus.range(&self.expr).await?.iter().any(|values| !values.is_empty()))
    }
}

/// Waits until each query has data, but for those that are excused.
pub async fn have_data(prometheus: &Prometheus, queries: &[Query], excuses: &[Excuse]) -> Result<()> {
    until("all panels to have data", DEADLINE, async || {
        let mut missing = Vec::new();
        for query in queries.iter().filter(|query| !query.is_excused(excuses)) {
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
    for query in queries.iter().filter(|query| query.is_excused(excuses)) {
        let (panel, legend) = (&query.panel, &query.legend);
        ensure!(!query.has_data(prometheus).await?, "{panel} {legend} has data, and needs no excuse");
    }
    Ok(())
}

/// Draws a panel of each dashboard into the directory `RENDER_PANELS`, if there is one: so much of a run as `time`.
///
/// The run goes on for that long before, or for `RENDER_SECONDS`. `deploy/dashboards/render` says which panels are drawn.
pub async fn render(prometheus: &Prometheus, dashboards: &[&str], time: Duration) -> Result<()> {
    let Some(dir) = std::env::var_os("RENDER_PANELS") else { return Ok(()) };
    let seconds = std::env::var("RENDER_SECONDS").ok().map_or(Ok(time.as_secs()), |text| text.parse())?;
    sleep(Duration::from_secs(seconds)).await;
    draw(prometheus, dashboards, Path::new(&dir), Duration::from_secs(seconds)).await
}

/// Draws a panel of each dashboard into a directory: the last part of a run.
pub async fn draw(prometheus: &Prometheus, dashboards: &[&str], dir: &Path, time: Duration) -> Result<()> {
    let python = repot_tests::binaries::testbed_dir().join("matplotlib/bin/python");
    let mut command = Command::new(python);
    command.arg(root().join("deploy/dashboards/render")).args(["--prometheus", prometheus.url()]);
    command.arg("--output").arg(dir).args(["--minutes", &time.as_secs().div_ceil(60).to_string()]);
    command.args(dashboards);
    print!("{}", tool::run(command, b"").await?.text()?);
    Ok(())
}
