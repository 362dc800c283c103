//! Lists show one version, whatever is written meanwhile; from memory as from the store.

use std::collections::BTreeMap;

use repot_storage::{Error, List, ListRequest};

use super::*;

on_every_backend! {
    pages_show_one_version_while_others_write
    pages_are_bounded_in_bytes
    pages_are_bounded_by_what_they_open
    lists_keep_to_their_scope_and_sort_alike
    versions_out_of_the_window_are_refused
    cached_lists_show_every_acknowledged_write
    cached_objects_give_their_payload
    unused_resources_list_as_empty
}

fn mk_request(limit: usize) -> ListRequest {
    ListRequest { limit, ..ListRequest::all(mk_scope(None)) }
}

/// All pages, at the version of the first.
async fn pages(store: &Store, limit: usize) -> (ResourceVersion, Vec<List>) {
    let mut pages = vec![store.list(mk_request(limit)).await.unwrap()];
    let version = pages[0].version;
    while let Some(after) = pages.last().unwrap().next.clone() {
        let request = ListRequest { at: Some(version), after: Some(after), ..mk_request(limit) };
        pages.push(store.list(request).await.unwrap());
    }
    (version, pages)
}

fn names(objects: &[Result<Object, Error>]) -> Vec<String> {
    let name = |object: &Result<Object, Error>| {
        let key = &object.as_ref().unwrap().key;
        format!("{}/{}", key.namespace, key.name)
    };
    objects.iter().map(name).collect()
}

/// Writers that count: they create, count up and remove objects, each object in its own step. Whatever one version shows
/// must be a prefix of what each did.
async fn count_up(store: Store, writer: u64, rounds: u64) {
    let uid = Uuid::from_u128(writer.into());
    let (left, right) = (mk_key(&format!("left-{writer}")), mk_key(&format!("right-{writer}")));
    let draft = |n: u64| mk_draft(uid, &n.to_string(), vec![mk_noise(n, 70_000 * (n as usize % 2))]);
    let mut l = store.create(&left, draft(0)).await.unwrap();
    let mut r = store.create(&right, draft(0)).await.unwrap();
    for n in 1..=rounds {
        l = store.update(&l, draft(n)).await.unwrap();
        r = store.update(&r, draft(n)).await.unwrap();
    }
}

/// The left object is written before the right one: no version may show the right one ahead, or the left two ahead.
fn check_counts(objects: &[Result<Object, Error>]) {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for object in objects {
        let object = object.as_ref().unwrap();
        counts.insert(object.key.name.clone(), label(object).parse().unwrap());
    }
    for (name, right) in counts.iter().filter(|(name, _)| name.starts_with("right")) {
        let left = counts[&name.replace("right", "left")];
        assert!(left == *right || left == right + 1, "{name}: left {left}, right {right}");
    }
}

async fn pages_show_one_version_while_others_write(lab: &Lab) {
    let store = lab.open().await;
    let writers: Vec<_> = (0..4).map(|writer| tokio::spawn(count_up(store.clone(), writer, 40))).collect();
    let mut rounds = 0;
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) || rounds < 3 {
        let (version, pages) = pages(&store, 3).await;
        assert!(pages.iter().all(|page| page.version == version && page.objects.len() <= 3));
        let objects: Vec<_> = pages.into_iter().flat_map(|page| page.objects).collect();
        check_counts(&objects);
        assert!(objects.iter().all(|object| object.as_ref().unwrap().version <= version));
        if let Some(object) = objects.first() {
            let object = object.as_ref().unwrap();
            assert_eq!(store.payload_bytes(object).await.unwrap().len() as u64, object.payload_len);
        }
        let cached = store.list_cached(&mk_scope(None), None).await.unwrap();
        check_counts(&cached.objects);
        assert!(cached.version >= version);
        rounds += 1;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    store.close().await;
}

