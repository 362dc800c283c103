//! Two API servers on an etcd, chunks in an object store: no request of client-go fails while certificates, Pods and nodes are replaced.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::clientgo::ClientGo;
use repot_tests::etcd::EtcdCluster;
use repot_tests::install::{NAMESPACE, World};
use repot_tests::run;
use repot_tests::s3::S3Server;
use repot_tests::wait::until;
use serde_json::{Value, json};

use crate::shootstate::world::large;

const RELEASE: &str = "repot-garden";
const API: &str = "v1alpha1.core.gardener.cloud";
const DEADLINE: Duration = Duration::from_secs(180);
/// Where in the bucket chunks are.
const CHUNKS: &str = "chunks";
/// Bytes of a state that has chunks.
const LARGE: usize = 3 << 20;

/// Delays that are short but longer than kube-apiserver takes to see that a Pod ends.
const VALUES: [&str; 5] = [
    "--set=storage.type=etcd",
    "--set=apiserver.watchTerminationSeconds=2",
    "--set=apiserver.shutdownDelaySeconds=5",
    "--set=certificates.overlap=15s",
    "--set=certs.extraArgs={--allow-short-overlap}",
];

#[test]
fn no_request_fails_while_certificates_pods_and_nodes_are_replaced() {
    run(async |env| {
        let world = World::start(env, 3).await?;
        world.apply_gardener_kinds().await?;
        let etcd = EtcdCluster::start(env, 1).await?;
        let url = etcd.endpoints().first().context("no etcd")?.clone();
        let port: u16 = url.rsplit(':').next().context("no port")?.parse()?;
        let servers = format!("--set=storage.etcd.servers={{http://{}}}", world.runner.expose(port)?);
        let s3 = S3Server::start(env).await?;
        let chunks = chunk_store(&world, &s3).await?;
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        let values = [&VALUES[..], &[servers.as_str()], &chunks].concat();
        world.deploy("install", RELEASE, &values).await?;
        world.until_available(API).await?;
        let large = large("large", LARGE);
        let state = world.write("large.json", &large.to_string())?;
        world.kubectl(&["create", "-f", &state]).await?;
        ensure!(s3.files(CHUNKS).read_dir()?.next().is_some(), "no chunk is in the object store");
        let mut client = ClientGo::start(env, "follow", world.garden.kubeconfig(), &["--pause=20ms"])?;
        client.answer().await?;
        client.ask("write").await?;
        rotate_certificates(&world).await?;
        rotate_authorities(&world).await?;
        let more = [&values[..], &["--set=logLevel=debug"]].concat();
        world.deploy("upgrade", RELEASE, &more).await?;
        drain(&world).await?;
        // None of the writes has failed, or this says which.
        let written = client.ask("rest").await?;
        let count = written["written"].as_u64().unwrap_or(0);
        ensure!(count > 100 && written["unknown"] == 0, "{written}");
        client.ask("verify").await?;
        let get = ["get", "shootstates.core.gardener.cloud", "large", "-n", "default", "-o", "json"];
        let read: Value = serde_json::from_str(&world.kubectl(&get).await?)?;
        ensure!(read["spec"]["gardener"] == large["spec"]["gardener"], "the large state is another one");
        Ok(())
    });
}

/// Values for an object store, whose credentials become a Secret.
async fn chunk_store(world: &World<'_>, s3: &S3Server) -> Result<[String; 2]> {
    let mut data: BTreeMap<String, String> = s3.environment();
    let endpoint = format!("http://{}", world.runner.expose(s3.port())?);
    data.insert("AWS_ENDPOINT".to_owned(), endpoint);
    let metadata = json!({"name": "chunk-store", "namespace": NAMESPACE});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
    world.garden.apply(&[secret]).await?;
    Ok([
        format!("--set=chunkStore.url={}", s3.url(CHUNKS)),
        "--set=chunkStore.credentialsSecret=chunk-store".to_owned(),
    ])
}

/// A value of a Secret.
async fn value(world: &World<'_>, secret: &str, key: &str) -> Result<String> {
    let path = format!("jsonpath={{.data.{}}}", key.replace('.', "\\."));
    world.kubectl(&["get", "secret", secret, "-n", NAMESPACE, "-o", &path]).await
}

async fn ask_to_rotate(world: &World<'_>, what: &str) -> Result<()> {
    let annotation = format!("migration.gardener.cloud/rotate-{what}=once");
    world.kubectl(&["annotate", "secret", "repot-authorities", "-n", NAMESPACE, &annotation]).await.map(drop)
}

/// The certificate that a Pod shows to whoever connects.
async fn rotate_certificates(world: &World<'_>) -> Result<()> {
    let before = value(world, "repot-apiserver-tls", "tls.crt").await?;
    ask_to_rotate(world, "certificates").await?;
    until("another certificate", DEADLINE, async || {
        ensure!(value(world, "repot-apiserver-tls", "tls.crt").await? != before, "it is the same one");
        Ok(())
    })
    .await
}

/// From the request to the moment at which the old authority is trusted by nobody.
async fn rotate_authorities(world: &World<'_>) -> Result<()> {
    let first = value(world, "repot-authorities", "1.crt").await?;
    ensure!(!first.is_empty(), "there is no authority 1");
    ask_to_rotate(world, "authorities").await?;
    until("authority 1 to be gone", DEADLINE, async || {
        ensure!(!value(world, "repot-authorities", "2.crt").await?.is_empty(), "there is no authority 2 yet");
        ensure!(value(world, "repot-authorities", "1.crt").await?.is_empty(), "authority 1 is still there");
        let path = "jsonpath={.spec.caBundle}";
        let bundle = world.kubectl(&["get", "apiservice", API, "-o", path]).await?;
        ensure!(bundle != first, "the old authority is published");
        Ok(())
    })
    .await
}

/// Takes all Pods off the node of an API server, as for its maintenance.
async fn drain(world: &World<'_>) -> Result<()> {
    let selector = "app.kubernetes.io/name=repot-apiserver";
    let path = "jsonpath={.items[0].spec.nodeName}";
    let node = world.kubectl(&["get", "pods", "-n", NAMESPACE, "-l", selector, "-o", path]).await?;
    ensure!(!node.is_empty(), "no Pod of an API server");
    world
        .kubectl(&["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=150s"])
        .await?;
    let rollout = ["rollout", "status", "deployment/repot-apiserver", "-n", NAMESPACE, "--timeout=120s"];
    world.kubectl(&rollout).await.map(drop)
}
