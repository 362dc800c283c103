//! A garden: a real kube-apiserver with its own etcd, and the real kube-controller-manager where a test wants it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::access::{Access, Credential};
use crate::etcd::{EtcdCluster, EtcdOptions, EtcdTls};
use crate::http::{self, Api};
use crate::kubectl::Kubectl;
use crate::pki::{self, Ca, Leaf};
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::tool::Output;
use crate::{binaries, port};

const START_DEADLINE: Duration = Duration::from_secs(120);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The first address of the Service range, under which certificates name the API server inside a cluster.
const SERVICE_IP: &str = "10.0.0.1";
/// Nobody dials it: the API server insists on an address that is not loopback, and its endpoints are not published.
const ADVERTISED_IP: &str = "10.0.0.200";
/// The common name that aggregated servers must accept from the front proxy.
pub const FRONT_PROXY_USER: &str = "front-proxy-client";

/// What kind of garden to start.
#[derive(Clone, Debug, Default)]
pub struct GardenOptions {
    /// Whether kube-controller-manager runs: garbage collection, namespace deletion, quotas, workload controllers.
    pub controller_manager: bool,
    /// URLs of another etcd than the garden's own: a gateway in front of one, say. All API servers of the garden use it.
    pub etcd_servers: Vec<String>,
    /// How API servers reach that etcd with TLS.
    pub etcd_tls: Option<EtcdTls>,
    /// Further command line arguments of the garden's own etcd.
    pub etcd_flags: Vec<String>,
    /// Further command line arguments of kube-apiserver.
    pub apiserver_flags: Vec<String>,
    /// Further command line arguments of kube-controller-manager.
    pub controller_manager_flags: Vec<String>,
}

/// A running garden. Everything in it ends when it is dropped.
pub struct Garden {
    api: Api,
    admin: Access,
    kubectl: Kubectl,
    pki: Pki,
    /// Private and public key of service accounts.
    signing_key: (PathBuf, PathBuf),
    controller_manager: Option<Process>,
    apiserver: Process,
    etcd: EtcdCluster,
    /// The etcd that its API servers use.
    backend: Backend,
}

/// An etcd as kube-apiserver reaches it.
struct Backend {
    urls: Vec<String>,
    tls: Option<EtcdTls>,
}

/// A further kube-apiserver of a garden: the same etcd, the same authorities, a port of its own.
pub struct Twin {
    /// The API as `system:masters`.
    pub api: Api,
    /// How the administrator reaches it.
    pub admin: Access,
    /// The process of the second kube-apiserver.
    pub process: Process,
}

/// The authorities of a garden, each with one purpose, so that taking one for another is noticed.
pub struct Pki {
    dir: PathBuf,
    /// Signs serving certificates: of kube-apiserver, and of servers behind it.
    pub serving: Ca,
    /// Signs client certificates of users.
    pub client: Ca,
    /// Signs the certificate with which kube-apiserver shows itself to aggregated servers.
    pub front_proxy: Ca,
}

