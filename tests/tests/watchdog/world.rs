//! A seed, the owner record of one control plane, and a watchdog proxy between a controller and the seed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_extension::crds;
use repot_tests::access::Access;
use repot_tests::dns::{DnsServer, TTL, ZONE};
use repot_tests::garden::Garden;
use repot_tests::http::{Answer, Api};
use repot_tests::kubectl::Kubectl;
use repot_tests::repot::Repot;
use repot_tests::wait::until;
use repot_tests::{Shared, SharedRef, TestEnv, port, start_shared};
use serde_json::{Value, json};
use tokio::time::Instant;

pub const DEADLINE: Duration = Duration::from_secs(60);
/// Seconds, as the proxies of these tests have them.
pub const INTERVAL: u64 = 1;
pub const TIMEOUT: u64 = 2;
pub const MAX_AGE: u64 = 6;
/// From a change of the record to refusals, as the documentation has it, and time for this machine, which does other things too.
pub const BOUND: Duration = Duration::from_secs(INTERVAL + TIMEOUT + 2);
pub const OLD: &str = "seed-a/1";
pub const OTHER: &str = "seed-b/2";
pub const AGAIN: &str = "seed-a/3";

static SEED: Shared<Garden> = Shared::new(|env| start_shared(start_seed(env)));

/// A seed that tests share: each has a Namespace of its own.
pub fn shared_seed() -> Result<SharedRef<Garden>> {
    SEED.value()
}

/// A kube-apiserver with Etcds, extension kinds, the DNSOwner of dns-external, and ShootStates for `clientgo`.
pub async fn start_seed(env: &TestEnv) -> Result<Garden> {
    let seed = Garden::start(env).await?;
    let etcds = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds/etcds.yaml");
    seed.kubectl(["apply", "--server-side", "-f", etcds]).await?.text()?;
    seed.apply(&crds::definitions()).await?;
    seed.apply(&[
        open_crd("dns.gardener.cloud", "dnsowners", "DNSOwner", "Cluster"),
        open_crd("core.gardener.cloud", "shootstates", "ShootState", "Namespaced"),
    ])
    .await?;
    seed.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?.text()?;
    until("the watch cache of ShootStates", DEADLINE, async || watch_list(&seed).await).await?;
    Ok(seed)
}

/// A kube-apiserver that has just begun to serve a kind lists it from etcd, and its watch cache begins later than that list:
/// a watch from the version of the list is too old. A watch list is answered as soon as the cache is there.
async fn watch_list(seed: &Garden) -> Result<()> {
    let path = "/apis/core.gardener.cloud/v1alpha1/shootstates?watch=true&allowWatchBookmarks=true\
                &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
    let answer = seed.api().get(path).await?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(())
}

