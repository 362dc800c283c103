//! A hosted control plane: an Etcd, API servers in front of it, and the HostedEtcd that stands for both.

use anyhow::{Context, Result, ensure};
use etcd_client::{Client, GetOptions};
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::{DEADLINE, Place, object};

/// How many keys of a thousand bytes make up what an etcd holds.
pub const KEYS: usize = 5_000;

/// What stands before the etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// A real kube-apiserver.
    KubeApiserver,
    /// A shell that writes: cheaper, and it counts what was acknowledged.
    Writer,
}

/// An etcd with its operator, workflows and API servers.
pub struct Plant {
    pub place: Place,
    pub members: u32,
}

impl Plant {
    /// Starts one, with [`KEYS`] keys in it.
    pub async fn start(namespace: &str, members: u32, front: Front) -> Result<Self> {
        let plant = Self::start_empty(namespace, members).await?;
        plant.fill(KEYS).await?;
        let deployment = match front {
            Front::KubeApiserver => plant.kube_apiserver(),
            Front::Writer => plant.writer(),
        };
        plant.place.apply(&[deployment]).await?;
        plant.api_is_up().await?;
        Ok(plant)
    }

    async fn start_empty(namespace: &str, members: u32) -> Result<Self> {
        let place = Place::make(namespace).await?;
        let store = json!({
            "provider": "Local", "container": place.world.store, "prefix": format!("{namespace}/main"),
        });
        let etcd = json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": {"name": "main"},
            "spec": {
                "replicas": members, "storageClass": "slow", "storageCapacity": "1Gi", "volumeClaimTemplate": "data",
                "etcd": {}, "backup": {"store": store},
            },
        });
        let spec = json!({
            "etcdRef": {"name": "main"}, "apiServerRef": {"name": "kube-apiserver"}, "backupStore": place.backup_store(),
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

    /// Writes so many keys of a thousand bytes.
    pub async fn fill(&self, keys: usize) -> Result<()> {
        let mut kv = self.client().await?.kv_client();
        for at in 0..keys {
            kv.put(format!("/data/{at:05}"), vec![u8::try_from(at % 251)?; 1000], None).await?;
        }
        Ok(())
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
            "n=0; [ -e {dir}/acknowledged ] && n=$(cat {dir}/acknowledged)
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

    /// Waits until a step of the migration is in that state, and gives the migration.
    pub async fn step(&self, step: &str, state: &str) -> Result<Value> {
        let is = |object: &Value| {
            let steps = object["status"]["steps"].as_array();
            steps.is_some_and(|all| all.iter().any(|one| one["name"] == step && one["state"] == state))
        };
        self.place.until("etcdmigration", "m", &format!("{step} {state}"), is).await
    }
}
