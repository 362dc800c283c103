//! The kinds of Gateways, and what their objects say.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::PORTS;
use crate::landscape::seed::{GARDEN, Seed};
use crate::landscape::wide_network::wide;

const NAME: &str = "members";
const GATEWAY_API: &str = "gateway.networking.k8s.io";
const ISTIO: &str = "networking.istio.io";
const CONTROLLER: &str = "example.com/members-gateway";

/// Of which API a Gateway is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayKind {
    /// The Gateway API, with TLSRoutes.
    GatewayApi,
    /// Istio, with VirtualServices and DestinationRules.
    Istio,
}

/// Where connections go that ask for a host at a port of the Gateway.
pub struct Target {
    /// Port of the Gateway.
    pub gateway_port: u16,
    /// The name that connections ask for.
    pub host: String,
    /// Name of the Service, as `service.namespace.svc`.
    pub service: String,
    /// Port of the Service.
    pub port: u16,
}

impl GatewayKind {
    /// The flag of the controllers of a seed that names the Gateway.
    #[must_use]
    pub fn flag(self) -> String {
        match self {
            Self::GatewayApi => format!("--members-gateway={GARDEN}/{NAME}"),
            Self::Istio => format!("--members-istio-gateway={GARDEN}/{NAME}"),
        }
    }

    /// Makes the kinds, as their modules publish them, and the Gateway with its address.
    pub async fn create(self, seed: &Seed, address: Ipv4Addr) -> Result<()> {
        let files = match self {
            Self::GatewayApi => {
                let module = module("sigs.k8s.io/gateway-api")?.join("config/crd/standard");
                let file = |kind| module.join(format!("{GATEWAY_API}_{kind}.yaml"));
                ["gateways", "gatewayclasses", "tlsroutes"].map(file).to_vec()
            }
            Self::Istio => {
                vec![module("istio.io/api")?.join("kubernetes/customresourcedefinitions.gen.yaml")]
            }
        };
        for file in files {
            let file = file.display().to_string();
            seed.cluster.kubectl(["apply", "--server-side", "-f", &file]).await?.text()?;
        }
        let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        seed.cluster.kubectl(established).await?.text()?;
        match self {
            Self::GatewayApi => create_gateway(seed, address).await,
            Self::Istio => create_istio_gateway(seed, address).await,
        }
    }

    /// What all routes of the cluster say.
    pub async fn targets(self, client: &Client) -> Result<Vec<Target>> {
        match self {
            Self::GatewayApi => targets_of_routes(client).await,
            Self::Istio => targets_of_virtual_services(client).await,
        }
    }

    /// Says that connections go where the routes say. Istio does not.
    pub async fn accept(self, client: &Client) -> Result<()> {
        if self == Self::GatewayApi {
            for route in &list(client, &kind(GATEWAY_API, "TLSRoute", "tlsroutes")).await? {
                accept(client, route).await?;
            }
        }
        Ok(())
    }
}

fn module(path: &str) -> Result<PathBuf> {
    let go = Path::new(env!("CARGO_MANIFEST_DIR")).join("go/gardener");
    let args = ["mod", "download", "-json", path];
    let listed = Command::new("go").args(args).current_dir(go).output()?;
    ensure!(listed.status.success(), "go mod download: {}", String::from_utf8_lossy(&listed.stderr));
    let found: Value = serde_json::from_slice(&listed.stdout)?;
    Ok(PathBuf::from(found["Dir"].as_str().context("no directory of the module")?))
}

