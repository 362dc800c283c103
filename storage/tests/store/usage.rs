//! How much a namespace holds is told exactly, from memory as from the store.

use std::collections::BTreeMap;

use repot_storage::Usage;

use super::{spy::put, *};

on_every_backend! {
    usage_follows_every_write
    usage_counts_what_does_not_open
}

fn length(draft: &Draft) -> u64 {
    (draft.meta.len() + draft.payload.text().len()) as u64
}

fn of(namespaces: &[(&str, u64, u64)]) -> BTreeMap<String, Usage> {
    let one =
        |&(name, objects, bytes): &(&str, u64, u64)| (name.to_owned(), Usage { objects, bytes, unknown: 0 });
    namespaces.iter().map(one).collect()
}

async fn open(backend: &Arc<dyn Backend>) -> Store {
    Store::open(Arc::clone(backend), mk_keyring(), StoreOptions::default()).await.unwrap()
}

/// As the cache tells it, by namespace and in sum, and as a handle counts that has no cache.
async fn check(backend: &Arc<dyn Backend>, store: &Store, expected: &[(&str, u64, u64)]) {
    for (namespace, ..) in expected {
        let one: Vec<_> = expected.iter().filter(|(name, ..)| name == namespace).copied().collect();
        assert_eq!(store.usage(&mk_scope(Some(namespace))).await.unwrap(), of(&one));
    }
    assert_eq!(store.usage(&mk_scope(None)).await.unwrap(), of(expected));
    let fresh = open(backend).await;
    assert_eq!(fresh.usage(&mk_scope(None)).await.unwrap(), of(expected));
}

async fn usage_follows_every_write(lab: &Lab) {
    let backend = &lab.backend().await;
    let store = open(backend).await;
    check(backend, &store, &[]).await;
    let uids = [Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3)];
    let small = mk_draft(uids[0], "small", vec![mk_noise(1, 100)]);
    let large = mk_draft(uids[1], "large", vec![mk_noise(2, 700_000)]);
    let other = mk_draft(uids[2], "other", vec![]);
    let a = store.create(&mk_key_in("one", "a"), small.clone()).await.unwrap();
    let b = store.create(&mk_key_in("one", "b"), large.clone()).await.unwrap();
    store.create(&mk_key_in("two", "a"), other.clone()).await.unwrap();
    let (s, l, o) = (length(&small), length(&large), length(&other));
    check(backend, &store, &[("one", 2, s + l), ("two", 1, o)]).await;

    let grown = mk_draft(uids[0], "small", vec![mk_noise(3, 300_000)]);
    let a = store.update(&a, grown.clone()).await.unwrap();
    check(backend, &store, &[("one", 2, length(&grown) + l), ("two", 1, o)]).await;
    let b = store.update_head(&b, "meta with another length".into(), b.summary.clone()).await.unwrap();
    check(backend, &store, &[("one", 2, length(&grown) + b.length()), ("two", 1, o)]).await;
    assert_eq!(b.length(), 700_000 + 24);

    store.delete(&a).await.unwrap();
    store.delete(&b).await.unwrap();
    check(backend, &store, &[("two", 1, o)]).await;
    assert_eq!(store.usage(&mk_scope(Some("one"))).await.unwrap(), BTreeMap::new());
    store.close().await;
}

/// Such an object is one, and nobody knows how long it is.
async fn usage_counts_what_does_not_open(lab: &Lab) {
    let backend = &lab.backend().await;
    let store = open(backend).await;
    let draft = mk_draft(Uuid::from_u128(1), "a", vec![mk_noise(1, 100)]);
    store.create(&mk_key_in("one", "a"), draft.clone()).await.unwrap();
    store.create(&mk_key_in("one", "b"), mk_draft(Uuid::from_u128(2), "b", vec![])).await.unwrap();
    put(&**backend, &"/registry/core.example.org/states/one/b".into(), "broken").await;
    check(backend, &store, &[("one", 2, length(&draft))]).await;
    store.close().await;
}
