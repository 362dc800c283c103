//! From the version before the Helm charts to this one by `helm upgrade`, and back by `helm rollback`.
//!
//! The earlier program has no `repot certs`, so certificates and the encryption key are made here, as operators had to make them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_tests::TestEnv;
use repot_tests::clientgo::ClientGo;
use repot_tests::etcd::EtcdCluster;
use repot_tests::install::{NAMESPACE, World};
use repot_tests::pki::{Ca, random_bytes};
use repot_tests::wait::until;
use repot_tests::{oci, repot, run};
use serde_json::{Value, json};

const RELEASE: &str = "repot-garden";
const API: &str = "v1alpha1.core.gardener.cloud";
const SHOOTSTATES: &str = "/apis/core.gardener.cloud/v1alpha1/namespaces/default/shootstates";
/// Tags of the image of both versions.
const PREVIOUS: &str = "previous";
const PRESENT: &str = "0.1.0";
/// From a value in the record to many chunks.
const SIZES: [usize; 4] = [100, 60_000, 3 << 20, 12 << 20];
const DEADLINE: Duration = Duration::from_secs(120);

#[test]
#[ignore = "needs the program of an earlier commit: make soak"]
fn replicas_on_etcd_are_upgraded_and_rolled_back_without_a_failed_request() {
    run(async |env| {
        let world = World::start(env, 3).await?;
        let etcd = EtcdCluster::start(env, 1).await?;
        let url = etcd.endpoints().first().context("no etcd")?.clone();
        let port: u16 = url.rsplit(':').next().context("no port")?.parse()?;
        let servers = format!("--set=storage.etcd.servers={{http://{}}}", world.runner.expose(port)?);
        let mut values = prepare(env, &world).await?;
        values
            .extend(["--set=storage.type=etcd", "--set=apiserver.shutdownDelaySeconds=5"].map(str::to_owned));
        values.push(servers);
        move_there_and_back(env, &world, &values, &["--pause=20ms"]).await
    });
}

#[test]
#[ignore = "needs the program of an earlier commit: make soak"]
fn embedded_store_is_opened_by_this_version_and_again_by_the_earlier_one() {
    run(async |env| {
        let world = World::start(env, 2).await?;
        let mut values = prepare(env, &world).await?;
        let more = ["--set=storage.embedded.size=1Gi", "--set=storage.embedded.storageClassName=standard"];
        values.extend(more.map(str::to_owned));
        // One process has the volume, so requests fail between the two. What was acknowledged stays.
        move_there_and_back(env, &world, &values, &["--pause=20ms", "--disturbed"]).await
    });
}

/// Installs the earlier version, upgrades and rolls back under the load of client-go. Both versions read what the other one wrote.
async fn move_there_and_back(
    env: &TestEnv,
    world: &World<'_>,
    values: &[String],
    load: &[&str],
) -> Result<()> {
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let with = |tag: &'static str| [&values[..], &[tag]].concat();
    world.deploy("install", RELEASE, &with("--set=image.tag=previous")).await?;
    world.until_available(API).await?;
    let mut expected = write_states(world, "earlier").await?;
    let mut client = ClientGo::start(env, "follow", world.garden.kubeconfig(), load)?;
    client.answer().await?;
    client.ask("write").await?;
    world.deploy("upgrade", RELEASE, &with("--set=image.tag=0.1.0")).await?;
    expect_version(world, PRESENT).await?;
    expect_states(world, &expected).await?;
    expected.extend(write_states(world, "present").await?);
    world.helm(&["rollback", RELEASE, "1", "--wait", "--timeout=180s"]).await?;
    expect_version(world, PREVIOUS).await?;
    expect_states(world, &expected).await?;
    change(world, &expected).await?;
    let written = client.ask("rest").await?;
    println!("{written}");
    ensure!(written["written"].as_u64().unwrap_or(0) > 100, "{written}");
    // Caches equal a LIST, and each acknowledged write was told by an event.
    let verified = client.ask("verify").await?;
    println!("{verified}");
    Ok(())
}