async fn pages_are_bounded_in_bytes(lab: &Lab) {
    let store = lab.open().await;
    for n in 0..24_u64 {
        let draft = Draft { meta: mk_noise(n, 500_000), ..mk_draft(Uuid::nil(), "", vec![]) };
        store.create(&mk_key(&format!("o-{n:02}")), draft).await.unwrap();
    }
    let (_, pages) = pages(&store, 0).await;
    assert!(pages.len() >= 3, "{} pages", pages.len());
    for page in &pages {
        let bytes: usize = page.objects.iter().map(|object| object.as_ref().unwrap().meta.len()).sum();
        assert!(bytes <= 5 << 20, "{bytes}");
        assert_eq!(page.remaining, page.next.is_none().then_some(0));
    }
    let all: Vec<_> = pages.into_iter().flat_map(|page| names(&page.objects)).collect();
    assert_eq!(all, (0..24).map(|n| format!("ns/o-{n:02}")).collect::<Vec<_>>());
    store.close().await;
}

/// Text that is compressed to nearly nothing: all records would fit into one page.
async fn pages_are_bounded_by_what_they_open(lab: &Lab) {
    const HEAD: usize = 250 << 10;
    let store = lab.open().await;
    for n in 0..12 {
        let draft = Draft { meta: vec![b'x'; HEAD].into(), ..mk_draft(Uuid::nil(), "", vec![]) };
        store.create(&mk_key(&format!("o-{n:02}")), draft).await.unwrap();
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(ListRequest { after, max_bytes: 2 * HEAD, ..mk_request(0) }).await.unwrap();
        assert!(!page.objects.is_empty() && page.objects.len() <= 2, "{} objects", page.objects.len());
        assert_eq!(page.remaining, page.next.is_none().then_some(0));
        found.extend(names(&page.objects));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, (0..12).map(|n| format!("ns/o-{n:02}")).collect::<Vec<_>>());
    store.close().await;
}

async fn lists_keep_to_their_scope_and_sort_alike(lab: &Lab) {
    let store = lab.open().await;
    let mut expected = Vec::new();
    for namespace in ["a", "a-b", "a.b", "b", "a0"] {
        for name in ["x", "x-y", "x0"] {
            let key = mk_key_in(namespace, name);
            store.create(&key, mk_draft(Uuid::nil(), "", vec![])).await.unwrap();
            expected.push(key);
        }
    }
    let other = Key { resource: "statesmen".into(), ..mk_key("x") };
    store.create(&other, mk_draft(Uuid::nil(), "", vec![])).await.unwrap();
    expected.sort();
    let expected: Vec<_> = expected.iter().map(|key| format!("{}/{}", key.namespace, key.name)).collect();
    let (_, pages) = pages(&store, 4).await;
    assert_eq!(pages.iter().flat_map(|page| names(&page.objects)).collect::<Vec<_>>(), expected);
    assert_eq!(names(&store.list_cached(&mk_scope(None), None).await.unwrap().objects), expected);
    for namespace in ["a", "a-b", "zzz"] {
        let own: Vec<_> =
            expected.iter().filter(|name| name.starts_with(&format!("{namespace}/"))).cloned().collect();
        let scope = mk_scope(Some(namespace));
        let stored = store.list(ListRequest { scope: scope.clone(), ..mk_request(0) }).await.unwrap();
        assert_eq!(names(&stored.objects), own);
        assert_eq!(names(&store.list_cached(&scope, None).await.unwrap().objects), own);
    }
    // Past the end, and from before the beginning.
    for (after, count) in [(mk_key_in("zz", "z"), 0), (mk_key_in("0", "0"), 15)] {
        let list = store.list(ListRequest { after: Some(after), ..mk_request(0) }).await.unwrap();
        assert_eq!((list.objects.len(), list.next, list.remaining), (count, None, Some(0)));
    }
    store.close().await;
}

