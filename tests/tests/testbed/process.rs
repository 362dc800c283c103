use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::process::{Process, Spec, wait_until_gone};
use repot_tests::wait::until;
use repot_tests::{TestEnv, binaries, run};

const SOON: Duration = Duration::from_secs(10);

/// A shell with a child of its own, which names both on standard output.
fn family(env: &TestEnv) -> Result<Process> {
    let script = "sleep 600 & echo child $!; wait";
    Process::start(env, Spec::new("family", "/bin/sh").args(["-c", script]))
}

async fn find_child(process: &mut Process) -> Result<u32> {
    let output = process.output_path();
    process
        .ready(SOON, async || {
            let text = std::fs::read_to_string(&output)?;
            Ok(text.strip_prefix("child ").context("no child yet")?.trim().parse()?)
        })
        .await
}

#[test]
fn dropping_ends_a_process_and_its_children() {
    run(async |env| {
        let mut process = family(env)?;
        let (parent, child) = (process.pid(), find_child(&mut process).await?);
        ensure!(Path::new("/proc").join(child.to_string()).exists(), "the child does not run");
        drop(process);
        wait_until_gone(parent, SOON).await?;
        wait_until_gone(child, SOON).await
    });
}

/// Where the victim below, a second run of this test program, notes the process that it started.
const VICTIM_NOTE: &str = "TESTBED_VICTIM_NOTE";

#[test]
fn kernel_ends_processes_of_a_killed_test() {
    if let Some(note) = std::env::var_os(VICTIM_NOTE) {
        return be_killed(Path::new(&note));
    }
    run(async |env| {
        let note = env.path().join("pid");
        let spec = Spec::new("victim", std::env::current_exe()?)
            .args(["--exact", "testbed::process::kernel_ends_processes_of_a_killed_test", "--nocapture"])
            .env(VICTIM_NOTE, &note);
        let mut victim = Process::start(env, spec)?;
        let pid: u32 =
            victim.ready(SOON, async || Ok(std::fs::read_to_string(&note)?.trim().parse()?)).await?;
        victim.kill();
        wait_until_gone(pid, SOON).await
    });
}

fn be_killed(note: &Path) {
    run(async |env| {
        let process = Process::start(env, Spec::new("sleep", "/bin/sleep").arg("600"))?;
        // In two moves, so that nobody reads half of the number.
        std::fs::write(env.path().join("pid"), process.pid().to_string())?;
        std::fs::rename(env.path().join("pid"), note)?;
        std::future::pending().await
    });
}

#[test]
fn process_outlives_the_thread_that_asked_for_it() {
    run(async |env| {
        let runtime = tokio::runtime::Handle::current();
        // The thread ends only when the child has tied itself to somebody's life: its program runs after that.
        let start = || {
            runtime.block_on(async {
                let mut process = family(env)?;
                find_child(&mut process).await.map(|_| process)
            })
        };
        let started = std::thread::scope(|scope| scope.spawn(start).join());
        let mut process = started.map_err(|_| anyhow::anyhow!("the thread panicked"))??;
        // The kernel's signal would have been sent before the thread could be joined; the wait is for its arrival.
        let ended =
            tokio::time::timeout(Duration::from_millis(200), process.ready(SOON, async || never())).await;
        ensure!(ended.is_err(), "it ended with its thread: {ended:?}");
        Ok(())
    });
}

fn never() -> Result<()> {
    anyhow::bail!("never")
}

#[test]
fn process_that_exits_early_fails_at_once_with_its_log() {
    run(async |env| {
        let mut process =
            Process::start(env, Spec::new("short", "/bin/sh").args(["-c", "echo so sorry >&2; exit 3"]))?;
        let outcome = process.ready(Duration::from_secs(30), async || never()).await;
        let message = format!("{:?}", outcome.expect_err("it was never ready").context(""));
        ensure!(message.contains("so sorry") && message.contains("code 3"), "{message}");
        Ok(())
    });
}

#[test]
fn paused_process_answers_again_after_resume() {
    run(async |env| {
        // A shell that starts a program waits for it in a state in which it cannot stand.
        let script = "import time\nwhile True:\n  print(flush=True)\n  time.sleep(0.01)";
        let mut process = Process::start(env, Spec::new("ticker", "python3").args(["-c", script]))?;
        let output = process.output_path();
        let length = async || Ok(std::fs::metadata(&output)?.len());
        process
            .ready(SOON, async || length().await.and_then(|bytes| bytes.checked_sub(1).context("silent")))
            .await?;
        process.pause();
        let state = Path::new("/proc").join(process.pid().to_string()).join("stat");
        until("the process to stand", SOON, async || {
            std::fs::read_to_string(&state)?.contains(") T ").then_some(()).context("it runs")
        })
        .await?;
        let standing: u64 = length().await?;
        process.resume();
        until("more ticks", SOON, async || (length().await? > standing).then_some(()).context("no tick"))
            .await
    });
}

#[test]
fn missing_program_fails_by_name() {
    let message = binaries::find("kube-nothing").expect_err("there is none").to_string();
    assert!(message.contains("kube-nothing") && message.contains("make testbed"), "{message}");
}
