//! What tracing costs a server: CPU time of a request without it, with a request that is not traced, and with one that is.

use std::fs;

use anyhow::{Context, Result, ensure};
use repot_tests::TestEnv;
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::otel::Collector;
use repot_tests::repot::Repot;
use repot_tests::run;
use serde_json::json;

use super::world::{direct_as, flags, tracing};
use crate::shootstate::world::{collection, path, small};

const WARM_UP: usize = 300;
const REQUESTS: usize = 4000;
const ROUNDS: usize = 3;
/// Clock ticks of the kernel, by which it counts CPU time.
const TICKS_PER_SECOND: f64 = 100.0;

/// One way to run the server.
struct Server {
    name: &'static str,
    repot: Repot,
    api: Api,
    /// Microseconds of CPU time for a request, a measurement for each round.
    costs: Vec<f64>,
}

async fn start(env: &TestEnv, garden: &Garden, name: &'static str, more: Option<String>) -> Result<Server> {
    let mut own = flags(env)?;
    own.extend(more);
    let repot = Repot::replica(env, garden, own).await?;
    let api = direct_as(garden, &repot, "admin", &["system:masters"])?;
    api.post(&collection("default"), &small("one", &json!({"a": 1}))).await?.ok()?;
    Ok(Server { name, repot, api, costs: Vec::new() })
}

fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).context("a number of ticks");
    Ok((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

async fn measure(server: &mut Server) -> Result<()> {
    for _ in 0..WARM_UP {
        server.api.get(&path("one")).await?.ok()?;
    }
    let pid = server.repot.process().pid();
    let before = cpu_seconds(pid)?;
    for _ in 0..REQUESTS {
        server.api.get(&path("one")).await?.ok()?;
    }
    let used = cpu_seconds(pid)? - before;
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    server.costs.push(used * 1e6 / REQUESTS as f64);
    Ok(())
}

/// Prints a table, and writes it to the file in `TRACING_TABLE`.
#[test]
#[ignore = "a measurement: it wants the machine to itself"]
fn a_request_costs_the_same_while_nothing_is_traced() {
    run(async |env| {
        let garden = Garden::start(env).await?;
        let collector = Collector::start(env).await?;
        let (none, all) = (collector.config(env, 0)?, collector.config(env, 1_000_000)?);
        let mut servers = [
            start(env, &garden, "without `--tracing-config-file`", None).await?,
            start(env, &garden, "with it, request not traced", Some(tracing(&none))).await?,
            start(env, &garden, "with it, request traced", Some(tracing(&all))).await?,
        ];
        for _ in 0..ROUNDS {
            for server in &mut servers {
                measure(server).await?;
            }
        }
        let mut table = "| server | CPU time of a GET, µs | rounds |\n|---|---|---|\n".to_owned();
        for server in &mut servers {
            server.costs.sort_by(f64::total_cmp);
            let rounds: Vec<String> = server.costs.iter().map(|cost| format!("{cost:.0}")).collect();
            table +=
                &format!("| {} | {:.0} | {} |\n", server.name, server.costs[ROUNDS / 2], rounds.join(", "));
        }
        println!("{table}");
        if let Some(file) = std::env::var_os("TRACING_TABLE") {
            fs::write(file, &table)?;
        }
        let [off, idle, _] = &servers;
        ensure!(
            idle.costs[0] < 1.3 * off.costs[ROUNDS - 1],
            "a request that is not traced pays for it:\n{table}"
        );
        Ok(())
    });
}
