//! The contestants: Repot and the null server behind one kube-apiserver, and a CRD in it. All seal with secretbox.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::TestEnv;
use repot_tests::access::Access;
use repot_tests::aggregate::Aggregation;
use repot_tests::encryption::{config, provider, write_config};
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::null_server;
use repot_tests::process::{Process, Spec};
use repot_tests::repot::Repot;
use repot_tests::wait::until;
use repot_tests::{binaries, port};
use serde_json::{Value, json};

use crate::load::Line;

/// The group of the CRD: as long as Repot's, so that bodies are equally long.
pub const CRD_GROUP: &str = "crd.bench.repot.dev";
const REPOT_GROUP: &str = "core.gardener.cloud";
const VERSION: &str = "v1alpha1";
const NULL_NAMESPACE: &str = "null-system";
const NULL_SERVICE: &str = "null";
/// The earlier Repot, among the programs.
const EARLIER: &str = "earlier repot";
const DEADLINE: Duration = Duration::from_secs(60);
const MAX_OBJECT_BYTES: u64 = 32 << 20;
/// Enough that no run fills it: etcd's own default is 2 GiB.
const ETCD_QUOTA: u64 = 8 << 30;

/// The server that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Repot itself.
    Direct,
    /// An earlier Repot itself, with its embedded store: what `--beside` names.
    Earlier,
    /// Repot itself, with everything in the etcd that kube-apiserver uses.
    SameEtcd,
    /// Repot behind kube-apiserver.
    Aggregated,
    /// A CustomResourceDefinition of the same schema in the same kube-apiserver.
    Crd,
    /// A ConfigMap, whose content is text to kube-apiserver.
    ConfigMap,
    /// A server that does nothing, behind kube-apiserver.
    Null,
}

/// An earlier Repot, running.
struct Earlier {
    repot: Repot,
    line: Line,
}

/// All servers of the comparison, running.
pub struct Servers {
    garden: Garden,
    etcd: Process,
    etcd_data: PathBuf,
    repot: Repot,
    repot_data: PathBuf,
    on_etcd: Repot,
    earlier: Option<Earlier>,
    null: Process,
    direct: Line,
    same_etcd: Line,
    front: Line,
}

impl Side {
    /// The name of the server in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "Repot, direct",
            Self::Earlier => "Repot of --beside, direct",
            Self::SameEtcd => "Repot on the same etcd",
            Self::Aggregated => "Repot, aggregated",
            Self::Crd => "CRD",
            Self::ConfigMap => "ConfigMap",
            Self::Null => "null, aggregated",
        }
    }

    /// Group and version of its objects.
    pub fn api_version(self) -> String {
        match self {
            Self::Direct | Self::Earlier | Self::SameEtcd | Self::Aggregated => {
                format!("{REPOT_GROUP}/{VERSION}")
            }
            Self::ConfigMap => "v1".to_owned(),
            Self::Crd => format!("{CRD_GROUP}/{VERSION}"),
            Self::Null => format!("{}/v1", null_server::GROUP),
        }
    }

    /// Where its objects of a namespace are. The null server has one place for all.
    pub fn collection(self, namespace: &str) -> String {
        let api_version = self.api_version();
        match self {
            Self::Null => format!("/apis/{api_version}/blobs"),
            Self::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps"),
            Self::Direct | Self::Earlier | Self::SameEtcd | Self::Aggregated | Self::Crd => {
                format!("/apis/{api_version}/namespaces/{namespace}/shootstates")
            }
        }
    }
}

impl Servers {
    /// Starts everything; `namespaces` are made. Each line has so many connections.
    pub async fn start(env: &TestEnv, namespaces: &[&str], connections: usize) -> Result<Self> {
        Self::start_beside(env, namespaces, connections, None).await
    }

