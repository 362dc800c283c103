//! kubectl, and a controller that is built on kube-rs, while the control plane moves.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Config, ResourceExt as _};
use parking_lot::Mutex;
use repot_tests::TestEnv;
use repot_tests::kubectl::Kubectl;
use repot_tests::landscape::control_plane::API_PORT;
use repot_tests::landscape::dns::Resolver;
use repot_tests::landscape::wide_network::here;
use repot_tests::pki::write_private;
use repot_tests::wait::until;
use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::migration::story::DEADLINE;
use crate::migration::world::World;

/// From one write of the controller to the next.
const PERIOD: Duration = Duration::from_millis(100);

/// Clients that run until they are dropped.
pub struct Clients {
    seen: Arc<Mutex<Seen>>,
    _tasks: JoinSet<()>,
}

/// What they have seen.
#[derive(Default)]
struct Seen {
    /// Runs of kubectl that ended well.
    kubectl: u32,
    /// Names that kube-rs has created, and those that its watcher has told of.
    created: BTreeSet<String>,
    told: BTreeSet<String>,
    /// How often the watcher has listed everything.
    lists: u32,
    /// Writes that the API server refused with a time, since it was about to end.
    refused: u32,
    /// Breaks of a watch, which its watcher mends.
    breaks: u32,
    failed: Vec<String>,
}

impl Clients {
    /// Starts them. They reach the API by its DNS name, which is resolved for each connection.
    pub async fn start(env: &TestEnv, world: &World) -> Result<Self> {
        let (seen, mut tasks) = (Arc::new(Mutex::new(Seen::default())), JoinSet::new());
        let domain = world.name().api_domain();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let server = format!("https://{}", listener.local_addr()?);
        tasks.spawn(relay(listener, world.landscape.dns.resolver(), domain.clone()));
        let kubeconfig = kubeconfig(world, &server, &domain)?;
        let file = env.make_dir("live-clients")?.join("kubeconfig");
        let kubectl = Kubectl::new(env, write_private(file, &kubeconfig)?)?;
        tasks.spawn(run_kubectl(kubectl, seen.clone()));
        let read = Kubeconfig::from_yaml(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        tasks.spawn(watch(client.clone(), seen.clone()));
        tasks.spawn(write(client, seen.clone()));
        Ok(Self { seen, _tasks: tasks })
    }

    /// Nothing has failed, and the watcher has told of everything without listing anew.
    pub async fn ensure_all_went_on(&self) -> Result<String> {
        until("the watcher of kube-rs to tell of all writes", DEADLINE, async || {
            let seen = self.seen.lock();
            let missing = seen.created.difference(&seen.told).count();
            // Something is written all the time.
            ensure!(missing <= 1, "{missing} of {} were not told", seen.created.len());
            Ok(())
        })
        .await?;
        let seen = self.seen.lock();
        ensure!(seen.failed.is_empty(), "failed: {:#?}", seen.failed);
        ensure!(seen.lists == 1, "the watcher of kube-rs has listed {} times", seen.lists);
        ensure!(seen.kubectl > 20 && seen.created.len() > 200, "{} runs of kubectl", seen.kubectl);
        Ok(format!(
            "{} runs of kubectl; kube-rs: {} writes, {} refused with a time, {} breaks of the watch",
            seen.kubectl,
            seen.created.len(),
            seen.refused,
            seen.breaks
        ))
    }
}

/// A kubeconfig for the relay, which expects the certificate of the API's own name.
fn kubeconfig(world: &World, server: &str, domain: &str) -> Result<String> {
    let access = world.shoot.control_plane.admin_access(server)?;
    let mut kubeconfig: Value = serde_json::from_str(&access.to_kubeconfig())?;
    kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = domain.into();
    Ok(kubeconfig.to_string())
}

/// Leads each connection to where the name of the API leads then.
async fn relay(listener: TcpListener, resolver: Resolver, domain: String) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let (resolver, domain) = (resolver.clone(), domain.clone());
        connections.spawn(async move {
            let addresses = resolver.addresses(&domain).await?;
            let ip = *addresses.first().context("no address")?;
            let mut server = TcpStream::connect(SocketAddr::from((here(ip), API_PORT))).await?;
            copy_bidirectional(&mut client, &mut server).await?;
            Ok::<(), anyhow::Error>(())
        });
        // Those that have ended are forgotten.
        while connections.try_join_next().is_some() {}
    }
}

/// Creates an object and reads it, one process after the other.
async fn run_kubectl(kubectl: Kubectl, seen: Arc<Mutex<Seen>>) {
    let mut ticks = interval(Duration::from_secs(1));
    for number in 0_u32.. {
        ticks.tick().await;
        let name = format!("kubectl-{}", number / 2);
        let args = if number % 2 == 0 { ["create", "configmap"] } else { ["get", "configmap"] };
        let outcome = kubectl.run(args.into_iter().chain([name.as_str()])).await;
        let outcome = outcome.and_then(|output| output.text());
        let mut seen = seen.lock();
        match outcome {
            Ok(_) => seen.kubectl += 1,
            Err(error) => seen.failed.push(format!("kubectl {args:?} {name}: {error:#}")),
        }
    }
}

fn config_maps(client: Client) -> kube::Api<ConfigMap> {
    kube::Api::namespaced(client, "default")
}

/// A watch as a controller of kube-rs has it, with the retries that it has by default.
async fn watch(client: Client, seen: Arc<Mutex<Seen>>) {
    use kube::runtime::WatchStreamExt as _;
    let events = watcher::watcher(config_maps(client), watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    loop {
        let event = events.try_next().await;
        let mut seen = seen.lock();
        match event {
            Ok(Some(Event::Init)) => seen.lists += 1,
            Ok(Some(Event::Apply(object) | Event::InitApply(object))) => {
                seen.told.insert(object.name_any());
            }
            Ok(Some(Event::InitDone | Event::Delete(_))) => {}
            Ok(None) => return,
            Err(_) => seen.breaks += 1,
        }
    }
}

/// kube-rs leaves it to its user to repeat what the API server refuses with a time.
async fn write(client: Client, seen: Arc<Mutex<Seen>>) {
    let (all, mut ticks) = (config_maps(client), interval(PERIOD));
    for number in 0_u32.. {
        ticks.tick().await;
        let mut object = ConfigMap::default();
        object.metadata.name = Some(format!("kube-rs-{number}"));
        let outcome = all.create(&PostParams::default(), &object).await;
        let mut seen = seen.lock();
        match outcome {
            Ok(object) => {
                seen.created.insert(object.name_any());
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 429 | 503) => seen.refused += 1,
            Err(error) => seen.failed.push(format!("kube-rs-{number}: {error:?}")),
        }
    }
}
