//! `repot controllers`: reconcilers.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use repot_apiserver::delegation;
use repot_controllers::etcd;

use crate::run;

/// Run controllers: the operator makes members of Etcds.
///
/// Objects come from the cluster of the kubeconfig (in a Pod: its own). Run one at a time.
#[derive(Args)]
pub struct Flags {
    /// Image of members and Jobs, with repot, etcd and etcdutl
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// kubeconfig of the cluster [default: in a Pod its own]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The only namespace to look at [default: all]
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

/// Runs until a signal.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let stop = run::stop_on_signals()?;
    let client = delegation::client(flags.kubeconfig.as_deref()).await?;
    etcd::run(client, etcd::Options { image: flags.image, namespace: flags.namespace }, stop).await;
    Ok(ExitCode::SUCCESS)
}