    /// The same, and an earlier Repot where there is one.
    pub async fn start_beside(
        env: &TestEnv,
        namespaces: &[&str],
        connections: usize,
        earlier: Option<&Path>,
    ) -> Result<Self> {
        let keys = env.make_dir("keys")?.join("encryption.yaml");
        write_config(&keys, &config(&[&provider("secretbox", "key")?]).to_string())?;
        let sealed = vec![format!("--encryption-provider-config={}", keys.display())];
        let options = GardenOptions { apiserver_flags: sealed.clone(), ..GardenOptions::default() };
        let mut garden = Garden::start_with(env, options).await?;
        let etcd_data = garden.etcd().member(0).data_dir().to_owned();
        let etcd = make_durable(env, &mut garden).await?;
        let made = namespaces
            .iter()
            .map(|name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
        garden.apply(&made.chain([crd()]).collect::<Vec<_>>()).await?;
        let repot_data = env.make_dir("repot-store")?;
        // 30 MB are more than is taken without being told so.
        let taken = vec![format!("--max-object-bytes={MAX_OBJECT_BYTES}")];
        let embedded = |data: &Path| {
            [sealed.clone(), taken.clone(), vec![format!("--storage=embedded:{}", data.display())]].concat()
        };
        let served = [(REPOT_GROUP, VERSION)];
        let repot = Repot::behind(env, &garden, &served, embedded(&repot_data)).await?;
        let line = |access: &Access| Line::new(access, connections);
        let earlier = match earlier {
            None => None,
            Some(program) => {
                let flags = embedded(&env.make_dir("earlier-store")?);
                let repot = Repot::replica_of(env, &garden, program, flags).await?;
                Some(Earlier { line: line(&access(&garden, &repot))?, repot })
            }
        };
        let etcd_servers = format!("--etcd-servers={}", garden.etcd().endpoints().join(","));
        let on_etcd = Repot::replica(env, &garden, [sealed, taken, vec![etcd_servers]].concat()).await?;
        let null = start_null(env, &garden).await?;
        let (direct, same_etcd) = (line(&access(&garden, &repot))?, line(&access(&garden, &on_etcd))?);
        let front = line(garden.admin())?;
        let servers = Self {
            garden,
            etcd,
            etcd_data,
            repot,
            repot_data,
            on_etcd,
            earlier,
            null,
            direct,
            same_etcd,
            front,
        };
        servers.wait_until_served(namespaces).await?;
        Ok(servers)
    }

    /// The connections over which a side is reached.
    pub fn line(&self, side: Side) -> &Line {
        match side {
            Side::Direct => &self.direct,
            Side::Earlier => &self.earlier().line,
            Side::SameEtcd => &self.same_etcd,
            Side::Aggregated | Side::Crd | Side::ConfigMap | Side::Null => &self.front,
        }
    }

    /// How the administrator reaches a side, over further connections.
    pub fn access(&self, side: Side) -> Access {
        match side {
            Side::Direct => access(&self.garden, &self.repot),
            Side::Earlier => access(&self.garden, &self.earlier().repot),
            Side::SameEtcd => access(&self.garden, &self.on_etcd),
            Side::Aggregated | Side::Crd | Side::ConfigMap | Side::Null => self.garden.admin().clone(),
        }
    }

    /// Asked for only where `--beside` is given.
    fn earlier(&self) -> &Earlier {
        self.earlier.as_ref().expect("an earlier Repot runs")
    }

    /// The sides that keep objects of their own: all of Repot's, and the CRD.
    pub fn keepers(&self) -> Vec<Side> {
        let earlier = self.earlier.as_ref().map(|_| Side::Earlier);
        [Side::Direct].into_iter().chain(earlier).chain([Side::SameEtcd, Side::Crd]).collect()
    }

    /// The garden, for further servers beside these.
    pub fn garden(&mut self) -> &mut Garden {
        &mut self.garden
    }

    /// Repot with its embedded store.
    pub fn repot(&mut self) -> &mut Repot {
        &mut self.repot
    }

    /// Bytes that are in use in etcd's database, after its history and its gaps are gone.
    pub async fn etcd_bytes(&mut self) -> Result<u64> {
        let etcd = self.garden.etcd();
        let status = async || etcd.etcdctl(&["endpoint", "status", "--write-out=json"]).await?.json();
        let revision = status().await?[0]["Status"]["header"]["revision"].as_u64().context("no revision")?;
        let compacted = etcd.etcdctl(&["compact", "--physical", &revision.to_string()]).await?;
        ensure!(compacted.succeeded() || compacted.stderr.contains("has been compacted"), "{compacted:?}");
        status().await?[0]["Status"]["dbSizeInUse"].as_u64().context("etcd tells no size")
    }

    /// Process ids by program: Repot twice or three times, kube-apiserver, etcd, null server.
    pub fn pids(&mut self) -> Vec<(&'static str, u32)> {
        let earlier = self.earlier.as_mut().map(|earlier| (EARLIER, earlier.repot.process().pid()));
        let all = [
            ("repot", self.repot.process().pid()),
            ("repot on etcd", self.on_etcd.process().pid()),
            ("kube-apiserver", self.garden.apiserver().pid()),
            ("etcd", self.etcd.pid()),
            ("null", self.null.pid()),
        ];
        all.into_iter().chain(earlier).collect()
    }

    /// Asks Repot to stop: a program that was built to record which code runs most writes its record then.
    ///
    /// Errors: when it runs on, or stops with an error.
    pub async fn stop(&mut self) -> Result<()> {
        self.repot.stop().await?;
        self.on_etcd.stop().await
    }

    /// The programs that work for a side.
    pub fn programs(side: Side) -> &'static [&'static str] {
        match side {
            Side::Direct => &["repot"],
            Side::Earlier => &[EARLIER],
            Side::SameEtcd => &["repot on etcd", "etcd"],
            Side::Aggregated => &["repot", "kube-apiserver"],
            Side::Crd | Side::ConfigMap => &["kube-apiserver", "etcd"],
            Side::Null => &["null", "kube-apiserver"],
        }
    }

