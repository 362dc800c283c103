//! How a command of a user finds the garden, or another cluster.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use repot_console::objects::causes;

/// Where the garden is.
#[derive(Args)]
pub struct GardenFlags {
    /// kubeconfig of the garden [default: as kubectl finds it]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Where a cluster is, a garden or a seed.
#[derive(Args)]
pub struct ClusterFlags {
    /// kubeconfig of the cluster [default: as kubectl finds it]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl GardenFlags {
    /// A client with the rights of the user.
    pub async fn connect(&self) -> anyhow::Result<kube::Client> {
        kube::Client::try_from(self.config().await?).context("failed to make a client of the garden")
    }

    /// What the kubeconfig says.
    pub async fn config(&self) -> anyhow::Result<kube::Config> {
        config(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }
}

impl ClusterFlags {
    /// A client with the rights of the user.
    pub async fn connect(&self) -> anyhow::Result<kube::Client> {
        kube::Client::try_from(self.config().await?).context("failed to make a client of the cluster")
    }

    /// What the kubeconfig says.
    pub async fn config(&self) -> anyhow::Result<kube::Config> {
        config(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }
}

/// There is no kubeconfig, and no Pod around. The error itself names the same causes several times.
fn not_found(error: &kube::config::InferConfigError) -> anyhow::Error {
    let path = std::env::var("KUBECONFIG").ok().filter(|path| !path.is_empty());
    let what = match path {
        Some(path) => format!("failed to read the kubeconfig of $KUBECONFIG, {path}"),
        None => "no cluster is named; use --kubeconfig or $KUBECONFIG".to_owned(),
    };
    let why = std::error::Error::source(error).map(causes).unwrap_or_default();
    anyhow::anyhow!("{what}: {why}")
}

async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<kube::Config> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Ok(match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path);
            let file = file.with_context(|| format!("failed to read {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &options).await?
        }
        None if context.is_some() => kube::Config::from_kubeconfig(&options).await?,
        None => kube::Config::infer().await.map_err(|error| not_found(&error))?,
    })
}
