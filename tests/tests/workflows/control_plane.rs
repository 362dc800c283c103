//! A hosted control plane: an Etcd of members over mutual TLS, API servers in front of it, and the HostedEtcd that stands for both.

use anyhow::{Context, Result, ensure};
use etcd_client::{Client, GetOptions};
use futures::{StreamExt, TryStreamExt, stream};
use repot_etcd::link;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::front;
use super::tls::Certificates;
use super::world::{DEADLINE, TestNamespace, object};

/// What an etcd holds.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub keys: usize,
    /// The length of each value.
    pub bytes: usize,
}

/// Data of 5 MB.
pub const SMALL: Load = Load { keys: 5_000, bytes: 1_000 };
/// Data of 200 MB.
pub const LARGE: Load = Load { keys: 20_000, bytes: 10_000 };

/// What stands before the etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// A real kube-apiserver.
    KubeApiserver,
    /// A shell that writes: cheaper, and it counts what was acknowledged.
    Writer,
}

/// Keys below `/data/`: name, value, revision of creation and revision of the last change.
pub type Data = Vec<(Vec<u8>, Vec<u8>, i64, i64)>;

/// Members that are frozen; dropping it lets them go on.
pub struct Frozen<'a> {
    ns: &'a TestNamespace,
    pods: Vec<String>,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        for pod in &self.pods {
            // Its container may have been started again meanwhile.
            let _ = self.ns.world.runner.resume(&self.ns.namespace, pod, "etcd");
        }
    }
}

/// Ports on 127.0.0.1.
struct Ports {
    /// Leads to a member that is ready.
    client: u16,
    /// Lead to the members, by their ordinals.
    members: Vec<u16>,
    /// Lead to their agents.
    agents: Vec<u16>,
}

/// An etcd with its operator, workflows and API servers.
pub struct ControlPlaneFixture {
    pub ns: TestNamespace,
    pub members: u32,
    pub certificates: Certificates,
    ports: Ports,
}

impl ControlPlaneFixture {
    /// Starts one that holds [`SMALL`].
    pub async fn start(namespace: &str, members: u32, front: Front) -> Result<Self> {
        Self::start_with(namespace, members, front, SMALL).await
    }

    pub async fn start_with(namespace: &str, members: u32, front: Front, load: Load) -> Result<Self> {
        Self::start_in(TestNamespace::make(namespace).await?, members, front, load).await
    }

    pub async fn start_in(ns: TestNamespace, members: u32, front: Front, load: Load) -> Result<Self> {
        let fixture = Self::start_empty(ns, members, None).await?;
        fixture.fill(load).await?;
        let deployment = match front {
            Front::KubeApiserver => front::kube_apiserver(&fixture.ns),
            Front::Writer => front::writer(&fixture.ns),
        };
        fixture.ns.apply(&[deployment]).await?;
        fixture.api_is_up().await?;
        Ok(fixture)
    }

    /// Starts one of one member that holds [`SMALL`], whose snapshots are sealed by this configuration.
    pub async fn start_sealed(namespace: &str, config: &Value) -> Result<Self> {
        let fixture = Self::start_empty(TestNamespace::make(namespace).await?, 1, Some(config)).await?;
        fixture.fill(SMALL).await?;
        fixture.ns.apply(&[front::writer(&fixture.ns)]).await?;
        fixture.api_is_up().await?;
        Ok(fixture)
    }

