//! A store is put back to an older copy while nobody runs: the next one that opens it does not serve it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use repot_storage::{
    Error, ListRequest, ResourceVersion, Store, StoreOptions,
    backend::{Backend, Etcd},
    store::high_water::{FileMark, Guard, HighWaterMark, MarkError, MarkStore, ObjectMark, OnRollback},
};
use uuid::Uuid;

use super::etcd_process::{EtcdProcess, PATIENCE};
use crate::store::{Lab, mk_draft, mk_key, mk_keyring, mk_scope};

fn guard(marks: &Arc<dyn MarkStore>) -> Guard {
    let (patience, every) = (Duration::from_millis(500), Duration::from_millis(20));
    Guard { patience, every, ..Guard::new(Arc::clone(marks)) }
}

async fn open(backend: Arc<dyn Backend>, guard: Guard) -> Result<Store, Error> {
    Store::open_guarded(backend, mk_keyring(), StoreOptions::default(), Some(guard)).await
}

async fn etcd(process: &EtcdProcess) -> Arc<dyn Backend> {
    Arc::new(Etcd::connect(process.options()).await.unwrap())
}

async fn create(store: &Store, number: u64) -> ResourceVersion {
    let draft = mk_draft(Uuid::from_u128(number.into()), "1", vec![]);
    store.create(&mk_key(&format!("o-{number}")), draft).await.unwrap().version
}

/// The message of a store that is not served.
fn refused(opened: Result<Store, Error>) -> String {
    match opened {
        Err(Error::Damaged(why)) => why,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it is served"),
    }
}

fn file(dir: &tempfile::TempDir) -> Arc<dyn MarkStore> {
    Arc::new(FileMark::new(dir.path().join("mark")))
}

