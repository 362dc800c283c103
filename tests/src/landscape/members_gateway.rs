//! A Gateway for members of etcds in a seed, as an implementation of the Gateway API makes one: Envoy passes TLS through by the name
//! that a connection asks for, and a small controller tells it what TLSRoutes say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::load_balancer::new_address;
use super::seed::{GARDEN, Seed};
use super::wide_network::{WideAddress, WideNetwork, wide};
use crate::pods::Balancer;
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::{binaries, port};

/// Namespace and name of the Gateway, as flags have it.
pub const GATEWAY: &str = "garden/members";
const NAME: &str = "members";
const GROUP: &str = "gateway.networking.k8s.io";
/// Ports for clients, and for peers of each of three members.
const PORTS: [u16; 4] = [2379, 2380, 2480, 2580];
/// From one look at the routes to the next.
const LOOK: Duration = Duration::from_millis(300);
const CONTROLLER: &str = "example.com/members-gateway";

/// A running Gateway. It ends when it is dropped.
pub struct MembersGateway {
    _envoy: Process,
    _wide: WideAddress,
    task: AbortHandle,
}

/// What the controller needs.
struct Controller {
    client: Client,
    balancer: Balancer,
    address: Ipv4Addr,
    dir: PathBuf,
    /// Ports of this machine that lead to a port of a Service, by `service.namespace.svc:port`.
    backends: BTreeMap<String, u16>,
    relays: JoinSet<()>,
    written: String,
}

