//! A virtual garden: the control plane of a cluster without nodes, as Pods of a runtime cluster, with Gardener's own programs. Names and
//! routes are those that gardener-operator makes: kube-apiserver reaches servers behind it by the addresses of their Services.

mod component;
mod seed;

use std::sync::Arc;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use component::{Component, Files, deploy, file, flags};

use crate::access::Access;
use crate::garden::FRONT_PROXY_USER;
use crate::gardener;
use crate::http::Api;
use crate::install::World;
use crate::kubectl::Kubectl;
use crate::landscape::Authorities;
use crate::pki::Leaf;
use crate::test_env::TestEnv;

/// Where it runs in the runtime cluster.
pub const NAMESPACE: &str = "garden";
const ETCD: &str = "virtual-garden-etcd-main-client";
const API_SERVER: &str = "virtual-garden-kube-apiserver";
const CONTROLLER_MANAGER: &str = "virtual-garden-kube-controller-manager";
const GARDENER: &str = "gardener-apiserver";
const GARDENER_CONTROLLERS: &str = "gardener-controller-manager";
/// Namespace of the Service of gardener-apiserver in the virtual garden.
const SYSTEM: &str = "kube-system";
/// The ports of Pods are those of their Services.
const PORT: u16 = 443;
const ETCD_PORT: u16 = 2379;
const HEALTH_PORT: u16 = 2718;
/// Controllers that gardener-operator leaves on: there are no nodes.
const CONTROLLERS: &str =
    "namespace,serviceaccount,serviceaccount-token,clusterrole-aggregation,garbagecollector,resourcequota";

/// A running virtual garden. It ends with its runtime cluster.
pub struct VirtualGarden {
    /// The API as `system:masters`.
    pub api: Api,
    /// kubectl as its administrator, on this machine.
    pub kubectl: Kubectl,
    authorities: Arc<Authorities>,
}

impl VirtualGarden {
    /// Starts everything but gardener-controller-manager, and waits until Gardener's kinds are served.
    pub async fn start(env: &TestEnv, runtime: &World<'_>) -> Result<Self> {
        let authorities = Arc::new(Authorities::make(&env.make_dir("virtual-garden-keys")?)?);
        deploy(runtime, &[etcd(), api_server(&authorities)?]).await?;
        let port = runtime.runner.publish(&format!("{API_SERVER}.{NAMESPACE}.svc"), PORT).await?;
        let admin = authorities.access(&format!("https://127.0.0.1:{port}"), "admin", &["system:masters"])?;
        let kubeconfig = admin.write(env.path().join("virtual-garden.kubeconfig"))?;
        let kubectl = Kubectl::new(env, kubeconfig)?;
        let garden = Self { api: Api::new(&admin)?, kubectl, authorities };
        deploy(runtime, &[controller_manager(&garden)?, gardener_api_server(&garden)?]).await?;
        garden.register_gardener(&address(runtime, GARDENER).await?).await?;
        garden.kubectl.apply(&gardener::landscape()).await?;
        Ok(garden)
    }

    /// Starts gardener-controller-manager, which makes the ControllerInstallations of seeds.
    pub async fn start_controllers(&self, runtime: &World<'_>) -> Result<()> {
        let lease = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gardener-system-seed-lease"}});
        self.kubectl.apply(&[lease]).await?;
        deploy(runtime, &[gardener_controllers(self)?]).await
    }

    /// URL of its API for Pods of the runtime cluster.
    pub fn server() -> String {
        format!("https://{API_SERVER}.{NAMESPACE}.svc")
    }

    /// Runs kubectl as its administrator.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl.run(args).await?.text()
    }

    /// A kubeconfig of a user for Pods.
    fn kubeconfig_of(&self, user: &str, groups: &[&str]) -> Result<String> {
        let access: Access = self.authorities.access(&Self::server(), user, groups)?;
        Ok(access.to_kubeconfig())
    }

    /// A Service without a selector, whose endpoint is the Service of the runtime cluster; and the APIServices behind it.
    async fn register_gardener(&self, address: &str) -> Result<()> {
        let metadata = json!({"name": GARDENER, "namespace": SYSTEM});
        let mut of_slice = metadata.clone();
        of_slice["labels"] = json!({"kubernetes.io/service-name": GARDENER});
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": PORT}]}}),
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": of_slice,
                "addressType": "IPv4", "ports": [{"name": "", "port": PORT, "protocol": "TCP"}],
                "endpoints": [{"addresses": [address]}],
            }),
        ];
        objects.extend(gardener::SERVED.iter().map(|(group, version)| {
            json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": format!("{version}.{group}"), "labels": {"app": "gardener"}},
                "spec": {
                    "group": group, "version": version, "service": {"name": GARDENER, "namespace": SYSTEM},
                    "caBundle": STANDARD.encode(self.authorities.cluster.pem()),
                    "groupPriorityMinimum": 10000, "versionPriority": 20,
                },
            })
        }));
        self.kubectl.apply(&objects).await?;
        let wait =
            ["wait", "apiservice", "--selector=app=gardener", "--for=condition=Available", "--timeout=90s"];
        self.kubectl(&wait).await.map(drop)
    }
}

/// The address of a Service of the runtime cluster.
async fn address(runtime: &World<'_>, service: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/services/{service}");
    let found = runtime.garden.api().get(&path).await?.ok()?;
    found["spec"]["clusterIP"].as_str().map(str::to_owned).context("the Service has no address")
}

