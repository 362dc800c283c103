//! Watches tell everything once and in order, from wherever they begin, and let nobody wait for anybody.

use std::collections::BTreeMap;

use futures::{StreamExt, stream::BoxStream};
use repot_storage::{Error, Event, WatchItem};

use super::*;

on_every_backend! {
    tells_everything_once_under_writers
    begins_in_the_past_and_joins_the_present
    a_slow_watcher_is_let_go_and_delays_nobody
    tells_the_state_before_and_its_payload
    keeps_to_its_namespace
    bookmarks_never_run_ahead
    refuses_versions_out_of_the_window
    ends_when_the_store_is_closed
}

type Items = BoxStream<'static, Result<WatchItem, Error>>;

async fn next(items: &mut Items) -> Result<WatchItem, Error> {
    let item = tokio::time::timeout(PATIENCE, items.next()).await.expect("nothing came");
    item.expect("the watch ended")
}

async fn next_event(items: &mut Items) -> Result<Arc<Event>, Error> {
    loop {
        if let WatchItem::Event(event) = next(items).await? {
            return Ok(event);
        }
    }
}

/// What an event says, short.
fn said(event: &Event) -> (u64, Option<String>, Option<String>) {
    let say = |object: &Object| format!("{} {}", object.key.name, label(object));
    (event.version.0, event.now.as_ref().map(say), event.before.as_ref().map(say))
}

/// Reads until an object of this name is created, and returns all that was said before.
async fn until(items: &mut Items, name: &str) -> Vec<(u64, Option<String>, Option<String>)> {
    let mut all = Vec::new();
    loop {
        let event = next_event(items).await.unwrap();
        if event.now.as_ref().is_some_and(|now| now.key.name == name) {
            return all;
        }
        all.push(said(&event));
    }
}

async fn write_some(store: Store, writer: u64, rounds: u64) {
    for n in 0..rounds {
        let uid = Uuid::from_u128((writer << 32 | n).into());
        let key = mk_key(&format!("{writer}-{}", n % 5));
        let payload = |seed| vec![mk_noise(seed, if n % 7 == 0 { 100_000 } else { 10 })];
        let object = store.create(&key, mk_draft(uid, &format!("{n}.0"), payload(n))).await.unwrap();
        let object = store.update(&object, mk_draft(uid, &format!("{n}.1"), payload(n + 1))).await.unwrap();
        store.delete(&object).await.unwrap();
    }
}

/// What the writers did, each in its order.
fn check_complete(all: &[(u64, Option<String>, Option<String>)], writers: u64, rounds: u64) {
    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "out of order or twice");
    assert_eq!(all.len() as u64, writers * rounds * 3);
    let mut steps: BTreeMap<String, Vec<[Option<String>; 2]>> = BTreeMap::new();
    for (_, now, before) in all {
        let writer = now.as_deref().or(before.as_deref()).unwrap().split('-').next().unwrap();
        let state =
            |text: &Option<String>| text.as_deref().map(|text| text.split(' ').nth(1).unwrap().to_owned());
        steps.entry(writer.to_owned()).or_default().push([state(now), state(before)]);
    }
    for steps in steps.values() {
        for (n, step) in steps.chunks(3).enumerate() {
            let (first, second) = (Some(format!("{n}.0")), Some(format!("{n}.1")));
            assert_eq!(step, [[first.clone(), None], [second.clone(), first], [None, second]]);
        }
    }
}

