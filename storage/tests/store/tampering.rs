//! Whatever is altered, moved, swapped, cut or lost below the store is noticed, named, and hides nothing else.

use futures::{StreamExt, TryStreamExt};
use repot_storage::{
    Error, ListRequest, WatchItem,
    backend::{Op, Txn, prefix_range},
};

use super::{
    spy::{all, put, remove},
    *,
};

on_every_backend! {
    notices_every_altered_byte_of_a_record
    notices_altered_bytes_of_a_chunk
    notices_chunks_that_are_swapped_cut_lost_or_borrowed
    notices_a_record_in_another_place
    notices_an_altered_record_behind_a_kept_head
    an_unreadable_object_ends_only_what_touches_it
    reads_with_old_keys_and_rewraps_on_update
    damage_is_counted_by_the_part_that_is_damaged
}

async fn open(lab: &Lab) -> (Arc<dyn Backend>, Store) {
    let backend = lab.backend().await;
    let store = Store::open(backend.clone(), mk_keyring(), StoreOptions::default()).await.unwrap();
    (backend, store)
}

fn is_noticed(error: &Error, key: &Key) -> bool {
    match error {
        Error::Corrupt { key: own, .. } | Error::Sealing { key: own, .. } => own == key,
        _ => false,
    }
}

/// The record at a key.
async fn record(backend: &dyn Backend, name: &str) -> (Bytes, Bytes) {
    let found = all(backend, &format!("/registry/core.example.org/states/ns/{name}")).await;
    (found[0].key.clone(), found[0].value.clone())
}

/// The chunks of an object in order of their names.
async fn chunks(backend: &dyn Backend, uid: Uuid) -> Vec<(Bytes, Bytes)> {
    let found = all(backend, &format!("/chunks/{}/", uid.simple())).await;
    found.into_iter().filter(|kv| !kv.value.is_empty()).map(|kv| (kv.key, kv.value)).collect()
}

fn flipped(value: &Bytes, at: usize, bit: u8) -> Bytes {
    let mut value = value.to_vec();
    value[at] ^= 1 << bit;
    value.into()
}

async fn notices_every_altered_byte_of_a_record(lab: &Lab) {
    let (backend, store) = open(lab).await;
    let key = mk_key("a");
    store.create(&key, mk_draft(Uuid::from_u128(77), "a", vec![mk_machines(1, 300)])).await.unwrap();
    let (path, good) = record(&*backend, "a").await;
    for at in 0..good.len() {
        put(&*backend, &path, flipped(&good, at, (at % 8) as u8)).await;
        let error = store.get(&key).await.unwrap_err();
        assert!(is_noticed(&error, &key), "byte {at}: {error}");
    }
    for len in [0, 3, 4, 20, 22, 23, 60, good.len() - 1] {
        put(&*backend, &path, good.slice(..len)).await;
        let error = store.get(&key).await.unwrap_err();
        assert!(is_noticed(&error, &key), "cut to {len}: {error}");
    }
    put(&*backend, &path, [&good[..], b"x"].concat()).await;
    assert!(is_noticed(&store.get(&key).await.unwrap_err(), &key));
    put(&*backend, &path, good).await;
    let object = store.get(&key).await.unwrap().unwrap();
    assert!(store.payload_bytes(&object).await.unwrap() == mk_machines(1, 300));
    store.close().await;
}

/// How often damage of a part was met.
fn damage(store: &Store, part: &str) -> f64 {
    let families = store.collectors().iter().flat_map(|one| one.collect()).collect::<Vec<_>>();
    let family = families.iter().find(|family| family.name() == "repot_storage_damage_found_total").unwrap();
    let of_part = |labels: &[prometheus::proto::LabelPair]| labels.iter().any(|label| label.value() == part);
    let metric = family.get_metric().iter().find(|metric| of_part(metric.get_label())).unwrap();
    metric.get_counter().get_value()
}

async fn damage_is_counted_by_the_part_that_is_damaged(lab: &Lab) {
    let (backend, store) = open(lab).await;
    let (key, uid) = (mk_key("a"), Uuid::from_u128(1));
    store.create(&key, mk_draft(uid, "a", vec![mk_noise(1, 70_000)])).await.unwrap();
    store.get(&mk_key("b")).await.unwrap();
    read(&store, &key).await.unwrap();
    assert_eq!((damage(&store, "record"), damage(&store, "payload")), (0.0, 0.0), "all is well");
    let [(path, good)] = &chunks(&*backend, uid).await[..] else { panic!("one chunk") };
    put(&*backend, path, flipped(good, good.len() / 2, 0)).await;
    read(&store, &key).await.unwrap_err();
    assert_eq!((damage(&store, "record"), damage(&store, "payload")), (0.0, 2.0), "read in two ways");
    let (path, good) = record(&*backend, "a").await;
    put(&*backend, &path, flipped(&good, good.len() - 1, 0)).await;
    store.get(&key).await.unwrap_err();
    assert_eq!((damage(&store, "record"), damage(&store, "payload")), (1.0, 2.0));
    store.close().await;
}

