//! Go programs of ours around what others wrote, told line by line what to do: `tests/go/clientgo` with Kubernetes' own client,
//! `tests/go/clients` with libraries built on it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::binaries;
use crate::test_env::TestEnv;

/// Longer than the program itself waits for anything.
const ANSWER_DEADLINE: Duration = Duration::from_secs(120);

/// A running `clientgo` or `clients`. It ends when this is dropped.
pub struct ClientGo {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl ClientGo {
    /// Starts `clientgo <command> --kubeconfig=<file> <flags>`.
    pub fn start(env: &TestEnv, command: &str, kubeconfig: &Path, flags: &[&str]) -> Result<Self> {
        Self::launch(env, "clientgo", command, kubeconfig, flags)
    }

    /// Starts `clients <library> --kubeconfig=<file>`, which answers each step it is asked for.
    pub fn library(env: &TestEnv, library: &str, kubeconfig: &Path) -> Result<Self> {
        Self::launch(env, "clients", library, kubeconfig, &[])
    }

    /// Both also hold each WatchList that they read against a LIST, and end themselves when they differ.
    fn launch(
        env: &TestEnv,
        name: &'static str,
        command: &str,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Result<Self> {
        let dir = env.make_dir(name)?;
        let mut program = Command::new(binaries::find(name)?);
        program.arg(command).arg("--kubeconfig").arg(kubeconfig).args(flags).current_dir(&dir);
        program.env("HOME", &dir).env("KUBE_FEATURE_WatchListClient", "true");
        program.env("KUBE_WATCHLIST_INCONSISTENCY_DETECTOR", "true");
        Self::speak_with(name, program, &dir.join(format!("{name}.log")))
    }

    /// Starts another program that is told line by line what to do; what it says besides goes to a log.
    pub fn speak_with(name: &'static str, mut program: Command, log: &Path) -> Result<Self> {
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        program.stderr(std::fs::File::create(log)?);
        let mut child = program.spawn().with_context(|| format!("failed to start {name}"))?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Self { name, child, input, output })
    }

    /// The next answer.
    ///
    /// Errors: when the program has ended, says nothing for two minutes, or says that something is wrong.
    pub async fn answer(&mut self) -> Result<Value> {
        let name = self.name;
        let line = timeout(ANSWER_DEADLINE, self.output.next_line())
            .await
            .with_context(|| format!("{name} is silent"))??;
        let Some(line) = line else {
            anyhow::bail!("{name} ended with {} (see its log)", self.child.wait().await?)
        };
        let answer: Value =
            serde_json::from_str(&line).with_context(|| format!("{name} answered no JSON"))?;
        ensure!(answer["ok"] == true, "{name}: {}", answer["reason"].as_str().unwrap_or(&line));
        Ok(answer)
    }

    /// Gives one command and takes its answer.
    pub async fn ask(&mut self, command: &str) -> Result<Value> {
        self.input.write_all(format!("{command}\n").as_bytes()).await?;
        self.answer().await.with_context(|| format!("asked to {command}"))
    }
}
