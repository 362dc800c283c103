//! A snapshot of etcd is taken, the store goes on with its collector, and the snapshot is restored: every chunk is still in the
//! chunk store.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use object_store::ObjectStoreExt;
use repot_storage::{
    Error, Missing, Object, Store, StoreOptions,
    backend::{
        Backend, Etcd, Op, Tiered, Txn,
        tiered::{Collected, Options},
    },
};
use tempfile::TempDir;
use uuid::Uuid;

use super::etcd_process::EtcdProcess;
use crate::store::{files, mk_draft, mk_key, mk_keyring, mk_noise};

/// Objects in a snapshot.
const OBJECTS: u64 = 6;
const SIZE: usize = 700_000;
const LONG: Duration = Duration::from_secs(3600);

fn options(retention: Duration) -> Options {
    Options { orphan_age: Duration::ZERO, retention, ..Options::default() }
}

/// A store on etcd, with its chunks in files.
struct EtcdWithChunks {
    etcd: EtcdProcess,
    dir: TempDir,
}

impl EtcdWithChunks {
    async fn start() -> Self {
        Self { etcd: EtcdProcess::start(None, &[]).await, dir: tempfile::tempdir().unwrap() }
    }

    async fn tiered(&self, retention: Duration) -> Tiered {
        let inner = Arc::new(Etcd::connect(self.etcd.options()).await.unwrap());
        Tiered::open(inner, files(&self.dir.path().join("objects")), options(retention)).await.unwrap()
    }

    /// The store, and the backend that it stands on.
    async fn open(&self, retention: Duration) -> (Store, Tiered) {
        let tiered = self.tiered(retention).await;
        let backend: Arc<dyn Backend> = Arc::new(tiered.clone());
        (Store::open(backend, mk_keyring(), StoreOptions::default()).await.unwrap(), tiered)
    }

    fn objects(&self) -> usize {
        objects(&self.dir.path().join("objects"))
    }
}

/// How many objects hold values.
fn objects(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).map(|path| std::fs::read_dir(path).unwrap().count()).sum()
}

async fn create(store: &Store, n: u64) -> Object {
    let draft = mk_draft(Uuid::from_u128(u128::from(n) + 1), &n.to_string(), vec![mk_noise(n, SIZE)]);
    store.create(&mk_key(&format!("o{n}")), draft).await.unwrap()
}