    async fn start_empty(ns: TestNamespace, members: u32, sealed: Option<&Value>) -> Result<Self> {
        let mut store = ns.backup_store();
        if let Some(config) = sealed {
            store["secretRef"] = json!({"name": "store"});
            let data = json!({"encryptionConfiguration": config.to_string()});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store"}, "stringData": data});
            ns.apply(&[secret]).await?;
        }
        let certificates = Certificates::make(&ns.namespace)?;
        ns.apply(certificates.secrets()).await?;
        let mut etcd = json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": {"name": "main"},
            "spec": {
                "replicas": members, "storageClass": "slow", "storageCapacity": "1Gi", "volumeClaimTemplate": "data",
                // The data lives as long as the test: nothing is gained by forcing it to disk.
                "etcd": {"extraFlags": {"unsafe-no-fsync": "true"}, "quota": "8Gi"},
                "backup": {"store": store, "deltaSnapshotPeriod": "1s"},
            },
        });
        Certificates::refer(&mut etcd["spec"]["etcd"]);
        ns.apply(&[etcd, hosted_etcd(&store)]).await?;
        let ports = Ports::publish(&ns, members).await?;
        let fixture = Self { ns, members, certificates, ports };
        fixture.etcd_is_up().await?;
        Ok(fixture)
    }

    /// Makes the HostedEtcd again after it was deleted.
    pub async fn make_hosted_etcd_again(&self) -> Result<()> {
        self.ns.apply(&[hosted_etcd(&self.ns.backup_store())]).await?;
        self.etcd_is_up().await
    }

    /// Waits until all members are ready.
    pub async fn etcd_is_up(&self) -> Result<()> {
        let ready = |hosted: &Value| hosted["status"]["readyReplicas"] == self.members;
        self.ns.until("hostedetcd", "main", "all members ready", ready).await.map(drop)
    }

    /// Waits until an API server is ready.
    pub async fn api_is_up(&self) -> Result<()> {
        let ready = |deployment: &Value| deployment["status"]["readyReplicas"].as_u64() > Some(0);
        self.ns.until("deployment", "kube-apiserver", "ready", ready).await.map(drop)
    }

    /// A client of whichever member is ready.
    pub async fn client(&self) -> Result<Client> {
        Ok(link::connect(&self.certificates.etcd(self.ports.client)).await?)
    }

    /// A client of each member, by its ordinal.
    pub async fn member_clients(&self) -> Result<Vec<Client>> {
        let mut clients = Vec::new();
        for port in &self.ports.members {
            clients.push(link::connect(&self.certificates.etcd(*port)).await?);
        }
        Ok(clients)
    }

    /// What the agent of the first member answers.
    ///
    /// Errors: unless the status code is 2xx.
    pub async fn ask_agent(&self, path: &str) -> Result<Value> {
        let port = self.ports.agents.first().context("there are no agents")?;
        self.certificates.agent(*port)?.get(path).await?.ok()
    }

    /// The Pod of the member that leads.
    pub async fn leader(&self) -> Result<String> {
        until("a leader", DEADLINE, async || {
            for (at, client) in self.member_clients().await?.iter().enumerate() {
                let status = client.maintenance_client().status().await?;
                let own = status.header().context("a status without header")?.member_id();
                if status.leader() == own {
                    return Ok(format!("main-{at}"));
                }
            }
            anyhow::bail!("no member leads")
        })
        .await
    }

    /// Writes the keys, several at a time.
    async fn fill(&self, load: Load) -> Result<()> {
        let client = self.client().await?;
        let puts = (0..load.keys).map(|at| {
            let mut kv = client.kv_client();
            async move {
                kv.put(format!("/data/{at:05}"), noise(at, load.bytes), None).await?;
                Ok(())
            }
        });
        stream::iter(puts).buffer_unordered(16).try_collect().await
    }

    /// How many keys are below `/data/`.
    pub async fn count(&self) -> Result<u64> {
        let options = GetOptions::new().with_prefix().with_count_only();
        Ok(u64::try_from(self.client().await?.kv_client().get("/data/", Some(options)).await?.count())?)
    }

    /// Everything below `/data/`, with the revisions of the keys.
    pub async fn data(&self) -> Result<Data> {
        let client = self.client().await?;
        let mut kv = client.kv_client().max_decoding_message_size(usize::MAX);
        let found = until("an answer of the etcd", DEADLINE, async || {
            Ok(kv.get("/data/", Some(GetOptions::new().with_prefix())).await?)
        });
        let all = found.await?;
        let one = |pair: &etcd_client::KeyValue| {
            (pair.key().to_vec(), pair.value().to_vec(), pair.create_revision(), pair.mod_revision())
        };
        Ok(all.kvs().iter().map(one).collect())
    }

    /// The last number that the writer knows to be written.
    pub fn acknowledged(&self) -> Result<u64> {
        let noted = std::fs::read_to_string(self.ns.dir().join("acknowledged"))?;
        Ok(noted.trim().parse()?)
    }

    /// Checks that nothing that was acknowledged is missing, whatever happened.
    pub async fn holds(&self, before: &Data) -> Result<()> {
        let after = self.data().await?;
        ensure!(after == *before, "{} keys are left of {}, or they differ", after.len(), before.len());
        let known = self.acknowledged()?;
        let answer = self.client().await?.kv_client().get("/writer", None).await?;
        let stored: u64 = answer.kvs().first().context("the writer's key is gone")?.value_str()?.parse()?;
        ensure!(stored >= known, "{known} was acknowledged, and {stored} is stored");
        Ok(())
    }

    /// The claims of members that stay, with their StorageClass.
    pub async fn claims(&self) -> Result<Vec<(String, String)>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let items = self.ns.list("persistentvolumeclaim", "").await?;
        let mut claims: Vec<_> = items
            .iter()
            .filter(|claim| claim["metadata"]["deletionTimestamp"].is_null())
            .map(|claim| (text(&claim["metadata"]["name"]), text(&claim["spec"]["storageClassName"])))
            .collect();
        claims.sort();
        Ok(claims)
    }

    /// A migration `m` to other settings.
    pub async fn migrate(&self, settings: Value) -> Result<()> {
        self.migrate_as("m", settings, "1m").await
    }

    /// A migration with a name and a time for each step.
    pub async fn migrate_as(&self, name: &str, settings: Value, step_timeout: &str) -> Result<()> {
        let spec = json!({"clusterRef": {"name": "main"}, "settings": settings, "stepTimeout": step_timeout});
        self.ns.apply(&[object("EtcdMigration", name, spec)]).await
    }

    /// Waits until a step of the migration `m` is in that state, and gives the migration.
    pub async fn step(&self, step: &str, state: &str) -> Result<Value> {
        self.step_of("m", step, state).await
    }

    /// Waits until a step of a migration is in that state, and gives the migration.
    pub async fn step_of(&self, migration: &str, step: &str, state: &str) -> Result<Value> {
        let is = |object: &Value| {
            let steps = object["status"]["steps"].as_array();
            steps.is_some_and(|all| all.iter().any(|one| one["name"] == step && one["state"] == state))
        };
        self.ns.until("etcdmigration", migration, &format!("{step} {state}"), is).await
    }

    /// Stops these members until the value is dropped: they are there, and do nothing.
    pub fn freeze(&self, pods: &[&str]) -> Result<Frozen<'_>> {
        let mut frozen = Frozen { ns: &self.ns, pods: Vec::new() };
        for pod in pods {
            self.ns.world.runner.freeze(&self.ns.namespace, pod, "etcd")?;
            frozen.pods.push((*pod).to_owned());
        }
        Ok(frozen)
    }
}

/// Bytes that do not compress, the same for the same number.
fn noise(seed: usize, bytes: usize) -> Vec<u8> {
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        (state, _) = state.overflowing_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(bytes).collect()
}

impl Ports {
    async fn publish(ns: &TestNamespace, members: u32) -> Result<Self> {
        let mut ports =
            Self { client: ns.publish("main-client", 2379).await?, members: Vec::new(), agents: Vec::new() };
        for at in 0..members {
            let host = format!("main-{at}.main-peer");
            ports.members.push(ns.publish(&host, 2379).await?);
            ports.agents.push(ns.publish(&host, 8080).await?);
        }
        Ok(ports)
    }
}

fn hosted_etcd(store: &Value) -> Value {
    let spec = json!({
        "etcdRef": {"name": "main"}, "apiServerRef": {"name": "kube-apiserver"}, "backupStore": store,
    });
    object("HostedEtcd", "main", spec)
}
