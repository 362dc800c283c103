//! History goes at any moment, by whomever: readers are right, or are told that what they want is gone.

use std::collections::BTreeMap;

use futures::StreamExt;
use repot_storage::{Error, ListRequest, WatchItem};

use super::{
    spy::{Fate, Spy},
    *,
};

on_every_backend! {
    readers_are_right_or_told
    a_write_whose_traces_are_gone_is_of_unknown_outcome
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const ROUNDS: u64 = 40;

/// In two chunks or more, all of them new in each state.
fn content(name: &str, state: u64) -> Vec<Bytes> {
    let seed = state * 1000 + u64::from(name.as_bytes()[0]);
    vec![mk_noise(seed, 120_000), mk_noise(seed + 500, 200_000)]
}

fn draft(name: &str, state: u64) -> Draft {
    mk_draft(Uuid::from_u128(name.as_bytes()[0].into()), &state.to_string(), content(name, state))
}

fn state(object: &Object) -> u64 {
    label(object).parse().unwrap()
}

/// Counts what came out well; `None` where history had gone.
fn told<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::Expired { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Whether the payload was still to be had; if so, it is right.
async fn payload(store: &Store, object: &Object) -> bool {
    let whole = joined(&content(&object.key.name, state(object)));
    let mut pieces = store.payload(object);
    let mut read = Vec::new();
    while let Some(piece) = pieces.next().await {
        let Some(piece) = told(piece) else { break };
        read.extend_from_slice(&piece);
        assert!(whole.starts_with(&read), "{object:?}");
    }
    let complete = read.len() == whole.len();
    match told(store.payload_bytes(object).await) {
        Some(bytes) => assert!(bytes == whole, "{object:?}"),
        None => assert!(!complete || state(object) < ROUNDS),
    }
    complete
}

/// The writer goes round: whatever one version shows is of one round or of two that meet.
fn check_round(objects: &[Result<Object, Error>]) {
    let states: Vec<_> = objects.iter().map(|object| state(object.as_ref().unwrap())).collect();
    assert!(states.is_sorted_by(|a, b| a >= b) && states[0] - states[2] <= 1, "{states:?}");
}

/// Page by page; `None` where history went between them.
async fn pages(store: &Store) -> Option<Vec<Result<Object, Error>>> {
    let request = |at, after| ListRequest { at, after, limit: 1, ..ListRequest::all(mk_scope(None)) };
    let mut list = store.list(request(None, None)).await.unwrap();
    while let Some(after) = list.next.take() {
        let page = told(store.list(request(Some(list.version), Some(after))).await)?;
        list.objects.extend(page.objects);
        list.next = page.next;
    }
    Some(list.objects)
}

/// As informers do: lists again where what it missed is gone. Ends at the last state of the last object.
async fn follow(store: Store) {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        let list = store.list_cached(&mk_scope(None), None).await.unwrap();
        for object in list.objects.iter().map(|object| object.as_ref().unwrap()) {
            let before = seen.insert(object.key.name.clone(), state(object));
            assert!(before <= Some(state(object)), "a list goes back");
        }
        if seen.get("c") == Some(&ROUNDS) {
            return;
        }
        let mut last = list.version;
        let Some(mut items) = told(store.watch(&mk_scope(None), last).await) else { continue };
        while let Some(item) = items.next().await {
            match item {
                Ok(WatchItem::Event(event)) => {
                    assert!(event.version > last, "{} after {last}", event.version);
                    last = event.version;
                    let now = event.now.as_ref().unwrap();
                    let before = seen.insert(now.key.name.clone(), state(now));
                    assert_eq!(before, Some(state(now) - 1), "a state was left out of {}", now.key);
                    if (now.key.name.as_str(), state(now)) == ("c", ROUNDS) {
                        return;
                    }
                }
                Ok(WatchItem::Bookmark(version)) => last = last.max(version),
                Err(Error::Expired { .. } | Error::Unavailable(_) | Error::Slow) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

async fn readers_are_right_or_told(lab: &Lab) {
    let backend = lab.backend().await;
    // A ring of four: watchers that are not quick go back to history.
    let options = StoreOptions { ring_events: 4, ..StoreOptions::default() };
    let store = Store::open(backend.clone(), mk_keyring(), options).await.unwrap();
    let mut first = Vec::new();
    for name in NAMES {
        first.push(store.create(&mk_key(name), draft(name, 0)).await.unwrap());
    }
    let watchers: Vec<_> = (0..3).map(|_| tokio::spawn(follow(store.clone()))).collect();
    let (writer, mut now) = (store.clone(), first.clone());
    let writing = tokio::spawn(async move {
        for state in 1..=ROUNDS {
            for object in &mut now {
                *object = writer.update(object, draft(&object.key.name, state)).await.unwrap();
            }
        }
    });
    let mut whole = 0;
    while !writing.is_finished() {
        let object = store.get(&mk_key("a")).await.unwrap().unwrap();
        backend.compact(backend.revision().await.unwrap()).await.unwrap();
        whole += u64::from(payload(&store, &object).await);
        if let Some(objects) = pages(&store).await {
            check_round(&objects);
        }
        let cached = store.list_cached(&mk_scope(None), None).await.unwrap();
        check_round(&cached.objects);
        whole += u64::from(payload(&store, cached.objects[1].as_ref().unwrap()).await);
    }
    writing.await.unwrap();
    for watcher in watchers {
        tokio::time::timeout(PATIENCE, watcher).await.expect("a watcher does not come to the end").unwrap();
    }
    backend.compact(backend.revision().await.unwrap()).await.unwrap();
    for (name, old) in NAMES.into_iter().zip(&first) {
        assert!(!payload(&store, old).await, "its history is gone");
        assert!(payload(&store, &store.get(&mk_key(name)).await.unwrap().unwrap()).await);
    }
    eprintln!("{whole} payloads were read while history went");
    store.fsck(false, |finding| panic!("{finding:?}"), |_| {}).await.unwrap();
    store.close().await;
}

/// It happened, was replaced, and history went before its writer could look: "conflict" would be wrong.
async fn a_write_whose_traces_are_gone_is_of_unknown_outcome(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let store = Store::open(spy.clone(), mk_keyring(), StoreOptions::default()).await.unwrap();
    let base = store.create(&mk_key("a"), draft("a", 0)).await.unwrap();
    spy.fates(&[Fate::HeldUnanswered]);
    let writer = store.clone();
    let mine = tokio::spawn(async move { writer.update(&base, draft("a", 1)).await });
    spy.waiting().await;
    let now = store.get(&mk_key("a")).await.unwrap().unwrap();
    store.update(&now, draft("a", 2)).await.unwrap();
    spy.compact(spy.revision().await.unwrap()).await.unwrap();
    spy.release();
    let mine = mine.await.unwrap();
    assert!(matches!(mine, Err(Error::UnknownOutcome(_))), "{mine:?}");
    store.close().await;
}
