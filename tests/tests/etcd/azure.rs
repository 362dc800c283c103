//! Snapshots in an object store of Azure.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use repot_etcd::snapshot::store::{Environment, Mode, Store};
use repot_etcd_core::snapshot::{Compression, Kind, Revision, SnapshotName};
use repot_tests::azure::AzureServer;
use repot_tests::test_env::TestEnv;
use repot_tests::{run, tool};

use super::world::{self, Revived, World, command, dump, restore, url};

fn open(azure: &AzureServer, prefix: &str) -> Result<Store> {
    let mut environment: Environment = azure.environment();
    environment.insert("STORE_PATIENCE_SECONDS".to_owned(), "30".to_owned());
    Ok(Store::open(&azure.url(prefix), &environment)?)
}

async fn put(store: &Store, name: &SnapshotName, piece: Bytes) -> Result<()> {
    let integrity = world::put(store, name, piece, Mode::Create).await?;
    Ok(store.record(name, store.form(), &integrity).await?)
}

/// In one request and in several parts: there whole, not written over, and deleted.
async fn objects_come_and_go(store: &Store) -> Result<()> {
    for (last, bytes) in [(5, 1000), (6, 20 << 20)] {
        let name = SnapshotName {
            kind: Kind::Full,
            start: Revision(0),
            last: Revision(last),
            created: 1_700_000_000,
            compression: Compression::None,
            is_final: false,
        };
        let piece: Bytes = (0..bytes).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect();
        put(store, &name, piece.clone()).await?;
        let other = Bytes::from(vec![7; piece.len()]);
        let refused = put(store, &name, other).await.err().context("it was written over")?;
        ensure!(refused.to_string().contains("exists already"), "{refused:#}");
        let found = store.list().await?;
        let one = found.iter().find(|one| one.name == name).context("it is not listed")?;
        ensure!(one.bytes == piece.len() as u64 && one.recorded, "{one:?}");
        let read: Vec<Bytes> = futures::TryStreamExt::try_collect(store.read(one).await?.bytes).await?;
        ensure!(read.concat() == piece, "{name} came back as something else");
        store.delete(one).await?;
        ensure!(store.list().await?.is_empty(), "it is still there");
    }
    Ok(())
}

/// From an etcd into the store, from there by the command to a directory and back, and into an etcd.
async fn snapshots_go_there_and_back(env: &TestEnv, azure: &AzureServer) -> Result<()> {
    let mut world = World::start(env).await?;
    world.store = open(azure, "a")?;
    world.write("early", 30).await?;
    let full = world.full(false).await?.name;
    world.write("late", 30).await?;
    world.delta(full.last, Compression::Gzip).await?;
    let (_, before) = dump(&world.client).await?;
    let (a, b, dir) = (azure.url("a"), azure.url("b"), url(&env.path().join("dir")));
    for (from, to) in [(&a, &dir), (&dir, &b)] {
        let mut copy = command(&["copy", "--source", from, "--target", to, "--output", "json"])?;
        copy.envs(azure.environment());
        let said = tool::run(copy, b"").await?.json()?;
        ensure!(said["failed"] == serde_json::json!([]), "{said}");
    }
    let mut verify = command(&["verify", "--store", &b, "--output", "json"])?;
    verify.envs(azure.environment());
    let verified = tool::run(verify, b"").await?.json()?;
    ensure!(verified["good"] == true && verified["integrityRecorded"] == 2, "{verified}");
    let data = env.path().join("restored");
    restore(&open(azure, "b")?, data.clone()).await?;
    let revived = Revived::start(env, &data).await?;
    ensure!(dump(&revived.client).await?.1 == before, "it is not what was there before");
    Ok(())
}

/// Away for some seconds, and nothing is noticed; away for longer, and the failure says where.
async fn being_away_is_told(azure: &AzureServer) -> Result<()> {
    let mut environment = azure.environment();
    environment.insert("STORE_PATIENCE_SECONDS".to_owned(), "2".to_owned());
    let impatient = Store::open(&azure.url("a"), &environment)?;
    azure.relay.cut();
    let error = impatient.list().await.err().context("nobody answered")?;
    ensure!(error.to_string().contains(&azure.url("a")), "{error:#}");
    let patient = open(azure, "a")?;
    let (listed, ()) = tokio::join!(patient.list(), async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        azure.relay.heal();
    });
    ensure!(!listed?.is_empty(), "nothing is listed");
    Ok(())
}

#[test]
#[ignore = "takes long to install: make soak"]
fn azure_keeps_snapshots() {
    run(async |env| {
        let azure = AzureServer::start(env).await?;
        objects_come_and_go(&open(&azure, "objects")?).await?;
        snapshots_go_there_and_back(env, &azure).await?;
        being_away_is_told(&azure).await
    });
}
