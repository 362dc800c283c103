//! Writers of a chunk store that are overtaken by passes of the collector.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use repot_storage::backend::{
    Backend, Compare, Embedded, Error, Op, Outcome, Result, Revision, Tiered, Txn, embedded, tiered::Options,
};
use tokio::{task::JoinHandle, time::timeout};

use super::{embedded::noise, gate::Gate};
use crate::store::{PATIENCE, files};

/// Every value is in an object, no object is too young to be removed, and none is retained.
fn options() -> Options {
    Options {
        prefix: "/chunks/".into(),
        least: 0,
        orphan_age: Duration::ZERO,
        retention: Duration::ZERO,
        ..Options::default()
    }
}

/// Two handles on one store, as of two servers. The calls of the first to the object store go through a gate.
struct Servers {
    writer: Tiered,
    gate: Arc<Gate>,
    collector: Tiered,
    _dir: tempfile::TempDir,
}

impl Servers {
    async fn start(writer: Options, collector: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let inner = below(dir.path()).await;
        let (gate, place) = Gate::new(&dir.path().join("objects"));
        let writer = Tiered::open(inner.clone(), place, writer).await.unwrap();
        let place = files(&dir.path().join("objects"));
        let collector = Tiered::open(inner, place, collector).await.unwrap();
        Self { writer, gate, collector, _dir: dir }
    }

    /// Begins a write, and waits until its object is put.
    async fn begin(&self, key: &'static str, seed: u64) -> JoinHandle<Result<Outcome>> {
        self.gate.hold(true);
        let writer = self.writer.clone();
        let write = tokio::spawn(async move { writer.txn(put(key, seed)).await });
        self.gate.held().await;
        write
    }

    /// A pass, after all history was compacted.
    async fn pass(&self) -> repot_storage::backend::tiered::Collected {
        let tick = Txn { compares: vec![], ops: vec![Op::Put("/tick".into(), Bytes::new())] };
        self.collector.txn(tick).await.unwrap();
        self.collector.compact(self.collector.revision().await.unwrap()).await.unwrap();
        self.collector.collect().await.unwrap()
    }

    async fn value(&self, key: &'static str) -> Result<Option<Bytes>> {
        Ok(self.collector.get(key.into(), None).await?.map(|kv| kv.value))
    }
}

async fn below(dir: &Path) -> Arc<dyn Backend> {
    let options = embedded::Options { min_free_bytes: 0, ..embedded::Options::default() };
    Arc::new(Embedded::open(&dir.join("embedded"), options).await.unwrap())
}

fn put(key: &'static str, seed: u64) -> Txn {
    Txn { compares: vec![], ops: vec![Op::Put(key.into(), noise(seed, 10_000))] }
}

/// The writer is suspended after its upload. Meanwhile two passes see an object that nothing points to, and remove it.
#[tokio::test]
async fn a_write_whose_objects_were_removed_meanwhile_puts_them_again() {
    let servers = Servers::start(options(), options()).await;
    let write = servers.begin("/chunks/a", 1).await;
    servers.pass().await;
    assert_eq!(servers.pass().await.removed, 1, "the object of the writer is gone");
    servers.gate.hold(false);
    servers.gate.release();
    let outcome = timeout(PATIENCE, write).await.unwrap().unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)));
    assert!(servers.value("/chunks/a").await.unwrap().unwrap() == noise(1, 10_000));
    servers.writer.close().await;
}

/// What one pass has seen without a pointer, the next one removes if that was before the oldest revision that can be read. A
/// pointer that is committed between the two, and removed again, would still be there at such a revision.
#[tokio::test]
async fn no_pointer_is_committed_to_an_object_that_a_pass_has_seen_without_one() {
    let servers = Servers::start(options(), options()).await;
    let write = servers.begin("/chunks/a", 1).await;
    assert_eq!(servers.pass().await.suspected, 1);
    servers.gate.hold(false);
    servers.gate.release();
    let Outcome::Committed(revision) = timeout(PATIENCE, write).await.unwrap().unwrap().unwrap() else {
        panic!("there was nothing to compare");
    };
    let gone = Txn { compares: vec![], ops: vec![Op::Delete("/chunks/a".into())] };
    servers.writer.txn(gone).await.unwrap();
    servers.collector.compact(revision).await.unwrap();
    servers.collector.collect().await.unwrap();
    let old = servers.collector.get("/chunks/a".into(), Some(revision)).await.unwrap();
    assert!(old.unwrap().value == noise(1, 10_000));
    servers.writer.close().await;
}

#[tokio::test]
async fn a_write_that_passes_overtake_again_and_again_ends() {
    let servers = Servers::start(options(), options()).await;
    let write = servers.begin("/chunks/a", 1).await;
    let overtaking = async {
        loop {
            servers.pass().await;
            servers.gate.release();
            servers.gate.held().await;
        }
    };
    let refused = tokio::select! {
        refused = timeout(PATIENCE, write) => refused.unwrap().unwrap(),
        () = overtaking => unreachable!("passes end with the write"),
    };
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert_eq!(servers.value("/chunks/a").await.unwrap(), None);
    let report = servers.pass().await;
    assert_eq!((report.used, report.suspected), (0, 0), "nothing is left of it");
    servers.writer.close().await;
}

/// What does not move is not held up by passes, and a comparison that does not hold is still told from a pass.
#[tokio::test]
async fn passes_are_no_conflict() {
    let servers = Servers::start(Options { least: 1000, ..options() }, options()).await;
    servers.writer.txn(put("/chunks/a", 1)).await.unwrap();
    let small = Txn { compares: vec![], ops: vec![Op::Put("/chunks/small".into(), "x".into())] };
    let absent = |key: &'static str| vec![Compare::ModifiedAt(key.into(), Revision(0))];
    for seed in 2..5 {
        servers.pass().await;
        assert!(matches!(servers.writer.txn(small.clone()).await.unwrap(), Outcome::Committed(_)));
        let conflict = Txn { compares: absent("/chunks/a"), ..put("/chunks/a", seed) };
        assert_eq!(servers.writer.txn(conflict).await.unwrap(), Outcome::Failed);
        servers.pass().await;
        assert!(matches!(servers.writer.txn(put("/chunks/a", seed)).await.unwrap(), Outcome::Committed(_)));
    }
    assert!(servers.value("/chunks/a").await.unwrap().unwrap() == noise(4, 10_000));
    servers.writer.close().await;
}
