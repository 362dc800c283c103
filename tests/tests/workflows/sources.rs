//! EtcdRestore from another store than that of the etcd.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use repot_etcd::snapshot::store::Store;
use repot_etcd_core::snapshot::Compression;
use repot_tests::s3::{BUCKET, S3Server};
use repot_tests::test_env::TestEnv;
use repot_tests::{encryption, run};
use serde_json::{Value, json};

use super::control_plane::{ControlPlaneFixture, Front};
use super::world::{TestNamespace, object};
use crate::etcd::world as elsewhere;

/// A Secret as etcd-backup-restore has it, for a store that Pods find at an address.
fn secret(name: &str, s3: &S3Server, at: SocketAddr, more: &[(&'static str, &str)]) -> Value {
    let mut data = s3.secret_data();
    data.insert("endpoint", format!("http://{at}"));
    data.extend(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
}

fn s3_store(prefix: &str, secret: &str) -> Value {
    json!({"provider": "S3", "container": BUCKET, "prefix": prefix, "secretRef": {"name": secret}})
}

/// Path and bytes of everything below a directory.
fn files(dir: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => drop(found.insert(path.clone(), std::fs::read(path)?)),
        }
    }
    Ok(found)
}

/// An etcd of somewhere else, with a full snapshot and a delta in an S3 store, sealed with these keys.
async fn another_etcd(env: &TestEnv, s3: &S3Server, prefix: &str, keys: &Value) -> Result<elsewhere::World> {
    let mut other = elsewhere::World::start(env).await?;
    let (file, mut environment) = (env.path().join("keys.yaml"), s3.environment());
    encryption::write_config(&file, &keys.to_string())?;
    environment.insert("STORE_ENCRYPTION_PROVIDER_CONFIG".to_owned(), file.display().to_string());
    other.store = Store::open(&s3.url(prefix), &environment)?;
    other.write("data", 300).await?;
    let full = other.full(false).await?;
    other.write("data/more", 100).await?;
    other.delta(full.name.last, Compression::Gzip).await?;
    Ok(other)
}

#[test]
fn etcd_is_restored_from_the_store_of_another_one() {
    run(async |env| {
        let fixture = ControlPlaneFixture::start("from-store", 1, Front::Writer).await?;
        let ns = &fixture.ns;
        let s3 = S3Server::start(env).await?;
        // The etcd here has no keys.
        let keys = encryption::config(&[&encryption::provider("aesgcm", "elsewhere")?]);
        let other = another_etcd(env, &s3, "elsewhere/main", &keys).await?;
        let before = files(&s3.files("elsewhere/main"))?;
        let at = ns.world.runner.expose(s3.relay.port())?;
        let opening = [("encryptionConfiguration", keys.to_string())];
        let opening = opening.each_ref().map(|(key, value)| (*key, value.as_str()));
        ns.apply(&[secret("elsewhere", &s3, at, &opening)]).await?;
        let source = json!({"store": s3_store("elsewhere/main", "elsewhere")});
        let spec = json!({"clusterRef": {"name": "main"}, "source": source, "stepTimeout": "1m"});
        ns.apply(&[object("EtcdRestore", "r", spec)]).await?;
        let ended = ns.ends("etcdrestore", "r", "Succeeded").await?;

        let (revision, keys) = elsewhere::dump(&other.client).await?;
        let wanted: Vec<_> = keys
            .into_iter()
            .filter(|(key, _)| key.starts_with(b"/data/"))
            .map(|(key, (value, created, modified, ..))| (key, value, created, modified))
            .collect();
        ensure!(wanted.len() > 390 && fixture.data().await? == wanted, "it is not what the other etcd holds");
        ensure!(ended["status"]["revision"] == revision.0, "{}", ended["status"]);
        // It was made a backup of this etcd, and the source was only read.
        let name = ended["status"]["backupName"].as_str().context("no name")?;
        let record: Value =
            serde_json::from_slice(&std::fs::read(ns.backups().join(name).join("backup.json"))?)?;
        ensure!(record["owner"] == ended["metadata"]["uid"] && record["state"] == "Stored", "{record}");
        ensure!(files(&s3.files("elsewhere/main"))? == before, "the source is not what it was");
        fixture.api_is_up().await
    });
}

/// What is asked for, and what is to be read of it.
struct Bad {
    name: &'static str,
    store: Value,
    reasons: &'static [&'static str],
    told: Vec<String>,
}

/// HostedEtcds of one etcd, so that all of them fail at the same time.
async fn ask_for(ns: &TestNamespace, bad: &[Bad]) -> Result<()> {
    let spec = ns.get("hostedetcd", "main").await?["spec"].clone();
    for Bad { name, store, .. } in bad {
        let restore = json!({"clusterRef": {"name": name}, "source": {"store": store}, "stepTimeout": "1m"});
        let hosted = object("HostedEtcd", name, spec.clone());
        ns.apply(&[hosted, object("EtcdRestore", name, restore)]).await?;
    }
    Ok(())
}

