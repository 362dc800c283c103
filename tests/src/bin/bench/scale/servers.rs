//! The servers: an etcd that syncs, an object store, a kube-apiserver to ask about users, and one Repot.

use std::path::PathBuf;

use anyhow::{Context, Result};
use repot_tests::TestEnv;
use repot_tests::access::Access;
use repot_tests::encryption::{config, provider, write_config};
use repot_tests::etcd::EtcdCluster;
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::repot::Repot;
use repot_tests::s3::S3Server;
use serde_json::{Value, json};

use super::Report;
use crate::proc;

/// Namespaces of the objects.
pub const SMALL: &str = "small";
pub const LARGE: &str = "large";
pub const TINY: &str = "tiny";
pub const WATCHED: &str = "watched";

/// Bytes that etcd may have: its own advice for the most.
const QUOTA: u64 = 8 << 30;

/// All servers. They end when it is dropped.
pub struct Servers {
    pub repot: Repot,
    garden: Garden,
    etcd: EtcdCluster,
    s3: S3Server,
}

impl Servers {
    pub async fn start(env: &TestEnv) -> Result<Self> {
        let options = repot_tests::etcd::EtcdOptions {
            flags: vec![format!("--quota-backend-bytes={QUOTA}")],
            ..Default::default()
        };
        let etcd = EtcdCluster::start_with(env, 1, options).await?;
        let (garden, s3) = (Garden::start(env).await?, S3Server::start(env).await?);
        let keys: PathBuf = env.make_dir("keys")?.join("encryption.yaml");
        write_config(&keys, &config(&[&provider("secretbox", "key")?]).to_string())?;
        let flags = [
            format!("--etcd-servers={}", etcd.endpoints().join(",")),
            format!("--encryption-provider-config={}", keys.display()),
            format!("--chunk-store={}", s3.url("chunks")),
        ];
        let repot = Repot::replica_with(env, &garden, &flags, &s3.environment()).await?;
        let servers = Self { repot, garden, etcd, s3 };
        for namespace in [SMALL, LARGE, TINY, WATCHED] {
            servers.make_namespace(namespace).await?;
        }
        Ok(servers)
    }

    async fn make_namespace(&self, name: &str) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        Api::new(self.garden.admin())?.post("/api/v1/namespaces", &namespace).await?.ok().map(drop)
    }

    /// A client with a connection of its own.
    pub fn api(&self) -> Result<Api> {
        let server = format!("https://127.0.0.1:{}", self.repot.port()?);
        Api::new(&Access { server, ..self.garden.admin().clone() })
    }

    /// Notes a moment, what was measured until then, and how large everything is.
    pub async fn row(&mut self, report: &mut Report, moment: &str, measured: Value) -> Result<()> {
        let repot = self.repot.process().pid();
        let memory = proc::memory(repot)?;
        let etcd = self.etcd.member(0).process().pid();
        let status = self.etcd.etcdctl(&["endpoint", "status", "--write-out=json"]).await?.json()?;
        let database = status[0]["Status"]["dbSize"].as_u64().context("etcd tells no size")?;
        let mut row = json!({
            "moment": moment, "repotMiB": memory.now.round(), "repotPeakMiB": memory.peak.round(),
            "repotCpuSeconds": proc::cpu_seconds(repot).round(), "etcdMiB": proc::memory(etcd)?.now.round(),
            "etcdDatabaseMiB": database >> 20, "objectStoreMiB": proc::disk_bytes(&self.s3.files("chunks")) >> 20,
        });
        if let (Some(row), Value::Object(measured)) = (row.as_object_mut(), measured) {
            row.extend(measured);
        }
        report.rows.push(row);
        proc::forget_peak(repot)
    }
}

/// Path of the ShootStates of a namespace.
pub fn collection(namespace: &str) -> String {
    format!("/apis/core.gardener.cloud/v1alpha1/namespaces/{namespace}/shootstates")
}

/// Path of all ShootStates.
pub const ALL: &str = "/apis/core.gardener.cloud/v1alpha1/shootstates";