impl Garden {
    /// Starts a kube-apiserver alone.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        Self::start_with(env, GardenOptions::default()).await
    }

    /// Starts a garden with options of the test's own, and waits until it serves.
    pub async fn start_with(env: &TestEnv, options: GardenOptions) -> Result<Self> {
        let pki = Pki::make(env)?;
        // The data lives as long as the test: nothing is gained by forcing it to disk.
        let mut flags = vec!["--unsafe-no-fsync".to_owned()];
        flags.extend(options.etcd_flags.iter().cloned());
        let etcd_options = EtcdOptions { name: "garden-etcd".to_owned(), flags, ..EtcdOptions::default() };
        let etcd = EtcdCluster::start_with(env, 1, etcd_options).await?;
        let port = port::reserve()?;
        let signing_key = pki::write_signing_key(&pki.dir, "service-account")?;
        let own = options.etcd_servers.is_empty();
        let urls = if own { etcd.endpoints() } else { options.etcd_servers };
        let backend = Backend { urls, tls: options.etcd_tls };
        let spec = apiserver_spec(&pki, &backend, port, "", &signing_key)?.args(&options.apiserver_flags);
        let apiserver = Process::start(env, spec)?;
        let admin = pki.access(port, "admin", &["system:masters"])?;
        let kubectl = Kubectl::new(env, admin.write(pki.dir.join("admin.kubeconfig"))?)?;
        let api = Api::new(&admin)?;
        let controller_manager = None;
        let mut garden =
            Self { api, admin, kubectl, pki, signing_key, controller_manager, apiserver, etcd, backend };
        garden.wait_until_ready().await?;
        if options.controller_manager {
            garden.start_controller_manager(env, &options.controller_manager_flags).await?;
        }
        Ok(garden)
    }

    /// Starts a further kube-apiserver on the garden's etcd, and waits until it serves.
    pub async fn start_twin(&self, env: &TestEnv) -> Result<Twin> {
        let port = port::reserve()?;
        let spec = apiserver_spec(&self.pki, &self.backend, port, "twin-", &self.signing_key)?;
        let mut process = Process::start(env, spec)?;
        let admin = Access { server: format!("https://127.0.0.1:{port}"), ..self.admin.clone() };
        let api = Api::new(&admin)?;
        process.ready(START_DEADLINE, async || check_ready(&api, "/readyz").await).await?;
        Ok(Twin { api, admin, process })
    }

    /// The API as `system:masters`.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// How the administrator reaches it.
    pub fn admin(&self) -> &Access {
        &self.admin
    }

    /// The administrator's kubeconfig file.
    pub fn kubeconfig(&self) -> &Path {
        self.kubectl.kubeconfig()
    }

    /// The certificate authorities of the cluster.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The process of kube-apiserver, to kill, pause or restart it.
    pub fn apiserver(&mut self) -> &mut Process {
        &mut self.apiserver
    }

    /// The process of kube-apiserver, to pause it.
    pub fn apiserver_process(&self) -> &Process {
        &self.apiserver
    }

    /// The process of kube-controller-manager, when the garden has one.
    pub fn controller_manager(&mut self) -> Option<&mut Process> {
        self.controller_manager.as_mut()
    }

    /// Its etcd, of one member.
    pub fn etcd(&mut self) -> &mut EtcdCluster {
        &mut self.etcd
    }

    /// URLs of the etcd that its API servers use.
    pub fn etcd_servers(&self) -> &[String] {
        &self.backend.urls
    }

    /// Runs kubectl as the administrator.
    pub async fn kubectl(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Output> {
        self.kubectl.run(args).await
    }

    /// kubectl as the administrator, for input, streams and other users (`with`).
    pub fn kubectl_tool(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Applies objects as the administrator, server-side, in their order.
    ///
    /// Errors: when one is refused.
    pub async fn apply(&self, objects: &[Value]) -> Result<()> {
        self.kubectl.apply(objects).await
    }

    /// A way in for a user with a client certificate (two groups at most).
    pub fn user(&self, name: &str, groups: &[&str]) -> Result<Access> {
        Ok(self.admin.with(Credential::Certificate(self.pki.client.client(name, groups)?)))
    }

    /// A kubeconfig file for such a user.
    pub fn user_kubeconfig(&self, name: &str, groups: &[&str]) -> Result<PathBuf> {
        let file = format!("{}.kubeconfig", name.replace([':', '/'], "-"));
        self.user(name, groups)?.write(self.pki.dir.join(file))
    }

    /// A kubeconfig file for an aggregated server: its user may delegate authentication and authorization, and follow what
    /// admission needs: Namespaces, webhooks, quotas.
    pub async fn delegate(&self, user: &str) -> Result<PathBuf> {
        self.apply(&delegation(user)).await?;
        self.user_kubeconfig(user, &[])
    }

    /// Waits until kube-apiserver says it is ready.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        let Self { apiserver, api, .. } = self;
        apiserver.ready(START_DEADLINE, async || check_ready(api, "/readyz").await).await
    }

    /// Starts its kube-controller-manager, with further flags: for gardens where something has to be there before it.
    pub async fn start_controller_manager(&mut self, env: &TestEnv, flags: &[String]) -> Result<()> {
        let port = port::reserve()?;
        let spec = controller_manager_spec(self, &self.signing_key.0, port)?.args(flags);
        let mut process = Process::start(env, spec)?;
        let api = &self.api;
        // Its controllers run when the one that makes default service accounts has done so.
        let path = "/api/v1/namespaces/default/serviceaccounts/default";
        process.ready(START_DEADLINE, async || check_ready(api, path).await).await?;
        self.controller_manager = Some(process);
        Ok(())
    }
}

