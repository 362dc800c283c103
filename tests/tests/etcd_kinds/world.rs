//! Where the kinds are served, and what objects of them look like.

use anyhow::{Result, ensure};
use repot_tests::TestEnv;
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::kubectl::Kubectl;
use repot_tests::repot::{Dev, Repot, write_encryption_config};
use serde_json::{Value, json};

pub const GROUP: &str = "migration.gardener.cloud";
pub const CORE: &str = "core.gardener.cloud";
pub const VERSION: &str = "v1alpha1";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const JSON_PATCH: &str = "application/json-patch+json";

/// An API with a user who may do everything. What runs ends with it.
pub struct World {
    pub api: Api,
    pub kubectl: Kubectl,
    pub garden: Option<Garden>,
    _server: Server,
}

enum Server {
    Dev { _dev: Dev },
    Behind { _repot: Repot },
}

impl World {
    /// A world of `repot dev` alone.
    pub async fn dev(env: &TestEnv) -> Result<Self> {
        let dev = Dev::start(env, [""; 0]).await?;
        let (api, kubectl) = (dev.api()?, dev.kubectl(env)?);
        Ok(Self { api, kubectl, garden: None, _server: Server::Dev { _dev: dev } })
    }

    /// All kinds behind a real kube-apiserver.
    pub async fn garden(env: &TestEnv) -> Result<Self> {
        let garden = Garden::start(env).await?;
        let flags = [flags(env)?, vec!["--serve=all".to_owned()]].concat();
        let repot = Repot::behind(env, &garden, &[(CORE, VERSION), (GROUP, VERSION)], flags).await?;
        let (api, kubectl) = (garden.api().clone(), garden.kubectl_tool().clone());
        Ok(Self { api, kubectl, garden: Some(garden), _server: Server::Behind { _repot: repot } })
    }

    /// Creates an object; the answer has to be 201.
    pub async fn create(&self, resource: &str, object: &Value) -> Result<Value> {
        let answer = self.api.post(&collection(resource), object).await?;
        ensure!(answer.status == 201, "{answer}");
        answer.json()
    }
}

/// Flags for an embedded store of its own.
pub fn flags(env: &TestEnv) -> Result<Vec<String>> {
    let keys = write_encryption_config(&env.make_dir("keys")?)?;
    let store = env.make_dir("store")?;
    Ok(vec![
        format!("--storage=embedded:{}", store.display()),
        format!("--encryption-provider-config={}", keys.display()),
    ])
}

pub fn collection(resource: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/default/{resource}")
}

pub fn path(resource: &str, name: &str) -> String {
    format!("{}/{name}", collection(resource))
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

pub fn hosted_etcd(name: &str) -> Value {
    object(
        "HostedEtcd",
        name,
        json!({"etcdRef": {"name": "main"}, "apiServerRef": {"name": "kube-apiserver"}}),
    )
}

pub fn backup(name: &str, cluster: &str) -> Value {
    object("EtcdBackup", name, json!({"clusterRef": {"name": cluster}}))
}

pub fn scheduled_backup(name: &str, cluster: &str) -> Value {
    let spec = json!({"clusterRef": {"name": cluster}, "schedule": "0 * * * *", "retention": {"limit": 7}});
    object("EtcdBackup", name, spec)
}

pub fn restore(name: &str, cluster: &str) -> Value {
    object("EtcdRestore", name, json!({"clusterRef": {"name": cluster}, "source": {"backupName": "b-1"}}))
}

pub fn migration(name: &str, cluster: &str) -> Value {
    let settings = json!({"storageClassName": "fast", "size": "25Gi", "replicas": 3});
    object("EtcdMigration", name, json!({"clusterRef": {"name": cluster}, "settings": settings}))
}

pub fn control_plane_migration(name: &str) -> Value {
    let spec =
        json!({"shootRef": {"name": "crazy-botany"}, "sourceSeed": "seed-a", "destinationSeed": "seed-b"});
    object("ControlPlaneMigration", name, spec)
}

/// An isolation of a zone that nobody works on.
pub fn zone_isolation(name: &str) -> Value {
    let spec = json!({"shootRef": {"name": "crazy-botany"}, "isolatedZoneID": "euc1-az1"});
    object("ZoneIsolation", name, spec)
}

/// A condition as controllers write it.
pub fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "",
        "lastTransitionTime": "2026-05-01T06:30:00Z", "observedGeneration": 1,
    })
}
