//! Large values in objects: the conformance suite with every value in one, and what becomes of objects.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use repot_storage::{
    Keyring, Store, StoreOptions,
    backend::{
        Backend, Compare, Embedded, Error, Op, Outcome, Revision, Tiered, Txn, conformance::Lab, embedded,
        tiered::Options,
    },
};
use tempfile::TempDir;

use super::embedded::noise;
use crate::store::{
    files,
    spy::{Fate, Spy},
};

mod conformance {
    repot_storage::backend_conformance!(super::mk_lab);
}

struct Directories(TempDir);

#[async_trait]
impl Lab for Directories {
    async fn open(&self) -> Arc<dyn Backend> {
        Arc::new(open(self.0.path(), "objects").await.unwrap())
    }
}

async fn mk_lab() -> Directories {
    Directories(tempfile::tempdir().unwrap())
}

async fn below(dir: &Path) -> Arc<dyn Backend> {
    Arc::new(Embedded::open(&dir.join("embedded"), embedded::Options::default()).await.unwrap())
}

/// Every value is in an object, and none is left alone because it is young.
async fn open(dir: &Path, objects: &str) -> Result<Tiered, Error> {
    let options = Options {
        prefix: Bytes::new(),
        least: 0,
        orphan_age: Duration::ZERO,
        retention: Duration::ZERO,
        ..Options::default()
    };
    Tiered::open(below(dir).await, files(&dir.join(objects)), options).await
}

/// Objects with values in them.
fn objects(dir: &Path) -> usize {
    let mut found = 0;
    for shard in std::fs::read_dir(dir.join("objects")).unwrap().map(|entry| entry.unwrap().path()) {
        found += if shard.is_dir() { std::fs::read_dir(shard).unwrap().count() } else { 0 };
    }
    found
}

async fn commit(tiered: &Tiered, ops: Vec<Op>) -> Revision {
    match tiered.txn(Txn { compares: vec![], ops }).await.unwrap() {
        Outcome::Committed(revision) => revision,
        Outcome::Failed => panic!("there was nothing to compare"),
    }
}

fn put(key: &'static str, seed: u64) -> Op {
    Op::Put(key.into(), noise(seed, 10_000))
}

#[tokio::test]
async fn an_object_goes_when_no_revision_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let tiered = open(dir.path(), "objects").await.unwrap();
    let first = commit(&tiered, vec![put("a", 1), put("b", 2)]).await;
    commit(&tiered, vec![put("a", 3)]).await;
    let last = commit(&tiered, vec![Op::Delete("b".into())]).await;
    assert_eq!(objects(dir.path()), 3);
    for _ in 0..2 {
        let report = tiered.collect().await.unwrap();
        assert_eq!((report.used, report.suspected, report.removed), (1, 2, 0));
        let old = tiered.get_many(vec!["a".into(), "b".into()], first).await.unwrap();
        assert!(old[0].as_ref().unwrap().value == noise(1, 10_000) && old[1].is_some());
    }
    tiered.compact(last).await.unwrap();
    // The revision at which they were suspected can still be read.
    assert_eq!(tiered.collect().await.unwrap().removed, 0);
    let later = commit(&tiered, vec![put("c", 4)]).await;
    tiered.compact(later).await.unwrap();
    let report = tiered.collect().await.unwrap();
    assert_eq!((report.used, report.suspected, report.removed), (2, 0, 2));
    assert_eq!(objects(dir.path()), 2);
    assert!(tiered.get("a".into(), None).await.unwrap().unwrap().value == noise(3, 10_000));
    tiered.close().await;
}

#[tokio::test]
async fn what_does_not_commit_leaves_no_object() {
    let dir = tempfile::tempdir().unwrap();
    let tiered = open(dir.path(), "objects").await.unwrap();
    commit(&tiered, vec![put("a", 1)]).await;
    let compares = vec![Compare::ModifiedAt("a".into(), Revision(0))];
    let outcome = tiered.txn(Txn { compares, ops: vec![put("a", 2), put("b", 3)] }).await.unwrap();
    assert_eq!(outcome, Outcome::Failed);
    assert_eq!(objects(dir.path()), 1);
    let twice = Txn { compares: vec![], ops: vec![put("a", 2), put("a", 3)] };
    assert!(matches!(tiered.txn(twice).await, Err(Error::Refused(_))));
    assert_eq!(objects(dir.path()), 1);
    tiered.close().await;
}

/// The second answer says that a comparison does not hold. The first delivery happened, and its objects stay.
#[tokio::test]
async fn a_transaction_that_is_delivered_twice_keeps_its_objects() {
    let dir = tempfile::tempdir().unwrap();
    let spy = Spy::over(below(dir.path()).await);
    let options = Options { prefix: Bytes::from_static(b"/registry/"), least: 0, ..Options::default() };
    let tiered = Tiered::open(spy.clone(), files(&dir.path().join("objects")), options).await.unwrap();
    let txn = |seed| Txn {
        compares: vec![Compare::ModifiedAt("/registry/a".into(), Revision(0))],
        ops: vec![put("/registry/a", seed)],
    };
    spy.fates(&[Fate::Twice]);
    let outcome = tiered.txn(txn(1)).await;
    assert!(matches!(outcome, Err(Error::Unknown(_))), "{outcome:?}");
    assert_eq!(objects(dir.path()), 1);
    assert!(tiered.get("/registry/a".into(), None).await.unwrap().unwrap().value == noise(1, 10_000));
    // What happened at neither delivery leaves nothing.
    spy.fates(&[Fate::Twice]);
    assert_eq!(tiered.txn(txn(2)).await.unwrap(), Outcome::Failed);
    assert_eq!(objects(dir.path()), 1);
    tiered.close().await;
}