/// Waits until what is recorded is a version or a later one.
async fn recorded(marks: &Arc<dyn MarkStore>, version: ResourceVersion) -> HighWaterMark {
    let begin = Instant::now();
    loop {
        if let Some(mark) = marks.load().await.unwrap()
            && mark.resource_version >= version.0
        {
            return mark;
        }
        assert!(begin.elapsed() < PATIENCE, "it is not recorded");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// etcd with a snapshot, and the newest version of what was written after it. Nobody runs.
async fn put_back(marks: &Arc<dyn MarkStore>) -> (EtcdProcess, ResourceVersion) {
    let mut process = EtcdProcess::start(None, &[]).await;
    let store = open(etcd(&process).await, guard(marks)).await.unwrap();
    create(&store, 1).await;
    let snapshot = tempfile::NamedTempFile::new().unwrap();
    process.save(snapshot.path()).await;
    create(&store, 2).await;
    let newest = create(&store, 3).await;
    store.close().await;
    let mark = recorded(marks, newest).await;
    assert!(mark.cluster.is_some());
    process.restore(snapshot.path()).await;
    (process, newest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_put_back_while_nobody_ran_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let marks = file(&dir);
    let (process, newest) = put_back(&marks).await;
    let before = etcd(&process).await.revision().await.unwrap();
    for _ in 0..2 {
        let why = refused(open(etcd(&process).await, guard(&marks)).await);
        assert!(why.contains("older copy") && why.contains(&newest.to_string()), "{why}");
        assert!(why.contains("bump-revision --above"), "{why}");
    }
    assert_eq!(etcd(&process).await.revision().await.unwrap(), before, "something was written");
    // As the message says. Whoever raises need not know where the mark is.
    let asked = marks.load().await.unwrap().unwrap().resource_version + 1_000_000_000;
    let plain = Store::open(etcd(&process).await, mk_keyring(), StoreOptions::default()).await.unwrap();
    plain.raise_past(ResourceVersion(asked)).await.unwrap();
    plain.close().await;
    let store = open(etcd(&process).await, guard(&marks)).await.unwrap();
    let version = create(&store, 9).await;
    assert!(version.0 > asked);
    store.close().await;
    assert!(recorded(&marks, version).await.resource_version > asked);
    open(etcd(&process).await, guard(&marks)).await.unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_be_told_to_go_on_with_an_older_copy() {
    let dir = tempfile::tempdir().unwrap();
    let marks = file(&dir);
    let (process, newest) = put_back(&marks).await;
    let go_on = || Guard { on_rollback: OnRollback::Continue, ..guard(&marks) };
    let stores = [
        open(etcd(&process).await, go_on()).await.unwrap(),
        open(etcd(&process).await, go_on()).await.unwrap(),
    ];
    let versions = [stores[0].current().await.unwrap(), stores[1].current().await.unwrap()];
    assert_eq!(versions[0], versions[1], "servers differ in what versions are");
    assert!(versions[0].0 > newest.0 + 1_000_000_000);
    let watched = stores[0].watch(&mk_scope(None), newest).await.map(drop);
    assert!(matches!(watched, Err(Error::Expired { .. })), "{watched:?}");
    assert_eq!(stores[1].list(ListRequest::all(mk_scope(None))).await.unwrap().objects.len(), 1);
    let mut counted = 0.0;
    for store in stores {
        for family in store.collectors().iter().flat_map(|collector| collector.collect()) {
            if family.name() == "repot_storage_rollbacks_continued_total" {
                counted += family.get_metric()[0].get_counter().get_value();
            }
        }
        store.close().await;
    }
    // The second may have found what the first had done.
    assert!((1.0..=2.0).contains(&counted), "{counted}");
}

/// Whatever the backend is: another store at the address of this one is named as such, and never gone on with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_store_is_told_from_this_one() {
    let dir = tempfile::tempdir().unwrap();
    let marks = file(&dir);
    for lab in [Lab::embedded().await, Lab::embedded().await] {
        let first = marks.load().await.unwrap().is_none();
        let go_on = Guard { on_rollback: OnRollback::Continue, ..guard(&marks) };
        match open(lab.backend().await, go_on).await {
            Ok(store) if first => {
                for number in 0..5 {
                    create(&store, number).await;
                }
                store.close().await;
            }
            opened => {
                let why = refused(opened);
                assert!(why.contains("for another store"), "{why}");
            }
        }
    }
    let mark = marks.load().await.unwrap().unwrap();
    assert!(mark.resource_version > 5 && mark.cluster.is_none(), "{mark:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_cannot_be_read_keeps_a_server_from_serving() {
    let dir = tempfile::tempdir().unwrap();
    let marks = Arc::new(Away { inner: file(&dir), away: AtomicBool::new(true) });
    let guarded = || guard(&(marks.clone() as Arc<dyn MarkStore>));
    let lab = Lab::embedded().await;
    let opened = open(lab.backend().await, guarded()).await;
    assert!(matches!(&opened, Err(Error::Unavailable(why)) if why.contains("cannot be read")), "{opened:?}");
    std::fs::write(dir.path().join("mark"), "something else").unwrap();
    marks.away.store(false, Ordering::SeqCst);
    let opened = open(lab.backend().await, guarded()).await;
    assert!(
        matches!(&opened, Err(Error::Unavailable(why)) if why.contains("no high-water mark")),
        "{opened:?}"
    );
    // A server that waits takes it when it is there again.
    std::fs::remove_file(dir.path().join("mark")).unwrap();
    marks.away.store(true, Ordering::SeqCst);
    let patient = Guard { patience: PATIENCE, ..guarded() };
    let backend = lab.backend().await;
    let waiting = tokio::spawn(async move { open(backend, patient).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    marks.away.store(false, Ordering::SeqCst);
    let store = waiting.await.unwrap().unwrap();
    // And one that runs goes on while it is away, and records when it is back.
    marks.away.store(true, Ordering::SeqCst);
    let version = create(&store, 1).await;
    marks.away.store(false, Ordering::SeqCst);
    recorded(&(marks.clone() as Arc<dyn MarkStore>), version).await;
    store.close().await;
}

/// Servers that know less do not lower what others have recorded. Two servers that write at the same time may leave the lower mark, as
/// [`ObjectMark`] says; the one that has met more corrects it with its next look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_is_in_an_object_store_and_a_lower_one_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let place = crate::store::files(dir.path());
    let marks: Arc<dyn MarkStore> = Arc::new(ObjectMark::new(place.objects, &place.root, place.url));
    let process = EtcdProcess::start(None, &[]).await;
    let writer = open(etcd(&process).await, guard(&marks)).await.unwrap();
    let idle = open(etcd(&process).await, guard(&marks)).await.unwrap();
    let version = create(&writer, 1).await;
    let mark = recorded(&marks, version).await;
    // It has met nothing of that, and records once more as it ends.
    idle.close().await;
    assert_eq!(recorded(&marks, version).await, mark);
    // So it is corrected while the other server serves, and stays when that server ends.
    marks.save(&HighWaterMark { resource_version: version.0 - 1, ..mark.clone() }).await.unwrap();
    let later = create(&writer, 2).await;
    recorded(&marks, later).await;
    writer.close().await;
    assert!(marks.load().await.unwrap().unwrap().resource_version >= later.0);
}

/// A place that is out of reach for a while.
#[derive(Debug)]
struct Away {
    inner: Arc<dyn MarkStore>,
    away: AtomicBool,
}

impl Away {
    fn reach(&self) -> Result<(), MarkError> {
        if self.away.load(Ordering::SeqCst) { Err(MarkError("away".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl MarkStore for Away {
    async fn load(&self) -> Result<Option<HighWaterMark>, MarkError> {
        self.reach()?;
        self.inner.load().await
    }

    async fn save(&self, mark: &HighWaterMark) -> Result<(), MarkError> {
        self.reach()?;
        self.inner.save(mark).await
    }

    fn location(&self) -> String {
        self.inner.location()
    }
}