/// Two passes, and all history forgotten before each.
async fn collect(tiered: &Tiered) -> Collected {
    let mut report = Collected::default();
    for n in 0..2 {
        // Compaction ends before the newest revision.
        let ops = vec![Op::Put("/meta/tick".into(), Bytes::from(n.to_string()))];
        tiered.txn(Txn { compares: vec![], ops }).await.unwrap();
        tiered.compact(tiered.revision().await.unwrap()).await.unwrap();
        report = tiered.collect().await.unwrap();
    }
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_etcd_is_whole_after_chunks_were_collected() {
    let mut env = EtcdWithChunks::start().await;
    let (store, tiered) = env.open(LONG).await;
    let mut states = Vec::new();
    for n in 0..OBJECTS {
        states.push(create(&store, n).await);
    }
    let snapshot = tempfile::NamedTempFile::new().unwrap();
    env.etcd.save(snapshot.path()).await;
    let before = env.objects();
    // Everything of then is replaced or removed.
    for (n, state) in states.iter().enumerate() {
        let other = mk_draft(state.uid, "other", vec![mk_noise(100 + n as u64, SIZE)]);
        let other = store.update(state, other).await.unwrap();
        if n % 2 == 0 {
            store.delete(&other).await.unwrap();
        }
    }
    store.collect().await.unwrap();
    let report = collect(&tiered).await;
    assert_eq!(report.removed, 0);
    assert!(report.suspected as usize >= before, "{report:?}: nothing points to what is in the snapshot");
    let newest = store.current().await.unwrap();
    store.close().await;

    env.etcd.restore(snapshot.path()).await;
    let (store, tiered) = env.open(LONG).await;
    store.raise_past(newest).await.unwrap();
    assert_eq!(store.missing_chunks(3).await.unwrap(), Missing { objects: OBJECTS, ..Missing::default() });
    let report = collect(&tiered).await;
    assert_eq!((report.used as usize, report.removed), (before, 0));
    for n in 0..OBJECTS {
        let object = store.get(&mk_key(&format!("o{n}"))).await.unwrap().unwrap();
        assert!(store.payload_bytes(&object).await.unwrap() == mk_noise(n, SIZE), "o{n}");
    }
    store.close().await;

    // What only the lost history had goes once its retention has passed.
    let (store, tiered) = env.open(Duration::ZERO).await;
    let report = collect(&tiered).await;
    assert_eq!((report.suspected, env.objects()), (0, before), "{report:?}");
    for n in 0..OBJECTS {
        let object = store.get(&mk_key(&format!("o{n}"))).await.unwrap().unwrap();
        assert!(store.payload_bytes(&object).await.unwrap() == mk_noise(n, SIZE), "o{n}");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_older_than_the_retention_is_told_to_be_incomplete() {
    let mut env = EtcdWithChunks::start().await;
    let (store, tiered) = env.open(Duration::ZERO).await;
    for n in 0..OBJECTS {
        create(&store, n).await;
    }
    let snapshot = tempfile::NamedTempFile::new().unwrap();
    env.etcd.save(snapshot.path()).await;
    for n in 0..4 {
        let object = store.get(&mk_key(&format!("o{n}"))).await.unwrap().unwrap();
        store.delete(&object).await.unwrap();
    }
    assert!(collect(&tiered).await.removed > 0);
    assert_eq!(store.missing_chunks(3).await.unwrap().incomplete, 0);
    store.close().await;

    env.etcd.restore(snapshot.path()).await;
    let (store, _) = env.open(Duration::ZERO).await;
    let missing = store.missing_chunks(3).await.unwrap();
    assert_eq!((missing.objects, missing.incomplete, missing.unreadable), (OBJECTS, 4, 0));
    let names: Vec<_> = (0..3).map(|n| mk_key(&format!("o{n}")).to_string()).collect();
    assert_eq!(missing.first, names);
    let lost = store.get(&mk_key("o0")).await.unwrap().unwrap();
    let read = store.payload_bytes(&lost).await;
    assert!(matches!(read, Err(Error::Damaged(_))), "{read:?}");
    let whole = store.get(&mk_key("o5")).await.unwrap().unwrap();
    assert!(store.payload_bytes(&whole).await.unwrap() == mk_noise(5, SIZE));
    store.close().await;
}

/// By another process, and by one whose ledger was lost: the retention is counted from when a pass saw it first.
#[tokio::test]
async fn an_object_stays_for_its_retention_whoever_looks() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("objects");
    let open = async |retention| {
        let inner =
            repot_storage::backend::Embedded::open(&dir.path().join("inner"), Default::default()).await;
        Tiered::open(Arc::new(inner.unwrap()), files(&place), options(retention)).await.unwrap()
    };
    let put = |value| Txn { compares: vec![], ops: vec![Op::Put("/chunks/a".into(), value)] };
    let tiered = open(LONG).await;
    tiered.txn(put(mk_noise(1, SIZE))).await.unwrap();
    tiered.txn(put(mk_noise(2, SIZE))).await.unwrap();
    for _ in 0..3 {
        let report = collect(&tiered).await;
        assert_eq!((report.used, report.suspected, report.removed), (1, 1, 0));
    }
    tiered.close().await;
    // As long as the ledger says: an hour has passed by its times.
    let since = ledger(&place);
    let mut hours_ago = since.clone();
    let millis = u64::from_be_bytes(*since[37..].first_chunk().unwrap());
    hours_ago[37..45].copy_from_slice(&(millis - 2 * 3_600_000).to_be_bytes());
    rewrite(&place, &hours_ago);
    let tiered = open(LONG).await;
    let report = collect(&tiered).await;
    assert_eq!((report.used, report.suspected), (1, 0), "{report:?}");
    assert_eq!(objects(&place), 1);
    tiered.close().await;
}

/// A ledger of a history that the backend does not know, as after a restore, and one that is cut off: all begins anew.
#[tokio::test]
async fn a_ledger_of_another_history_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("objects");
    let inner = Arc::new(
        repot_storage::backend::Embedded::open(&dir.path().join("inner"), Default::default()).await.unwrap(),
    );
    let tiered = Tiered::open(inner.clone(), files(&place), options(LONG)).await.unwrap();
    let put = |value| Txn { compares: vec![], ops: vec![Op::Put("/chunks/a".into(), value)] };
    tiered.txn(put(mk_noise(1, SIZE))).await.unwrap();
    tiered.txn(put(mk_noise(2, SIZE))).await.unwrap();
    collect(&tiered).await;
    for round in 0..2 {
        let mut old = ledger(&place);
        let millis = u64::from_be_bytes(*old[37..].first_chunk().unwrap());
        old[37..45].copy_from_slice(&(millis - 100 * 3_600_000).to_be_bytes());
        if round == 0 {
            old[6] ^= 1; // Of another pass.
            rewrite(&place, &old);
        } else {
            std::fs::write(place.join("repot-unreferenced"), &old[..old.len() - 1]).unwrap();
        }
        let report = collect(&tiered).await;
        assert_eq!((report.used, report.suspected, report.removed), (1, 1, 0), "round {round}");
    }
    // The clock of the server is not asked: an object store whose clock stands still keeps everything.
    let clock = files(&place).root.join("repot-clock");
    assert!(files(&place).objects.head(&clock).await.is_ok());
    tiered.close().await;
}

/// What is kept for snapshots has an upper limit: over it, what nothing has pointed to for longest goes first. What can be read at
/// a revision stays, whatever the limit.
#[tokio::test]
async fn retained_objects_over_the_limit_go_the_oldest_first() {
    const BYTES: u64 = SIZE as u64;
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("objects");
    let inner = Arc::new(
        repot_storage::backend::Embedded::open(&dir.path().join("inner"), Default::default()).await.unwrap(),
    );
    let open = async |most| {
        let options = Options { retention_max_bytes: most, ..options(LONG) };
        Tiered::open(inner.clone(), files(&place), options).await.unwrap()
    };
    let tiered = open(0).await;
    let replace = async |tiered: &Tiered, seed| {
        let before = names(&place);
        let ops = vec![Op::Put("/chunks/a".into(), mk_noise(seed, SIZE))];
        tiered.txn(Txn { compares: vec![], ops }).await.unwrap();
        let new: Vec<_> = names(&place).into_iter().filter(|name| !before.contains(name)).collect();
        let [new] = &new[..] else { panic!("{new:?}") };
        new.clone()
    };
    // Each is seen to be unused by a pass of its own, so that one is older than the other.
    let mut all = vec![replace(&tiered, 0).await];
    for seed in 1..5 {
        all.push(replace(&tiered, seed).await);
        wait_for_tick(dir.path());
        let report = collect(&tiered).await;
        assert_eq!((report.used, report.suspected, report.removed), (1, seed, 0), "without a limit");
    }
    let kept = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names
    };
    assert_eq!(names(&place), kept(&all));

    let tiered = open(2 * BYTES + BYTES / 2).await;
    let report = collect(&tiered).await;
    assert_eq!((report.used, report.suspected), (1, 2), "{report:?}");
    assert_eq!(names(&place), kept(&all[2..]), "the two oldest go");
    let counted = |tiered: &Tiered, wanted: &str| {
        let families = tiered.collectors().iter().flat_map(|it| it.collect()).collect::<Vec<_>>();
        let family = families.iter().find(|it| it.name().ends_with(wanted)).unwrap();
        family.get_metric()[0].get_counter().get_value() as u64
    };
    assert_eq!(counted(&tiered, "evicted_objects_total"), 2);
    assert_eq!(counted(&tiered, "evicted_bytes_total"), 2 * BYTES);
    assert_eq!(collect(&tiered).await.evicted, 0, "now it is under the limit");

    // What a revision needs that can be read is over the limit, and stays.
    let tiered = open(1).await;
    let at = tiered.revision().await.unwrap();
    let newest = replace(&tiered, 9).await;
    let report = tiered.collect().await.unwrap();
    assert_eq!((report.used, report.suspected, report.evicted), (1, 1, 2), "{report:?}");
    assert_eq!(names(&place), kept(&[all[4].clone(), newest]));
    let read = tiered.get("/chunks/a".into(), Some(at)).await.unwrap().unwrap();
    assert!(read.value == mk_noise(4, SIZE));
    tiered.close().await;
}

/// Until the clock of the file system has gone on by a millisecond and more.
fn wait_for_tick(dir: &Path) {
    let stamp = || {
        std::fs::write(dir.join("tick"), "").unwrap();
        std::fs::metadata(dir.join("tick")).unwrap().modified().unwrap()
    };
    let (first, begin) = (stamp(), std::time::Instant::now());
    while stamp() < first + Duration::from_millis(2) {
        assert!(begin.elapsed() < Duration::from_secs(60), "the clock of the file system stands still");
    }
}

/// The names of all objects that hold values, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = |dir: &Path| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let shards = entries(dir).filter(|path| path.is_dir());
    let files = shards.flat_map(|shard| entries(&shard).collect::<Vec<_>>());
    let mut names: Vec<_> =
        files.map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// The ledger of one object, without its hash.
fn ledger(place: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(place.join("repot-unreferenced")).unwrap();
    bytes.truncate(bytes.len() - 32);
    assert_eq!(bytes.len(), 21 + 32, "one object");
    bytes
}

fn rewrite(place: &Path, ledger: &[u8]) {
    let whole = [ledger, blake3::hash(ledger).as_bytes()].concat();
    std::fs::write(place.join("repot-unreferenced"), whole).unwrap();
}
