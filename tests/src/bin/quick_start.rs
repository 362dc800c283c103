//! `make try`: the quick start of docs/install/quick-start.md on a cluster of this machine, until SIGINT or SIGTERM.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use repot_tests::install::{ImageSource, NAMESPACE, World};
use repot_tests::{TestEnv, binaries};
use tokio::signal::unix::{SignalKind, signal};

/// Installs the chart of the garden into a cluster of this machine, and stores a ShootState of 12 MiB.
///
/// Only root can run it, because Pods get network namespaces. It needs about 1 GiB of memory.
#[derive(Parser)]
struct Arguments {
    /// Directory for the kubeconfig file; it is made when missing.
    #[arg(long, default_value = "quick-start")]
    directory: PathBuf,
    /// Directory with the archives that `make image` has written, such as target/image; without it, the programs that tests run.
    #[arg(long)]
    images: Option<PathBuf>,
    /// Stop when all is done.
    #[arg(long)]
    once: bool,
}

fn main() -> ExitCode {
    match start(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quick start: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &Arguments) -> Result<()> {
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let env = TestEnv::new("quick-start")?;
    let outcome = runtime.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            outcome = run(&env, arguments) => outcome,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    });
    eprintln!("stopping");
    runtime.shutdown_background();
    outcome
}

/// Does each step of the page, says so, and then waits for ever.
async fn run(env: &TestEnv, arguments: &Arguments) -> Result<()> {
    eprintln!("starting a cluster with three nodes; logs are in {}", env.path().display());
    let images = arguments.images.clone().map_or(ImageSource::Programs, ImageSource::Archives);
    let world = World::start_with(env, 3, &images).await?;
    world.apply_gardener_kinds().await?;
    let kubeconfig = write_kubeconfig(&world, &arguments.directory)?;
    eprintln!("helm install repot-garden");
    let class = "--set=storage.embedded.storageClassName=standard";
    println!("{}", world.deploy("install", "repot-garden", &[class]).await?);
    world.until_available("v1alpha1.core.gardener.cloud").await?;
    eprintln!("helm test repot-garden");
    println!("{}", world.helm(&["test", "repot-garden"]).await?);
    eprintln!("kubectl create: a ShootState of 12 MiB");
    println!("{}", world.store_example().await?);
    println!("{}", explain(&kubeconfig)?);
    if arguments.once { Ok(()) } else { std::future::pending().await }
}

fn write_kubeconfig(world: &World<'_>, directory: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("failed to make the directory {}", directory.display()))?;
    world.garden.admin().write(directory.join("kubeconfig"))
}

/// What to try.
fn explain(kubeconfig: &Path) -> Result<String> {
    let kubectl = binaries::find("kubectl")?;
    let lines = [
        "Repot is installed. Try in another terminal:".to_owned(),
        format!("  export KUBECONFIG=$PWD/{} PATH=$PATH:{}", kubeconfig.display(), parent(&kubectl)),
        format!("  kubectl get pods,pvc,secrets -n {NAMESPACE}"),
        "  kubectl get apiservices,validatingwebhookconfigurations".to_owned(),
        "  kubectl get shootstates.core.gardener.cloud -A -o wide".to_owned(),
        "  kubectl explain shootstate.spec".to_owned(),
        format!(
            "  helm upgrade repot-garden deploy/charts/repot-garden -n {NAMESPACE} --reuse-values --wait"
        ),
        "Stop it with Ctrl-C; nothing is kept.".to_owned(),
    ];
    Ok(lines.join("\n"))
}

fn parent(program: &Path) -> String {
    program.parent().unwrap_or(Path::new("")).display().to_string()
}