/// Reads the payload in both ways, which must agree.
async fn read(store: &Store, key: &Key) -> Result<Bytes, Error> {
    let object = store.get(key).await?.unwrap();
    let whole = store.payload_bytes(&object).await;
    let pieces: Result<Vec<Bytes>, Error> = store.payload(&object).try_collect().await;
    match (&whole, &pieces) {
        (Ok(whole), Ok(pieces)) => assert!(whole == &joined(pieces)),
        (Err(_), Err(_)) => {}
        _ => panic!("{} {}", whole.is_ok(), pieces.is_ok()),
    }
    whole
}

async fn notices_altered_bytes_of_a_chunk(lab: &Lab) {
    let (backend, store) = open(lab).await;
    for (seed, payload) in [(1, mk_noise(1, 70_000)), (2, mk_machines(2, 70_000))] {
        let (key, uid) = (mk_key(&format!("a-{seed}")), Uuid::from_u128(seed));
        store.create(&key, mk_draft(uid, "a", vec![payload.clone()])).await.unwrap();
        let [(path, good)] = &chunks(&*backend, uid).await[..] else { panic!("one chunk") };
        let step = good.len() / 150;
        for at in (0..40).chain((40..good.len()).step_by(step)).chain(good.len() - 20..good.len()) {
            put(&*backend, path, flipped(good, at, (at % 8) as u8)).await;
            let error = read(&store, &key).await.unwrap_err();
            assert!(is_noticed(&error, &key), "byte {at}: {error}");
        }
        put(&*backend, path, good.clone()).await;
        assert!(read(&store, &key).await.unwrap() == payload);
    }
    store.close().await;
}

async fn notices_chunks_that_are_swapped_cut_lost_or_borrowed(lab: &Lab) {
    let (backend, store) = open(lab).await;
    let (key, other) = (mk_key("a"), mk_key("b"));
    let (uid, other_uid) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let payload = vec![mk_noise(1, 100_000), mk_noise(2, 100_000), mk_noise(3, 100_000)];
    store.create(&key, mk_draft(uid, "a", payload.clone())).await.unwrap();
    store.create(&other, mk_draft(other_uid, "b", payload.clone())).await.unwrap();
    let own = chunks(&*backend, uid).await;
    let borrowed = chunks(&*backend, other_uid).await;
    assert!(own.len() >= 2);
    let (first, second) = (&own[0], &own[1]);
    for (what, value) in [
        ("swapped", second.1.clone()),
        ("cut", first.1.slice(..first.1.len() - 1)),
        ("emptied", Bytes::new()),
        ("beheaded", first.1.slice(1..)),
        ("prolonged", [&first.1[..], b"x"].concat().into()),
        ("borrowed", borrowed[0].1.clone()),
    ] {
        put(&*backend, &first.0, value).await;
        let error = read(&store, &key).await.unwrap_err();
        assert!(is_noticed(&error, &key), "{what}: {error}");
        assert!(read(&store, &other).await.unwrap() == joined(&payload), "{what} hides another object");
    }
    // Both swapped with each other.
    let swap = vec![Op::Put(first.0.clone(), second.1.clone()), Op::Put(second.0.clone(), first.1.clone())];
    backend.txn(Txn { compares: vec![], ops: swap }).await.unwrap();
    assert!(is_noticed(&read(&store, &key).await.unwrap_err(), &key));
    put(&*backend, &first.0, first.1.clone()).await;
    put(&*backend, &second.0, second.1.clone()).await;
    assert!(read(&store, &key).await.unwrap() == joined(&payload));
    remove(&*backend, &second.0).await;
    let error = read(&store, &key).await.unwrap_err();
    assert!(error.to_string().contains("missing") && is_noticed(&error, &key), "{error}");
    store.close().await;
}

async fn notices_a_record_in_another_place(lab: &Lab) {
    let (backend, store) = open(lab).await;
    store.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", vec![])).await.unwrap();
    store.create(&mk_key("b"), mk_draft(Uuid::nil(), "b", vec![])).await.unwrap();
    let (_, a) = record(&*backend, "a").await;
    let (path, _) = record(&*backend, "b").await;
    put(&*backend, &path, a).await;
    let error = store.get(&mk_key("b")).await.unwrap_err();
    assert!(is_noticed(&error, &mk_key("b")), "{error}");
    assert_eq!(label(&store.get(&mk_key("a")).await.unwrap().unwrap()), "a");
    store.close().await;
}

