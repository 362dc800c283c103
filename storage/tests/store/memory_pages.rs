//! Pages of lists come from the watch cache, are those that the backend has, and cost it nothing.

use futures::{StreamExt, stream};
use repot_storage::{Error, List, ListRequest};

use super::{spy::Spy, *};

on_every_backend! {
    pages_from_memory_are_those_of_the_backend
    a_list_in_pages_costs_no_read
    waiting_for_a_version_costs_few_questions
}

fn mk_request(at: Option<ResourceVersion>, after: Option<Key>, limit: usize) -> ListRequest {
    ListRequest { at, after, limit, count: true, ..ListRequest::all(mk_scope(None)) }
}

/// A store whose own work asks the backend for nothing during a test.
async fn open_quiet(spy: &Arc<Spy>) -> Store {
    let rarely = Duration::from_secs(36_000);
    let options = StoreOptions { history: rarely, collect_every: rarely, ..StoreOptions::default() };
    Store::open(spy.clone(), mk_keyring(), options).await.unwrap()
}

/// Creates, changes and removes objects of its own, for ever: seven names, of which most are there.
async fn write_on(store: Store, writer: u64) {
    for n in 0_u64.. {
        let key = mk_key(&format!("{}-{writer}", n % 7));
        if let Some(old) = store.get(&key).await.unwrap() {
            store.delete(&old).await.unwrap();
        }
        let uid = Uuid::from_u128((writer << 32 | n).into());
        let payload = |n: u64| vec![mk_noise(n, 70_000 * (n as usize % 2))];
        let object = store.create(&key, mk_draft(uid, &format!("{n}.0"), payload(n))).await.unwrap();
        store.update(&object, mk_draft(uid, &format!("{n}.1"), payload(n + 1))).await.unwrap();
    }
}

type Shown = (String, ResourceVersion, String, u64);

fn shown(list: &List) -> Vec<Shown> {
    let show = |object: &Result<Object, Error>| {
        let object = object.as_ref().unwrap();
        (object.key.name.clone(), object.version, label(object).to_owned(), object.payload_len)
    };
    list.objects.iter().map(show).collect()
}

async fn pages_from_memory_are_those_of_the_backend(lab: &Lab) {
    let store = lab.open().await;
    store.list_cached(&mk_scope(None), None).await.unwrap();
    wait_for_cache(&store).await;
    let writers: Vec<_> = (0..3).map(|writer| tokio::spawn(write_on(store.clone(), writer))).collect();
    for round in 0..30 {
        let acknowledged = current(&store).await;
        let mut page = store.list_page(mk_request(None, None, 2), None).await.unwrap();
        let version = page.version;
        assert!(version >= acknowledged);
        let (mut all, mut remaining) = (shown(&page), Vec::new());
        // The rest of the list is as of a version that is past by then.
        store.wait_until(ResourceVersion(version.0 + 1 + round % 20), PATIENCE).await.unwrap();
        while let Some(after) = page.next.clone() {
            remaining.push((all.len() as u64, page.remaining));
            page = store.list_page(mk_request(Some(version), Some(after), 2), None).await.unwrap();
            assert_eq!(page.version, version);
            all.extend(shown(&page));
            if let Some(Ok(object)) = page.objects.first() {
                let payload = store.payload_bytes(object).await.unwrap();
                assert_eq!(payload.len() as u64, object.payload_len, "round {round}");
            }
        }
        let stored = store.list(mk_request(Some(version), None, 0)).await.unwrap();
        assert_eq!(all, shown(&stored), "round {round} at {version}");
        for (before, told) in remaining {
            // What comes from the backend does not tell.
            assert!(told.is_none_or(|told| told == all.len() as u64 - before), "{told:?} after {before}");
        }
    }
    for writer in writers {
        assert!(!writer.is_finished(), "a writer failed");
        writer.abort();
    }
    store.close().await;
}

async fn a_list_in_pages_costs_no_read(lab: &Lab) {
    const OBJECTS: usize = 400;
    const LIMIT: usize = 20;
    let spy = Spy::new(lab).await;
    let store = open_quiet(&spy).await;
    store.list_cached(&mk_scope(None), None).await.unwrap();
    wait_for_cache(&store).await;
    let create = |n: usize| {
        let (store, draft) = (store.clone(), mk_draft(Uuid::from_u128(n as u128), "a", vec![]));
        async move { store.create(&mk_key(&format!("o-{n:03}")), draft).await.map(drop) }
    };
    stream::iter(0..OBJECTS).map(create).buffer_unordered(32).for_each(|made| async { made.unwrap() }).await;
    // Caught up with, so that what follows asks for nothing but itself.
    store.list_cached(&mk_scope(None), None).await.unwrap();
    // `resourceVersion=0`: not even the revision. Otherwise: once for the list, not once for the page.
    for (at_least, revisions) in [(Some(ResourceVersion(0)), 0), (None, 1)] {
        spy.reset();
        let mut page = store.list_page(mk_request(None, None, LIMIT), at_least).await.unwrap();
        let (version, mut count, mut pages) = (page.version, page.objects.len(), 1);
        while let Some(after) = page.next {
            page = store.list_page(mk_request(Some(version), Some(after), LIMIT), None).await.unwrap();
            count += page.objects.len();
            pages += 1;
        }
        assert_eq!((count, pages), (OBJECTS, OBJECTS / LIMIT));
        assert_eq!((spy.read_calls(), spy.revisions()), (0, revisions));
    }
    // From before the ring it is the backend's to answer, page by page and not object by object.
    let first = store.get(&mk_key("o-000")).await.unwrap().unwrap();
    let fresh = open_quiet(&spy).await;
    fresh.list_cached(&mk_scope(None), None).await.unwrap();
    wait_for_cache(&fresh).await;
    spy.reset();
    let past = fresh.list_page(mk_request(Some(first.version), None, LIMIT), None).await.unwrap();
    assert_eq!((past.version, spy.read_calls()), (first.version, 1));
    store.close().await;
}

async fn waiting_for_a_version_costs_few_questions(lab: &Lab) {
    const WAITING: usize = 2000;
    let spy = Spy::new(lab).await;
    let store = open_quiet(&spy).await;
    let object = store.create(&mk_key("a"), mk_draft(Uuid::nil(), "1", vec![])).await.unwrap();
    spy.reset();
    let began = std::time::Instant::now();
    let wait = |version: u64, timeout| {
        let store = store.clone();
        tokio::spawn(async move { store.wait_until(ResourceVersion(version), timeout).await })
    };
    // Some wait for what comes, most for what does not.
    let soon: Vec<_> = (0..100).map(|_| wait(object.version.0 + 1, PATIENCE)).collect();
    let never: Vec<_> =
        (0..WAITING).map(|_| wait(object.version.0 + 1_000_000, Duration::from_secs(1))).collect();
    for waiting in never {
        let outcome = waiting.await.unwrap();
        assert!(
            matches!(outcome, Err(Error::Future { current }) if current >= object.version),
            "{outcome:?}"
        );
    }
    // Ten in a second, and the first.
    let most = began.elapsed().as_millis() as u64 / 100 + 2;
    assert!(spy.revisions() <= most, "{} questions, {most} are ten in a second", spy.revisions());
    assert_eq!(spy.read_calls(), 0);
    store.update(&object, mk_draft(Uuid::nil(), "2", vec![])).await.unwrap();
    for waiting in soon {
        waiting.await.unwrap().unwrap();
    }
    store.close().await;
}