/// Files and flags of a serving certificate for a Service.
fn serving(authorities: &Authorities, service: &str) -> Result<(Files, Vec<String>)> {
    let names = [format!("{service}.{NAMESPACE}.svc"), format!("{service}.{SYSTEM}.svc")];
    let Leaf { cert_pem, key_pem } =
        authorities.cluster.server(&[&names[0], &names[1], "localhost", "127.0.0.1"])?;
    let flags = flags(&[
        ("secure-port", PORT.to_string()),
        ("tls-cert-file", file("tls.crt")),
        ("tls-private-key-file", file("tls.key")),
    ]);
    Ok((vec![("tls.crt", cert_pem), ("tls.key", key_pem)], flags))
}

/// The flags by which a program reaches the virtual garden.
fn delegation() -> Vec<String> {
    flags(
        &["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
            .map(|flag| (flag, file("kubeconfig"))),
    )
}

fn etcd_url() -> String {
    format!("http://{ETCD}.{NAMESPACE}.svc:{ETCD_PORT}")
}

fn etcd() -> Component {
    let flags = flags(&[
        ("data-dir", "/data/etcd".to_owned()),
        ("listen-client-urls", format!("http://0.0.0.0:{ETCD_PORT}")),
        ("advertise-client-urls", etcd_url()),
        // The data lives as long as the test.
        ("unsafe-no-fsync", "true".to_owned()),
    ]);
    Component { name: ETCD, program: "etcd", flags, files: Vec::new(), probe: ("HTTP", ETCD_PORT, "/health") }
}

fn api_server(authorities: &Authorities) -> Result<Component> {
    let (mut files, mut all) = serving(authorities, API_SERVER)?;
    let proxy = authorities.front_proxy.client(FRONT_PROXY_USER, &[])?;
    files.extend([
        ("client-ca.crt", authorities.client.pem()),
        ("front-proxy-ca.crt", authorities.front_proxy.pem()),
        ("front-proxy.crt", proxy.cert_pem),
        ("front-proxy.key", proxy.key_pem),
        ("service-account.key", authorities.service_account_key.clone()),
        ("service-account.pub", authorities.service_account_public.clone()),
    ]);
    all.extend(flags(&[
        ("enable-aggregator-routing", "true".to_owned()),
        ("etcd-servers", etcd_url()),
        ("advertise-address", "10.0.0.200".to_owned()),
        ("endpoint-reconciler-type", "none".to_owned()),
        ("service-cluster-ip-range", "100.64.0.0/16".to_owned()),
        ("authorization-mode", "RBAC".to_owned()),
        ("client-ca-file", file("client-ca.crt")),
        ("service-account-issuer", VirtualGarden::server()),
        ("service-account-signing-key-file", file("service-account.key")),
        ("service-account-key-file", file("service-account.pub")),
        ("proxy-client-cert-file", file("front-proxy.crt")),
        ("proxy-client-key-file", file("front-proxy.key")),
        ("requestheader-client-ca-file", file("front-proxy-ca.crt")),
        ("requestheader-allowed-names", FRONT_PROXY_USER.to_owned()),
        ("requestheader-username-headers", "X-Remote-User".to_owned()),
        ("requestheader-uid-headers", "X-Remote-Uid".to_owned()),
        ("requestheader-group-headers", "X-Remote-Group".to_owned()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".to_owned()),
    ]));
    let probe = ("HTTPS", PORT, "/readyz");
    Ok(Component { name: API_SERVER, program: "kube-apiserver", flags: all, files, probe })
}

fn controller_manager(garden: &VirtualGarden) -> Result<Component> {
    let authorities = &garden.authorities;
    let (mut files, mut all) = serving(authorities, CONTROLLER_MANAGER)?;
    files.extend([
        ("kubeconfig", garden.kubeconfig_of("system:kube-controller-manager", &[])?),
        ("ca.crt", authorities.cluster.pem()),
        ("service-account.key", authorities.service_account_key.clone()),
    ]);
    all.extend(delegation());
    all.extend(flags(&[
        ("controllers", CONTROLLERS.to_owned()),
        ("leader-elect", "false".to_owned()),
        ("use-service-account-credentials", "true".to_owned()),
        ("service-account-private-key-file", file("service-account.key")),
        ("root-ca-file", file("ca.crt")),
    ]));
    let probe = ("HTTPS", PORT, "/healthz");
    Ok(Component { name: CONTROLLER_MANAGER, program: "kube-controller-manager", flags: all, files, probe })
}

fn gardener_api_server(garden: &VirtualGarden) -> Result<Component> {
    let (mut files, mut all) = serving(&garden.authorities, GARDENER)?;
    files.push(("kubeconfig", garden.kubeconfig_of(GARDENER, &["system:masters"])?));
    all.extend(delegation());
    all.extend(flags(&[("etcd-servers", etcd_url()), ("cluster-identity", "testbed".to_owned())]));
    let probe = ("HTTPS", PORT, "/readyz");
    Ok(Component { name: GARDENER, program: GARDENER, flags: all, files, probe })
}

fn gardener_controllers(garden: &VirtualGarden) -> Result<Component> {
    let kubeconfig = garden.kubeconfig_of(GARDENER_CONTROLLERS, &["system:masters"])?;
    let configuration = json!({
        "apiVersion": "controllermanager.config.gardener.cloud/v1alpha1", "kind": "ControllerManagerConfiguration",
        "gardenClientConnection": {"kubeconfig": file("kubeconfig")}, "leaderElection": {"leaderElect": false},
        "server": {"healthProbes": {"port": HEALTH_PORT}, "metrics": {"port": HEALTH_PORT + 1}},
    });
    let files = vec![("kubeconfig", kubeconfig), ("config.json", configuration.to_string())];
    let flags = flags(&[("config", file("config.json"))]);
    let probe = ("HTTP", HEALTH_PORT, "/readyz");
    Ok(Component { name: GARDENER_CONTROLLERS, program: GARDENER_CONTROLLERS, flags, files, probe })
}