/// With keys that do not bind the place, the record still does.
#[tokio::test]
async fn binds_records_whatever_wraps_their_keys() {
    for provider in [
        "secretbox: {keys: [{name: k, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}",
        "identity: {}",
    ] {
        let config = CONFIG.split("- aesgcm").next().unwrap();
        let keyring = Arc::new(Keyring::parse(&format!("{config}- {provider}")).unwrap());
        let lab = Lab::embedded().await;
        let backend = lab.backend().await;
        let store = Store::open(backend.clone(), keyring, StoreOptions::default()).await.unwrap();
        store.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", vec![])).await.unwrap();
        let (path, a) = record(&*backend, "a").await;
        let moved = Bytes::from([&path[..path.len() - 1], b"b"].concat());
        put(&*backend, &moved, a.clone()).await;
        assert!(is_noticed(&store.get(&mk_key("b")).await.unwrap_err(), &mk_key("b")));
        for at in 0..a.len() {
            put(&*backend, &path, flipped(&a, at, 5)).await;
            assert!(is_noticed(&store.get(&mk_key("a")).await.unwrap_err(), &mk_key("a")), "byte {at}");
        }
        store.close().await;
    }
}

async fn notices_an_altered_record_behind_a_kept_head(lab: &Lab) {
    // Payload that stays in the record is read again when it is asked for.
    let (backend, store) = open(lab).await;
    let key = mk_key("a");
    store.create(&key, mk_draft(Uuid::nil(), "a", vec![mk_noise(1, 60_000)])).await.unwrap();
    let list = store.list_cached(&mk_scope(None), None).await.unwrap();
    let object = list.objects[0].as_ref().unwrap().clone();
    assert!(store.payload_bytes(&object).await.unwrap() == mk_noise(1, 60_000));
    let (path, good) = record(&*backend, "a").await;
    put(&*backend, &path, flipped(&good, 30_000, 1)).await;
    // As of the version of the list, it is whole.
    assert!(store.payload_bytes(&object).await.unwrap() == mk_noise(1, 60_000));
    assert!(is_noticed(&store.get(&key).await.unwrap_err(), &key));
    store.close().await;
}

async fn an_unreadable_object_ends_only_what_touches_it(lab: &Lab) {
    let (backend, store) = open(lab).await;
    for name in ["a", "b", "c"] {
        let draft = mk_draft(Uuid::from_u128(name.as_bytes()[0].into()), name, vec![mk_noise(1, 100_000)]);
        store.create(&mk_key(name), draft).await.unwrap();
    }
    store.list_cached(&mk_scope(None), None).await.unwrap();
    let start = current(&store).await;
    let mut all_of_it = store.watch(&mk_scope(None), start).await.unwrap();
    let mut elsewhere = store.watch(&mk_scope(Some("other")), start).await.unwrap();
    let (path, good) = record(&*backend, "b").await;
    put(&*backend, &path, flipped(&good, good.len() - 1, 1)).await;
    for list in [
        store.list(ListRequest::all(mk_scope(None))).await.unwrap(),
        store.list_cached(&mk_scope(None), None).await.unwrap(),
    ] {
        let [a, b, c] = &list.objects[..] else { panic!("{} objects", list.objects.len()) };
        assert_eq!((label(a.as_ref().unwrap()), label(c.as_ref().unwrap())), ("a", "c"));
        assert!(is_noticed(b.as_ref().unwrap_err(), &mk_key("b")));
        assert!(store.payload_bytes(c.as_ref().unwrap()).await.unwrap() == mk_noise(1, 100_000));
    }
    // Its watch ends, that of others does not.
    let error = loop {
        match tokio::time::timeout(PATIENCE, all_of_it.next()).await.unwrap().unwrap() {
            Ok(WatchItem::Bookmark(_)) => {}
            Ok(WatchItem::Event(event)) => panic!("{event:?}"),
            Err(error) => break error,
        }
    };
    assert!(is_noticed(&error, &mk_key("b")), "{error}");
    assert!(all_of_it.next().await.is_none());
    store.create(&mk_key_in("other", "d"), mk_draft(Uuid::nil(), "d", vec![])).await.unwrap();
    loop {
        match tokio::time::timeout(PATIENCE, elsewhere.next()).await.unwrap().unwrap().unwrap() {
            WatchItem::Event(event) => break assert_eq!(label(event.now.as_ref().unwrap()), "d"),
            WatchItem::Bookmark(_) => {}
        }
    }
    // The collector leaves alone what it cannot read.
    let report = store.audit().await.unwrap();
    assert_eq!((report.removed, report.unreadable), (0, 1));
    put(&*backend, &path, good).await;
    assert!(read(&store, &mk_key("b")).await.unwrap() == mk_noise(1, 100_000));
    store.close().await;
}

