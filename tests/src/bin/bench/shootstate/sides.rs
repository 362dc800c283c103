//! The two sides: Repot's controllers, and a controller that rewrites whole objects. Each is a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use repot_tests::process::{Process, Spec};
use repot_tests::wait::until;
use repot_tests::{TestEnv, port};

use super::clusters::{Clusters, SEED, Size};
use crate::proc;

const DEADLINE: Duration = Duration::from_secs(60);
/// How long a gigabyte may take to be rewritten.
const WHOLE_DEADLINE: Duration = Duration::from_secs(1800);

/// Who keeps ShootStates up to date.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    /// `repot controllers`.
    Repot,
    /// A controller that sends the whole spec for each change (`whole`).
    WholeObjects,
}

/// A side that runs.
pub struct Running {
    process: Process,
    /// Where it tells how many bytes it has sent.
    sent: Sent,
}

enum Sent {
    Metrics(u16),
    File(PathBuf),
}

/// What a side has used so far.
pub struct Reading {
    /// When it was read.
    pub at: Instant,
    /// Bytes of requests that wrote ShootStates.
    pub sent: u64,
    /// Bytes that the server of ShootStates has written to its disk.
    pub stored: u64,
    /// CPU seconds of the controller.
    pub controller_cpu: f64,
    /// CPU seconds of the server of ShootStates.
    pub server_cpu: f64,
    /// CPU seconds of kube-apiserver in the garden.
    pub garden_cpu: f64,
    /// CPU seconds of kube-apiserver in the seed.
    pub seed_cpu: f64,
    /// The most memory of the controller so far.
    pub controller_mib: f64,
    /// The most memory of the server of ShootStates so far.
    pub server_mib: f64,
}

impl Side {
    /// Its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Repot => "repot",
            Self::WholeObjects => "whole objects",
        }
    }

    /// Starts it on the clusters.
    pub async fn start(self, env: &TestEnv, repot: &Path, clusters: &Clusters) -> Result<Running> {
        let (seed, garden) = (clusters.seed.kubeconfig(), clusters.garden.kubeconfig());
        match self {
            Self::Repot => {
                let health = port::reserve()?;
                let spec = Spec::new("state-controllers", repot).arg("controllers").flag("kubeconfig", seed);
                let spec = spec.flag("garden-kubeconfig", garden).flag("seed-name", SEED);
                let spec = spec.flag("image", "none").flag("health-address", format!("127.0.0.1:{health}"));
                let mut process = Process::start(env, spec)?;
                let probe = async || {
                    let url = format!("http://127.0.0.1:{health}/readyz");
                    reqwest::get(url).await?.error_for_status().map(drop).context("not ready")
                };
                process.ready(DEADLINE, probe).await?;
                Ok(Running { process, sent: Sent::Metrics(health) })
            }
            Self::WholeObjects => {
                let told = env.make_dir("whole-objects")?.join("sent");
                fs::write(&told, "0")?;
                let spec = Spec::new("whole-objects", std::env::current_exe()?).arg("whole-objects");
                let spec = spec.arg(seed).arg(garden).arg(&told);
                Ok(Running { process: Process::start(env, spec)?, sent: Sent::File(told) })
            }
        }
    }
}

impl Running {
    /// What it and the servers have used so far.
    pub async fn read(&self, clusters: &mut Clusters) -> Result<Reading> {
        let sent = self.sent().await?;
        let (own, server) = (self.process.pid(), clusters.repot.process().pid());
        let (garden, seed) =
            (clusters.garden.apiserver_process().pid(), clusters.seed.apiserver_process().pid());
        Ok(Reading {
            at: Instant::now(),
            sent,
            stored: written_bytes(server)?,
            controller_cpu: proc::cpu_seconds(own),
            server_cpu: proc::cpu_seconds(server),
            garden_cpu: proc::cpu_seconds(garden),
            seed_cpu: proc::cpu_seconds(seed),
            controller_mib: proc::memory(own)?.peak,
            server_mib: proc::memory(server)?.peak,
        })
    }

    /// Waits until this side has nothing to do with what is there: whole objects have been written once each. Repot has created what was
    /// missing, and compares without writing.
    pub async fn until_written(&self, size: Size) -> Result<()> {
        let Sent::File(_) = &self.sent else { return Ok(()) };
        let all = (size.shoots * size.extensions * size.bytes) as u64;
        until("all ShootStates to be written once", WHOLE_DEADLINE, async || {
            let sent = self.sent().await?;
            ensure!(sent >= all, "{sent} of {all} bytes are sent");
            Ok(())
        })
        .await
    }

    async fn sent(&self) -> Result<u64> {
        match &self.sent {
            Sent::File(path) => Ok(fs::read_to_string(path)?.trim().parse()?),
            Sent::Metrics(port) => {
                let text = reqwest::get(format!("http://127.0.0.1:{port}/metrics")).await?.text().await?;
                let value =
                    text.lines().find_map(|line| line.strip_prefix("repot_shootstate_sent_bytes_total "));
                Ok(value.context("no bytes are counted")?.trim().parse::<f64>()? as u64)
            }
        }
    }

    /// Ends the process of this side, which has nothing to put in order.
    pub fn stop(mut self) {
        self.process.kill();
    }
}

/// Bytes that a process has had written to disks.
fn written_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let value = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(value.context("the kernel does not count what is written")?.trim().parse()?)
}
