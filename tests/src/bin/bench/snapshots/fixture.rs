//! What is taken, copied and restored: an etcd with so many bytes in it, and stores that were made of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use etcd_client::{Client, Txn, TxnOp};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use repot_etcd::link;
use repot_etcd::snapshot::codec::{Event, EventKind, Sha256};
use repot_etcd::snapshot::store::{Environment, Mode, Store};
use repot_etcd::snapshot::take::{self, Draft};
use repot_etcd_core::snapshot::{Compression, Kind, Revision, SnapshotName};
use repot_tests::TestEnv;
use repot_tests::etcd::{EtcdCluster, EtcdOptions};

use super::Bench;

/// A value; eight of them are a transaction.
const VALUE: usize = 64_000;
const VALUES: usize = 8;
const WRITERS: usize = 4;
/// Enough that no run fills it.
const QUOTA: &str = "--quota-backend-bytes=8589934592";
/// A small snapshot holds an event of this length.
const SMALL: usize = 256_000;
/// What is replayed.
const EVENT: usize = 4000;
const EVENTS_OF_A_DELTA: usize = 2000;
/// The database under the events that are replayed.
const BASE: usize = 20_000_000;

/// The etcd and the stores. It ends when it is dropped.
pub struct World {
    etcd: EtcdCluster,
    pub client: Client,
    /// The file of its database.
    pub db: PathBuf,
    /// A file with its snapshot as etcdctl writes it.
    pub snapshot: PathBuf,
    /// A store with one full snapshot, not compressed.
    pub plain: PathBuf,
    /// A store with one full snapshot in gzip.
    pub gzip: PathBuf,
    /// A store with many small deltas.
    pub small: PathBuf,
    /// A store with a full snapshot and deltas after it.
    pub deltas: PathBuf,
}

/// Numbers that look like chance, the same ones in each run.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 17 ^ self.0
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 20) % limit.max(1)
    }

    /// Bytes that do not compress.
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }

    /// Half of it does not compress, and the other half is as the manifests of many Pods.
    fn value(&mut self, count: usize) -> Vec<u8> {
        let mut value = self.bytes(count / 2);
        while value.len() < count {
            let line = format!(
                "{{\"name\":\"pod-{:05}\",\"nodeName\":\"node-{:03}\",\"image\":\"registry.example.org/app\"}},",
                self.below(100_000),
                self.below(200)
            );
            value.extend(line.as_bytes());
        }
        value.truncate(count);
        value
    }
}

impl World {
    pub(super) async fn start(bench: &Bench<'_>) -> Result<Self> {
        let env = bench.env;
        let (etcd, client) = start_etcd(env).await?;
        let db = Self::db_of(env, &etcd)?;
        fill(&client, bench.flags.size).await?;
        let snapshot = env.path().join("snapshot.db");
        etcd.save_snapshot(0, &snapshot).await?;
        let world = Self {
            etcd,
            client,
            db,
            snapshot,
            plain: env.make_dir("plain")?,
            gzip: env.make_dir("gzip")?,
            small: env.make_dir("small")?,
            deltas: env.make_dir("deltas")?,
        };
        for (dir, compression) in [(&world.plain, Compression::None), (&world.gzip, Compression::Gzip)] {
            let store = open(dir)?;
            take::full(&world.client, &store, env.path(), (compression, false), Timestamp::now()).await?;
        }
        let small = open(&world.small)?;
        write_base(&small).await?;
        write_deltas(&small, (1, bench.flags.objects), (1, SMALL)).await?;
        world.fill_deltas(bench).await?;
        Ok(world)
    }

    async fn fill_deltas(&self, bench: &Bench<'_>) -> Result<()> {
        let store = open(&self.deltas)?;
        let (_etcd, client) = start_etcd(bench.env).await?;
        fill(&client, BASE).await?;
        let full =
            take::full(&client, &store, bench.env.path(), (Compression::Gzip, false), Timestamp::now())
                .await?;
        let last = usize::try_from(full.name.last.0)?;
        let count = bench.flags.events().div_ceil(EVENTS_OF_A_DELTA);
        write_deltas(&store, (last, count), (EVENTS_OF_A_DELTA, EVENT)).await
    }

