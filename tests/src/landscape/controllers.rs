//! The controllers of migrations: in the garden as a process, in each seed as its Deployment with a way in to the garden.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::control_plane::DEADLINE;
use super::garden::GardenCluster;
use super::seed::Seed;
use crate::access::{Access, Credential};
use crate::operator::{self, SYSTEM, apply_file};
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::{port, repot};

/// Secret and volume with the kubeconfig of the garden, in a seed.
const GARDEN: &str = "garden-kubeconfig";
/// Namespace in the garden with a ServiceAccount for each seed.
const SEEDS: &str = "repot-seeds";
/// Longer than any test: nobody renews tokens here.
const TOKEN_LIFE: &str = "48h";
const MOUNT: &str = "/etc/garden";

/// The controllers of the garden.
pub struct GardenControllers {
    /// The process that runs them.
    pub process: Process,
    /// Where they answer `/readyz` and `/metrics`, without TLS.
    pub port: u16,
}

/// Starts the controllers of the garden as their ServiceAccount, with further flags, and waits until they are ready.
pub async fn start_in_garden(
    env: &TestEnv,
    garden: &GardenCluster,
    flags: &[String],
) -> Result<GardenControllers> {
    let port = port::reserve()?;
    let health = format!("127.0.0.1:{port}");
    let access = access(garden, SYSTEM, "repot-controllers").await?;
    let kubeconfig = access.write(env.make_dir("garden-controllers")?.join("kubeconfig"))?;
    let spec = Spec::new("garden-controllers", repot::program()?)
        .args([
            "controllers",
            "--scope=garden",
            "--migrate-on-seed-change",
            "--log-level=info,repot_controllers=debug",
        ])
        .flag("kubeconfig", &kubeconfig)
        .arg(format!("--health-address={health}"))
        .args(flags);
    let mut process = Process::start(env, spec)?;
    let probe = async || {
        let answer = reqwest::get(format!("http://{health}/readyz")).await?;
        ensure!(answer.status().is_success(), "{}", answer.status());
        Ok(())
    };
    process.ready(DEADLINE, probe).await?;
    Ok(GardenControllers { process, port })
}

/// Gives the controllers of a seed a way in to the garden, with further flags, and waits until they are ready again.
pub async fn start_in_seed(garden: &GardenCluster, seed: &Seed, flags: &[String]) -> Result<()> {
    apply_file(&seed.cluster, "rbac/seed-migrations.yaml").await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": SYSTEM, "name": GARDEN},
        "stringData": {"kubeconfig": kubeconfig(garden, seed).await?},
    });
    seed.cluster.apply(&[secret]).await?;
    let (name, file) =
        (format!("--seed-name={}", seed.name), format!("--garden-kubeconfig={MOUNT}/kubeconfig"));
    let flags: Vec<&str> = [&name, &file].into_iter().chain(flags).map(String::as_str).collect();
    let mut deployment = operator::deployment(&flags);
    let pod = &mut deployment["spec"]["template"]["spec"];
    pod["volumes"] = json!([{"name": GARDEN, "secret": {"secretName": GARDEN}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": GARDEN, "mountPath": MOUNT}]);
    operator::start_deployment(&seed.cluster, deployment).await
}

/// The way in to the garden for one of its ServiceAccounts.
async fn access(garden: &GardenCluster, namespace: &str, account: &str) -> Result<Access> {
    let create = ["create", "token", account, "-n", namespace, "--duration", TOKEN_LIFE];
    let token = garden.cluster.kubectl(create).await?.text()?;
    Ok(garden.cluster.admin().with(Credential::Token(token.trim().to_owned())))
}

/// A kubeconfig of the garden for Pods of a seed: its certificate has no name by which they reach it.
async fn kubeconfig(garden: &GardenCluster, seed: &Seed) -> Result<String> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": SEEDS, "name": seed.name},
    });
    garden.cluster.apply(&[account]).await?;
    let access = access(garden, SEEDS, &seed.name).await?;
    let (_, port) = access.server.rsplit_once(':').context("the URL of the garden has no port")?;
    let address = seed.runner.expose(port.parse()?)?;
    let mut kubeconfig: Value = serde_json::from_str(&access.to_kubeconfig())?;
    let cluster = &mut kubeconfig["clusters"][0]["cluster"];
    cluster["server"] = format!("https://{address}").into();
    cluster["tls-server-name"] = "localhost".into();
    Ok(kubeconfig.to_string())
}