async fn reads_with_old_keys_and_rewraps_on_update(lab: &Lab) {
    let (_, store) = open(lab).await;
    let payload = vec![mk_noise(1, 300_000)];
    let object = store.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", payload.clone())).await.unwrap();
    store.close().await;
    let reopen = async |keys: &str| {
        let head = CONFIG.split("keys: [").next().unwrap();
        let keyring = Arc::new(Keyring::parse(&format!("{head}keys: [{keys}]}}")).unwrap());
        let backend = lab.backend().await;
        (backend.clone(), Store::open(backend, keyring, StoreOptions::default()).await.unwrap())
    };
    let first = "{name: first, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}";
    let second = "{name: second, secret: ICECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}";
    let (backend, store) = reopen(&format!("{second}, {first}")).await;
    let stale = store.get(&mk_key("a")).await.unwrap().unwrap();
    assert!(stale.stale);
    let before = chunks(&*backend, object.uid).await;
    let fresh = store.update(&stale, mk_draft(Uuid::nil(), "a", payload.clone())).await.unwrap();
    assert!(!fresh.stale && !store.get(&mk_key("a")).await.unwrap().unwrap().stale);
    assert_eq!(chunks(&*backend, object.uid).await, before, "chunks are not written again");
    store.close().await;
    let (_, store) = reopen(second).await;
    assert!(
        read(&store, &mk_key("a")).await.unwrap() == joined(&payload),
        "the old key is not needed any more"
    );
    store.close().await;
    let (_, store) = reopen(first).await;
    let error = store.get(&mk_key("a")).await.unwrap_err();
    assert!(matches!(&error, Error::Sealing { key, .. } if *key == mk_key("a")), "{error}");
    store.close().await;
}

const SECRET: &[u8] = b"correct-horse-battery-staple-7f3a";

/// Writes the secret in all places a caller can put it, in all shapes.
async fn write_secrets(store: &Store) {
    let text = |len: usize| Bytes::from(SECRET.repeat(len.div_ceil(SECRET.len())));
    let noisy =
        |seed: u64| Bytes::from([&mk_noise(seed, 70_000)[..], SECRET, &mk_noise(seed + 1, 90_000)].concat());
    for (n, payload) in
        [vec![text(40)], vec![text(100_000)], vec![noisy(1)], vec![noisy(3), text(10), noisy(5)]]
            .into_iter()
            .enumerate()
    {
        let (key, uid) = (mk_key(&format!("o-{n}")), Uuid::from_u128(n as u128));
        let draft = |payload: Vec<Bytes>| Draft {
            uid,
            meta: SECRET.into(),
            summary: text(200),
            payload: payload.into(),
        };
        let object = store.create(&key, draft(payload.clone())).await.unwrap();
        store.update(&object, draft([payload, vec![text(77)]].concat())).await.unwrap();
    }
}

fn holds_secret(bytes: &[u8]) -> bool {
    // Any ten bytes of it: compression may have kept only a part together.
    SECRET.windows(10).any(|part| bytes.windows(10).any(|window| window == part))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_the_files_of_the_embedded_store() {
    let lab = Lab::embedded().await;
    let store = lab.open().await;
    write_secrets(&store).await;
    store.close().await;
    let Lab::Embedded(dir) = &lab else { unreachable!() };
    let (mut files, mut bytes) = (vec![dir.path().to_owned()], 0);
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let content = std::fs::read(&path).unwrap();
        bytes += content.iter().filter(|byte| **byte != 0).count();
        assert!(!holds_secret(&content), "{}", path.display());
    }
    assert!(bytes > 300_000, "the objects are not in these files: {bytes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_etcd() {
    let lab = Lab::etcd().await;
    let (backend, store) = open(&lab).await;
    write_secrets(&store).await;
    let everything = all(&*backend, "/").await;
    assert!(everything.iter().map(|kv| kv.value.len()).sum::<usize>() > 300_000);
    assert!(prefix_range(b"/").contains(&everything[0].key));
    for kv in everything {
        assert!(!holds_secret(&kv.value) && !holds_secret(&kv.key), "{:?}", kv.key);
    }
    store.close().await;
}
