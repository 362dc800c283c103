//! Addresses of Services, as kube-proxy in its userspace mode has them: a TCP port of a cluster IP leads to the port of a ready
//! endpoint, one after the other. It is asked for by [`PodRunnerOptions::service_proxy`](super::PodRunnerOptions); without it names of
//! Services lead to Pods.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::Store;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio::task::JoinSet;

use super::{Ground, gate};

/// Cluster IPs that are served, by `<service>.<namespace>`. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceIps(Arc<RwLock<BTreeMap<String, Ipv4Addr>>>);

impl ServiceIps {
    /// The address of a name of a Service, such as `a.b.svc.cluster.local`.
    pub(super) fn find(&self, name: &str) -> Option<Ipv4Addr> {
        let short = name.strip_suffix(".svc.cluster.local")?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(short).copied()
    }

    fn set(&self, key: String, ip: Option<Ipv4Addr>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match ip {
            Some(ip) => drop(all.insert(key, ip)),
            None => drop(all.remove(&key)),
        }
    }
}

/// Serves all Services, for ever.
pub(super) async fn serve(ground: Arc<Ground>, slices: Store<EndpointSlice>) {
    let mut served: BTreeMap<String, (Ipv4Addr, JoinSet<()>)> = BTreeMap::new();
    let all = Api::<Service>::all(ground.client.clone());
    let mut events = std::pin::pin!(watcher(all, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(service) | Event::InitApply(service)) => {
                let key = key(&service);
                let Some(ip) = cluster_ip(&service) else { continue };
                if served.get(&key).is_some_and(|(known, _)| *known == ip) {
                    continue;
                }
                match open(&ground, &slices, &service, ip).await {
                    Ok(tasks) => {
                        served.insert(key.clone(), (ip, tasks));
                        ground.service_ips.set(key, Some(ip));
                    }
                    Err(error) => eprintln!("Service {key} is not served at {ip}: {error:#}"),
                }
            }
            Ok(Event::Delete(service)) => {
                let key = key(&service);
                ground.service_ips.set(key.clone(), None);
                if let Some((ip, _)) = served.remove(&key) {
                    let address = format!("{ip}/32");
                    let _ = ground.wire.in_hub("ip", &["address", "del", &address, "dev", "lo"]).await;
                }
            }
            // Watches are taken up again.
            Ok(Event::Init | Event::InitDone) | Err(_) => {}
        }
    }
}

fn key(service: &Service) -> String {
    format!("{}.{}", service.name_any(), service.namespace().unwrap_or_default())
}

/// That of kube-apiserver's own Service is served otherwise.
fn cluster_ip(service: &Service) -> Option<Ipv4Addr> {
    let spec = service.spec.as_ref()?;
    spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
    spec.cluster_ip.as_ref()?.parse().ok()
}

async fn open(
    ground: &Arc<Ground>,
    slices: &Store<EndpointSlice>,
    service: &Service,
    ip: Ipv4Addr,
) -> Result<JoinSet<()>> {
    let address = format!("{ip}/32");
    ground.wire.in_hub("ip", &["address", "replace", &address, "dev", "lo"]).await?;
    let mut tasks = JoinSet::new();
    for port in service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()) {
        let listener = ground.wire.listen((ip, u16::try_from(port.port)?).into())?;
        let (ground, slices, turn) = (ground.clone(), slices.clone(), AtomicUsize::new(0));
        let (name, namespace) = (service.name_any(), service.namespace().unwrap_or_default());
        let port_name = port.name.clone();
        let dial = move || {
            let found = endpoints(&slices.state(), (&namespace, &name), port_name.as_deref());
            let next = turn.fetch_add(1, Ordering::Relaxed).checked_rem(found.len());
            let target = next.and_then(|next| found.get(next).copied());
            let ground = ground.clone();
            async move {
                let target = target.ok_or_else(|| std::io::Error::other("no endpoint is ready"))?;
                ground.wire.connect(target).await
            }
        };
        tasks.spawn(async move { gate::relay(listener, dial).await });
    }
    Ok(tasks)
}

/// Ready endpoints of a port of a Service.
fn endpoints(
    slices: &[Arc<EndpointSlice>],
    (namespace, service): (&str, &str),
    port: Option<&str>,
) -> Vec<SocketAddr> {
    let of_service = slices.iter().filter(|slice| {
        let name = slice.metadata.labels.as_ref().and_then(|l| l.get("kubernetes.io/service-name"));
        slice.metadata.namespace.as_deref() == Some(namespace) && name.is_some_and(|name| name == service)
    });
    let of_slice = |slice: &Arc<EndpointSlice>| {
        let named =
            slice.ports.iter().flatten().find(|p| p.name.as_deref().unwrap_or("") == port.unwrap_or(""));
        let port = named.and_then(|port| port.port).and_then(|port| u16::try_from(port).ok());
        let ready = slice.endpoints.iter().filter(|endpoint| {
            endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
        });
        let addresses = ready.flat_map(|endpoint| &endpoint.addresses);
        let found = addresses.filter_map(|address| Some(SocketAddr::new(address.parse().ok()?, port?)));
        found.collect::<Vec<_>>()
    };
    of_service.flat_map(of_slice).collect()
}