async fn tells_everything_once_under_writers(lab: &Lab) {
    let store = lab.open().await;
    let start = current(&store).await;
    let (writers, rounds) = (3, 25);
    let mut early = Vec::new();
    for _ in 0..5 {
        early.push(store.watch(&mk_scope(None), start).await.unwrap());
    }
    let tasks: Vec<_> = (0..writers).map(|w| tokio::spawn(write_some(store.clone(), w, rounds))).collect();
    // Some begin while others write, some in the past.
    let mut late = Vec::new();
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        late.push((current(&store).await, store.watch(&mk_scope(None), start).await.unwrap()));
        let now = current(&store).await;
        late.push((now, store.watch(&mk_scope(None), now).await.unwrap()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    store.create(&mk_key("end"), mk_draft(Uuid::nil(), "end", vec![])).await.unwrap();
    let expected = until(&mut early[0], "end").await;
    check_complete(&expected, writers, rounds);
    for items in &mut early[1..] {
        assert_eq!(until(items, "end").await, expected);
    }
    for (index, (after, items)) in late.iter_mut().enumerate() {
        let from = if index % 2 == 0 { start } else { *after };
        let own: Vec<_> = expected.iter().filter(|(version, ..)| *version > from.0).cloned().collect();
        assert_eq!(until(items, "end").await, own);
    }
    store.close().await;
}

async fn begins_in_the_past_and_joins_the_present(lab: &Lab) {
    // Thirty events in a ring of sixteen: whoever begins earlier has to be served from the backend first. Once in the
    // ring, it is never more than ten events behind.
    let store = lab.open_with(StoreOptions { ring_events: 16, ..StoreOptions::default() }).await;
    let start = current(&store).await;
    let mut live = store.watch(&mk_scope(None), start).await.unwrap();
    for n in 0..30 {
        store.create(&mk_key(&format!("o-{n:02}")), mk_draft(Uuid::nil(), "1", vec![])).await.unwrap();
        let event = next_event(&mut live).await.unwrap();
        assert_eq!(said(&event).1, Some(format!("o-{n:02} 1")));
    }
    let mut replayed = store.watch(&mk_scope(None), start).await.unwrap();
    for n in 0..60 {
        if (20..50).contains(&n) {
            store
                .create(&mk_key(&format!("o-{:02}", n + 10)), mk_draft(Uuid::nil(), "1", vec![]))
                .await
                .unwrap();
        }
        let event = next_event(&mut replayed).await.unwrap();
        assert_eq!(said(&event).1, Some(format!("o-{n:02} 1")));
    }
    store.close().await;
}

async fn a_slow_watcher_is_let_go_and_delays_nobody(lab: &Lab) {
    let store = lab.open_with(StoreOptions { ring_events: 16, ..StoreOptions::default() }).await;
    // Served by the ring from the beginning: the cache is there before the watches are.
    store.list_cached(&mk_scope(None), None).await.unwrap();
    wait_for_cache(&store).await;
    let start = current(&store).await;
    let mut slow = store.watch(&mk_scope(None), start).await.unwrap();
    let mut quick = store.watch(&mk_scope(None), start).await.unwrap();
    for n in 0..100 {
        store.create(&mk_key(&format!("o-{n}")), mk_draft(Uuid::nil(), "1", vec![])).await.unwrap();
        assert_eq!(said(&next_event(&mut quick).await.unwrap()).1, Some(format!("o-{n} 1")));
    }
    let outcome = next(&mut slow).await;
    assert!(matches!(outcome, Err(Error::Slow)), "{outcome:?}");
    assert!(slow.next().await.is_none(), "nothing comes after an error");
    // It may come back for the rest.
    let mut again = store.watch(&mk_scope(None), start).await.unwrap();
    for n in 0..100 {
        assert_eq!(said(&next_event(&mut again).await.unwrap()).1, Some(format!("o-{n} 1")));
    }
    store.close().await;
}

async fn tells_the_state_before_and_its_payload(lab: &Lab) {
    for ring_events in [100, 1] {
        let store = lab.open_with(StoreOptions { ring_events, ..StoreOptions::default() }).await;
        let start = current(&store).await;
        let (key, uid) = (mk_key(&format!("o-{ring_events}")), Uuid::from_u128(1));
        let payloads = [mk_noise(1, 300_000), mk_noise(2, 50_000), mk_noise(3, 500_000)];
        let draft = |n: usize| mk_draft(uid, &n.to_string(), vec![payloads[n].clone()]);
        let object = store.create(&key, draft(0)).await.unwrap();
        let object = store.update(&object, draft(1)).await.unwrap();
        let object = store.update(&object, draft(2)).await.unwrap();
        let removed = store.delete(&object).await.unwrap();
        let mut items = store.watch(&mk_scope(None), start).await.unwrap();
        for n in 0..4 {
            let event = next_event(&mut items).await.unwrap();
            if let Some(now) = &event.now {
                assert_eq!((now.version, label(now)), (event.version, n.to_string().as_str()));
                assert!(store.payload_bytes(now).await.unwrap() == payloads[n]);
            }
            if let Some(before) = &event.before {
                assert_eq!(label(before), (n - 1).to_string());
                assert!(store.payload_bytes(before).await.unwrap() == payloads[n - 1], "before {n}");
            }
            assert_eq!((event.now.is_some(), event.before.is_some()), (n < 3, n > 0));
            if n == 3 {
                assert_eq!(event.version, removed.version);
                assert_eq!(event.before.as_ref().unwrap().version, removed.version, "that of the removal");
            }
        }
        store.close().await;
    }
}

async fn keeps_to_its_namespace(lab: &Lab) {
    let store = lab.open().await;
    let start = current(&store).await;
    let mut items = store.watch(&mk_scope(Some("a")), start).await.unwrap();
    for (namespace, name) in [("a", "1"), ("a-b", "2"), ("b", "3"), ("", "a"), ("a", "4")] {
        store.create(&mk_key_in(namespace, name), mk_draft(Uuid::nil(), "x", vec![])).await.unwrap();
    }
    for name in ["1", "4"] {
        assert_eq!(said(&next_event(&mut items).await.unwrap()).1, Some(format!("{name} x")));
    }
    store.close().await;
}

async fn bookmarks_never_run_ahead(lab: &Lab) {
    let options = StoreOptions { bookmark_every: Duration::from_millis(1), ..StoreOptions::default() };
    let store = lab.open_with(options).await;
    let start = current(&store).await;
    let mut items = store.watch(&mk_scope(Some("ns")), start).await.unwrap();
    let writer = tokio::spawn(write_some(store.clone(), 1, 150));
    // What happens next door makes for bookmarks between the events.
    let (busy, done) = (store.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let until = done.clone();
    let neighbour = tokio::spawn(async move {
        let draft = || mk_draft(Uuid::nil(), "n", vec![]);
        let mut object = busy.create(&mk_key_in("next-door", "n"), draft()).await.unwrap();
        while !until.load(std::sync::atomic::Ordering::SeqCst) {
            object = busy.update(&object, draft()).await.unwrap();
        }
    });
    let (mut told, mut events, mut bookmarks) = (start, 0, 0);
    while events < 450 {
        match next(&mut items).await.unwrap() {
            WatchItem::Event(event) => {
                assert!(event.version > told, "{} after {told}", event.version);
                told = event.version;
                events += 1;
            }
            WatchItem::Bookmark(version) => {
                assert!(version > told, "bookmark {version} after {told}");
                told = version;
                bookmarks += 1;
            }
        }
    }
    writer.await.unwrap();
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    neighbour.await.unwrap();
    assert!(bookmarks > 0, "none came between events");
    // With nothing of its own happening, a watch still gets on with the store.
    let other = Key { resource: "others".into(), ..mk_key("x") };
    let other = store.create(&other, mk_draft(Uuid::nil(), "1", vec![])).await.unwrap();
    store.list_cached(&mk_scope(None), None).await.unwrap(); // asks for progress
    while told < other.version {
        let WatchItem::Bookmark(version) = next(&mut items).await.unwrap() else {
            panic!("nothing happened")
        };
        told = version;
    }
    store.close().await;
}

async fn refuses_versions_out_of_the_window(lab: &Lab) {
    let options = StoreOptions { history: Duration::from_millis(200), ..StoreOptions::default() };
    let store = lab.open_with(options).await;
    let mut object = store.create(&mk_key("a"), mk_draft(Uuid::nil(), "0", vec![])).await.unwrap();
    let start = object.version;
    for n in 1..4 {
        object = store.update(&object, mk_draft(Uuid::nil(), &n.to_string(), vec![])).await.unwrap();
    }
    let begin = std::time::Instant::now();
    loop {
        let outcome = match store.watch(&mk_scope(None), start).await {
            Ok(mut items) => next_event(&mut items).await.map(|event| said(&event)),
            Err(error) => Err(error),
        };
        match outcome {
            Err(Error::Expired { oldest }) => break assert!(oldest > start),
            other => assert_eq!(other.unwrap().1, Some("a 1".into())),
        }
        assert!(begin.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut items = store.watch(&mk_scope(None), current(&store).await).await.unwrap();
    store.delete(&object).await.unwrap();
    assert_eq!(said(&next_event(&mut items).await.unwrap()).2, Some("a 3".into()));
    store.close().await;
}

async fn ends_when_the_store_is_closed(lab: &Lab) {
    let store = lab.open().await;
    let mut items = store.watch(&mk_scope(None), current(&store).await).await.unwrap();
    let waiting = tokio::spawn(async move {
        while let Some(item) = items.next().await {
            item.unwrap();
        }
    });
    store.create(&mk_key("a"), mk_draft(Uuid::nil(), "0", vec![])).await.unwrap();
    store.close().await;
    tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
}

/// etcd goes away and comes back: what is told after that joins what was told before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goes_on_where_it_was_when_etcd_comes_back() {
    let mut process = EtcdProcess::start(None, &[]).await;
    let backend = Arc::new(Etcd::connect(process.options()).await.unwrap());
    let store = Store::open(backend, mk_keyring(), StoreOptions::default()).await.unwrap();
    wait_for_cache(&store).await;
    let start = current(&store).await;
    let mut items = store.watch(&mk_scope(None), start).await.unwrap();
    for round in 0..3 {
        let name = format!("o-{round}");
        store.create(&mk_key(&name), mk_draft(Uuid::nil(), "x", vec![])).await.unwrap();
        if round == 1 {
            assert_eq!(said(&next_event(&mut items).await.unwrap()).1, Some("o-1 x".into()));
        }
        process.kill();
        process.restart().await;
        if round != 1 {
            assert_eq!(said(&next_event(&mut items).await.unwrap()).1, Some(format!("{name} x")));
        }
    }
    store.close().await;
}
