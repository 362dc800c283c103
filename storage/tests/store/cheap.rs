//! What looking after chunks costs a real etcd: it must not grow with the bytes of chunks.

use std::time::Instant;

use repot_storage::backend::RangeRequest;

use super::{
    spy::{Fate, Read, Spy, all},
    *,
};

/// MiB of chunks, in objects of this many MiB.
const MIB: u64 = 256;
const SOAK_MIB: u64 = 5 << 10;
const OBJECT_MIB: u64 = 8;

/// What a piece of work made etcd do.
struct Cost {
    what: &'static str,
    seconds: f64,
    reads: Vec<Read>,
}

impl Cost {
    /// Bytes of values that ranges made etcd read, of chunks and of everything.
    fn loaded(&self) -> (u64, u64) {
        let chunks = self.reads.iter().filter(|read| read.start.starts_with(b"/chunks/"));
        (chunks.map(|read| read.loaded).sum(), self.reads.iter().map(|read| read.loaded).sum())
    }

    fn ranges(&self) -> usize {
        self.reads.iter().filter(|read| !read.counted).count()
    }

    fn tell(&self) {
        let (chunks, all) = self.loaded();
        let (ranges, largest) = (self.ranges(), self.reads.iter().map(|read| read.loaded).max());
        eprintln!(
            "{:36} {ranges:6} ranges {:6} counts, values read: {all:11} bytes, {chunks:11} of them chunks, \
             {:9} at most at once; {:7.3} s",
            self.what,
            self.reads.len() - ranges,
            largest.unwrap_or_default(),
            self.seconds,
        );
    }
}

async fn cost<T>(spy: &Spy, what: &'static str, work: impl Future<Output = T>) -> (Cost, T) {
    spy.reset();
    let begin = Instant::now();
    let done = work.await;
    let cost = Cost { what, seconds: begin.elapsed().as_secs_f64(), reads: spy.reads() };
    cost.tell();
    (cost, done)
}

/// All keys of chunks, as the collector read them before there were manifests.
async fn walk(spy: &Spy) {
    let keys = repot_storage::backend::prefix_range(b"/chunks/");
    let mut request = RangeRequest { keys, at: None, limit: 1000, max_bytes: 0, keys_only: true };
    loop {
        let page = spy.range(request.clone()).await.unwrap();
        let Some(last) = page.kvs.last().filter(|_| page.more) else { return };
        request.keys.start = [&last.key[..], b"\0"].concat().into();
    }
}

fn payload(n: u64) -> Vec<Bytes> {
    vec![mk_noise(n, (OBJECT_MIB << 20) as usize)]
}

async fn create(store: &Store, n: u64) -> Object {
    let draft = mk_draft(Uuid::from_u128(u128::from(n) << 64), &n.to_string(), payload(n));
    store.create(&mk_key(&format!("o{n:04}")), draft).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_after_chunks_does_not_read_them() {
    let mib = if std::env::var_os("REPOT_SOAK").is_some() { SOAK_MIB } else { MIB };
    let objects = mib / OBJECT_MIB;
    let lab = Lab::etcd().await;
    let spy = Spy::new(&lab).await;
    let options = StoreOptions { intent_rotation: Duration::ZERO, ..StoreOptions::default() };
    let store = Store::open(spy.clone(), mk_keyring(), options).await.unwrap();
    for n in 0..objects {
        create(&store, n).await;
    }
    eprintln!("{objects} objects, {mib} MiB");

    let (idle, report) = cost(&spy, "collect, nothing to do", store.collect()).await;
    assert_eq!(report.unwrap(), repot_storage::CollectReport::default());
    assert_eq!((idle.loaded().0, idle.ranges()), (0, 3), "intents twice, and manifests");
    assert!(idle.loaded().1 < 1000);

    let (audit, report) = cost(&spy, "count of all chunks", store.audit()).await;
    let report = report.unwrap();
    assert!(report.chunks > 3 * mib && report.removed == 0, "{report:?}");
    assert_eq!(audit.loaded().0, 0, "no chunk is read");
    assert!(audit.loaded().1 < objects * 16_000, "records are");
    assert!(audit.reads.len() as u64 <= 3 * objects + 20, "{} requests", audit.reads.len());

    // A write that is given up in the middle, which leaves all of its chunks.
    spy.fates(&[Fate::Held]);
    let writer = store.clone();
    let write = tokio::spawn(async move { create(&writer, 9_999).await });
    spy.waiting().await;
    write.abort();
    assert!(write.await.unwrap_err().is_cancelled());
    // The next write of its kind lets go of the intent.
    create(&store, 9_998).await;
    let begin = Instant::now();
    loop {
        let (garbage, report) = cost(&spy, "collect, one write was given up", store.collect()).await;
        assert_eq!(garbage.loaded().0, 0, "no chunk is read");
        assert!(garbage.loaded().1 < 100_000, "manifests are");
        // Where content is cut depends on a random key, and so does how many chunks there are: each has at most 1 MiB. That none is left
        // is what `fsck` says below.
        let removed = report.unwrap().removed;
        if removed > 0 {
            assert!(removed >= OBJECT_MIB, "{removed} chunks");
            break;
        }
        assert!(begin.elapsed() < PATIENCE);
    }
    repair(&spy, &store).await;
    let (before, ()) = cost(&spy, "as before: all keys of chunks", walk(&spy)).await;
    assert!(before.loaded().0 > mib << 20, "etcd reads the values of keys that are listed");
    store.close().await;
}

/// Records that do not open, one of which does not tell its uid either: what is listed is theirs at most.
async fn repair(spy: &Arc<Spy>, store: &Store) {
    for (n, byte) in [(0_u64, 60), (1, 61), (2, 7)] {
        let record = all(&**spy, &format!("/registry/core.example.org/states/ns/o{n:04}")).await.remove(0);
        let mut damaged = record.value.to_vec();
        damaged[byte] ^= 1;
        spy::put(&**spy, &record.key, damaged).await;
    }
    let mut found = 0;
    let (cost, checked) =
        cost(spy, "fsck --repair, three damaged", store.fsck(true, |_| found += 1, |_| {})).await;
    let checked = checked.unwrap();
    assert_eq!((found, checked.open, checked.orphans), (3, 0, 0), "{checked:?}");
    assert!(cost.loaded().0 <= 4 << 20, "{} bytes of chunks were listed", cost.loaded().0);
    assert_eq!(store.quarantined().await.unwrap().len(), 3);
    let report = store.audit().await.unwrap();
    assert_eq!(report.removed, 0, "what is in quarantine keeps its chunks");
}
