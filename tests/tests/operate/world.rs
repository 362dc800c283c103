//! A garden with two seeds and Shoots, and `repot` as an operator runs it.

use std::ffi::OsStr;

use anyhow::{Context, Result, ensure};
use repot_tests::TestEnv;
use repot_tests::landscape::{ControlPlaneOptions, GardenCluster, ShootName};
use repot_tests::repot::program;
use repot_tests::tool::{self, Output};
use serde_json::{Value, json};
use tokio::process::Command;

pub const PROJECT: &str = "garden-dev";
pub const SEEDS: [&str; 2] = ["seed-a", "seed-b"];
const MIGRATIONS: &str =
    "/apis/migration.gardener.cloud/v1alpha1/namespaces/garden-dev/controlplanemigrations";

pub struct World {
    pub garden: GardenCluster,
}

impl World {
    pub async fn start(env: &TestEnv, shoots: &[&str]) -> Result<Self> {
        let garden = GardenCluster::start(env).await?;
        for seed in SEEDS {
            garden.register_seed(seed, &json!({"accessKeyID": "a", "secretAccessKey": "b"})).await?;
        }
        for shoot in shoots {
            let name = ShootName::new("dev", shoot);
            garden.create_shoot(&name, SEEDS[0], &ControlPlaneOptions::default()).await?;
        }
        Ok(Self { garden })
    }

    /// Runs `repot` without a terminal.
    pub async fn repot<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<Output> {
        let mut command = Command::new(program()?);
        command.args(args).arg("--kubeconfig").arg(self.garden.cluster.kubeconfig());
        command.env_remove("KUBECONFIG").env("COLUMNS", "120");
        tool::run(command, b"").await
    }

    /// The same in the namespace of the Shoots; it has to end with this code.
    pub async fn expect(&self, code: i32, args: &[&str]) -> Result<String> {
        let args = args.iter().copied().chain(["-n", PROJECT]);
        let output = self.repot(args.clone()).await?;
        let command = args.collect::<Vec<_>>().join(" ");
        ensure!(output.code == code, "repot {command} ended with {}, not {code}: {output:?}", output.code);
        println!("repot {command}\n{}{}", output.stderr, text(&output));
        Ok(text(&output) + &output.stderr)
    }

    pub async fn migrations(&self) -> Result<Vec<Value>> {
        let all = self.garden.cluster.api().get(MIGRATIONS).await?.ok()?;
        Ok(all["items"].as_array().context("no list")?.clone())
    }

    /// Writes a status as controllers do.
    pub async fn report(&self, migration: &str, status: &Value) -> Result<()> {
        let path = format!("{MIGRATIONS}/{migration}/status");
        let patch = json!({"status": status});
        self.garden.cluster.api().patch(&path, "application/merge-patch+json", &patch).await?.ok().map(drop)
    }
}

pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
