//! konnectivity in the control plane of a Shoot: the server, through which kube-apiserver reaches nodes, webhooks and aggregated APIs.
//!
//! Agents run in the Shoot and dial the DNS name of its API at a port of their own, so the record alone chooses their seed. The server is
//! ready only while an agent is connected (`pkg/server/readiness_manager.go` of apiserver-network-proxy). A Service leads to Pods that
//! are ready, so with the same Service for agents none would ever connect: theirs leads to Pods that are not ready, too, and shares the
//! address of kube-apiserver.

use anyhow::Result;
use serde_json::{Value, json};

use super::carry::{carried, issued_anew};
use super::control_plane::{ControlPlane, secret};
use super::etcd::names_in_seeds;
use super::kubernetes::{container, deployment, file};
use super::load_balancer::ADDRESS_OF;
use crate::pki::Leaf;

/// The Deployment and image of the server, and the Service by which kube-apiserver reaches it.
pub const SERVER: &str = "konnectivity-server";
/// The Deployment and image of the agents in the Shoot.
pub const AGENT: &str = "konnectivity-agent";
/// The Service of the server for agents, at the address of kube-apiserver.
pub const AGENTS_SERVICE: &str = "konnectivity-agents";
/// Annotation of the server: a JSON object that names the Service with its address, the client that dials it, and the host that it dials.
pub const TUNNEL: &str = "migration.gardener.cloud/tunnel";
/// The namespace of the agents in the Shoot.
pub const AGENT_NAMESPACE: &str = "kube-system";
/// The port at which agents connect.
pub const AGENT_PORT: u16 = 8132;
/// The port at which kube-apiserver connects.
const PROXY_PORT: u16 = 8131;
const ADMIN_PORT: u16 = 8133;
/// Where `/readyz` is, of servers and agents.
pub const HEALTH_PORT: u16 = 8134;
/// The user as whom kube-apiserver reaches kubelets.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";
/// The user as whom kube-apiserver reaches the server.
const PROXY_CLIENT: &str = "kube-apiserver-konnectivity-client";

/// The server: its Secret, Deployment and Services.
pub(super) fn server(plane: &ControlPlane) -> Result<Vec<Value>> {
    let selector = json!({"app": SERVER});
    let proxy = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVER},
        "spec": {
            "type": "ClusterIP", "selector": selector,
            "ports": [{"name": "proxy", "port": PROXY_PORT, "targetPort": PROXY_PORT}],
        },
    });
    let agents = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": AGENTS_SERVICE, "annotations": {ADDRESS_OF: "kube-apiserver"}},
        "spec": {
            "type": "LoadBalancer", "selector": selector, "publishNotReadyAddresses": true,
            "ports": [{"name": "agents", "port": AGENT_PORT, "targetPort": AGENT_PORT}],
        },
    });
    Ok([files(plane)?, server_deployment(plane), proxy, agents].map(carried).into())
}