#[test]
#[ignore = "minutes, in make soak"]
fn store_that_cannot_be_restored_from_is_told_and_nothing_is_touched() {
    run(async |env| {
        let fixture = ControlPlaneFixture::start("bad-stores", 1, Front::Writer).await?;
        let ns = &fixture.ns;
        let before = fixture.data().await?;
        let uid = async |kind: &str, name: &str| -> Result<Value> {
            Ok(ns.get(kind, name).await?["metadata"]["uid"].clone())
        };
        let was = (uid("statefulset", "main").await?, uid("pod", "main-0").await?, fixture.claims().await?);
        let s3 = S3Server::start(env).await?;
        let at = ns.world.runner.expose(s3.relay.port())?;
        // Nobody listens there.
        let nowhere = ns.world.runner.expose(repot_tests::port::reserve()?)?;
        let wrong = secret("wrong", &s3, at, &[("secretAccessKey", "not-the-one")]);
        ns.apply(&[wrong, secret("away", &s3, nowhere, &[])]).await?;
        let empty = json!({"provider": "Local", "container": ns.world.store, "prefix": "bad-stores/none"});
        let taken: &[&str] = &["BackupFailed", "BackupRetried"];
        let told = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let bad = [
            Bad {
                name: "empty",
                store: empty,
                reasons: taken,
                told: told(&["bad-stores/none holds no full snapshot"]),
            },
            Bad {
                name: "away",
                store: s3_store("p/main", "away"),
                reasons: taken,
                told: told(&["failed to list", "s3://backups/p/main"]),
            },
            Bad {
                name: "wrong",
                store: s3_store("p/main", "wrong"),
                reasons: taken,
                told: told(&["s3://backups/p/main", "SignatureDoesNotMatch"]),
            },
            Bad {
                name: "no-secret",
                store: s3_store("p/main", "none"),
                reasons: &["SourceNotUsable"],
                told: told(&["Secret bad-stores/none", "is not there"]),
            },
            Bad {
                name: "of-the-node",
                store: on_node(),
                reasons: &["SourceNotUsable"],
                told: told(&["spec.source.store", "container \"/etc\""]),
            },
        ];
        ask_for(ns, &bad).await?;
        for Bad { name, reasons, told, .. } in &bad {
            let status = ns.ends("etcdrestore", name, "RolledBack").await?["status"].clone();
            println!("{name}: {} {}", status["reason"], status["message"]);
            ensure!(reasons.iter().any(|reason| status["reason"] == *reason), "{name}: {status}");
            let message = status["message"].as_str().unwrap_or_default();
            ensure!(told.iter().all(|word| message.contains(word)), "{name}: {status}");
            ensure!(!status.to_string().contains(s3.secret()), "{name} tells a secret");
            ensure!(status["apiDownSeconds"].is_null(), "{name}: {status}");
        }
        let is = (uid("statefulset", "main").await?, uid("pod", "main-0").await?, fixture.claims().await?);
        ensure!(was == is, "{is:?} is not {was:?}");
        fixture.holds(&before).await
    });
}

/// A store that the controllers and their Jobs may not open.
fn on_node() -> Value {
    json!({"provider": "Local", "container": "/etc", "prefix": "kubernetes"})
}

#[test]
fn backup_to_a_directory_that_is_not_allowed_fails_and_no_job_mounts_it() {
    run(async |_| {
        let ns = TestNamespace::make("unsafe-stores").await?;
        let spec = json!({
            "etcdRef": {"name": "main"}, "apiServerRef": {"name": "kube-apiserver"}, "backupStore": on_node(),
        });
        let etcd = json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": {"name": "main"},
            "spec": {"replicas": 1, "storageClass": "slow", "storageCapacity": "1Gi"},
        });
        ns.apply(&[etcd, object("HostedEtcd", "main", spec)]).await?;
        let ready = |hosted: &Value| hosted["status"]["readyReplicas"] == 1;
        ns.until("hostedetcd", "main", "a member", ready).await?;
        ns.apply(&[object("EtcdBackup", "b", json!({"clusterRef": {"name": "main"}}))]).await?;
        let status = ns.ends("etcdbackup", "b", "Failed").await?["status"].clone();
        let message = status["message"].as_str().unwrap_or_default();
        let told = message.contains("spec.backupStore") && message.contains("container \"/etc\"");
        ensure!(told, "{status}");
        let jobs = ns.kubectl(&["get", "jobs", "-o", "name"]).await?;
        ensure!(jobs.is_empty(), "{jobs}");
        Ok(())
    });
}
