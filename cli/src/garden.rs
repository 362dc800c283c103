//! How a command of a user finds the garden.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};

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

impl GardenFlags {
    /// A client with the rights of the user.
    pub async fn connect(&self) -> anyhow::Result<kube::Client> {
        kube::Client::try_from(self.config().await?).context("failed to make a client of the garden")
    }

    /// What the kubeconfig says.
    pub async fn config(&self) -> anyhow::Result<kube::Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        Ok(match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path);
                let file = file.with_context(|| format!("failed to read {}", path.display()))?;
                kube::Config::from_custom_kubeconfig(file, &options).await?
            }
            None if self.context.is_some() => kube::Config::from_kubeconfig(&options).await?,
            None => kube::Config::infer().await?,
        })
    }
}
