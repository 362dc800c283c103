//! What the tests of snapshots share.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use etcd_client::{Client, GetOptions};
use jiff::Timestamp;
use repot_etcd::link;
use repot_etcd::snapshot::restore::{self, Member, Options, Progress, Restored, Selection};
use repot_etcd::snapshot::store::{Environment, Integrity, Mode, Store};
use repot_etcd::snapshot::take::{self, Draft, Events, StoredSnapshot};
use repot_etcd_core::snapshot::{Compression, Revision, SnapshotName};
use repot_tests::binaries;
use repot_tests::etcd::EtcdCluster;
use repot_tests::port;
use repot_tests::process::{Process, Spec};
use repot_tests::test_env::TestEnv;
use repot_tests::tool::{self, Output};
use tokio::process::Command;

pub const DEADLINE: Duration = Duration::from_secs(120);

/// An etcd and a directory for its snapshots.
pub struct World {
    pub etcd: EtcdCluster,
    pub client: Client,
    pub dir: PathBuf,
    pub store: Store,
    scratch: PathBuf,
}

/// A store in a directory.
pub fn open(dir: &Path) -> Result<Store> {
    Ok(Store::open(&url(dir), &Environment::new())?)
}

pub fn url(dir: &Path) -> String {
    format!("file://{}", dir.display())
}

/// A copy of a directory.
pub fn duplicate(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => duplicate(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

/// Runs `repot snapshots` with these arguments.
pub async fn snapshots(args: &[&str]) -> Result<Output> {
    tool::run(command(args)?, b"").await
}

pub fn command(args: &[&str]) -> Result<Command> {
    let mut command = Command::new(binaries::profile_dir()?.join("repot"));
    command.arg("snapshots").args(args);
    Ok(command)
}

impl World {
    pub async fn start(env: &TestEnv) -> Result<Self> {
        let etcd = EtcdCluster::start(env, 1).await?;
        let client =
            link::connect(&link::Options { endpoints: etcd.endpoints(), ..Default::default() }).await?;
        let dir = env.make_dir("store")?;
        Ok(Self { etcd, client, store: open(&dir)?, dir, scratch: env.make_dir("scratch")? })
    }

    pub async fn full(&self, is_final: bool) -> Result<StoredSnapshot> {
        let how = (Compression::Gzip, is_final);
        Ok(take::full(&self.client, &self.store, &self.scratch, how, Timestamp::now()).await?)
    }

    /// A delta of everything from a revision to now.
    pub async fn delta(&self, after: Revision, compression: Compression) -> Result<StoredSnapshot> {
        let now =
            Revision(self.client.kv_client().get("x", None).await?.header().context("a header")?.revision());
        ensure!(now > after, "there is nothing after {after}");
        let mut events = Events::after(&self.client, after).await?;
        let mut draft = Draft::new(compression, after)?;
        while draft.last().is_none_or(|last| last < now) {
            for event in events.next().await? {
                draft.push(&event, Timestamp::now())?;
            }
        }
        Ok(draft.save(&self.store, Timestamp::now()).await?)
    }

    /// Writes so many keys of a name, with a transaction of several keys and a deletion among them.
    pub async fn write(&self, name: &str, count: usize) -> Result<()> {
        use etcd_client::{Txn, TxnOp};
        let mut kv = self.client.kv_client();
        for at in 0..count {
            kv.put(format!("/{name}/{at:04}"), format!("{name} {at}").repeat(at % 50 + 1), None).await?;
        }
        let ops: Vec<TxnOp> =
            (0..5).map(|at| TxnOp::put(format!("/{name}/txn/{at}"), vec![0xff, at], None)).collect();
        kv.txn(Txn::new().and_then(ops)).await?;
        kv.put(format!("/{name}/0000"), "", None).await?;
        kv.delete(format!("/{name}/0001"), None).await?;
        let range = etcd_client::DeleteOptions::new().with_prefix();
        kv.delete(format!("/{name}/txn/"), Some(range)).await?;
        Ok(())
    }
}

/// Writes these bytes under the name of a snapshot, and records nothing.
pub async fn put(store: &Store, name: &SnapshotName, bytes: Bytes, mode: Mode) -> Result<Integrity> {
    let mut upload = store.upload(name, mode).await?;
    if let Err(error) = upload.write(bytes).await {
        upload.abort().await;
        return Err(error.into());
    }
    Ok(upload.finish().await?)
}

/// All that a client can see of a key.
pub type Keys = BTreeMap<Vec<u8>, (Vec<u8>, i64, i64, i64, i64)>;

pub async fn dump(client: &Client) -> Result<(Revision, Keys)> {
    let all = GetOptions::new().with_all_keys();
    let mut kv = client.kv_client().max_decoding_message_size(usize::MAX);
    let answer = kv.get("", Some(all)).await?;
    let revision = Revision(answer.header().context("a header")?.revision());
    let one = |kv: &etcd_client::KeyValue| {
        let seen = (kv.value().to_vec(), kv.create_revision(), kv.mod_revision(), kv.version(), kv.lease());
        (kv.key().to_vec(), seen)
    };
    Ok((revision, answer.kvs().iter().map(one).collect()))
}

pub fn options(data_dir: PathBuf) -> Result<Options> {
    let peer_urls = "http://127.0.0.1:2380".to_owned();
    Ok(Options {
        data_dir,
        etcdutl: binaries::find("etcdutl")?,
        etcd: binaries::find("etcd")?,
        from: Selection::Newest,
        bump_revision: 1_000_000,
        lease_ttl: Duration::from_secs(3600),
        member: Member {
            name: "restored".to_owned(),
            initial_cluster: format!("restored={peer_urls}"),
            initial_cluster_token: "of-a-test".to_owned(),
            peer_urls,
        },
        parallel: 2,
    })
}

pub async fn restore(store: &Store, data_dir: PathBuf) -> Result<Restored> {
    Ok(restore::restore(store, &options(data_dir)?, &|_: Progress| {}).await?)
}

/// An etcd on a data directory that was restored.
pub struct Revived {
    pub client: Client,
    pub url: String,
    _process: Process,
}

impl Revived {
    pub async fn start(env: &TestEnv, data_dir: &Path) -> Result<Self> {
        Self::start_as(env, data_dir, None).await
    }

    pub async fn start_as(env: &TestEnv, data_dir: &Path, user: Option<(String, String)>) -> Result<Self> {
        Self::start_with(env, data_dir, user, &[]).await
    }

    pub async fn start_with(
        env: &TestEnv,
        data_dir: &Path,
        user: Option<(String, String)>,
        flags: &[&str],
    ) -> Result<Self> {
        let (url, peer) = (format!("http://127.0.0.1:{}", port::reserve()?), port::reserve()?);
        let spec = Spec::new("revived", binaries::find("etcd")?)
            .flag("name", "restored")
            .flag("data-dir", data_dir)
            .flag("listen-client-urls", &url)
            .flag("advertise-client-urls", &url)
            .flag("listen-peer-urls", format!("http://127.0.0.1:{peer}"))
            .args(flags);
        let mut process = Process::start(env, spec)?;
        let options = link::Options { endpoints: vec![url.clone()], user, ..Default::default() };
        let client = process
            .ready(DEADLINE, async || {
                let client = link::connect(&options).await?;
                let status = client.maintenance_client().status().await?;
                ensure!(status.leader() != 0, "it has no leader");
                Ok(client)
            })
            .await?;
        Ok(Self { client, url, _process: process })
    }
}