async fn check_ready(api: &Api, path: &str) -> Result<()> {
    let request = api.request(reqwest::Method::GET, path).timeout(PROBE_TIMEOUT);
    let answer = http::send(request).await?;
    ensure!(answer.status == 200, "{answer}");
    Ok(())
}

impl Pki {
    fn make(env: &TestEnv) -> Result<Self> {
        let dir = env.make_dir("garden-pki")?;
        let (serving, client) = (Ca::new("garden-serving-ca")?, Ca::new("garden-client-ca")?);
        let pki = Self { dir, serving, client, front_proxy: Ca::new("garden-front-proxy-ca")? };
        pki.serving.write(&pki.dir, "serving-ca")?;
        pki.client.write(&pki.dir, "client-ca")?;
        pki.front_proxy.write(&pki.dir, "front-proxy-ca")?;
        Ok(pki)
    }

    /// A file of the garden: `serving-ca.crt`, `client-ca.crt`, `front-proxy-ca.crt`, `front-proxy.crt`, `front-proxy.key`, …
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A serving certificate for a server behind a Service, as kube-apiserver will verify it.
    pub fn serve(&self, namespace: &str, service: &str) -> Result<Leaf> {
        let name = format!("{service}.{namespace}.svc");
        self.serving.server(&[&name, "localhost", "127.0.0.1"])
    }

    fn access(&self, port: u16, user: &str, groups: &[&str]) -> Result<Access> {
        Ok(Access {
            server: format!("https://127.0.0.1:{port}"),
            ca_pem: self.serving.pem(),
            credential: Credential::Certificate(self.client.client(user, groups)?),
        })
    }
}

fn apiserver_spec(
    pki: &Pki,
    backend: &Backend,
    port: u16,
    prefix: &str,
    signing_key: &(PathBuf, PathBuf),
) -> Result<Spec> {
    let names = ["kubernetes.default.svc", "kubernetes.default", "localhost", "127.0.0.1", SERVICE_IP];
    let serving = pki.serving.server(&names)?.write(&pki.dir, &format!("{prefix}apiserver"))?;
    let proxy = pki.front_proxy.client(FRONT_PROXY_USER, &[])?;
    let proxy = proxy.write(&pki.dir, &format!("{prefix}front-proxy"))?;
    let spec = Spec::new("kube-apiserver", binaries::find("kube-apiserver")?)
        .flag("etcd-servers", backend.urls.join(","))
        .flag("bind-address", "127.0.0.1")
        .flag("secure-port", port.to_string())
        .flag("advertise-address", ADVERTISED_IP)
        .flag("endpoint-reconciler-type", "none")
        .flag("service-cluster-ip-range", "10.0.0.0/24")
        .flag("enable-aggregator-routing", "false")
        .flag("tls-cert-file", &serving.0)
        .flag("tls-private-key-file", &serving.1)
        .flag("client-ca-file", pki.file("client-ca.crt"))
        .flag("authorization-mode", "RBAC")
        .flag("service-account-issuer", "https://kubernetes.default.svc")
        .flag("service-account-signing-key-file", &signing_key.0)
        .flag("service-account-key-file", &signing_key.1)
        .flag("proxy-client-cert-file", &proxy.0)
        .flag("proxy-client-key-file", &proxy.1);
    let spec = match &backend.tls {
        Some(tls) => {
            spec.flag("etcd-cafile", &tls.ca).flag("etcd-certfile", &tls.cert).flag("etcd-keyfile", &tls.key)
        }
        None => spec,
    };
    Ok(add_front_proxy_flags(spec, pki))
}

