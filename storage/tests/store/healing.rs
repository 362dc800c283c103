//! What does not open now, and may open later, is told from damage; and whoever watches learns when it opens again.

use std::path::Path;

use futures::{StreamExt, stream::BoxStream};
use repot_storage::{Error, Event, ListRequest, Usage, WatchItem, keyring::Follow};
use tokio_util::sync::CancellationToken;

use super::{
    spy::{Spy, all, put},
    *,
};

const FIRST: &str = "{name: first, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}";
const SECOND: &str = "{name: second, secret: ICECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}";
/// Another secret under the name of the first.
const CHANGED: &str = "{name: first, secret: ICECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}";

on_every_backend! {
    what_did_not_open_for_want_of_a_key_is_whole_once_the_key_is_there
    what_was_read_before_keys_came_is_whole_once_they_are_there
    an_object_that_is_repaired_is_told_to_those_who_were_not_shown_it
    another_secret_under_the_same_name_is_no_damage
}

fn mk_config(keys: &[&str]) -> String {
    let head = CONFIG.split("keys: [").next().unwrap();
    format!("{head}keys: [{}]}}", keys.join(", "))
}

fn write_keys(file: &Path, keys: &[&str]) {
    let draft = file.with_extension("new");
    std::fs::write(&draft, mk_config(keys)).unwrap();
    std::fs::rename(draft, file).unwrap();
}

/// The keys of this file, which is read again and again.
async fn follow_keys(file: &Path, stop: &CancellationToken) -> Arc<Keyring> {
    let second = Duration::from_micros(100);
    let follow = Follow { path: file.to_owned(), reload: true, server: "test".into(), second };
    Keyring::follow(follow, stop.clone()).await.unwrap()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect(what);
}

async fn next_event(items: &mut BoxStream<'static, Result<WatchItem, Error>>) -> Result<Arc<Event>, Error> {
    loop {
        let item = tokio::time::timeout(PATIENCE, items.next()).await.expect("nothing came");
        if let WatchItem::Event(event) = item.expect("the watch ended")? {
            return Ok(event);
        }
    }
}

fn labels(event: &Event) -> (Option<&str>, Option<&str>) {
    (event.now.as_ref().map(label), event.before.as_ref().map(label))
}

async fn what_did_not_open_for_want_of_a_key_is_whole_once_the_key_is_there(lab: &Lab) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.yaml");
    write_keys(&file, &[FIRST]);
    let stop = CancellationToken::new();
    let keyring = follow_keys(&file, &stop).await;
    let backend = lab.backend().await;
    let store = Store::open(backend.clone(), keyring, StoreOptions::default()).await.unwrap();
    // Another replica has the next key already.
    let newer = Arc::new(Keyring::parse(&mk_config(&[SECOND, FIRST])).unwrap());
    let ahead = Store::open(backend, newer, StoreOptions::default()).await.unwrap();
    store.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", vec![])).await.unwrap();
    store.list_cached(&mk_scope(None), None).await.unwrap();
    wait_for_cache(&store).await;
    let start = current(&store).await;
    let mut items = store.watch(&mk_scope(None), start).await.unwrap();
    let b = ahead.create(&mk_key("b"), mk_draft(Uuid::from_u128(1), "b.1", vec![])).await.unwrap();
    ahead.update(&b, mk_draft(Uuid::from_u128(1), "b.2", vec![mk_noise(1, 200_000)])).await.unwrap();

    let error = next_event(&mut items).await.unwrap_err();
    assert!(matches!(error, Error::Sealing { .. }) && !error.is_proven_damage(), "{error}");
    let request = || ListRequest::all(mk_scope(None));
    for list in [
        store.list(request()).await.unwrap(),
        store.list_cached(&mk_scope(None), None).await.unwrap(),
        store.list_page(request(), None).await.unwrap(),
    ] {
        let [a, b] = &list.objects[..] else { panic!("{} objects", list.objects.len()) };
        assert_eq!(label(a.as_ref().unwrap()), "a");
        assert!(b.as_ref().is_err_and(|error| !error.is_proven_damage()), "{b:?}");
    }
    let usage = async || store.usage(&mk_scope(Some("ns"))).await.unwrap()["ns"];
    assert!(matches!(usage().await, Usage { objects: 2, unknown: 1, .. }), "{:?}", usage().await);

    write_keys(&file, &[FIRST, SECOND]);
    until("the object to open", async || {
        store.list_cached(&mk_scope(None), None).await.unwrap().objects.iter().all(Result::is_ok)
    })
    .await;
    assert!(matches!(usage().await, Usage { objects: 2, unknown: 0, bytes } if bytes > 200_000));
    // Whoever goes on from before is told all of it, from the same events.
    until("the events to open", async || {
        let mut items = store.watch(&mk_scope(None), start).await.unwrap();
        // One is opened after the other.
        next_event(&mut items).await.is_ok() && next_event(&mut items).await.is_ok()
    })
    .await;
    let mut items = store.watch(&mk_scope(None), start).await.unwrap();
    assert_eq!(labels(&next_event(&mut items).await.unwrap()), (Some("b.1"), None));
    let event = next_event(&mut items).await.unwrap();
    assert_eq!(labels(&event), (Some("b.2"), Some("b.1")));
    assert!(store.payload_bytes(event.now.as_ref().unwrap()).await.unwrap() == mk_noise(1, 200_000));
    stop.cancel();
    ahead.close().await;
    store.close().await;
}

