//! A collector that is away, or takes nothing, is no concern of clients.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::otel::write_config;
use repot_tests::repot::Repot;
use repot_tests::wait::until;
use repot_tests::{TestEnv, port, run};
use serde_json::json;
use tokio::net::TcpListener;

use super::world::{direct_as, flags, tracing};
use crate::shootstate::world::{collection, path, small};

const OBJECTS: usize = 40;
const DEADLINE: Duration = Duration::from_secs(90);
/// What stopping takes at most: three seconds for the collector, and as much again for everything else on a machine that is busy.
const STOP: Duration = Duration::from_secs(20);
const WARNING: &str = "failed to send traces to the collector";

async fn serve(env: &TestEnv, garden: &Garden, endpoint: &str) -> Result<(Repot, Api)> {
    let config = write_config(&env.make_dir("tracing")?, endpoint, 1_000_000)?;
    let mut own = flags(env)?;
    own.push(tracing(&config));
    let repot = Repot::replica(env, garden, own).await?;
    let api = direct_as(garden, &repot, "admin", &["system:masters"])?;
    Ok((repot, api))
}

async fn write_and_read(api: &Api) -> Result<()> {
    for number in 0..OBJECTS {
        let name = format!("object-{number}");
        api.post(&collection("default"), &small(&name, &json!({"number": number}))).await?.ok()?;
        api.get(&path(&name)).await?.ok()?;
    }
    Ok(())
}

async fn dropped(api: &Api, reason: &str) -> Result<f64> {
    let answer = api.get("/metrics").await?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let line = format!("repot_traces_dropped_total{{reason=\"{reason}\"}} ");
    let value = text.lines().find_map(|found| found.strip_prefix(&line));
    value.with_context(|| format!("no {line}"))?.parse().context("a number")
}

#[test]
fn a_collector_that_is_away_costs_nothing_but_spans() {
    run(async |env| {
        let garden = Garden::start(env).await?;
        let (mut repot, api) = serve(env, &garden, &format!("127.0.0.1:{}", port::reserve()?)).await?;
        write_and_read(&api).await?;
        until("spans to be given up", DEADLINE, async || {
            ensure!(dropped(&api, "export_failed").await? > 0.0, "none is");
            Ok(())
        })
        .await?;
        write_and_read_again(&api).await?;
        // A second batch fails, and is not logged.
        let first = dropped(&api, "export_failed").await?;
        until("more spans to be given up", DEADLINE, async || {
            api.get(&path("object-0")).await?.ok()?;
            ensure!(dropped(&api, "export_failed").await? > first, "none is");
            Ok(())
        })
        .await?;
        let warnings = repot.process().log().matches(WARNING).count();
        ensure!(warnings == 1, "{warnings} warnings within a minute");
        stop_in_time(&mut repot).await
    });
}

async fn write_and_read_again(api: &Api) -> Result<()> {
    for number in 0..OBJECTS {
        api.delete(&path(&format!("object-{number}"))).await?.ok()?;
    }
    write_and_read(api).await
}

#[test]
fn a_collector_that_never_answers_does_not_hold_up_the_end() {
    run(async |env| {
        let garden = Garden::start(env).await?;
        // Connections are accepted by the system, and nobody reads them.
        let silent = TcpListener::bind(("127.0.0.1", 0)).await?;
        let endpoint = silent.local_addr()?.to_string();
        let (mut repot, api) = serve(env, &garden, &endpoint).await?;
        write_and_read(&api).await?;
        stop_in_time(&mut repot).await
    });
}

async fn stop_in_time(repot: &mut Repot) -> Result<()> {
    let began = Instant::now();
    repot.stop().await?;
    let took = began.elapsed();
    ensure!(took < STOP, "it took {took:?} to stop");
    Ok(())
}