fn open_crd(group: &str, plural: &str, kind: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// One control plane and the proxy of one controller.
pub struct World {
    pub dns: DnsServer,
    pub namespace: String,
    /// The seed without the proxy, as an administrator.
    pub direct: Api,
    /// The seed through the proxy.
    pub api: Api,
    pub kubectl: Kubectl,
    pub proxy: Repot,
    pub dir: PathBuf,
    health: u16,
}

impl World {
    /// The owner record names this seed, the Etcd has the same ID, and the proxy is ready.
    pub async fn make(env: &TestEnv, seed: &Garden, namespace: &str, flags: &[&str]) -> Result<Self> {
        let dns = DnsServer::start(env).await?;
        dns.set("owner", &[OLD]).await?;
        seed.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})])
            .await?;
        let direct = seed.api().clone();
        set_owner_id(seed, &dns, namespace, OLD).await?;
        let (dir, health) = (env.make_dir("watchdog")?, port::reserve()?);
        let own = [
            format!("--kubeconfig={}", seed.kubeconfig().display()),
            format!("--dir={}", dir.display()),
            "--listen=127.0.0.1:0".to_owned(),
            format!("--health-address=127.0.0.1:{health}"),
            format!("--check-interval={INTERVAL}s"),
            format!("--check-timeout={TIMEOUT}s"),
            format!("--max-age={MAX_AGE}s"),
        ];
        let flags = own.into_iter().chain(flags.iter().map(|&flag| flag.to_owned()));
        let proxy = Repot::start(env, "watchdog-proxy", flags).await?;
        let kubeconfig = dir.join("kubeconfig");
        let api = Api::from_kubeconfig(&kubeconfig)?;
        let kubectl = Kubectl::new(env, kubeconfig)?;
        Ok(Self { dns, namespace: namespace.to_owned(), direct, api, kubectl, proxy, dir, health })
    }

    /// How the controller reaches the proxy.
    pub fn access(&self) -> Result<Access> {
        Access::read(&self.dir.join("kubeconfig"))
    }

    /// The owner record names somebody else from now on.
    pub async fn lose(&self) -> Result<Instant> {
        let begun = Instant::now();
        self.dns.set("owner", &[OTHER]).await?;
        Ok(begun)
    }

    /// The owner record and the Etcd have the next ID of this seed.
    pub async fn regain(&self, seed: &Garden) -> Result<()> {
        self.dns.set("owner", &[AGAIN]).await?;
        set_owner_id(seed, &self.dns, &self.namespace, AGAIN).await
    }

    pub fn config_maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }

    /// Creates a ConfigMap through the proxy.
    pub async fn write(&self, name: &str) -> Result<Answer> {
        self.api.post(&self.config_maps(), &json!({"metadata": {"name": name}})).await
    }

    async fn probe(&self) -> Result<Answer> {
        self.api.post(&self.config_maps(), &json!({"metadata": {"generateName": "probe-"}})).await
    }

    /// Writes until a write is refused with these words.
    pub async fn until_refused(&self, words: &str) -> Result<Answer> {
        until("a write that is refused", DEADLINE, async || {
            let answer = self.probe().await?;
            ensure!(answer.status == 503, "{answer}");
            ensure!(answer.to_string().contains(words), "{answer}");
            Ok(answer)
        })
        .await
    }

    /// Writes until a write passes.
    pub async fn until_written(&self) -> Result<()> {
        until("a write that passes", DEADLINE, async || self.probe().await?.ok().map(drop)).await
    }

    /// Whether a ConfigMap exists, as the seed itself says.
    pub async fn exists(&self, name: &str) -> Result<bool> {
        let answer = self.direct.get(&format!("{}/{name}", self.config_maps())).await?;
        ensure!([200, 404].contains(&answer.status), "{answer}");
        Ok(answer.status == 200)
    }

    /// What the proxy says on its health port.
    pub async fn health(&self, path: &str) -> Result<(u16, String)> {
        let answer = reqwest::get(format!("http://127.0.0.1:{}{path}", self.health)).await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// Value of a sample of the proxy's metrics.
    pub async fn metric(&self, sample: &str) -> Result<f64> {
        let (_, text) = self.health("/metrics").await?;
        let line =
            text.lines().find_map(|line| line.strip_prefix(sample)).context("there is no such sample")?;
        Ok(line.trim().parse()?)
    }
}

async fn set_owner_id(seed: &Garden, dns: &DnsServer, namespace: &str, id: &str) -> Result<()> {
    let check = json!({
        "name": format!("owner.{ZONE}"), "id": id, "servers": [dns.address()], "dnsCacheTTL": format!("{TTL}s"),
    });
    let etcd = json!({
        "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd",
        "metadata": {"name": "etcd-main", "namespace": namespace},
        "spec": {
            "replicas": 1,
            "backup": {"ownerCheck": check, "store": {"provider": "S3", "container": "b", "prefix": "p"}},
        },
    });
    seed.apply(&[etcd]).await
}

/// An extension object with an operation annotation, and perhaps a last operation.
pub async fn apply_extension(
    seed: &Garden,
    (kind, namespace, name): (&str, &str, &str),
    operation: &str,
    spec: Value,
) -> Result<()> {
    seed.apply(&[json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": kind, "spec": spec,
        "metadata": {
            "name": name, "namespace": namespace, "annotations": {"gardener.cloud/operation": operation},
        },
    })])
    .await
}
