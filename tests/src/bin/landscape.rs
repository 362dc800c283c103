//! `make landscape`: a landscape with one Shoot that runs until SIGINT or SIGTERM, with kubeconfig files to try things.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use repot_tests::TestEnv;
use repot_tests::landscape::{ControlPlaneOptions, Landscape, LandscapeOptions, Shoot, ShootName, memory};
use repot_tests::pki::write_private;
use tokio::signal::unix::{SignalKind, signal};

/// Runs a garden, two seeds and a Shoot with six nodes on this machine.
///
/// Only root can run it, because Pods get network namespaces. It needs about 3 GiB of memory.
#[derive(Parser)]
struct Arguments {
    /// Directory for kubeconfig files; it is made when missing.
    #[arg(long, default_value = "landscape")]
    directory: PathBuf,
    /// Number of seeds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
    seeds: u8,
    /// Members of the main etcd of the Shoot.
    #[arg(long, default_value_t = 3)]
    etcd_members: u32,
    /// Replicas of kube-apiserver of the Shoot.
    #[arg(long, default_value_t = 2)]
    api_servers: u32,
    /// Leave Gardener and Repot's API server and webhooks out.
    #[arg(long)]
    without_garden: bool,
}

fn main() -> ExitCode {
    match start(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("landscape: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &Arguments) -> Result<()> {
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let env = TestEnv::new("landscape")?;
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
    // Everything that was started has ended when its values were dropped; background tasks end with the runtime.
    runtime.shutdown_background();
    outcome
}

/// Starts everything, and then waits for ever.
async fn run(env: &TestEnv, arguments: &Arguments) -> Result<()> {
    let seeds = ["seed-a", "seed-b", "seed-c"].iter().take(arguments.seeds.into());
    let seeds = seeds.map(|name| (*name).to_owned()).collect();
    eprintln!("starting: this takes some minutes; logs are in {}", env.path().display());
    let landscape = Landscape::start(
        env,
        LandscapeOptions { seeds, garden: !arguments.without_garden, ..LandscapeOptions::default() },
    )
    .await?;
    eprintln!("the seeds are ready; starting the Shoot");
    let options = ControlPlaneOptions {
        etcd_members: arguments.etcd_members,
        api_servers: arguments.api_servers,
        ..ControlPlaneOptions::default()
    };
    let shoot = landscape.create_shoot(env, ShootName::new("dev", "alpha"), "seed-a", options).await?;
    write_kubeconfigs(&landscape, &shoot, &arguments.directory).await?;
    println!("{}", explain(&landscape, &shoot, &arguments.directory));
    println!("{}", memory::table(&memory::usage()?));
    std::future::pending().await
}

async fn write_kubeconfigs(landscape: &Landscape, shoot: &Shoot, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("failed to make the directory {}", directory.display()))?;
    for seed in &landscape.seeds {
        seed.cluster.admin().write(directory.join(format!("{}.kubeconfig", seed.name)))?;
    }
    if let Some(garden) = &landscape.garden {
        garden.cluster.admin().write(directory.join("garden.kubeconfig"))?;
    }
    let kubeconfig = shoot.control_plane.kubeconfig_at(landscape.seed("seed-a")?).await?;
    write_private(directory.join("shoot.kubeconfig"), &kubeconfig).map(drop)
}

/// What to try.
fn explain(landscape: &Landscape, shoot: &Shoot, directory: &Path) -> String {
    let (plane, directory) = (&shoot.control_plane, directory.display());
    let namespace = plane.shoot.technical_id();
    let mut lines = vec![
        "The landscape is ready. Try:".to_owned(),
        format!("  kubectl --kubeconfig {directory}/shoot.kubeconfig get nodes"),
        format!(
            "  kubectl --kubeconfig {directory}/seed-a.kubeconfig get etcds,pods,machines,workers,dnsrecords -n {namespace}"
        ),
        format!("  kdig @127.0.0.1 -p {} {}", landscape.dns.address().port(), plane.shoot.api_domain()),
        format!("  curl http://127.0.0.1:{}/counters", landscape.cloud.port()),
    ];
    if landscape.garden.is_some() {
        let project = plane.shoot.project_namespace();
        lines.push(format!(
            "  kubectl --kubeconfig {directory}/garden.kubeconfig get seeds,shoots,backupentries -n {project}"
        ));
    }
    lines.push("Stop it with Ctrl-C.".to_owned());
    lines.join("\n")
}