/// What the earlier program needs and cannot make; values that say so.
async fn prepare(env: &TestEnv, world: &World<'_>) -> Result<Vec<String>> {
    world.apply_gardener_kinds().await?;
    let root = env.make_dir("image-previous")?.join("root");
    let image = oci::around(&[repot::previous_program()?], &root).await?;
    world.runner.images().add(&format!("repot:{PREVIOUS}"), image);
    let ca = Ca::new("upgrade")?;
    let key = STANDARD.encode(random_bytes::<32>()?);
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["*.*"], "providers": [{"secretbox": {"keys": [{"name": "one", "secret": key}]}}]}],
    });
    let metadata = |name: &str| json!({"name": name, "namespace": NAMESPACE});
    let mut secrets = vec![json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata("repot-encryption"),
        "stringData": {"encryption-config.yaml": config.to_string()},
    })];
    for service in ["repot-apiserver", "repot-webhook"] {
        let leaf = ca.server(&[&format!("{service}.{NAMESPACE}.svc")])?;
        secrets.push(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata(service),
            "stringData": {"tls.crt": leaf.cert_pem, "tls.key": leaf.key_pem},
        }));
    }
    world.garden.apply(&secrets).await?;
    let bundle = ca.write(env.path(), "upgrade-ca")?;
    let values = [
        "--set=certificates.issuer=existing",
        "--set=certificates.existing.apiserverSecret=repot-apiserver",
        "--set=certificates.existing.webhookSecret=repot-webhook",
        "--set=encryption.generate=false",
        "--set=apiserver.watchTerminationSeconds=2",
    ];
    let mut values: Vec<String> = values.map(str::to_owned).into();
    values.push(format!("--set-file=certificates.existing.caBundle={}", bundle.display()));
    Ok(values)
}

/// Creates one ShootState of each size; gives what the server made of them.
async fn write_states(world: &World<'_>, writer: &str) -> Result<Vec<Value>> {
    let mut created = Vec::new();
    for size in SIZES {
        let mut payload = vec![0; size / 4 * 3];
        aws_lc_rs::rand::fill(&mut payload)?;
        let object = json!({
            "apiVersion": "core.gardener.cloud/v1alpha1", "kind": "ShootState",
            "metadata": {"name": format!("{writer}-{size}"), "namespace": "default"},
            "spec": {"gardener": [{"name": "a", "type": "secret", "data": {"k": STANDARD.encode(payload)}}]},
        });
        created.push(world.garden.api().post(SHOOTSTATES, &object).await?.ok()?);
    }
    Ok(created)
}

/// Every Pod of Repot runs that version, and none other is left.
async fn expect_version(world: &World<'_>, tag: &str) -> Result<()> {
    until("Pods of one version alone", DEADLINE, async || {
        let path = "jsonpath={.items[*].spec.containers[*].image}";
        let images = world.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", path]).await?;
        let image = format!("repot:{tag}");
        ensure!(images.split_whitespace().count() >= 5, "{images}");
        ensure!(images.split_whitespace().all(|found| found == image), "{images}");
        Ok(())
    })
    .await
}

/// All of it is as the server said when it was written: metadata, too.
async fn expect_states(world: &World<'_>, expected: &[Value]) -> Result<()> {
    world.until_available(API).await?;
    for object in expected {
        let name = object["metadata"]["name"].as_str().context("no name")?;
        let found = world.garden.api().get(&format!("{SHOOTSTATES}/{name}")).await?.ok()?;
        ensure!(found == *object, "{name} is not what was written");
    }
    Ok(())
}

/// Updates each, whoever wrote it.
async fn change(world: &World<'_>, expected: &[Value]) -> Result<()> {
    for object in expected {
        let name = object["metadata"]["name"].as_str().context("no name")?;
        let mut object = object.clone();
        object["metadata"]["labels"] = json!({"changed": "yes"});
        let path = format!("{SHOOTSTATES}/{name}");
        let changed = world.garden.api().put(&path, &object).await?.ok()?;
        let found = world.garden.api().get(&path).await?.ok()?;
        ensure!(
            found == changed && found["metadata"]["labels"]["changed"] == "yes",
            "{name} was not changed"
        );
    }
    Ok(())
}
