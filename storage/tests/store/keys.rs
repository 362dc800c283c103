//! Keys come and go while a store is open.

use std::path::Path;

use futures::{StreamExt, stream};
use repot_storage::{KeyUse, Rewritten, keyring::Follow};
use tokio_util::sync::CancellationToken;

use super::{spy::put, *};

const FIRST: &str = "{name: first, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}";
const SECOND: &str = "{name: second, secret: ICECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}";

on_every_backend! {
    a_cached_object_opens_as_soon_as_its_key_is_there
    an_object_read_before_a_change_of_keys_is_written_under_the_new_one
    rewrites_what_is_stale_and_nothing_twice
    rewrites_and_counts_more_than_a_page
    counts_what_does_not_open
    a_configuration_that_does_not_work_is_not_taken
}

fn write_keys(file: &Path, keys: &[&str]) {
    let head = CONFIG.split("keys: [").next().unwrap();
    write_config(file, &format!("{head}keys: [{}]}}", keys.join(", ")));
}

fn write_config(file: &Path, text: &str) {
    let draft = file.with_extension("new");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(draft, file).unwrap();
}

/// A store that follows a file; sixty seconds take it six milliseconds.
async fn follow(lab: &Lab, file: &Path) -> (Store, tokio_util::sync::DropGuard) {
    let second = Duration::from_micros(100);
    let follow = Follow { path: file.into(), reload: true, server: "test".into(), second };
    let stop = CancellationToken::new();
    let keyring = Keyring::follow(follow, stop.clone()).await.unwrap();
    let store = Store::open(lab.backend().await, keyring, StoreOptions::default()).await.unwrap();
    (store, stop.drop_guard())
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect(what);
}

async fn a_cached_object_opens_as_soon_as_its_key_is_there(lab: &Lab) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.yaml");
    write_keys(&file, &[FIRST]);
    let store = lab.open().await;
    store.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", vec![])).await.unwrap();
    store.close().await;
    write_keys(&file, &[SECOND]);
    let (store, _stop) = follow(lab, &file).await;
    let cached = async || store.list_cached(&mk_scope(None), None).await.unwrap().objects.remove(0);
    let error = cached().await.unwrap_err();
    assert!(error.to_string().contains("cannot seal or open"), "{error}");
    write_keys(&file, &[SECOND, FIRST]);
    until("the object to open", async || cached().await.is_ok()).await;
    store.close().await;
}

async fn an_object_read_before_a_change_of_keys_is_written_under_the_new_one(lab: &Lab) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.yaml");
    write_keys(&file, &[FIRST]);
    let (store, _stop) = follow(lab, &file).await;
    let read = store.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", vec![])).await.unwrap();
    assert_eq!((read.wrapped_by().as_str(), read.stale), ("aesgcm first", false));
    write_keys(&file, &[SECOND, FIRST]);
    until("other keys", async || store.get(&mk_key("a")).await.unwrap().unwrap().stale).await;
    let written = store.update(&read, mk_draft(Uuid::nil(), "b", vec![])).await.unwrap();
    assert_eq!(written.wrapped_by(), "aesgcm second");
    store.close().await;
}

async fn rewrites_what_is_stale_and_nothing_twice(lab: &Lab) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.yaml");
    write_keys(&file, &[FIRST]);
    let (store, _stop) = follow(lab, &file).await;
    let payload = vec![mk_noise(1, 300_000)];
    for n in 0..5u128 {
        let draft = mk_draft(Uuid::from_u128(n), "a", payload.clone());
        store.create(&mk_key(&format!("a{n}")), draft).await.unwrap();
    }
    write_keys(&file, &[SECOND, FIRST]);
    until("other keys", async || store.get(&mk_key("a0")).await.unwrap().unwrap().stale).await;
    store.create(&mk_key("new"), mk_draft(Uuid::from_u128(9), "new", vec![])).await.unwrap();
    let scope = mk_scope(None);
    let mut uses = store.key_use(&scope).await.unwrap();
    assert_eq!(uses.remove("aesgcm first"), Some(KeyUse { objects: 5, stale: 5 }));
    assert_eq!(uses.remove("aesgcm second"), Some(KeyUse { objects: 1, stale: 0 }));
    assert!(uses.is_empty(), "{uses:?}");
    // Somebody else writes one of them meanwhile, and the pass is broken off after a few.
    let broken_off = tokio::time::timeout(
        Duration::from_millis(250),
        store.rewrite(&scope, Duration::from_millis(100), |_| {}),
    );
    assert!(broken_off.await.is_err(), "five writes take 400 ms");
    let mut told = Rewritten::default();
    let done = store.rewrite(&scope, Duration::ZERO, |progress| told = progress).await.unwrap();
    assert!(done.seen == 6 && (1..5).contains(&done.written) && done.failed == 0, "{done:?}");
    assert_eq!(told, done);
    let done = store.rewrite(&scope, Duration::ZERO, |_| {}).await.unwrap();
    assert_eq!(done, Rewritten { seen: 6, written: 0, failed: 0 });
    write_keys(&file, &[SECOND]);
    let keys = store.key_use(&scope).await.unwrap();
    assert_eq!(keys.keys().collect::<Vec<_>>(), ["aesgcm second"]);
    let object = store.get(&mk_key("a3")).await.unwrap().unwrap();
    assert!(store.payload_bytes(&object).await.unwrap() == payload[0], "payload is as it was");
    store.close().await;
}