impl Drop for MembersGateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MembersGateway {
    /// Starts it in a seed, and gives the Gateway its address.
    pub async fn start(env: &TestEnv, seed: &Seed, network: &WideNetwork) -> Result<Self> {
        apply_kinds(seed).await?;
        let address = new_address()?;
        let opened = network.open(&seed.name, address, &PORTS).await?;
        create_gateway(seed, address).await?;
        let dir = env.make_dir("members-gateway")?;
        let mut controller = Controller {
            client: seed.client().clone(),
            balancer: seed.runner.balancer(),
            address,
            dir: dir.clone(),
            backends: BTreeMap::new(),
            relays: JoinSet::new(),
            written: String::new(),
        };
        controller.configure(&[])?;
        let admin = port::reserve()?;
        fs::write(dir.join("bootstrap.json"), bootstrap(&dir, admin).to_string())?;
        let spec = Spec::new(format!("envoy-{}", seed.name), binaries::find("envoy")?)
            .arg("--config-path")
            .arg(dir.join("bootstrap.json"))
            .args(["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]);
        let mut envoy = Process::start(env, spec)?;
        let probe = async || {
            let answer = reqwest::get(format!("http://127.0.0.1:{admin}/ready")).await?;
            ensure!(answer.status().is_success(), "{}", answer.status());
            Ok(())
        };
        envoy.ready(super::DEADLINE, probe).await?;
        let task = tokio::spawn(controller.run()).abort_handle();
        Ok(Self { _envoy: envoy, _wide: opened, task })
    }
}

/// The kinds of the Gateway API, as its module publishes them.
async fn apply_kinds(seed: &Seed) -> Result<()> {
    let go = Path::new(env!("CARGO_MANIFEST_DIR")).join("go/gardener");
    let listed = Command::new("go")
        .args(["list", "-mod=mod", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api"])
        .current_dir(go)
        .output()?;
    ensure!(listed.status.success(), "go list: {}", String::from_utf8_lossy(&listed.stderr));
    let module = PathBuf::from(String::from_utf8(listed.stdout)?.trim()).join("config/crd/standard");
    for kind in ["gateways", "gatewayclasses", "tlsroutes"] {
        let file = module.join(format!("{GROUP}_{kind}.yaml")).display().to_string();
        seed.cluster.kubectl(["apply", "--server-side", "-f", &file]).await?.text()?;
    }
    let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    seed.cluster.kubectl(established).await?.text().map(drop)
}

async fn create_gateway(seed: &Seed, address: Ipv4Addr) -> Result<()> {
    let listener = |port: u16| {
        json!({
            "name": format!("port-{port}"), "port": port, "protocol": "TLS", "tls": {"mode": "Passthrough"},
            "allowedRoutes": {"namespaces": {"from": "All"}},
        })
    };
    let gateway = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Gateway", "metadata": {"namespace": GARDEN, "name": NAME},
        "spec": {"gatewayClassName": NAME, "listeners": PORTS.map(listener)},
    });
    seed.cluster.apply(&[gateway]).await?;
    let status =
        json!({"status": {"addresses": [{"type": "IPAddress", "value": wide(address).to_string()}]}});
    let gateways =
        Api::<DynamicObject>::namespaced_with(seed.client().clone(), GARDEN, &kind("Gateway", "gateways"));
    gateways.patch_status(NAME, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

fn kind(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", kind), plural)
}

impl Controller {
    /// Does what the routes say until it is ended. What fails is tried again.
    async fn run(mut self) {
        loop {
            if let Err(error) = self.pass().await {
                eprintln!("the Gateway of members: {error:#}");
            }
            sleep(LOOK).await;
        }
    }

    async fn pass(&mut self) -> Result<()> {
        let all = Api::<DynamicObject>::all_with(self.client.clone(), &kind("TLSRoute", "tlsroutes"));
        let routes = all.list(&ListParams::default()).await?.items;
        let routes: Vec<_> =
            routes.iter().filter(|route| route.metadata.deletion_timestamp.is_none()).collect();
        let mut served = Vec::new();
        for route in &routes {
            served.push(self.serve(route).await?);
        }
        self.configure(&served)?;
        for route in routes {
            self.accept(route).await?;
        }
        Ok(())
    }

    /// The port, the name and the port of this machine behind them.
    async fn serve(&mut self, route: &DynamicObject) -> Result<(u16, String, u16)> {
        let spec = &route.data["spec"];
        let number = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok());
        let port = number(&spec["parentRefs"][0]["port"]).context("no port of the Gateway")?;
        let host = spec["hostnames"][0].as_str().context("no host name")?.to_owned();
        let backend = &spec["rules"][0]["backendRefs"][0];
        let target = number(&backend["port"]).context("no port of the Service")?;
        let service = backend["name"].as_str().context("no Service")?;
        let name = format!("{service}.{}.svc", route.namespace().unwrap_or_default());
        let key = format!("{name}:{target}");
        let local = match self.backends.get(&key) {
            Some(local) => *local,
            None => {
                let local = port::reserve()?;
                let at = SocketAddr::from((Ipv4Addr::LOCALHOST, local));
                self.relays.spawn(self.balancer.open(at, &name, target).await?);
                self.backends.insert(key, local);
                local
            }
        };
        Ok((port, host, local))
    }

    /// Writes what Envoy reads, where it has changed.
    fn configure(&mut self, served: &[(u16, String, u16)]) -> Result<()> {
        let clusters: BTreeSet<u16> = served.iter().map(|(.., local)| *local).collect();
        let clusters: Vec<Value> = clusters.into_iter().map(cluster).collect();
        let listeners: Vec<Value> = PORTS.iter().map(|port| self.listener(*port, served)).collect();
        let text = json!({"resources": listeners}).to_string();
        if text == self.written {
            return Ok(());
        }
        replace(&self.dir.join("clusters.json"), &json!({"resources": clusters}).to_string())?;
        replace(&self.dir.join("listeners.json"), &text)?;
        self.written = text;
        Ok(())
    }

    fn listener(&self, port: u16, served: &[(u16, String, u16)]) -> Value {
        let chains = served.iter().filter(|(of, ..)| *of == port).map(|(_, host, local)| {
            json!({
                "filter_chain_match": {"server_names": [host]},
                "filters": [proxy_to(*local)],
            })
        });
        let mut chains: Vec<Value> = chains.collect();
        if chains.is_empty() {
            // Envoy wants one; nobody asks for this name.
            chains.push(json!({
                "filter_chain_match": {"server_names": ["nobody.invalid"]}, "filters": [proxy_to(1)],
            }));
        }
        json!({
            "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
            "name": format!("port-{port}"),
            "address": {"socket_address": {"address": self.address.to_string(), "port_value": port}},
            "listener_filters": [{
                "name": "envoy.filters.listener.tls_inspector",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"},
            }],
            "filter_chains": chains,
        })
    }

    /// Says that the route leads to its Service, where that is not said of this generation.
    async fn accept(&self, route: &DynamicObject) -> Result<()> {
        let generation = route.metadata.generation;
        if route.data["status"]["parents"][0]["conditions"][0]["observedGeneration"].as_i64() == generation {
            return Ok(());
        }
        let condition = |kind: &str| {
            json!({
                "type": kind, "status": "True", "reason": kind, "message": "", "observedGeneration": generation,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let parent = json!({
            "parentRef": route.data["spec"]["parentRefs"][0], "controllerName": CONTROLLER,
            "conditions": [condition("Accepted"), condition("ResolvedRefs")],
        });
        let status = Patch::Merge(json!({"status": {"parents": [parent]}}));
        let namespace = route.namespace().unwrap_or_default();
        let routes = Api::<DynamicObject>::namespaced_with(
            self.client.clone(),
            &namespace,
            &kind("TLSRoute", "tlsroutes"),
        );
        routes.patch_status(&route.name_any(), &PatchParams::default(), &status).await?;
        Ok(())
    }
}

fn proxy_to(local: u16) -> Value {
    json!({
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": format!("local-{local}"), "cluster": format!("local-{local}"),
        },
    })
}

fn cluster(local: u16) -> Value {
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": local}});
    json!({
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": format!("local-{local}"), "type": "STATIC", "connect_timeout": "3s",
        "load_assignment": {
            "cluster_name": format!("local-{local}"),
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    })
}

fn bootstrap(dir: &Path, admin: u16) -> Value {
    let watched = |file: &str| json!({"path_config_source": {"path": dir.join(file), "watched_directory": {"path": dir}}, "resource_api_version": "V3"});
    json!({
        "node": {"id": NAME, "cluster": NAME},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}},
        "dynamic_resources": {"lds_config": watched("listeners.json"), "cds_config": watched("clusters.json")},
    })
}

/// Envoy notices files that are moved into the place of others.
fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    Ok(fs::rename(&new, path)?)
}