/// What aggregated servers later read from the ConfigMap `extension-apiserver-authentication`.
fn add_front_proxy_flags(spec: Spec, pki: &Pki) -> Spec {
    spec.flag("requestheader-client-ca-file", pki.file("front-proxy-ca.crt"))
        .flag("requestheader-allowed-names", FRONT_PROXY_USER)
        .flag("requestheader-username-headers", "X-Remote-User")
        .flag("requestheader-uid-headers", "X-Remote-Uid")
        .flag("requestheader-group-headers", "X-Remote-Group")
        .flag("requestheader-extra-headers-prefix", "X-Remote-Extra-")
}

fn controller_manager_spec(garden: &Garden, key: &Path, port: u16) -> Result<Spec> {
    let pki = &garden.pki;
    let serving = pki.serving.server(&["localhost", "127.0.0.1"])?.write(&pki.dir, "controller-manager")?;
    let kubeconfig = garden.user_kubeconfig("system:kube-controller-manager", &[])?;
    Ok(Spec::new("kube-controller-manager", binaries::find("kube-controller-manager")?)
        .flag("kubeconfig", &kubeconfig)
        .flag("authentication-kubeconfig", &kubeconfig)
        .flag("authorization-kubeconfig", &kubeconfig)
        .flag("bind-address", "127.0.0.1")
        .flag("secure-port", port.to_string())
        .flag("tls-cert-file", &serving.0)
        .flag("tls-private-key-file", &serving.1)
        .flag("leader-elect", "false")
        .flag("use-service-account-credentials", "true")
        .flag("service-account-private-key-file", key)
        .flag("root-ca-file", pki.file("serving-ca.crt")))
}

fn delegation(user: &str) -> [Value; 4] {
    let rbac = "rbac.authorization.k8s.io";
    let name = user.replace(':', "-");
    let bind = |kind: &str, suffix: &str, metadata: Value, role: Value| {
        let mut metadata = metadata;
        metadata["name"] = format!("{name}-{suffix}").into();
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": kind, "metadata": metadata, "roleRef": role,
            "subjects": [{ "apiGroup": rbac, "kind": "User", "name": user }],
        })
    };
    let role = |kind: &str, name: &str| json!({ "apiGroup": rbac, "kind": kind, "name": name });
    let watcher = format!("{name}-follows-admission");
    let read = json!(["get", "list", "watch"]);
    let hooks = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let rules = json!([
        { "apiGroups": [""], "resources": ["namespaces", "resourcequotas", "services"], "verbs": read },
        { "apiGroups": [""], "resources": ["resourcequotas/status"], "verbs": ["update"] },
        { "apiGroups": ["admissionregistration.k8s.io"], "resources": hooks, "verbs": read },
    ]);
    let system = json!({ "namespace": "kube-system" });
    let reader = role("Role", "extension-apiserver-authentication-reader");
    [
        json!({ "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": { "name": watcher }, "rules": rules }),
        bind("ClusterRoleBinding", "follows-admission", json!({}), role("ClusterRole", &watcher)),
        bind("ClusterRoleBinding", "delegates", json!({}), role("ClusterRole", "system:auth-delegator")),
        bind("RoleBinding", "reads-authentication", system, reader),
    ]
}

impl std::fmt::Debug for Garden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Garden").field("server", &self.admin.server).finish_non_exhaustive()
    }
}
