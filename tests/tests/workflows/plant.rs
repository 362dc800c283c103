//! A hosted control plane: an Etcd, API servers in front of it, and the HostedEtcd that stands for both.

use anyhow::{Context, Result, ensure};
use etcd_client::{Client, GetOptions};
use futures::{StreamExt, TryStreamExt, stream};
use repot_tests::repot::program;
use repot_tests::wait::until;
use repot_tests::{binaries, tool};
use serde_json::{Value, json};

use super::world::{DEADLINE, Place, object};

/// What an etcd holds.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub keys: usize,
    /// The length of each value.
    pub bytes: usize,
}

/// 5 MB.
pub const SMALL: Load = Load { keys: 5_000, bytes: 1_000 };
/// 200 MB.
pub const LARGE: Load = Load { keys: 20_000, bytes: 10_000 };

/// What stands before the etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// A real kube-apiserver.
    KubeApiserver,
    /// A shell that writes: cheaper, and it counts what was acknowledged.
    Writer,
}

/// A member that is frozen.
pub struct Frozen<'a>(&'a Place);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // Its container may have been started again meanwhile.
        let _ = self.0.world.runner.resume(&self.0.namespace, "main-0", "etcd");
    }
}

/// An etcd with its operator, workflows and API servers.
pub struct Plant {
    pub place: Place,
    pub members: u32,
}

impl Plant {
    /// Starts one that holds [`SMALL`].
    pub async fn start(namespace: &str, members: u32, front: Front) -> Result<Self> {
        Self::start_with(namespace, members, front, SMALL).await
    }

    pub async fn start_with(namespace: &str, members: u32, front: Front, load: Load) -> Result<Self> {
        Self::start_in(Place::make(namespace).await?, members, front, load).await
    }

    pub async fn start_in(place: Place, members: u32, front: Front, load: Load) -> Result<Self> {
        let plant = Self::start_empty(place, members, None).await?;
        plant.fill(load).await?;
        let deployment = match front {
            Front::KubeApiserver => plant.kube_apiserver(),
            Front::Writer => plant.writer(),
        };
        plant.place.apply(&[deployment]).await?;
        plant.api_is_up().await?;
        Ok(plant)
    }

    /// Starts one of one member that holds [`SMALL`], whose snapshots are sealed by this configuration.
    pub async fn start_sealed(namespace: &str, config: &Value) -> Result<Self> {
        let plant = Self::start_empty(Place::make(namespace).await?, 1, Some(config)).await?;
        plant.fill(SMALL).await?;
        plant.place.apply(&[plant.writer()]).await?;
        plant.api_is_up().await?;
        Ok(plant)
    }

