//! The real kubectl, with a home and a cache of its own.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::binaries;
use crate::test_env::TestEnv;
use crate::tool::{self, Output};

/// kubectl as one user of one API server.
#[derive(Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Kubectl {
    /// Errors: when kubectl has not been built.
    pub fn new(env: &TestEnv, kubeconfig: impl Into<PathBuf>) -> Result<Self> {
        let home = env.make_dir("kubectl")?;
        Ok(Self { program: binaries::find("kubectl")?, kubeconfig: kubeconfig.into(), home })
    }

    /// Applies objects server-side, in their order.
    ///
    /// Errors: when one is refused.
    pub async fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string();
        let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.run_with(args, list.as_bytes()).await?.text().map(drop)
    }

    /// kubectl 1.20, the oldest that people still have, as the same user of the same server.
    ///
    /// Errors: when it has not been fetched.
    pub fn old(&self, env: &TestEnv) -> Result<Self> {
        let home = env.make_dir("kubectl-1.20")?;
        Ok(Self { program: binaries::find("kubectl-1.20")?, home, kubeconfig: self.kubeconfig.clone() })
    }

    /// The same kubectl, home and cache with another kubeconfig file.
    pub fn with(&self, kubeconfig: impl Into<PathBuf>) -> Self {
        Self { kubeconfig: kubeconfig.into(), ..self.clone() }
    }

    /// The kubeconfig file it uses.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// Runs it; a bad exit code is an [`Output`], not an error.
    pub async fn run(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Output> {
        self.run_with(args, b"").await
    }

    /// Runs it with bytes on standard input, for `-f -`.
    pub async fn run_with(
        &self,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        input: &[u8],
    ) -> Result<Output> {
        tool::run(self.command(args), input).await
    }

    /// The command itself, for tests that stream (`get --watch`); `kill_on_drop` is left to them.
    pub fn command(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(&self.home);
        command.env("HOME", &self.home).env("KUBECONFIG", &self.kubeconfig).env_remove("KUBECACHEDIR");
        command
    }
}
