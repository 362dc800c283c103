//! The dashboard and the alerts of migrations have data of a real one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use repot_tests::landscape::story;
use repot_tests::landscape::world::{SEEDS, World, run, small};
use repot_tests::operator::SYSTEM;

use super::files::{alerts, metrics};
use super::panels;
use super::prometheus::{Job, Prometheus};

const DASHBOARD: &str = "migrations";
const ALERTS: [&str; 3] = ["RepotMigrationStepStuck", "RepotMigrationOutageLong", "RepotTwoOwnersSuspected"];

/// A step that was in the outage is a step of long ago for queries: they ask for the last five minutes.
const LONGEST: Duration = Duration::from_secs(240);

#[test]
#[ignore = "minutes, in make soak"]
fn panels_and_alerts_of_migrations_have_data_of_a_real_one() {
    run(async |env| {
        let world = World::create(env, "observed", small()).await?;
        let port = {
            let controllers = world.landscape.controllers.as_ref().context("there is no garden")?;
            controllers.lock().port
        };
        let (name, targets) = ("repot-controllers", vec![("repot-controllers-0".to_owned(), port)]);
        let job = Job { name, namespace: SYSTEM.to_owned(), targets, tls: None };
        let prometheus = Prometheus::start(env, &[job]).await?;
        let started = Instant::now();
        story::succeed(&world, "move", SEEDS).await?;
        ensure!(
            started.elapsed() < LONGEST,
            "it took {:?}: its first steps are not asked for",
            started.elapsed()
        );
        let queries = panels::queries(&[DASHBOARD])?;
        ensure!(queries.len() >= 9, "only {} queries", queries.len());
        panels::have_data(&prometheus, &queries, &[]).await?;
        alerts_have_samples(&prometheus).await?;
        if let Some(dir) = std::env::var_os("RENDER_PANELS") {
            panels::draw(&prometheus, &[DASHBOARD], dir.as_ref(), started.elapsed()).await?;
        }
        world.stop(SEEDS.1).await
    });
}

async fn alerts_have_samples(prometheus: &Prometheus) -> Result<()> {
    let rules = alerts();
    let mut used = BTreeSet::new();
    for name in ALERTS {
        used.extend(metrics(rules.get(name).with_context(|| format!("there is no alert {name}"))?));
    }
    for name in used {
        let names = ["", "_bucket", "_count"].map(|suffix| format!("{name}{suffix}")).join("|");
        let samples = prometheus.range(&format!("{{__name__=~\"{names}\"}}")).await?;
        ensure!(!samples.is_empty(), "{name} is not exported");
    }
    Ok(())
}