async fn versions_out_of_the_window_are_refused(lab: &Lab) {
    let options = StoreOptions { history: Duration::from_millis(200), ..StoreOptions::default() };
    let store = lab.open_with(options).await;
    let payload = mk_noise(1, 400_000);
    let old = store.create(&mk_key("old"), mk_draft(Uuid::nil(), "1", vec![payload.clone()])).await.unwrap();
    let changed =
        store.create(&mk_key("b"), mk_draft(Uuid::from_u128(1), "1", vec![payload.clone()])).await.unwrap();
    let next = mk_draft(Uuid::from_u128(1), "2", vec![mk_noise(2, 400_000)]);
    store.update(&changed, next).await.unwrap();
    let begin = std::time::Instant::now();
    let oldest = loop {
        let list = store.list(ListRequest { at: Some(changed.version), ..mk_request(0) }).await;
        if let Err(Error::Expired { oldest }) = list {
            break oldest;
        }
        list.unwrap();
        assert!(begin.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(oldest > changed.version && oldest <= current(&store).await);
    let gone = store.payload_bytes(&changed).await;
    assert!(matches!(gone, Err(Error::Expired { .. })), "{gone:?}");
    // What was written before the window and never since is still whole.
    assert!(store.payload_bytes(&old).await.unwrap() == payload);
    let read = store.get(&mk_key("old")).await.unwrap().unwrap();
    assert!(store.payload_bytes(&read).await.unwrap() == payload);
    let future = ResourceVersion(current(&store).await.0 + 1000);
    let early = store.list(ListRequest { at: Some(future), ..mk_request(0) }).await;
    assert!(matches!(early, Err(Error::Future { .. })), "{early:?}");
    let early = store.list_cached(&mk_scope(None), Some(future)).await;
    assert!(matches!(early, Err(Error::Future { .. })), "{early:?}");
    store.close().await;
}

async fn cached_lists_show_every_acknowledged_write(lab: &Lab) {
    let store = lab.open().await;
    store.list_cached(&mk_scope(None), None).await.unwrap();
    for n in 0..60_u64 {
        let object =
            store.create(&mk_key(&format!("o-{n:02}")), mk_draft(Uuid::nil(), "1", vec![])).await.unwrap();
        let list = store.list_cached(&mk_scope(None), None).await.unwrap();
        assert_eq!(list.objects.len() as u64, n + 1);
        assert!(list.version >= object.version && list.next.is_none() && list.remaining == Some(0));
        let at_least = store.list_cached(&mk_scope(None), Some(object.version)).await.unwrap();
        assert_eq!(at_least.objects.len() as u64, n + 1);
    }
    // A write of another resource moves the store on, and the list with it.
    let other = Key { resource: "others".into(), ..mk_key("x") };
    let other = store.create(&other, mk_draft(Uuid::nil(), "1", vec![])).await.unwrap();
    assert!(store.list_cached(&mk_scope(None), None).await.unwrap().version >= other.version);
    store.close().await;
}

async fn cached_objects_give_their_payload(lab: &Lab) {
    let store = lab.open().await;
    store.list_cached(&mk_scope(None), None).await.unwrap();
    let payloads = [mk_machines(1, 3000), mk_noise(2, 60_000), mk_noise(3, 900_000), Bytes::new()];
    for (n, payload) in payloads.iter().enumerate() {
        let draft = mk_draft(Uuid::from_u128(n as u128), "1", vec![payload.clone()]);
        store.create(&mk_key(&format!("o-{n}")), draft).await.unwrap();
    }
    let list = store.list_cached(&mk_scope(None), None).await.unwrap();
    for (object, payload) in list.objects.iter().zip(&payloads) {
        let object = object.as_ref().unwrap();
        assert!(store.payload_bytes(object).await.unwrap() == payload);
        // What came from memory is as good to update as what was read.
        store.update(object, mk_draft(object.uid, "2", vec![payload.clone()])).await.unwrap();
    }
    store.close().await;
}

async fn unused_resources_list_as_empty(lab: &Lab) {
    let store = lab.open().await;
    let list = store.list_cached(&mk_scope(None), None).await.unwrap();
    assert!(list.objects.is_empty() && list.version.0 > 0);
    let list = store.list(mk_request(0)).await.unwrap();
    assert!(list.objects.is_empty() && list.version.0 > 0);
    store.close().await;
}