async fn create_gateway(seed: &Seed, address: Ipv4Addr) -> Result<()> {
    let listener = |port: u16| {
        json!({
            "name": format!("port-{port}"), "port": port, "protocol": "TLS", "tls": {"mode": "Passthrough"},
            "allowedRoutes": {"namespaces": {"from": "All"}},
        })
    };
    let gateway = json!({
        "apiVersion": format!("{GATEWAY_API}/v1"), "kind": "Gateway",
        "metadata": {"namespace": GARDEN, "name": NAME},
        "spec": {"gatewayClassName": NAME, "listeners": PORTS.map(listener)},
    });
    seed.cluster.apply(&[gateway]).await?;
    let status =
        json!({"status": {"addresses": [{"type": "IPAddress", "value": wide(address).to_string()}]}});
    let kind = kind(GATEWAY_API, "Gateway", "gateways");
    let gateways = Api::<DynamicObject>::namespaced_with(seed.client().clone(), GARDEN, &kind);
    gateways.patch_status(NAME, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// Other implementations of load balancers leave a Service alone that names a class.
async fn create_istio_gateway(seed: &Seed, address: Ipv4Addr) -> Result<()> {
    let server = |port: u16| {
        json!({
            "port": {"number": port, "name": format!("tls-{port}"), "protocol": "TLS"},
            "tls": {"mode": "PASSTHROUGH"}, "hosts": ["*"],
        })
    };
    let port = |port: u16| json!({"name": format!("tls-{port}"), "port": port, "targetPort": port});
    let gateway = json!({
        "apiVersion": format!("{ISTIO}/v1"), "kind": "Gateway", "metadata": {"namespace": GARDEN, "name": NAME},
        "spec": {"selector": {"istio": "ingressgateway"}, "servers": PORTS.map(server)},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": GARDEN, "name": "istio-ingressgateway"},
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": CONTROLLER, "ports": PORTS.map(port),
            "selector": {"app": "istio-ingressgateway", "istio": "ingressgateway"},
        },
    });
    seed.cluster.apply(&[gateway, service]).await?;
    let ingress = json!([{"ip": wide(address).to_string()}]);
    let status = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
    let services = Api::<Service>::namespaced(seed.client().clone(), GARDEN);
    services.patch_status("istio-ingressgateway", &PatchParams::default(), &status).await?;
    Ok(())
}

fn kind(group: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
}

/// All objects of a kind that are not being deleted.
async fn list(client: &Client, kind: &ApiResource) -> Result<Vec<DynamicObject>> {
    let all = Api::<DynamicObject>::all_with(client.clone(), kind);
    let mut found = all.list(&ListParams::default()).await?.items;
    found.retain(|one| one.metadata.deletion_timestamp.is_none());
    Ok(found)
}

fn number(value: &Value) -> Result<u16> {
    let number = value.as_u64().and_then(|port| u16::try_from(port).ok());
    number.with_context(|| format!("{value} is no port"))
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("{value} is no name"))?.to_owned())
}

async fn targets_of_routes(client: &Client) -> Result<Vec<Target>> {
    let routes = list(client, &kind(GATEWAY_API, "TLSRoute", "tlsroutes")).await?;
    let mut targets = Vec::new();
    for route in &routes {
        let spec = &route.data["spec"];
        let backend = &spec["rules"][0]["backendRefs"][0];
        targets.push(Target {
            gateway_port: number(&spec["parentRefs"][0]["port"])?,
            host: text(&spec["hostnames"][0])?,
            service: format!("{}.{}.svc", text(&backend["name"])?, route.namespace().unwrap_or_default()),
            port: number(&backend["port"])?,
        });
    }
    Ok(targets)
}

/// Says that the route leads to its Service, where that is not said of this generation.
async fn accept(client: &Client, route: &DynamicObject) -> Result<()> {
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
    let kind = kind(GATEWAY_API, "TLSRoute", "tlsroutes");
    let routes = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &kind);
    routes.patch_status(&route.name_any(), &PatchParams::default(), &status).await?;
    Ok(())
}

/// As Istio has them: those of this Gateway. A host that is a short name is a Service of the same namespace.
async fn targets_of_virtual_services(client: &Client) -> Result<Vec<Target>> {
    let all = list(client, &kind(ISTIO, "VirtualService", "virtualservices")).await?;
    let rules = list(client, &kind(ISTIO, "DestinationRule", "destinationrules")).await?;
    let mut targets = Vec::new();
    for one in all.iter().filter(|one| one.data["spec"]["gateways"] == json!([format!("{GARDEN}/{NAME}")])) {
        let (spec, namespace) = (&one.data["spec"], one.namespace().unwrap_or_default());
        for tls in spec["tls"].as_array().into_iter().flatten() {
            let (wanted, destination) = (&tls["match"][0], &tls["route"][0]["destination"]);
            let (host, service) = (text(&wanted["sniHosts"][0])?, text(&destination["host"])?);
            ensure!(spec["hosts"] == json!([host]), "{host} is none of the hosts {}", spec["hosts"]);
            let is_plain = |rule: &&DynamicObject| {
                let spec = &rule.data["spec"];
                rule.namespace().as_deref() == Some(&namespace)
                    && spec["host"] == service.as_str()
                    && spec["trafficPolicy"]["tls"]["mode"] == "DISABLE"
            };
            // Istio would add TLS of its own to that of members.
            if rules.iter().find(is_plain).is_none() {
                continue;
            }
            targets.push(Target {
                gateway_port: number(&wanted["port"])?,
                host,
                service: format!("{service}.{namespace}.svc"),
                port: number(&destination["port"]["number"])?,
            });
        }
    }
    Ok(targets)
}
