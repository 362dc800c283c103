//! `repot rehearse`: the program that is built runs whole rehearsals, and leaves nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use repot_tests::process::descendants;
use repot_tests::tool::Output;
use repot_tests::wait::until;
use repot_tests::{TestEnv, binaries, run, run_large};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::{Child, Command};

/// A rehearsal that takes longer is stuck.
const DEADLINE: Duration = Duration::from_secs(1200);
/// What is started ends within this time after a signal.
const END: Duration = Duration::from_secs(120);
/// Lock files of ports, which all programs of the test environment share.
const PORTS: &str = "repot-testbed-ports-";

/// A rehearsal that runs, in a directory of its own.
struct Rehearsal {
    directory: PathBuf,
    errors: PathBuf,
    output: PathBuf,
    child: Child,
    before: Machine,
    /// Its processes, as far as they were seen, each with the time of its start.
    processes: BTreeSet<(u32, String)>,
}

/// What a rehearsal must leave as it was.
struct Machine {
    mounts: String,
    temporary: BTreeSet<String>,
}

#[test]
#[ignore = "minutes, in make soak"]
fn classic_migration_is_rehearsed_and_nothing_is_left_but_the_report_and_logs() {
    run_large(async |env| {
        let rehearsal =
            Rehearsal::start(env, &["classic", "--output", "json", "--requests-per-second", "20"])?;
        let directory = rehearsal.directory.clone();
        let output = rehearsal.end().await?;
        ensure!(output.code == 0, "{output:?}");
        let report = output.json()?;
        ensure!(report["proved"] == true && report["ended"] == "Succeeded", "{report:#}");
        let seconds = report["apiOutage"]["seconds"].as_u64();
        ensure!(seconds.is_some_and(|seconds| (1..180).contains(&seconds)), "{:#}", report["apiOutage"]);
        ensure!(report["requests"]["answered"].as_u64() > Some(100), "{:#}", report["requests"]);
        // There is an outage, and clients do not wait for its end.
        ensure!(report["requests"]["failed"].as_u64() > Some(0), "{:#}", report["requests"]);
        ensure!(report["requests"]["failedWrongly"] == 0, "{:#}", report["requests"]);
        ensure!(has_reached(&report, "OperationSucceeded"), "{:#}", report["steps"]);
        let stored: Value = serde_json::from_str(&fs::read_to_string(directory.join("report.json"))?)?;
        ensure!(stored == report, "report.json is another report");
        let text = fs::read_to_string(directory.join("report.txt"))?;
        ensure!(text.contains("Proved:") && text.contains("Not proved:"), "{text}");
        ensure!(fs::read_to_string(directory.join("timeline.svg"))?.starts_with("<svg "), "no SVG");
        Ok(())
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn step_that_is_never_reached_rolls_the_migration_back() {
    run_large(async |env| {
        let fault = "SourceBucketReadable=never";
        let rehearsal = Rehearsal::start(env, &["classic", "--output", "json", "--fault", fault])?;
        let output = rehearsal.end().await?;
        ensure!(output.code == 0, "{output:?}");
        let report = output.json()?;
        ensure!(report["proved"] == true && report["ended"] == "RolledBack", "{report:#}");
        ensure!(report["fault"] == fault, "{report:#}");
        ensure!(!has_reached(&report, "SourceApiStopped"), "{:#}", report["steps"]);
        Ok(())
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn rehearsal_that_is_interrupted_ends_everything() {
    run_large(async |env| {
        let mut rehearsal = Rehearsal::start(env, &["classic"])?;
        rehearsal.until_said("SourceServes").await?;
        rehearsal.interrupt()?;
        let directory = rehearsal.directory.clone();
        let output = rehearsal.end().await?;
        ensure!(output.code == 130, "{output:?}");
        ensure!(!directory.join("report.txt").exists(), "there is a report of what did not end");
        Ok(())
    });
}

#[test]
fn rehearsal_of_unknown_faults_is_refused_before_anything_starts() {
    run(async |env| {
        let mut rehearsal = Rehearsal::start(env, &["live", "--fault", "ApiServers=kill"])?;
        let status = rehearsal.child.wait().await?;
        let said = fs::read_to_string(&rehearsal.errors)?;
        ensure!(status.code() == Some(2), "{status}: {said}");
        ensure!(said.contains("there is no step ApiServers in live"), "{said}");
        ensure!(said.contains("SixMemberETCDReady"), "{said}");
        ensure!(fs::read_dir(&rehearsal.directory)?.next().is_none(), "something was written");
        Ok(())
    });
}

fn has_reached(report: &Value, step: &str) -> bool {
    let mut steps = report["steps"].as_array().into_iter().flatten();
    steps.any(|one| one["name"] == step && one["state"] == "Succeeded")
}

impl Rehearsal {
    fn start(env: &TestEnv, arguments: &[&str]) -> Result<Self> {
        let program = binaries::profile_dir()?.join("rehearse");
        ensure!(program.is_file(), "{} is missing: build it by `cargo build --workspace`", program.display());
        let directory = env.make_dir("rehearsal")?;
        let said = env.make_dir("said")?;
        let (errors, output) = (said.join("errors"), said.join("output"));
        let mut command = Command::new(program);
        command.args(arguments).arg("--directory").arg(&directory).stdin(Stdio::null()).kill_on_drop(true);
        command.stderr(fs::File::create(&errors)?).stdout(fs::File::create(&output)?);
        let before = Machine::look()?;
        Ok(Self { directory, errors, output, child: command.spawn()?, before, processes: BTreeSet::new() })
    }

    /// Waits until it has told this.
    async fn until_said(&mut self, text: &str) -> Result<()> {
        until(text, DEADLINE, async || {
            self.look();
            let said = fs::read_to_string(&self.errors)?;
            ensure!(said.contains(text), "{said}");
            Ok(())
        })
        .await
    }

    fn look(&mut self) {
        let all = self.child.id().map(descendants).unwrap_or_default();
        self.processes.extend(all.into_iter().filter_map(|pid| Some((pid, start_time(pid)?))));
    }

    fn interrupt(&self) -> Result<()> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        Ok(kill_process(pid.context("it has ended")?, Signal::INT)?)
    }

    /// Waits until it has ended, and fails where anything is left of it but its report and logs.
    async fn end(mut self) -> Result<Output> {
        let status = until("the rehearsal to end", DEADLINE, async || {
            self.look();
            match self.child.try_wait()? {
                Some(status) => Ok(status),
                None => bail!("it runs: {}", fs::read_to_string(&self.errors)?),
            }
        })
        .await?;
        ensure!(self.processes.len() > 20, "only {} processes were seen", self.processes.len());
        let lives = |(pid, started): &&(u32, String)| start_time(*pid).as_ref() == Some(started);
        until("its processes to be gone", END, async || {
            let left: Vec<_> = self.processes.iter().filter(lives).collect();
            ensure!(left.is_empty(), "processes are left: {left:?}");
            Ok(())
        })
        .await?;
        self.before.ensure_as_now()?;
        ensure_left(&self.directory)?;
        let code = status.code().unwrap_or(-1);
        let (stdout, stderr) = (fs::read(&self.output)?, fs::read_to_string(&self.errors)?);
        Ok(Output { command: "rehearse".to_owned(), code, stdout, stderr })
    }
}

/// When a process was started; `None` where it has ended.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let is_zombie = fields.first() == Some(&"Z");
    fields.get(19).filter(|_| !is_zombie).map(|time| (*time).to_owned())
}

/// Only the report and logs are in the directory.
fn ensure_left(directory: &Path) -> Result<()> {
    let expected = ["logs", "rehearsal.lock", "report.json", "report.txt", "timeline.svg"];
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        ensure!(expected.contains(&name.as_str()), "{name} is left in the directory");
    }
    Ok(())
}

impl Machine {
    fn look() -> Result<Self> {
        let entries = fs::read_dir(std::env::temp_dir())?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        Ok(Self {
            mounts: fs::read_to_string("/proc/self/mountinfo")?,
            temporary: names.collect::<std::io::Result<_>>()?,
        })
    }

    /// Namespaces without processes are mounts, too.
    fn ensure_as_now(&self) -> Result<()> {
        let now = Self::look()?;
        ensure!(self.mounts == now.mounts, "mounts were\n{}and are\n{}", self.mounts, now.mounts);
        let new = now.temporary.difference(&self.temporary);
        let new: Vec<_> = new.filter(|name| !name.starts_with(PORTS)).collect();
        ensure!(new.is_empty(), "temporary files are left: {new:?}");
        Ok(())
    }
}
