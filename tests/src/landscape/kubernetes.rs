//! Kubernetes' own programs in a control plane.

use anyhow::Result;
use serde_json::{Value, json};

use super::carry::{carried, issued_anew};
use super::control_plane::{API_PORT, ControlPlane, secret};
use super::{etcd, konnectivity};

/// Where each Deployment mounts the Secret of its own name.
const FILES: &str = "/etc/shoot";
/// The first address of the Shoot's Service range, under which certificates name the API server inside the Shoot.
const SERVICE_IP: &str = "10.4.0.1";
const FRONT_PROXY_USER: &str = "front-proxy-client";

/// kube-apiserver: its Secret, Deployment and Service of type LoadBalancer.
pub(super) fn api_server(plane: &ControlPlane) -> Result<Vec<Value>> {
    let name = "kube-apiserver";
    let mut container = container(name, api_server_flags(plane));
    container["readinessProbe"] =
        json!({"httpGet": {"path": "/readyz", "port": API_PORT, "scheme": "HTTPS"}, "periodSeconds": 1});
    let deployment = deployment(name, plane.options.api_servers, json!([container]));
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {
            "type": "LoadBalancer", "selector": {"app": name},
            "ports": [{"name": name, "port": API_PORT, "targetPort": API_PORT}],
        },
    });
    Ok([api_server_files(plane)?, deployment, service].map(carried).into())
}

fn api_server_files(plane: &ControlPlane) -> Result<Value> {
    let authorities = &plane.authorities;
    let (service, domain) = (in_cluster_host(plane), plane.shoot.api_domain());
    // No address of a seed: clients use names.
    let names =
        [&domain, &service, "kubernetes.default.svc", "kubernetes", "localhost", "127.0.0.1", SERVICE_IP];
    let serving = authorities.cluster.server(&names)?;
    let proxy = authorities.front_proxy.client(FRONT_PROXY_USER, &[])?;
    let etcd = authorities.etcd_client()?;
    let mut certificates = json!([
        {"authority": "ca", "commonName": domain, "names": names, "usages": ["server"]},
        {
            "authority": "ca-front-proxy", "commonName": FRONT_PROXY_USER, "usages": ["client"],
            "certificate": "front-proxy.crt", "key": "front-proxy.key",
        },
        {"authority": "ca-etcd", "commonName": "etcd-client", "usages": ["client"], "certificate": "etcd.crt", "key": "etcd.key"},
    ]);
    let mut files = secret(
        "kube-apiserver",
        &[
            ("tls.crt", &serving.cert_pem),
            ("tls.key", &serving.key_pem),
            ("client-ca.crt", &authorities.client.pem()),
            ("front-proxy-ca.crt", &authorities.front_proxy.pem()),
            ("front-proxy.crt", &proxy.cert_pem),
            ("front-proxy.key", &proxy.key_pem),
            ("etcd-ca.crt", &authorities.etcd.pem()),
            ("etcd.crt", &etcd.cert_pem),
            ("etcd.key", &etcd.key_pem),
            ("service-account.key", &authorities.service_account_key),
            ("service-account.pub", &authorities.service_account_public),
            ("encryption.json", &authorities.encryption_configuration()),
        ],
    );
    if plane.options.tunnel {
        let part = konnectivity::api_server_part(plane)?;
        for (name, text) in part.files {
            files["stringData"][name] = text.into();
        }
        certificates.as_array_mut().into_iter().for_each(|all| all.extend(part.certificates.clone()));
    }
    Ok(issued_anew(files, &certificates))
}