fn server_deployment(plane: &ControlPlane) -> Value {
    let mut container = container(SERVER, flags());
    container["env"] =
        json!([{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    container["readinessProbe"] =
        json!({"httpGet": {"path": "/readyz", "port": HEALTH_PORT}, "periodSeconds": 1});
    let mut deployment = deployment(SERVER, 1, json!([container]));
    let tunnel = json!({
        "service": "kube-apiserver", "client": {"namespace": AGENT_NAMESPACE, "name": AGENT},
        "host": plane.shoot.api_domain(),
    });
    deployment["metadata"]["annotations"][TUNNEL] = tunnel.to_string().into();
    deployment
}

fn flags() -> Vec<String> {
    let flags = [
        ("mode", "http-connect".to_owned()),
        ("server-port", PROXY_PORT.to_string()),
        ("server-cert", file("tls.crt")),
        ("server-key", file("tls.key")),
        ("server-ca-cert", file("client-ca.crt")),
        ("agent-port", AGENT_PORT.to_string()),
        ("cluster-cert", file("agents.crt")),
        ("cluster-key", file("agents.key")),
        ("cluster-ca-cert", file("client-ca.crt")),
        ("admin-port", ADMIN_PORT.to_string()),
        ("health-port", HEALTH_PORT.to_string()),
        ("server-id", "$(POD_NAME)".to_owned()),
        ("server-count", "1".to_owned()),
        ("v", "2".to_owned()),
    ];
    flags.map(|(name, value)| format!("--{name}={value}")).into()
}

/// Agents use the name of the API, or one of a seed while a control plane moves.
fn files(plane: &ControlPlane) -> Result<Value> {
    let authorities = &plane.authorities;
    let host = host(plane);
    let names: Vec<_> =
        [plane.shoot.api_domain()].into_iter().chain(names_in_seeds(&plane.shoot.technical_id())).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let proxy = authorities.cluster.server(&[&host])?;
    let agents = authorities.cluster.server(&names)?;
    let files = secret(
        SERVER,
        &[
            ("tls.crt", &proxy.cert_pem),
            ("tls.key", &proxy.key_pem),
            ("agents.crt", &agents.cert_pem),
            ("agents.key", &agents.key_pem),
            ("client-ca.crt", &authorities.client.pem()),
        ],
    );
    let certificates = json!([
        {"authority": "ca", "commonName": host, "names": [host], "usages": ["server"]},
        {
            "authority": "ca", "commonName": plane.shoot.api_domain(), "names": names, "usages": ["server"],
            "certificate": "agents.crt", "key": "agents.key",
        },
    ]);
    Ok(issued_anew(files, &certificates))
}

fn host(plane: &ControlPlane) -> String {
    format!("{SERVER}.{}.svc", plane.shoot.technical_id())
}

/// What kube-apiserver needs to use the server and kubelets.
pub(super) struct ApiServerPart {
    /// Further files of its Secret.
    pub files: Vec<(&'static str, String)>,
    /// Which of them are issued anew at a destination.
    pub certificates: Vec<Value>,
}

/// The files by which kube-apiserver reaches the server and kubelets.
pub(super) fn api_server_part(plane: &ControlPlane) -> Result<ApiServerPart> {
    let (mut files, mut certificates) = (Vec::new(), Vec::new());
    files.push(("ca.crt", plane.authorities.cluster.pem()));
    files.push(("egress.json", egress(plane).to_string()));
    for (user, [certificate, key]) in
        [(KUBELET_CLIENT, ["kubelet.crt", "kubelet.key"]), (PROXY_CLIENT, ["egress.crt", "egress.key"])]
    {
        let Leaf { cert_pem, key_pem } = plane.authorities.client.client(user, &[])?;
        files.extend([(certificate, cert_pem), (key, key_pem)]);
        certificates.push(json!({
            "authority": "ca-client", "commonName": user, "usages": ["client"], "certificate": certificate, "key": key,
        }));
    }
    Ok(ApiServerPart { files, certificates })
}

fn egress(plane: &ControlPlane) -> Value {
    let direct = |name: &str| json!({"name": name, "connection": {"proxyProtocol": "Direct"}});
    let tls = json!({
        "caBundle": file("ca.crt"), "clientCert": file("egress.crt"), "clientKey": file("egress.key"),
    });
    let url = format!("https://{}:{PROXY_PORT}", host(plane));
    let tunnel =
        json!({"proxyProtocol": "HTTPConnect", "transport": {"tcp": {"url": url, "tlsConfig": tls}}});
    json!({
        "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": tunnel}, direct("controlplane"), direct("etcd")],
    })
}

/// The flags by which kube-apiserver uses the server.
pub(super) fn api_server_flags() -> Vec<String> {
    let flags = [
        ("egress-selector-config-file", file("egress.json")),
        ("kubelet-certificate-authority", file("ca.crt")),
        ("kubelet-client-certificate", file("kubelet.crt")),
        ("kubelet-client-key", file("kubelet.key")),
        ("kubelet-preferred-address-types", "InternalIP,Hostname".to_owned()),
    ];
    flags.map(|(name, value)| format!("--{name}={value}")).into()
}