    /// Events that are in the deltas.
    pub fn events(&self) -> Result<usize> {
        let deltas = fs::read_dir(self.deltas.join("v2"))?.count() - 1;
        Ok(deltas * EVENTS_OF_A_DELTA)
    }

    pub fn endpoint(&self) -> String {
        self.etcd.endpoints().join(",")
    }

    fn db_of(env: &TestEnv, etcd: &EtcdCluster) -> Result<PathBuf> {
        ensure!(etcd.endpoints().len() == 1, "it has one member");
        let found =
            fs::read_dir(env.path().join("etcd"))?.flatten().map(|entry| entry.path().join("member/snap/db"));
        found.into_iter().find(|path| path.is_file()).context("the database of etcd")
    }

    pub fn db_bytes(&self) -> Result<u64> {
        Ok(fs::metadata(&self.snapshot)?.len())
    }

    pub fn describe_small(&self) -> Result<String> {
        let count = fs::read_dir(self.small.join("v2"))?.count();
        Ok(format!("{count}, together {} MB", bytes_in(&self.small)? / 1_000_000))
    }
}

async fn start_etcd(env: &TestEnv) -> Result<(EtcdCluster, Client)> {
    let options = EtcdOptions { flags: vec![QUOTA.to_owned()], ..EtcdOptions::default() };
    let etcd = EtcdCluster::start_with(env, 1, options).await?;
    let client = link::connect(&link::Options { endpoints: etcd.endpoints(), ..Default::default() }).await?;
    Ok((etcd, client))
}

pub async fn fill(client: &Client, bytes: usize) -> Result<()> {
    let count = bytes.div_ceil(VALUE * VALUES);
    let write = |at: usize| {
        let mut kv = client.kv_client();
        async move {
            let mut chance = Chance::new(at as u64);
            let put = |which| TxnOp::put(format!("/registry/{at:06}/{which}"), chance.value(VALUE), None);
            kv.txn(Txn::new().and_then((0..VALUES).map(put).collect::<Vec<_>>())).await.map(drop)
        }
    };
    Ok(stream::iter(0..count).map(write).buffer_unordered(WRITERS).try_collect().await?)
}

/// A full snapshot of revision 1, of which nobody asks more than its hash: etcd-backup-restore copies no deltas without one.
async fn write_base(store: &Store) -> Result<()> {
    let name = SnapshotName {
        kind: Kind::Full,
        start: Revision(0),
        last: Revision(1),
        created: Timestamp::now().as_second(),
        compression: Compression::None,
        is_final: false,
    };
    let page = [0; 4096];
    let mut hash = Sha256::default();
    hash.update(&page);
    let mut upload = store.upload(&name, Mode::Create).await?;
    upload.write([&page[..], &hash.finish()].concat().into()).await?;
    let integrity = upload.finish().await?;
    Ok(store.record(&name, store.form(), &integrity).await?)
}

/// So many deltas after a revision, each of so many events with values of so many bytes.
async fn write_deltas(
    store: &Store,
    (after, count): (usize, usize),
    (events, bytes): (usize, usize),
) -> Result<()> {
    let mut chance = Chance::new(7);
    for at in 0..count {
        let first = i64::try_from(after + at * events)?;
        let mut draft = Draft::new(Compression::Gzip, Revision(first))?;
        for revision in (first + 1..).take(events) {
            let event = Event {
                kind: EventKind::Put,
                key: format!("/registry/events/{revision:09}").into_bytes(),
                value: chance.value(bytes),
                create_revision: Revision(revision),
                mod_revision: Revision(revision),
                version: 1,
                lease: 0,
            };
            draft.push(&event, Timestamp::now())?;
        }
        draft.save(store, Timestamp::now()).await?;
    }
    Ok(())
}

/// A store in a directory.
pub fn open(dir: &Path) -> Result<Store> {
    Ok(Store::open(&url(dir), &Environment::new())?)
}

pub fn url(dir: &Path) -> String {
    format!("file://{}", dir.display())
}

/// Length of all snapshots of a store in a directory.
pub fn bytes_in(dir: &Path) -> Result<u64> {
    let all = fs::read_dir(dir.join("v2")).with_context(|| format!("{} has no snapshots", dir.display()))?;
    all.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