async fn what_was_read_before_keys_came_is_whole_once_they_are_there(lab: &Lab) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.yaml");
    write_keys(&file, &[FIRST]);
    let stop = CancellationToken::new();
    let keyring = follow_keys(&file, &stop).await;
    let backend = lab.backend().await;
    let newer = Arc::new(Keyring::parse(&mk_config(&[SECOND, FIRST])).unwrap());
    let ahead = Store::open(backend.clone(), newer, StoreOptions::default()).await.unwrap();
    // More than one page of records.
    for n in 0..80 {
        let meta = mk_noise(n, 60_000).iter().map(|byte| b'a' + byte % 26).collect::<Vec<u8>>();
        let draft = Draft { meta: meta.into(), ..mk_draft(Uuid::from_u128(n.into()), "", vec![]) };
        ahead.create(&mk_key(&format!("{n:02}")), draft).await.unwrap();
    }
    let spy = Spy::over(backend);
    let store = Store::open(spy.clone(), keyring, StoreOptions::default()).await.unwrap();
    spy.hold_page();
    // This fills the cache.
    let _items = store.watch(&mk_scope(None), current(&store).await).await.unwrap();
    spy.waiting().await;
    assert!(store.get(&mk_key("00")).await.is_err());
    write_keys(&file, &[FIRST, SECOND]);
    // The keys are in use, and have opened what is in the cache by now, which is nothing.
    until("the new keys", async || store.get(&mk_key("00")).await.is_ok()).await;
    let listed = async || store.list_cached(&mk_scope(None), None).await.unwrap().objects;
    spy.release();
    wait_for_cache(&store).await;
    until("the objects to open", async || listed().await.iter().all(Result::is_ok)).await;
    assert_eq!(listed().await.len(), 80);
    stop.cancel();
    ahead.close().await;
    store.close().await;
}

async fn an_object_that_is_repaired_is_told_to_those_who_were_not_shown_it(lab: &Lab) {
    let backend = lab.backend().await;
    let store = Store::open(backend.clone(), mk_keyring(), StoreOptions::default()).await.unwrap();
    store.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", vec![])).await.unwrap();
    store.create(&mk_key("b"), mk_draft(Uuid::from_u128(1), "b", vec![])).await.unwrap();
    wait_for_cache(&store).await;
    let found = all(&*backend, "/registry/core.example.org/states/ns/b").await;
    let (path, good) = (found[0].key.clone(), found[0].value.clone());
    let mut bad = good.to_vec();
    *bad.last_mut().unwrap() ^= 1;
    put(&*backend, &path, bad).await;
    let list = store.list_cached(&mk_scope(None), None).await.unwrap();
    assert!(list.objects[0].is_ok() && list.objects[1].as_ref().is_err_and(Error::is_proven_damage));
    let mut items = store.watch(&mk_scope(None), list.version).await.unwrap();
    put(&*backend, &path, good).await;
    let event = next_event(&mut items).await.unwrap();
    assert_eq!(labels(&event), (Some("b"), None));
    // As of the version of the damage it is damaged, also now.
    let request = ListRequest { at: Some(list.version), ..ListRequest::all(mk_scope(None)) };
    let past = store.list_page(request, None).await.unwrap();
    assert!(past.objects[1].as_ref().is_err_and(Error::is_proven_damage), "{:?}", past.objects[1]);
    store.close().await;
}

async fn another_secret_under_the_same_name_is_no_damage(lab: &Lab) {
    let store = lab.open().await;
    store.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", vec![])).await.unwrap();
    store.close().await;
    let changed = Arc::new(Keyring::parse(&mk_config(&[CHANGED])).unwrap());
    let store = Store::open(lab.backend().await, changed, StoreOptions::default()).await.unwrap();
    let check = async || {
        let list = store.list_cached(&mk_scope(None), None).await.unwrap();
        let error = list.objects[0].as_ref().unwrap_err();
        assert!(!error.is_proven_damage() && error.to_string().contains("right secret"), "{error}");
    };
    check().await;
    // Not either once something is written under that secret.
    store.create(&mk_key("b"), mk_draft(Uuid::from_u128(1), "b", vec![])).await.unwrap();
    assert_eq!(label(&store.get(&mk_key("b")).await.unwrap().unwrap()), "b");
    check().await;
    store.get(&mk_key("a")).await.unwrap_err();
    assert!(store.get(&mk_key("a")).await.is_err_and(|error| !error.is_proven_damage()));
    store.close().await;
}
