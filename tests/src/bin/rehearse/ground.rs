//! The landscape of a rehearsal: what this machine needs for it, and the kubeconfig files of its clusters.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use repot_tests::landscape::isolations::in_three_zones;
use repot_tests::landscape::world::{LandscapeRef, SEEDS, World, small};
use repot_tests::landscape::{ControlPlaneOptions, Landscape, LandscapeOptions};
use repot_tests::pki::write_private;
use repot_tests::{TestEnv, binaries};
use tokio::time::sleep;

use crate::arguments::Flow;
use crate::directory::Directory;
use crate::progress::Progress;

/// The name of the Shoot; its namespace in the garden is `garden-dev`.
const SHOOT: &str = "rehearsal";
/// From one look at the generation of the Shoot to the next.
const OBSERVED_EVERY: Duration = Duration::from_secs(2);
/// Programs that `make testbed` builds.
const BUILT: [&str; 9] = [
    "etcd",
    "etcdctl",
    "gardener-apiserver",
    "gardener-controller-manager",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "machine-controller-manager",
];
/// Programs of the distribution.
const INSTALLED: [&str; 6] = ["ip", "knotd", "mount", "nsenter", "setpriv", "unbound"];
/// Where programs of administrators are, which the search path of users may not name.
const FURTHER_PATHS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// Fails unless this machine can run a landscape; the message has all that is missing.
pub fn check_machine() -> Result<()> {
    ensure!(rustix::process::getuid().is_root(), "only root can run it, because Pods get network namespaces");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> =
        std::env::split_paths(&path).chain(std::env::split_paths(FURTHER_PATHS)).collect();
    let is_installed = |name: &&str| directories.iter().any(|directory| directory.join(name).is_file());
    let built: Vec<_> = BUILT.into_iter().filter(|name| binaries::find(name).is_err()).collect();
    let installed: Vec<_> = INSTALLED.into_iter().filter(|name| !is_installed(name)).collect();
    ensure!(built.is_empty(), "programs are missing: {}; build them by `make testbed`", built.join(", "));
    ensure!(
        installed.is_empty(),
        "programs are missing: {}; install them by `make tools`",
        installed.join(", ")
    );
    Ok(())
}

/// Starts a garden, two seeds and the Shoot, and writes kubeconfig files of all of them.
pub async fn start(env: &TestEnv, directory: &Directory, flow: Flow, progress: &Progress) -> Result<World> {
    progress.line(&format!("a garden and two seeds start; logs are in {}", env.path().display()));
    progress.status("starting; this takes a minute or two");
    let landscape = Landscape::start(env, LandscapeOptions::default()).await?;
    progress.line("a Shoot starts at seed-a, with its nodes");
    progress.status("starting; this takes a minute or two");
    let landscape = LandscapeRef::Owned(Arc::new(landscape));
    let world = World::create_at(landscape, env, SHOOT, options(flow)).await?;
    write_kubeconfigs(&world, directory, SEEDS.0).await?;
    progress.line(&format!("the Shoot serves; kubeconfig files are in {}", directory.path().display()));
    for line in explain(&world, directory) {
        progress.line(&line);
    }
    Ok(world)
}

fn options(flow: Flow) -> ControlPlaneOptions {
    let pools = vec![("worker-a".to_owned(), 2)];
    match flow {
        Flow::Live => {
            ControlPlaneOptions { etcd_members: 3, api_servers: 2, pools, ..ControlPlaneOptions::default() }
        }
        Flow::Classic | Flow::Forced => ControlPlaneOptions { pools, ..small() },
        Flow::Isolate => in_three_zones(),
    }
}

/// Writes a kubeconfig file for each cluster; that of the Shoot leads to its kube-apiservers at a seed.
pub async fn write_kubeconfigs(world: &World, directory: &Directory, seed: &str) -> Result<()> {
    let landscape = &world.landscape;
    for seed in &landscape.seeds {
        seed.cluster.admin().write(directory.kubeconfig(&seed.name))?;
    }
    let garden = landscape.garden.as_ref().context("there is no garden")?;
    garden.cluster.admin().write(directory.kubeconfig("garden"))?;
    let shoot = world.shoot.control_plane.kubeconfig_at(landscape.seed(seed)?).await?;
    write_private(directory.kubeconfig("shoot"), &shoot).map(drop)
}

/// What to try in another terminal.
fn explain(world: &World, directory: &Directory) -> Vec<String> {
    let (shoot, namespace) = (&world.name().name, world.name().project_namespace());
    let of = |cluster: &str| directory.kubeconfig(cluster).display().to_string();
    vec![
        format!("in another terminal: repot status {shoot} -n {namespace} --kubeconfig {}", of("garden")),
        format!("in another terminal: kubectl get nodes --kubeconfig {}", of("shoot")),
    ]
}

/// Does for ever what a gardenlet does after each migration, since none runs here: without it, rules refuse the next one.
pub async fn act_as_gardenlet(world: &World) -> Result<()> {
    let garden = world.landscape.garden.as_ref().context("there is no garden")?;
    loop {
        // What fails is tried again.
        let _ = garden.observe_shoot(world.name()).await;
        sleep(OBSERVED_EVERY).await;
    }
}

/// How to reach everything after the report.
pub fn explain_kept(world: &World, directory: &Directory) -> Vec<String> {
    let mut lines = vec!["everything runs on; Ctrl-C ends it".to_owned()];
    lines.extend(explain(world, directory));
    lines
}