    async fn start_empty(place: Place, members: u32, sealed: Option<&Value>) -> Result<Self> {
        let mut store = place.backup_store();
        if let Some(config) = sealed {
            store["secretRef"] = json!({"name": "store"});
            let data = json!({"encryptionConfiguration": config.to_string()});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store"}, "stringData": data});
            place.apply(&[secret]).await?;
        }
        let etcd = json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": {"name": "main"},
            "spec": {
                "replicas": members, "storageClass": "slow", "storageCapacity": "1Gi", "volumeClaimTemplate": "data",
                "etcd": {}, "backup": {"store": store},
            },
        });
        let spec = json!({
            "etcdRef": {"name": "main"}, "apiServerRef": {"name": "kube-apiserver"}, "backupStore": store,
        });
        place.apply(&[etcd, object("HostedEtcd", "main", spec)]).await?;
        let plant = Self { place, members };
        plant.etcd_is_up().await?;
        Ok(plant)
    }

    /// Waits until all members are ready.
    pub async fn etcd_is_up(&self) -> Result<()> {
        let ready = |hosted: &Value| hosted["status"]["readyReplicas"] == self.members;
        self.place.until("hostedetcd", "main", "all members ready", ready).await.map(drop)
    }

    /// Waits until an API server is ready.
    pub async fn api_is_up(&self) -> Result<()> {
        let ready = |deployment: &Value| deployment["status"]["readyReplicas"].as_u64() > Some(0);
        self.place.until("deployment", "kube-apiserver", "ready", ready).await.map(drop)
    }

    pub async fn client(&self) -> Result<Client> {
        self.place.client("main-client").await
    }

    /// Writes the keys, several at a time.
    async fn fill(&self, load: Load) -> Result<()> {
        let client = self.client().await?;
        let puts = (0..load.keys).map(|at| {
            let mut kv = client.kv_client();
            async move {
                let value = vec![u8::try_from(at % 251)?; load.bytes];
                kv.put(format!("/data/{at:05}"), value, None).await?;
                Ok(())
            }
        });
        stream::iter(puts).buffer_unordered(16).try_collect().await
    }

    /// Everything below `/data/`, with the revisions of the keys.
    pub async fn data(&self) -> Result<Vec<(Vec<u8>, Vec<u8>, i64, i64)>> {
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

    /// The last number that the writer knows to be written, and the one that is in the etcd.
    pub async fn acknowledged(&self) -> Result<(u64, u64)> {
        let file = self.place.world.store.join(&self.place.namespace).join("acknowledged");
        let known = std::fs::read_to_string(file)?.trim().parse()?;
        let answer = self.client().await?.kv_client().get("/writer", None).await?;
        let pair = answer.kvs().first().context("the writer's key is gone")?;
        Ok((known, pair.value_str()?.parse()?))
    }

    /// Checks that nothing that was acknowledged is missing, whatever happened.
    pub async fn holds(&self, before: &[(Vec<u8>, Vec<u8>, i64, i64)]) -> Result<()> {
        let after = self.data().await?;
        ensure!(after == before, "{} keys are left of {}, or they differ", after.len(), before.len());
        let (known, stored) = self.acknowledged().await?;
        ensure!(stored >= known, "{known} was acknowledged, and {stored} is stored");
        Ok(())
    }

    /// Checks that backups go on: what is written now is in the next snapshot, and a restore from the store takes that one, not one
    /// of an etcd that was given up.
    pub async fn is_backed_up(&self) -> Result<()> {
        let last = until("a snapshot of what is written now", DEADLINE, async || {
            let put = self.client().await?.kv_client().put("/backed-up", "yes", None).await?;
            let written = put.header().context("no revision")?.revision();
            let name = format!("main-0.main-peer.{}.svc", self.place.namespace);
            let port = self.place.world.runner.publish(&name, 8080).await?;
            let client = reqwest::Client::builder().no_proxy().build()?;
            let answer = client.get(format!("http://127.0.0.1:{port}/snapshot/full")).send().await?;
            let (status, text) = (answer.status(), answer.text().await?);
            ensure!(status.is_success(), "{status}: {text}");
            let taken: Value = serde_json::from_str(&text)?;
            let last = taken["lastRevision"].as_i64().context("a snapshot without revision")?;
            ensure!(last >= written, "{written} was written, and the snapshot is {taken}");
            Ok(last)
        })
        .await?;
        let dir = tempfile::tempdir()?;
        let store = format!("file://{}/main", self.place.world.store.join(&self.place.namespace).display());
        let mut command = tokio::process::Command::new(program()?);
        command.args(["snapshots", "restore", "--output=json", "--store", &store]);
        command.arg("--data-dir").arg(dir.path().join("restored"));
        command.arg("--etcd").arg(binaries::find("etcd")?).arg("--etcdutl").arg(binaries::find("etcdutl")?);
        let restored = tool::run(command, b"").await?.json()?;
        let current = self.client().await?.kv_client().get("/backed-up", None).await?;
        let current = current.header().context("no revision")?.revision();
        let revision = restored["revision"].as_i64().context("no revision")?;
        ensure!(
            (last..=current).contains(&revision),
            "a restore takes {restored}, and the etcd is at {current}"
        );
        Ok(())
    }

    /// The claims of members, with their StorageClass.
    pub async fn claims(&self) -> Result<Vec<(String, String)>> {
        let all: Value = serde_json::from_str(&self.place.kubectl(&["get", "pvc", "-o", "json"]).await?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let items = all["items"].as_array().context("no list")?;
        let mut claims: Vec<_> = items
            .iter()
            .filter(|claim| claim["metadata"]["deletionTimestamp"].is_null())
            .map(|claim| (text(&claim["metadata"]["name"]), text(&claim["spec"]["storageClassName"])))
            .collect();
        claims.sort();
        Ok(claims)
    }

    fn endpoint(&self) -> String {
        format!("http://main-client.{}.svc:2379", self.place.namespace)
    }

    fn deployment(&self, container: &Value, volumes: &Value) -> Value {
        let labels = json!({"app": "kube-apiserver"});
        let spec = json!({
            "containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": false,
        });
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "kube-apiserver"},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        })
    }

    /// Writes one number after the other, notes what was acknowledged, and is ready while that goes on.
    fn writer(&self) -> Value {
        let dir = self.place.world.store.join(&self.place.namespace);
        let script = format!(
            "[ -z \"$STUBBORN\" ] || trap '' TERM
             n=0; [ -e {dir}/acknowledged ] && n=$(cat {dir}/acknowledged)
             while :; do n=$((n+1))
             if etcdctl --endpoints {} --command-timeout 2s put /writer $n >/dev/null; then
               echo $n >{dir}/new && mv {dir}/new {dir}/acknowledged && touch /tmp/ready
             else rm -f /tmp/ready; n=$((n-1)); fi; sleep 0.2; done",
            self.endpoint(),
            dir = dir.display(),
        );
        let container = json!({
            "name": "main", "image": "repot", "command": ["/bin/sh", "-c", script],
            "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
            "volumeMounts": [{"name": "notes", "mountPath": dir}],
        });
        let volumes = json!([{"name": "notes", "hostPath": {"path": dir, "type": "DirectoryOrCreate"}}]);
        self.deployment(&container, &volumes)
    }

    /// With the keys and certificates of the garden itself, which are good for any API server of this machine.
    fn kube_apiserver(&self) -> Value {
        let pki = self.place.world.garden.pki();
        let file = |name: &str| pki.file(name).display().to_string();
        let flags = [
            ("etcd-servers", self.endpoint()),
            ("secure-port", "6443".to_owned()),
            ("advertise-address", "10.0.0.1".to_owned()),
            ("endpoint-reconciler-type", "none".to_owned()),
            ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
            ("tls-cert-file", file("apiserver.crt")),
            ("tls-private-key-file", file("apiserver.key")),
            ("client-ca-file", file("client-ca.crt")),
            ("authorization-mode", "RBAC".to_owned()),
            ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
            ("service-account-signing-key-file", file("service-account.key")),
            ("service-account-key-file", file("service-account.pub")),
        ];
        let flags: Vec<_> = flags.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        let dir = pki.file("apiserver.crt");
        let dir = dir.parent();
        let container = json!({
            "name": "main", "image": "kube-apiserver", "args": flags,
            "readinessProbe": {
                "httpGet": {"path": "/readyz", "port": 6443, "scheme": "HTTPS"}, "periodSeconds": 1, "timeoutSeconds": 5,
            },
            "volumeMounts": [{"name": "pki", "mountPath": dir, "readOnly": true}],
        });
        self.deployment(&container, &json!([{"name": "pki", "hostPath": {"path": dir}}]))
    }

    /// A migration to other settings.
    pub async fn migrate(&self, settings: Value) -> Result<()> {
        self.migrate_within(settings, "1m").await
    }

    /// The same with another time for each step.
    pub async fn migrate_within(&self, settings: Value, step_timeout: &str) -> Result<()> {
        let spec = json!({"clusterRef": {"name": "main"}, "settings": settings, "stepTimeout": step_timeout});
        self.place.apply(&[object("EtcdMigration", "m", spec)]).await
    }

    /// Stops the first member until the value is dropped: it is there, and does nothing.
    pub fn freeze(&self) -> Result<Frozen<'_>> {
        self.place.world.runner.freeze(&self.place.namespace, "main-0", "etcd")?;
        Ok(Frozen(&self.place))
    }

    /// Makes API servers that do not end when they are asked to, and waits until only those are left.
    pub async fn make_stubborn(&self) -> Result<()> {
        let container = json!({"name": "main", "env": [{"name": "STUBBORN", "value": "yes"}]});
        let template = json!({"spec": {"containers": [container], "terminationGracePeriodSeconds": 3600}});
        let patch = json!({"spec": {"template": template}}).to_string();
        self.place.kubectl(&["patch", "deployment", "kube-apiserver", "-p", &patch]).await?;
        self.place.kubectl(&["rollout", "status", "deployment/kube-apiserver", "--timeout=120s"]).await?;
        until("one API server", DEADLINE, async || {
            let pods = self.place.kubectl(&["get", "pods", "-l", "app=kube-apiserver", "-o", "name"]).await?;
            ensure!(pods.lines().count() == 1, "{pods}");
            Ok(())
        })
        .await
    }

    /// Waits until a step of the migration is in that state, and gives the migration.
    pub async fn step(&self, step: &str, state: &str) -> Result<Value> {
        let is = |object: &Value| {
            let steps = object["status"]["steps"].as_array();
            steps.is_some_and(|all| all.iter().any(|one| one["name"] == step && one["state"] == state))
        };
        self.place.until("etcdmigration", "m", &format!("{step} {state}"), is).await
    }
}
