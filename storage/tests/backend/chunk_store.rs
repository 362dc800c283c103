//! A chunk store that is slow or hangs: what writers, passes of the collector and transactions do then.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use repot_storage::backend::{
    Backend, Compare, Embedded, Error, Op, Outcome, Result, Revision, Tiered, Txn, embedded, tiered::Options,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::{
    embedded::noise,
    gate::{Call, Gate},
};
use crate::store::{PATIENCE, files};

/// The longest that one call to the object store may take here.
const CALL: Duration = Duration::from_millis(300);

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

    /// Objects and bytes, as the metrics say.
    fn retained(&self) -> (f64, f64) {
        let value = |name: &str| {
            let families =
                self.collector.collectors().iter().flat_map(|one| one.collect()).collect::<Vec<_>>();
            let family = families.iter().find(|family| family.name() == name).unwrap();
            family.get_metric()[0].get_gauge().get_value()
        };
        (
            value("repot_storage_chunk_store_retained_objects"),
            value("repot_storage_chunk_store_retained_bytes"),
        )
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

fn many(count: u64) -> Txn {
    let op = |n: u64| Op::Put(format!("/chunks/{n}").into(), noise(n, 100));
    Txn { compares: vec![], ops: (0..count).map(op).collect() }
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

#[tokio::test]
async fn a_list_that_hangs_ends_the_pass() {
    let servers = Servers::start(Options { timeout: CALL, ..options() }, options()).await;
    servers.writer.txn(many(3)).await.unwrap();
    servers.gate.hang(Some(Call::List));
    let pass = timeout(PATIENCE, servers.writer.collect()).await.expect("the pass has no end");
    assert!(matches!(pass, Err(Error::Unavailable(_))), "{pass:?}");
    let missing = timeout(PATIENCE, servers.writer.missing_values()).await.expect("the look has no end");
    assert!(matches!(missing, Err(Error::Unavailable(_))), "{missing:?}");
    servers.gate.hang(None);
    assert_eq!(servers.writer.collect().await.unwrap().used, 3);
    servers.writer.close().await;
}

/// The bound is one of each request, not of the list.
#[tokio::test]
async fn a_list_may_take_longer_than_one_call() {
    let servers = Servers::start(Options { timeout: CALL, ..options() }, options()).await;
    servers.writer.txn(many(10)).await.unwrap();
    servers.gate.slow_lists(CALL / 5);
    let begin = Instant::now();
    assert_eq!(servers.writer.collect().await.unwrap().used, 10);
    assert!(begin.elapsed() > CALL);
    servers.writer.close().await;
}

#[tokio::test]
async fn what_is_retained_is_counted() {
    let retaining = Options { retention: Duration::from_secs(3600), ..options() };
    let servers = Servers::start(options(), retaining).await;
    servers.writer.txn(put("/chunks/a", 1)).await.unwrap();
    servers.writer.txn(put("/chunks/b", 2)).await.unwrap();
    servers.pass().await;
    assert_eq!(servers.retained(), (0.0, 0.0));
    servers.writer.txn(put("/chunks/a", 3)).await.unwrap();
    assert_eq!(servers.pass().await.suspected, 1);
    assert_eq!(servers.retained(), (1.0, 10_000.0));
    servers.writer.close().await;
}

/// An object store that hangs costs one bound of time, and not one for each object.
#[tokio::test]
async fn uploads_and_removals_end_with_the_first_that_hangs() {
    let servers = Servers::start(Options { timeout: CALL, ..options() }, options()).await;
    servers.gate.hang(Some(Call::Put));
    let refused = servers.writer.txn(many(60)).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    let puts = servers.gate.hanging();
    assert!(puts <= 16, "{puts} puts were begun");
    servers.gate.hang(None);
    servers.writer.txn(many(60)).await.unwrap();
    let gone = (0..60).map(|n| Op::Delete(format!("/chunks/{n}").into())).collect();
    servers.writer.txn(Txn { compares: vec![], ops: gone }).await.unwrap();
    servers.pass().await;
    servers.gate.hang(Some(Call::Delete));
    let tick = Txn { compares: vec![], ops: vec![Op::Put("/tick".into(), Bytes::new())] };
    servers.writer.txn(tick).await.unwrap();
    servers.writer.compact(servers.writer.revision().await.unwrap()).await.unwrap();
    let pass = servers.writer.collect().await.unwrap();
    assert_eq!(pass.removed, 0, "{pass:?}");
    let deletes = servers.gate.hanging() - puts;
    assert!((1..=16).contains(&deletes), "{deletes} removals were begun");
    // The next pass goes on.
    servers.gate.hang(None);
    assert_eq!(servers.pass().await.removed, 60);
    servers.writer.close().await;
}
