//! The embedded backend: the conformance suite, and what only a directory promises.

use std::{path::Path, sync::Arc, time::Instant};

use async_trait::async_trait;
use bytes::Bytes;
use repot_storage::backend::{
    Backend, Embedded, Error, Op, Outcome, RangeRequest, Revision, Txn, conformance::Lab, embedded::Options,
};
use tempfile::TempDir;

mod conformance {
    repot_storage::backend_conformance!(super::mk_lab);
}

struct Directory(TempDir);

#[async_trait]
impl Lab for Directory {
    async fn open(&self) -> Arc<dyn Backend> {
        Arc::new(open(self.0.path()).await)
    }
}

async fn mk_lab() -> Directory {
    Directory(tempfile::tempdir().unwrap())
}

pub async fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, Options::default()).await.unwrap()
}

/// Bytes that do not compress.
pub fn noise(seed: u64, len: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len).collect()
}

pub async fn put(store: &Embedded, key: &str, value: Bytes) -> Revision {
    let txn = Txn { compares: vec![], ops: vec![Op::Put(key.to_owned().into(), value)] };
    match store.txn(txn).await.unwrap() {
        Outcome::Committed(revision) => revision,
        Outcome::Failed => panic!("there was nothing to compare"),
    }
}

/// Four values of 256 KiB in one transaction, under numbers from `first` on.
pub async fn put_mib(store: &Embedded, first: u64) {
    let ops = (first..first + 4)
        .map(|number| Op::Put(format!("/chunks/{number:06}").into(), noise(number, 256 << 10)))
        .collect();
    assert!(matches!(store.txn(Txn { compares: vec![], ops }).await.unwrap(), Outcome::Committed(_)));
}

#[tokio::test]
async fn a_directory_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let refused = Embedded::open(dir.path(), Options::default()).await.unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::Unavailable(_)));
    assert!(text.contains(&dir.path().display().to_string()) && text.contains("in use"), "{text}");
    store.close().await;
    open(dir.path()).await.close().await;
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    let refused = Embedded::open(&file, Options::default()).await.unwrap_err().to_string();
    assert!(refused.contains(&file.display().to_string()), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_at_once_share_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).await);
    let writers = (0..64u64).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for round in 0..20u64 {
                put(&store, &format!("/small/{writer}"), noise(round, 1024)).await;
            }
        })
    });
    let begin = Instant::now();
    futures::future::join_all(writers).await;
    let together = begin.elapsed();
    let begin = Instant::now();
    for round in 0..64u64 {
        put(&store, "/small/alone", noise(round, 1024)).await;
    }
    // Twenty times as many; without groups they would take twenty times as long.
    assert!(together < begin.elapsed() * 10, "together {together:?}, alone {:?}", begin.elapsed());
    assert_eq!(store.revision().await.unwrap(), Revision(64 * 20 + 64));
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_takes_removals() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    put(&store, "/a", "1".into()).await;
    store.close().await;
    let full = Options { min_free_bytes: u64::MAX, ..Options::default() };
    let store = Embedded::open(dir.path(), full).await.unwrap();
    let write =
        Txn { compares: vec![], ops: vec![Op::Put("/b".into(), "2".into()), Op::Delete("/a".into())] };
    assert!(matches!(store.txn(write).await, Err(Error::NoSpace(_))));
    assert!(store.get("/a".into(), None).await.unwrap().is_some());
    let removal = Txn { compares: vec![], ops: vec![Op::Delete("/a".into())] };
    assert!(matches!(store.txn(removal).await, Ok(Outcome::Committed(_))));
    store.compact(store.revision().await.unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_comes_back_after_removal_and_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for mib in 0..96 {
        put_mib(&store, mib * 4).await;
    }
    let full = store.size().await.unwrap();
    assert!(full > 96 << 20);
    // Three of four go, spread over all files, so that files have to be rewritten and not only dropped.
    for first in (0..96 * 4).step_by(4) {
        let ops =
            (first + 1..first + 4).map(|number| Op::Delete(format!("/chunks/{number:06}").into())).collect();
        store.txn(Txn { compares: vec![], ops }).await.unwrap();
    }
    store.compact(store.revision().await.unwrap()).await.unwrap();
    let left = store.size().await.unwrap();
    // 24 MiB are alive; the journal may hold its 64 MiB.
    assert!(left < (24 + 64 + 16) << 20, "{} of {} MiB left", left >> 20, full >> 20);
    for first in (0..96 * 4).step_by(4) {
        let found = store.get(format!("/chunks/{first:06}").into(), None).await.unwrap().unwrap();
        assert!(found.value == noise(first, 256 << 10));
    }
}

/// What one has read, no look at the newest revision is behind of.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_newest_revision_is_not_behind_what_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).await);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let keys = repot_storage::backend::prefix_range(b"/");
                let request = RangeRequest { keys, at: None, limit: 1, max_bytes: 0, keys_only: true };
                for _ in 0..1500 {
                    let read = store.range(request.clone()).await.unwrap().revision;
                    let newest = store.revision().await.unwrap();
                    assert!(newest >= read, "{newest} after {read}");
                }
            })
        })
        .collect();
    while !readers.iter().all(tokio::task::JoinHandle::is_finished) {
        put(&store, "/a", Bytes::from_static(b"1")).await;
    }
    for reader in readers {
        reader.await.unwrap();
    }
    store.close().await;
}
