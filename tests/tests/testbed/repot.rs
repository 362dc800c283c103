//! How the testbed drives `repot`, proved with a stand-in of a few lines that keeps the same contract.

use anyhow::{Result, ensure};
use repot_tests::process::{Spec, wait_until_gone};
use repot_tests::repot::Repot;
use repot_tests::{TestEnv, run};

fn stand_in(script: &str) -> Spec {
    Spec::new("stand-in", "/bin/sh").args(["-c", script])
}

async fn start(env: &TestEnv, script: &str) -> Result<Repot> {
    Repot::start_program(env, stand_in(script)).await
}

/// Prints the line in two writes, then serves until it is told to stop.
const OBEDIENT: &str = "trap 'exit 0' TERM; echo starting; printf 'ready https://127.0.0.1'; echo :6443; while :; do sleep 0.01; done";

#[test]
fn ready_line_names_the_url_and_a_restart_waits_for_it_again() {
    run(async |env| {
        let mut repot = start(env, OBEDIENT).await?;
        ensure!(repot.url() == "https://127.0.0.1:6443" && repot.port()? == 6443, "{}", repot.url());
        let first = repot.process().pid();
        repot.kill();
        wait_until_gone(first, std::time::Duration::from_secs(10)).await?;
        repot.restart().await?;
        ensure!(repot.process().pid() != first && repot.url() == "https://127.0.0.1:6443", "{}", repot.url());
        repot.stop().await
    });
}

#[test]
fn start_fails_with_the_log_of_a_program_that_gives_up() {
    run(async |env| {
        let Err(error) = start(env, "echo no key file >&2; exit 2").await else {
            anyhow::bail!("it started")
        };
        let message = format!("{error:#}");
        ensure!(message.contains("no key file") && message.contains("code 2"), "{message}");
        Ok(())
    });
}

#[test]
fn stop_that_ends_in_failure_is_an_error() {
    run(async |env| {
        let mut repot = start(env, &OBEDIENT.replace("exit 0", "exit 7")).await?;
        ensure!(repot.stop().await.is_err(), "exit code 7 passed for a clean stop");
        Ok(())
    });
}
