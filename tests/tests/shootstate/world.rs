//! The places in which a scenario is played.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use repot_tests::TestEnv;
use repot_tests::access::{Access, Credential};
use repot_tests::etcd::{EtcdCluster, EtcdOptions};
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::kubectl::Kubectl;
use repot_tests::repot::{Dev, Repot, write_encryption_config};
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

pub const GROUP: &str = "core.gardener.cloud";
pub const VERSION: &str = "v1alpha1";
pub const TWELVE_MIB: usize = 12 << 20;

/// No request to etcd may be larger than this; etcd itself refuses what is.
const ONE_MIB: &str = "1048576";
const EVENT_DEADLINE: Duration = Duration::from_secs(60);
/// kube-apiserver looks for changed OpenAPI documents every minute.
const PUBLISHED_DEADLINE: Duration = Duration::from_secs(150);

/// A ShootState API with a user who may do everything.
pub struct World {
    pub api: Api,
    pub kubectl: Kubectl,
    /// The etcd in which objects rest, where they rest in one.
    pub etcd: Option<EtcdCluster>,
    /// The server under test.
    pub server: Server,
    /// In front of the server, where anything is.
    pub garden: Option<Garden>,
}

pub enum Server {
    Dev(Dev),
    Behind(Repot),
}

impl World {
    /// A world of `repot dev` alone.
    pub async fn dev(env: &TestEnv) -> Result<Self> {
        Self::dev_with(env, Vec::new()).await
    }

    /// The same with further flags.
    pub async fn dev_with(env: &TestEnv, flags: Vec<String>) -> Result<Self> {
        let dev = Dev::start(env, flags).await?;
        let (api, kubectl) = (dev.api()?, dev.kubectl(env)?);
        Ok(Self { api, kubectl, etcd: None, server: Server::Dev(dev), garden: None })
    }

    /// A real kube-apiserver in front of an embedded store.
    pub async fn garden(env: &TestEnv) -> Result<Self> {
        Self::garden_with(env, Vec::new()).await
    }

    /// The same with further flags for the server.
    pub async fn garden_with(env: &TestEnv, mut flags: Vec<String>) -> Result<Self> {
        flags.push(format!("--storage=embedded:{}", env.make_dir("store")?.display()));
        Self::behind(env, None, flags).await
    }

    /// A real kube-apiserver in front, three members of etcd behind. The members refuse requests above one MiB.
    pub async fn garden_on_etcd(env: &TestEnv) -> Result<Self> {
        let flags = vec![format!("--max-request-bytes={ONE_MIB}")];
        let options = EtcdOptions { name: "states".into(), flags, ..EtcdOptions::default() };
        let etcd = EtcdCluster::start_with(env, 3, options).await?;
        let servers = format!("--etcd-servers={}", etcd.endpoints().join(","));
        Self::behind(env, Some(etcd), vec![servers]).await
    }

    /// A real kube-apiserver in front, and whatever answers as etcd at this address behind.
    pub async fn garden_on_endpoint(env: &TestEnv, endpoint: &str) -> Result<Self> {
        Self::behind(env, None, vec![format!("--etcd-servers={endpoint}")]).await
    }

    async fn behind(env: &TestEnv, etcd: Option<EtcdCluster>, mut flags: Vec<String>) -> Result<Self> {
        let garden = Garden::start(env).await?;
        let keys = write_encryption_config(env.path())?;
        flags.push(format!("--encryption-provider-config={}", keys.display()));
        let repot = Repot::behind(env, &garden, &[(GROUP, VERSION)], flags).await?;
        let (api, kubectl) = (garden.api().clone(), garden.kubectl_tool().clone());
        Ok(Self { api, kubectl, etcd, server: Server::Behind(repot), garden: Some(garden) })
    }

    /// Waits until kube-apiserver has published the OpenAPI document of this server, for its clients such as kubectl: until then
    /// kubectl validates by itself, and refuses a part of an object, and a `state` that is no object.
    pub async fn until_published(&self) -> Result<()> {
        let group = format!("apis/{GROUP}/{VERSION}");
        until("kube-apiserver to publish the OpenAPI document", PUBLISHED_DEADLINE, async || {
            let index = self.api.get("/openapi/v3").await?.ok()?;
            ensure!(index["paths"].get(&group).is_some(), "{group} is not listed");
            Ok(())
        })
        .await
    }

