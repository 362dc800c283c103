//! The program of `tests/go/clientgo`: Kubernetes' own Go client, told line by line what to do.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::bed::Bed;
use crate::binaries;

/// Longer than the program itself waits for anything.
const ANSWER_DEADLINE: Duration = Duration::from_secs(120);

/// A running `clientgo`. It ends when this is dropped.
pub struct ClientGo {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl ClientGo {
    /// Starts `clientgo <command> --kubeconfig=<file> <flags>`; it also holds each WatchList that it reads against a LIST, and ends
    /// itself when they differ.
    pub fn start(bed: &Bed, command: &str, kubeconfig: &Path, flags: &[&str]) -> Result<Self> {
        let dir = bed.make_dir("clientgo")?;
        let mut program = Command::new(binaries::find("clientgo")?);
        program.arg(command).arg("--kubeconfig").arg(kubeconfig).args(flags);
        program.env("KUBE_WATCHLIST_INCONSISTENCY_DETECTOR", "true");
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        program.stderr(std::fs::File::create(dir.join("clientgo.log"))?);
        let mut child = program.spawn().context("failed to start clientgo")?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Self { child, input, output })
    }

    /// The next answer.
    ///
    /// Errors: when the program has ended, says nothing for two minutes, or says that something is wrong.
    pub async fn answer(&mut self) -> Result<Value> {
        let line =
            timeout(ANSWER_DEADLINE, self.output.next_line()).await.context("clientgo is silent")??;
        let Some(line) = line else {
            anyhow::bail!("clientgo ended with {} (see its log)", self.child.wait().await?)
        };
        let answer: Value = serde_json::from_str(&line).context("clientgo answered no JSON")?;
        ensure!(answer["ok"] == true, "clientgo: {}", answer["reason"].as_str().unwrap_or(&line));
        Ok(answer)
    }

    /// Gives one command and takes its answer.
    pub async fn ask(&mut self, command: &str) -> Result<Value> {
        self.input.write_all(format!("{command}\n").as_bytes()).await?;
        self.answer().await.with_context(|| format!("asked to {command}"))
    }
}