fn api_server_flags(plane: &ControlPlane) -> Vec<String> {
    let issuer = format!("https://{}", plane.shoot.api_domain());
    let file = |name: &str| format!("{FILES}/{name}");
    let flags = [
        ("secure-port", API_PORT.to_string()),
        ("advertise-address", "10.0.0.200".to_owned()),
        // The endpoints of the Service kubernetes would be addresses of Pods in the seed.
        ("endpoint-reconciler-type", "none".to_owned()),
        ("service-cluster-ip-range", "10.4.0.0/16".to_owned()),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("tls-cert-file", file("tls.crt")),
        ("tls-private-key-file", file("tls.key")),
        ("client-ca-file", file("client-ca.crt")),
        ("etcd-cafile", file("etcd-ca.crt")),
        ("etcd-certfile", file("etcd.crt")),
        ("etcd-keyfile", file("etcd.key")),
        ("encryption-provider-config", file("encryption.json")),
        ("enable-bootstrap-token-auth", "true".to_owned()),
        ("service-account-issuer", issuer),
        ("service-account-signing-key-file", file("service-account.key")),
        ("service-account-key-file", file("service-account.pub")),
        ("proxy-client-cert-file", file("front-proxy.crt")),
        ("proxy-client-key-file", file("front-proxy.key")),
        ("requestheader-client-ca-file", file("front-proxy-ca.crt")),
        ("requestheader-allowed-names", FRONT_PROXY_USER.to_owned()),
        ("requestheader-username-headers", "X-Remote-User".to_owned()),
        ("requestheader-group-headers", "X-Remote-Group".to_owned()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".to_owned()),
    ];
    flags
        .map(|(name, value)| format!("--{name}={value}"))
        .into_iter()
        .chain(etcd::api_server_flags(plane))
        .chain(if plane.options.tunnel { konnectivity::api_server_flags() } else { Vec::new() })
        .collect()
}

/// kube-controller-manager and kube-scheduler: a Secret and a Deployment for each.
pub(super) fn controllers(plane: &ControlPlane) -> Result<Vec<Value>> {
    let kubeconfig = format!("{FILES}/kubeconfig");
    let common = ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
        .map(|flag| format!("--{flag}={kubeconfig}"));
    let manager = [
        "--use-service-account-credentials=true".to_owned(),
        format!("--service-account-private-key-file={FILES}/service-account.key"),
        format!("--root-ca-file={FILES}/ca.crt"),
        "--allocate-node-cidrs=false".to_owned(),
    ];
    let authorities = &plane.authorities;
    let mut objects = Vec::new();
    for (name, more) in [("kube-controller-manager", &manager[..]), ("kube-scheduler", &[])] {
        let user = kubeconfig_of(plane, &format!("system:{name}"), &[])?;
        let files = [
            ("kubeconfig", user.as_str()),
            ("ca.crt", &authorities.cluster.pem()),
            ("service-account.key", &authorities.service_account_key),
        ];
        // Only kube-controller-manager signs tokens.
        let files = if more.is_empty() { &files[..1] } else { &files };
        let flags = common.iter().chain(more).cloned().collect();
        objects.extend([secret(name, files), deployment(name, 1, json!([container(name, flags)]))]);
    }
    Ok(objects.into_iter().map(carried).collect())
}

/// A kubeconfig of a user for Pods of the control plane, which reach the API by its Service.
pub(super) fn kubeconfig_of(plane: &ControlPlane, user: &str, groups: &[&str]) -> Result<String> {
    let access = plane.authorities.access(&format!("https://{}", in_cluster_host(plane)), user, groups)?;
    Ok(access.to_kubeconfig())
}

fn in_cluster_host(plane: &ControlPlane) -> String {
    format!("kube-apiserver.{}.svc", plane.shoot.technical_id())
}

/// A container of the image and with the files of its name.
pub(super) fn container(name: &str, args: Vec<String>) -> Value {
    json!({"name": name, "image": name, "args": args, "volumeMounts": [{"name": "files", "mountPath": FILES}]})
}

/// The path of a file of [`container`].
pub(super) fn file(name: &str) -> String {
    format!("{FILES}/{name}")
}

/// A Deployment whose volume `files` is the Secret of its own name.
pub(super) fn deployment(name: &str, replicas: u32, containers: Value) -> Value {
    let labels = json!({"app": name, "gardener.cloud/role": "controlplane"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "automountServiceAccountToken": false, "containers": containers,
                    "terminationGracePeriodSeconds": 10,
                    "volumes": [{"name": "files", "secret": {"secretName": name}}],
                },
            },
        },
    })
}