    /// Where Repot and etcd keep their data.
    pub fn data_dirs(&self) -> [(&'static str, &Path); 2] {
        [("repot", &self.repot_data), ("etcd", &self.etcd_data)]
    }

    /// A CRD is served some time after it was made, and Repot sees a new namespace some time after kube-apiserver.
    async fn wait_until_served(&self, namespaces: &[&str]) -> Result<()> {
        for namespace in namespaces {
            for side in self.keepers().into_iter().chain([Side::Aggregated]) {
                let path = format!("{}?limit=1", side.collection(namespace));
                until(&format!("{} to list", side.name()), DEADLINE, async || {
                    self.line(side).api().get(&path).await?.ok().map(drop)
                })
                .await?;
            }
        }
        Ok(())
    }
}

/// Starts the garden's etcd again as operators run it: the testbed lets it skip fsync, which would flatter the CRD.
async fn make_durable(env: &TestEnv, garden: &mut Garden) -> Result<Process> {
    let member = garden.etcd().member(0);
    member.kill();
    let spec = Spec::new("durable-etcd", binaries::find("etcd")?)
        .flag("name", member.name())
        .flag("data-dir", member.data_dir())
        .flag("listen-client-urls", member.client_url())
        .flag("advertise-client-urls", member.client_url())
        .flag("listen-peer-urls", format!("http://127.0.0.1:{}", port::reserve()?))
        .flag("quota-backend-bytes", ETCD_QUOTA.to_string());
    let probe = format!("{}/health", member.client_url());
    let mut process = Process::start(env, spec)?;
    process.ready(DEADLINE, async || Ok(reqwest::get(&probe).await?.error_for_status().map(drop)?)).await?;
    garden.wait_until_ready().await?;
    Ok(process)
}

/// How the administrator reaches a Repot itself.
pub fn access(garden: &Garden, repot: &Repot) -> Access {
    Access {
        server: repot.url().to_owned(),
        ca_pem: garden.pki().serving.pem(),
        credential: garden.admin().credential.clone(),
    }
}

async fn start_null(env: &TestEnv, garden: &Garden) -> Result<Process> {
    let (process, port) = start_null_program(env, garden).await?;
    let ca_pem = &garden.pki().serving.pem();
    let (group, namespace, service) = (null_server::GROUP, NULL_NAMESPACE, NULL_SERVICE);
    Aggregation { group, version: "v1", namespace, service, port, ca_pem }.register(garden).await?;
    Ok(process)
}

/// Starts this program again as the null server, so that its work is not counted as the load generator's; with its port.
pub async fn start_null_program(env: &TestEnv, garden: &Garden) -> Result<(Process, u16)> {
    let dir = env.make_dir("null-pki")?;
    let (cert, key) = garden.pki().serve(NULL_NAMESPACE, NULL_SERVICE)?.write(&dir, "serving")?;
    let spec = Spec::new("null-server", std::env::current_exe()?).arg("null-server").arg(cert).arg(key);
    let mut process = Process::start(env, spec)?;
    let output = process.output_path();
    let port = process.ready(DEADLINE, async || {
        let text = std::fs::read_to_string(&output)?;
        let line = text.lines().find_map(|line| line.strip_prefix("ready "));
        Ok(line.context("it has not told its port yet")?.parse::<u16>()?)
    });
    let port = port.await?;
    Ok((process, port))
}

/// The same fields as Repot's schema; what is opaque there is preserved unknown here.
fn crd() -> Value {
    let text = json!({ "type": "string" });
    let opaque = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let reference = json!({ "apiVersion": text, "kind": text, "name": text });
    let list = |properties: Value, keys: &[&str]| {
        let mut items = json!({ "type": "object", "properties": properties });
        if keys.is_empty() {
            return json!({ "type": "array", "items": items });
        }
        items["required"] = json!(keys);
        json!({
            "type": "array", "items": items,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        })
    };
    let labels = json!({ "type": "object", "additionalProperties": text });
    let gardener = json!({ "name": text, "type": text, "labels": labels, "data": opaque });
    let named = json!({ "name": text, "resourceRef": { "type": "object", "properties": reference } });
    let extension = json!({
        "kind": text, "name": text, "purpose": text, "state": opaque, "resources": list(named, &[]),
    });
    let mut resource = reference.clone();
    resource["data"] = opaque.clone();
    let spec = json!({ "type": "object", "properties": {
        "gardener": list(gardener, &["name"]), "extensions": list(extension, &[]),
        "resources": list(resource, &["kind", "name", "apiVersion"]),
    } });
    let schema = json!({ "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("shootstates.{CRD_GROUP}") },
        "spec": {
            "group": CRD_GROUP, "scope": "Namespaced",
            "names": { "kind": "ShootState", "listKind": "ShootStateList", "plural": "shootstates", "singular": "shootstate" },
            "versions": [{ "name": VERSION, "served": true, "storage": true, "schema": schema }],
        },
    })
}

/// Serves as the null server until it is killed.
pub async fn serve_null(cert: &Path, key: &Path) -> Result<()> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
    };
    let leaf = repot_tests::pki::Leaf { cert_pem: read(cert)?, key_pem: read(key)? };
    let server = null_server::NullServer::start(&leaf).await?;
    println!("ready {}", server.port());
    std::future::pending().await
}
