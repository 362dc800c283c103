//! etcd is restored from an older snapshot under a store: its revisions go back, and versions that clients have seen never come
//! to mean something else.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use repot_storage::{
    Error, ListRequest, Object, ResourceVersion, Store, StoreOptions,
    backend::{Etcd, etcd::Options},
};
use uuid::Uuid;

use super::etcd_process::EtcdProcess;
use crate::store::{mk_draft, mk_key, mk_keyring, mk_noise, mk_scope};

async fn open(options: Options) -> Store {
    let backend = Arc::new(Etcd::connect(options).await.unwrap());
    Store::open(backend, mk_keyring(), StoreOptions::default()).await.unwrap()
}

fn payload(seed: u64) -> Vec<Bytes> {
    vec![mk_noise(seed, 300_000)]
}

async fn change(store: &Store, object: &Object, seed: u64) -> Object {
    store.update(object, mk_draft(object.uid, &seed.to_string(), payload(seed))).await.unwrap()
}

fn request(at: Option<ResourceVersion>) -> ListRequest {
    ListRequest { at, ..ListRequest::all(mk_scope(None)) }
}

/// A snapshot of etcd, and what happened after it: `a` was changed, `b` removed and `c` made.
struct SnapshotFixture {
    etcd: EtcdProcess,
    store: Store,
    snapshot: tempfile::NamedTempFile,
    kept: ResourceVersion,
    a: Object,
    newest: ResourceVersion,
}

async fn mk_scene() -> SnapshotFixture {
    let etcd = EtcdProcess::start(None, &[]).await;
    let store = open(etcd.options()).await;
    let a = store.create(&mk_key("a"), mk_draft(Uuid::from_u128(1), "1", payload(1))).await.unwrap();
    let b = store.create(&mk_key("b"), mk_draft(Uuid::from_u128(2), "2", payload(2))).await.unwrap();
    let snapshot = tempfile::NamedTempFile::new().unwrap();
    etcd.save(snapshot.path()).await;
    let mut a = change(&store, &a, 3).await;
    store.list_cached(&mk_scope(None), None).await.unwrap();
    let kept = a.version;
    for seed in 4..10 {
        a = change(&store, &a, seed).await;
    }
    store.delete(&b).await.unwrap();
    store.create(&mk_key("c"), mk_draft(Uuid::from_u128(3), "c", payload(20))).await.unwrap();
    let newest = store.current().await.unwrap();
    SnapshotFixture { etcd, store, snapshot, kept, a, newest }
}

fn is_noticed<T>(result: Result<T, Error>, newest: ResourceVersion) {
    match result {
        Err(Error::Damaged(why)) => {
            assert!(
                why.contains("older copy") && why.contains(&format!("bump-revision --above {newest}")),
                "{why}"
            );
        }
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it was answered"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_runs_notices_that_etcd_went_back() {
    let SnapshotFixture { mut etcd, store, snapshot, a, newest, .. } = mk_scene().await;
    let mut items = store.watch(&mk_scope(None), newest).await.unwrap();
    etcd.restore(snapshot.path()).await;
    // Nobody asks for anything: its own watch comes back, and tells.
    let ended = async { while items.next().await.is_some_and(|item| item.is_ok()) {} };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("the watch ends");
    is_noticed(store.get(&mk_key("a")).await, newest);
    is_noticed(store.list_cached(&mk_scope(None), Some(ResourceVersion(1))).await, newest);
    is_noticed(store.watch(&mk_scope(None), newest).await.map(drop), newest);
    is_noticed(store.update(&a, mk_draft(a.uid, "late", vec![])).await, newest);
    let new = mk_draft(Uuid::from_u128(9), "new", vec![]);
    is_noticed(store.create(&mk_key("new"), new).await, newest);
    is_noticed(store.list(request(None)).await, newest);
    is_noticed(store.collect().await, newest);
    store.close().await;
    let store = open(etcd.options()).await;
    let names: Vec<_> = store.list(request(None)).await.unwrap().objects;
    assert_eq!(names.len(), 2, "nothing was written");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_of_what_was_lost_mean_nothing_after_a_restore() {
    let SnapshotFixture { mut etcd, store, snapshot, kept, a: lost, newest } = mk_scene().await;
    store.close().await;
    etcd.restore(snapshot.path()).await;
    let store = open(etcd.options()).await;
    assert!(store.current().await.unwrap() < newest, "etcd went back");
    store.raise_past(newest).await.unwrap();
    assert!(store.current().await.unwrap() > newest);
    for (name, seed) in [("a", 1), ("b", 2)] {
        let object = store.get(&mk_key(name)).await.unwrap().unwrap();
        assert!(object.version > newest);
        assert!(store.payload_bytes(&object).await.unwrap() == mk_noise(seed, 300_000));
    }
    assert!(store.get(&mk_key("c")).await.unwrap().is_none());
    // Whoever goes on from before has to list again, however much happens: `b` came back to it, and `c` is gone.
    let mut object = store.get(&mk_key("a")).await.unwrap().unwrap();
    for seed in 30..50 {
        object = change(&store, &object, seed).await;
    }
    for version in [ResourceVersion(1), kept, newest] {
        let listed = store.list(request(Some(version))).await;
        assert!(matches!(listed, Err(Error::Expired { oldest }) if oldest > version), "{listed:?}");
        let watched = store.watch(&mk_scope(None), version).await.map(drop);
        assert!(matches!(watched, Err(Error::Expired { .. })), "{watched:?}");
    }
    let late = store.update(&lost, mk_draft(lost.uid, "late", vec![])).await;
    assert!(matches!(late, Err(Error::Conflict)), "{late:?}");
    let cached = store.list_cached(&mk_scope(None), Some(newest)).await.unwrap();
    assert!(cached.version > newest && cached.objects.len() == 2);
    let checked = store.fsck(false, |finding| panic!("{finding:?}"), |_| {}).await.unwrap();
    assert_eq!(checked.objects, 2);
    store.close().await;
}