    /// The server itself, not through the kube-apiserver, with a credential of the garden's.
    pub fn directly(&mut self, credential: Credential) -> Result<Access> {
        let server = self.repot().url().replace("127.0.0.1", "localhost");
        let garden = self.garden.as_ref().context("a garden")?;
        Ok(Access { server, ca_pem: garden.pki().serving.pem(), credential })
    }

    /// The same as somebody who may do everything.
    pub fn as_master(&mut self) -> Result<Access> {
        let garden = self.garden.as_ref().context("a garden")?;
        let leaf = garden.pki().client.client("admin", &["system:masters"])?;
        self.directly(Credential::Certificate(leaf))
    }

    pub fn repot(&mut self) -> &mut Repot {
        match &mut self.server {
            Server::Dev(dev) => dev.repot(),
            Server::Behind(repot) => repot,
        }
    }

    /// Creates through HTTP; the answer has to be 201.
    pub async fn create(&self, object: &Value) -> Result<Value> {
        let answer = self.api.post(&collection("default"), object).await?;
        if answer.status != 201 {
            bail!("{answer}")
        }
        answer.json()
    }

    /// The lines of a watch that begins after `version`.
    pub async fn watch(&self, version: &str) -> Result<Watch> {
        let path = format!("{}?watch=true&resourceVersion={version}", collection("default"));
        let response = self.api.request(Method::GET, &path).send().await?;
        if response.status() != 200 {
            bail!("the watch answered {}", response.status())
        }
        Ok(Watch::new(response))
    }
}

/// A watch as a client reads it.
pub struct Watch {
    response: reqwest::Response,
    read: BytesMut,
}

impl Watch {
    /// What answers with a watch.
    pub fn new(response: reqwest::Response) -> Self {
        Self { response, read: BytesMut::new() }
    }

    /// Everything up to a clean end.
    pub async fn rest(&mut self) -> Result<Vec<u8>> {
        let read = async {
            while let Some(chunk) = self.response.chunk().await? {
                self.read.extend_from_slice(&chunk);
            }
            Ok(std::mem::take(&mut self.read).to_vec())
        };
        timeout(EVENT_DEADLINE, read).await.context("the watch did not end")?
    }

    /// Waits for the next event of the watch.
    pub async fn next(&mut self) -> Result<Value> {
        self.next_within(EVENT_DEADLINE).await
    }

    /// The next event, for which longer is waited.
    pub async fn next_within(&mut self, deadline: Duration) -> Result<Value> {
        timeout(deadline, self.line()).await.context("no event came")?
    }

    async fn line(&mut self) -> Result<Value> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.read[searched..].iter().position(|b| *b == b'\n') {
                let line = self.read.split_to(searched + end + 1);
                return Ok(serde_json::from_slice(&line)?);
            }
            searched = self.read.len();
            let chunk = self.response.chunk().await?.context("the watch ended")?;
            self.read.extend_from_slice(&chunk);
        }
    }
}

pub fn collection(namespace: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/shootstates")
}

pub fn path(name: &str) -> String {
    format!("{}/{name}", collection("default"))
}

/// A small ShootState with one opaque value.
pub fn small(name: &str, state: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "ShootState",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "gardener": [{"name": "ca", "type": "secret", "labels": {"persist": "true"}, "data": {"data": {"ca.key": "c2VjcmV0"}}}],
            "extensions": [{"kind": "Worker", "name": "w", "state": state}],
        },
    })
}

/// A ShootState of about so many bytes: machines as plain JSON, and secrets that no codec shortens much.
pub fn large(name: &str, bytes: usize) -> Value {
    let machine = |n: usize| json!({"name": format!("machine-{n}"), "providerID": super::kills::noise(64), "labels": {"node": format!("node-{n}")}});
    let machines: Vec<Value> = (0..bytes / 2 / 160).map(machine).collect();
    let mut object = small(name, &json!({"machines": machines}));
    let secret = |n: usize| {
        let data = json!({"data": {"tls.key": super::kills::noise(bytes / 16)}});
        json!({"name": format!("secret-{n}"), "type": "secret", "data": data})
    };
    object["spec"]["gardener"] = (0..8).map(secret).collect();
    object
}