#[tokio::test]
async fn a_value_that_looks_like_a_pointer_is_a_value() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { prefix: Bytes::new(), least: 1000, ..Options::default() };
    let inner = below(dir.path()).await;
    let place = files(&dir.path().join("objects"));
    let tiered = Tiered::open(inner.clone(), place, options).await.unwrap();
    commit(&tiered, vec![put("large", 1)]).await;
    let pointer = inner.get("large".into(), None).await.unwrap().unwrap().value;
    assert!(pointer.len() < 100);
    commit(&tiered, vec![Op::Put("small".into(), pointer.clone())]).await;
    assert_eq!(tiered.get("small".into(), None).await.unwrap().unwrap().value, pointer);
    tiered.close().await;
}

#[tokio::test]
async fn lost_and_cut_objects_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let tiered = open(dir.path(), "objects").await.unwrap();
    commit(&tiered, vec![put("a", 1)]).await;
    let shards = std::fs::read_dir(dir.path().join("objects")).unwrap().map(|entry| entry.unwrap().path());
    let shard = shards.into_iter().find(|path| path.is_dir()).unwrap();
    let file = std::fs::read_dir(shard).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, b"short").unwrap();
    assert!(matches!(tiered.get("a".into(), None).await, Err(Error::Corrupt(_))));
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(tiered.get("a".into(), None).await, Err(Error::Corrupt(_))));
    tiered.close().await;
}

#[tokio::test]
async fn backend_and_objects_belong_together() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        open(dir.path(), "objects").await.unwrap().close().await;
    }
    let refused = async |objects| match open(dir.path(), objects).await {
        Err(Error::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused("elsewhere").await.contains("are not in"));
    // Another store, with objects of its own.
    let other = tempfile::tempdir().unwrap();
    open(other.path(), "objects").await.unwrap().close().await;
    std::fs::rename(other.path().join("objects"), dir.path().join("others")).unwrap();
    assert!(refused("others").await.contains("another store"));
    // A store that would find pointers where it looks for chunks does not start.
    let config = "{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, resources: [{resources: ['*.*'], providers: [{identity: {}}]}]}";
    let keys = Arc::new(Keyring::parse(config).unwrap());
    let error = Store::open(below(dir.path()).await, keys, StoreOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("object store"), "{error}");
}

/// As for the collector, an object that was just put and one to which nothing points any more look alike.
#[tokio::test]
async fn a_young_object_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { prefix: Bytes::new(), least: 0, retention: Duration::ZERO, ..Options::default() };
    let place = files(&dir.path().join("objects"));
    let tiered = Tiered::open(below(dir.path()).await, place, options).await.unwrap();
    for seed in 0..4 {
        let revision = commit(&tiered, vec![put("a", seed)]).await;
        tiered.compact(revision).await.unwrap();
        let report = tiered.collect().await.unwrap();
        assert_eq!((report.used, report.suspected, report.removed), (1, 0, 0));
    }
    assert_eq!(objects(dir.path()), 4);
    tiered.close().await;
}

#[tokio::test]
async fn a_value_whose_upload_fails_is_not_pointed_to() {
    let dir = tempfile::tempdir().unwrap();
    let tiered = open(dir.path(), "objects").await.unwrap();
    // The marker can be read: only what the upload itself says shows that it failed.
    let shards: Vec<_> = (0..=u8::MAX).map(|at| dir.path().join(format!("objects/{at:02x}"))).collect();
    for shard in &shards {
        std::fs::write(shard, "in the way").unwrap();
    }
    let refused = tiered.txn(Txn { compares: vec![], ops: vec![put("a", 1)] }).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert_eq!(tiered.get("a".into(), None).await.unwrap(), None);
    for shard in &shards {
        std::fs::remove_file(shard).unwrap();
    }
    commit(&tiered, vec![put("a", 1)]).await;
    assert!(tiered.get("a".into(), None).await.unwrap().unwrap().value == noise(1, 10_000));
    tiered.close().await;
}

#[tokio::test]
async fn a_directory_whose_mount_is_gone_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tiered = open(dir.path(), "objects").await.unwrap();
    commit(&tiered, vec![put("a", 1)]).await;
    // What is below a mount point is an empty directory, mostly.
    let (there, away) = (dir.path().join("objects"), dir.path().join("away"));
    std::fs::rename(&there, &away).unwrap();
    std::fs::create_dir(&there).unwrap();
    let refused = tiered.txn(Txn { compares: vec![], ops: vec![put("b", 2)] }).await;
    assert!(matches!(&refused, Err(Error::Unavailable(why)) if why.contains("the mount")), "{refused:?}");
    assert_eq!(tiered.get("b".into(), None).await.unwrap(), None);
    assert_eq!(objects(dir.path()), 0);
    std::fs::remove_dir_all(&there).unwrap();
    std::fs::rename(&away, &there).unwrap();
    commit(&tiered, vec![put("b", 2)]).await;
    assert!(tiered.get("b".into(), None).await.unwrap().unwrap().value == noise(2, 10_000));
    tiered.close().await;
}
