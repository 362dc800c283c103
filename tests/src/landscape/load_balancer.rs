//! The load balancers of a seed: what the cloud provider of a real cluster makes for Services of type LoadBalancer.
//!
//! Each Service gets an address that no other Service on this machine has, for as long as it exists: one of loopback here, and one that
//! Pods of all seeds reach, which is that in its status ([`super::wide_network`]). Connections to a port of the Service go to its Pods in
//! turn. The port of the Pods has to be a number.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::wide_network::{WideAddress, WideNetwork, wide};
use crate::pods::Balancer;
use crate::port;

const TYPE: &str = "LoadBalancer";
/// Annotation of a Service that has no address of its own: the name of the Service of its namespace whose address it shares. Clouds do
/// that for Services with different ports.
pub(super) const ADDRESS_OF: &str = "load-balancer.example.com/address-of";
/// From a failure to the next try.
const RETRY: Duration = Duration::from_millis(500);

/// The running load balancers of a seed. All addresses close when this is dropped.
pub struct LoadBalancers(AbortHandle);

/// An address that is open. It closes when this is dropped.
struct OpenAddress {
    /// Name of the Service, with namespace.
    name: String,
    ip: Ipv4Addr,
    /// Port of the Service and port of its Pods.
    ports: Vec<(u16, u16)>,
    _listeners: JoinSet<()>,
    _wide: WideAddress,
}

/// What addresses are opened by.
struct Networks {
    /// Name of the seed.
    seed: String,
    balancer: Balancer,
    wide: Arc<WideNetwork>,
}

impl LoadBalancers {
    /// Serves all Services of type LoadBalancer in all namespaces, those of later included.
    pub fn start(client: Client, seed: &str, balancer: Balancer, wide: Arc<WideNetwork>) -> Self {
        let networks = Networks { seed: seed.to_owned(), balancer, wide };
        Self(tokio::spawn(follow(client, networks)).abort_handle())
    }
}

impl Drop for LoadBalancers {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follow(client: Client, networks: Networks) {
    let (services, writer) = reflector::store();
    let events = watcher(Api::<Service>::all(client.clone()), watcher::Config::default());
    let mut events = pin!(events.default_backoff().reflect(writer));
    let mut open = BTreeMap::new();
    let mut failed = false;
    loop {
        tokio::select! {
            event = events.next() => if event.is_none() { return },
            () = sleep(RETRY), if failed => {}
        }
        failed = reconcile(&client, &networks, &services.state(), &mut open).await.is_err();
    }
}

/// Opens and closes addresses until they are those of the Services. The last failure is given, after all Services were tried.
async fn reconcile(
    client: &Client,
    networks: &Networks,
    services: &[Arc<Service>],
    open: &mut BTreeMap<String, OpenAddress>,
) -> Result<()> {
    let wanted: Vec<_> = services.iter().filter(|service| is_wanted(service)).collect();
    open.retain(|uid, _| wanted.iter().any(|service| service.uid().as_ref() == Some(uid)));
    let mut outcome = Ok(());
    for service in wanted {
        outcome = serve(client, networks, service, open).await.and(outcome);
    }
    outcome
}

fn is_wanted(service: &Service) -> bool {
    // A Service with a class is left to the implementation of that class.
    let is_own =
        |spec: &ServiceSpec| spec.type_.as_deref() == Some(TYPE) && spec.load_balancer_class.is_none();
    let is_balancer = service.spec.as_ref().is_some_and(is_own);
    is_balancer && service.metadata.deletion_timestamp.is_none()
}

async fn serve(
    client: &Client,
    networks: &Networks,
    service: &Service,
    open: &mut BTreeMap<String, OpenAddress>,
) -> Result<()> {
    let uid = service.uid().context("the Service has no UID")?;
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let ports = ports.iter().map(port_numbers).collect::<Result<Vec<_>>>()?;
    let current = open.get(&uid);
    let shared = shared_address(service, open)?;
    if current.is_none_or(|address| address.ports != ports || shared.is_some_and(|ip| ip != address.ip)) {
        let ip = shared.or(current.map(|address| address.ip)).map_or_else(new_address, Ok)?;
        // Ports that stay are bound again.
        open.remove(&uid);
        open.insert(uid.clone(), open_address(networks, service, ip, ports).await?);
    }
    let ip = open.get(&uid).context("the address is not open")?.ip;
    write_status(client, service, &wide(ip).to_string()).await
}

/// The address of the Service that this one names.
///
/// Errors: while that has none.
fn shared_address(service: &Service, open: &BTreeMap<String, OpenAddress>) -> Result<Option<Ipv4Addr>> {
    let Some(owner) = service.annotations().get(ADDRESS_OF) else { return Ok(None) };
    let owner = format!("{owner}.{}.svc", service.namespace().unwrap_or_default());
    let found = open.values().find(|address| address.name == owner);
    found.map(|address| Some(address.ip)).with_context(|| format!("{owner} has no address yet"))
}

fn port_numbers(port: &ServicePort) -> Result<(u16, u16)> {
    let target = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(target)) => *target,
        Some(IntOrString::String(name)) => bail!("the port {name} of the Pods is no number"),
    };
    Ok((u16::try_from(port.port)?, u16::try_from(target)?))
}

/// An address of loopback that nobody else on this machine has: the port is reserved for this process.
pub fn new_address() -> Result<Ipv4Addr> {
    let [high, low] = port::reserve()?.to_be_bytes();
    Ok(Ipv4Addr::new(127, 77, high, low))
}

async fn open_address(
    networks: &Networks,
    service: &Service,
    ip: Ipv4Addr,
    ports: Vec<(u16, u16)>,
) -> Result<OpenAddress> {
    let name = format!("{}.{}.svc", service.name_any(), service.namespace().unwrap_or_default());
    let mut listeners = JoinSet::new();
    for (port, target) in &ports {
        listeners.spawn(networks.balancer.open(SocketAddr::from((ip, *port)), &name, *target).await?);
    }
    let numbers: Vec<u16> = ports.iter().map(|(port, _)| *port).collect();
    let wide = networks.wide.open(&networks.seed, ip, &numbers).await?;
    Ok(OpenAddress { name, ip, ports, _listeners: listeners, _wide: wide })
}

async fn write_status(client: &Client, service: &Service, ip: &str) -> Result<()> {
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    if ingress.is_some_and(|all| all.iter().map(|one| one.ip.as_deref()).eq([Some(ip)])) {
        return Ok(());
    }
    let api = Api::<Service>::namespaced(client.clone(), &service.namespace().unwrap_or_default());
    let status = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}}));
    api.patch_status(&service.name_any(), &PatchParams::default(), &status).await?;
    Ok(())
}