async fn rewrites_and_counts_more_than_a_page(lab: &Lab) {
    const MANY: u64 = 510;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.yaml");
    write_keys(&file, &[FIRST]);
    let (store, _stop) = follow(lab, &file).await;
    let create = |n: u64| {
        let (store, draft) = (store.clone(), mk_draft(Uuid::from_u128(n.into()), "a", vec![]));
        async move { store.create(&mk_key(&format!("a{n}")), draft).await.map(drop) }
    };
    stream::iter(0..MANY).map(create).buffer_unordered(32).for_each(|made| async { made.unwrap() }).await;
    write_keys(&file, &[SECOND, FIRST]);
    until("other keys", async || store.get(&mk_key("a0")).await.unwrap().unwrap().stale).await;
    let scope = mk_scope(None);
    let uses = store.key_use(&scope).await.unwrap();
    assert_eq!(uses, [("aesgcm first".to_owned(), KeyUse { objects: MANY, stale: MANY })].into());
    let done = store.rewrite(&scope, Duration::ZERO, |_| {}).await.unwrap();
    assert_eq!(done, Rewritten { seen: MANY, written: MANY, failed: 0 });
    let uses = store.key_use(&scope).await.unwrap();
    assert_eq!(uses, [("aesgcm second".to_owned(), KeyUse { objects: MANY, stale: 0 })].into());
    store.close().await;
}

/// Whoever removes a key because nothing is said to need it must not have been told of a part only.
async fn counts_what_does_not_open(lab: &Lab) {
    let backend = lab.backend().await;
    let store = Store::open(backend.clone(), mk_keyring(), StoreOptions::default()).await.unwrap();
    for name in ["a", "b"] {
        store.create(&mk_key(name), mk_draft(Uuid::nil(), name, vec![])).await.unwrap();
    }
    put(&*backend, &"/registry/core.example.org/states/ns/b".into(), "broken").await;
    let scope = mk_scope(None);
    let uses = store.key_use(&scope).await.unwrap();
    let one = |key: &str| (key.to_owned(), KeyUse { objects: 1, stale: 0 });
    assert_eq!(uses, [one("aesgcm first"), one("unreadable")].into());
    let done = store.rewrite(&scope, Duration::ZERO, |_| {}).await.unwrap();
    assert_eq!(done, Rewritten { seen: 2, written: 0, failed: 1 });
    store.close().await;
}

/// How often another configuration was taken, and how often one was not.
fn reloads(store: &Store) -> [u64; 2] {
    let counters = store.keyring().collectors();
    let families: Vec<_> = counters.iter().flat_map(|counter| counter.collect()).collect();
    ["success", "failure"].map(|status| {
        let reloads = families.iter().filter(|family| family.name().ends_with("automatic_reloads_total"));
        let metrics = reloads.flat_map(|family| family.get_metric());
        let of_it = metrics.filter(|metric| metric.get_label().iter().any(|label| label.value() == status));
        of_it.map(|metric| metric.get_counter().get_value() as u64).sum()
    })
}

async fn a_configuration_that_does_not_work_is_not_taken(lab: &Lab) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.yaml");
    write_keys(&file, &[FIRST]);
    let (store, _stop) = follow(lab, &file).await;
    let object = store.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", vec![])).await.unwrap();
    // A service that nobody runs is to wrap from now on.
    let endpoint = dir.path().join("none.sock");
    let kms = format!(
        "- kms: {{apiVersion: v2, name: main, endpoint: 'unix://{}', timeout: 10ms}}\n  - aesgcm",
        endpoint.display()
    );
    write_config(&file, &CONFIG.replace("- aesgcm", &kms));
    until("the file to be looked at", async || reloads(&store) != [0, 0]).await;
    assert_eq!(reloads(&store)[0], 0, "it was taken");
    let object = store.update(&object, mk_draft(Uuid::nil(), "b", vec![])).await.unwrap();
    assert_eq!(object.wrapped_by(), "aesgcm first");
    store.close().await;
}
