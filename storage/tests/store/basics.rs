//! Objects come back as they were written, and only the newest can be replaced.

use futures::TryStreamExt;
use repot_storage::Error;

use super::{
    spy::{Fate, Spy},
    *,
};

on_every_backend! {
    gives_back_what_was_written
    refuses_a_second_object_at_a_key
    replaces_only_the_newest
    replaces_a_head_and_leaves_the_payload
    keeps_past_states_readable
    removes_and_returns_the_last_state
    grows_and_shrinks_across_the_inline_limit
    concurrent_updates_have_one_winner
    survives_reopening
    refuses_calls_that_make_no_sense
    raises_versions_past_a_mark
    versions_that_were_not_raised_are_told
}

/// Payloads of all shapes, with how they are cut into segments.
fn shapes() -> Vec<(&'static str, Vec<Bytes>)> {
    let many = (0..3000).map(|n| mk_machines(n, 100 + (n as usize * 37) % 900)).collect();
    vec![
        ("none", vec![]),
        ("empty segments", vec![Bytes::new(), Bytes::from_static(b"x"), Bytes::new()]),
        ("small", vec![mk_machines(1, 700)]),
        ("just inline", vec![mk_noise(2, 65_535)]),
        ("just not inline", vec![mk_noise(3, 65_535), Bytes::from_static(b"x")]),
        ("one long text", vec![mk_machines(4, 3 << 20)]),
        ("one long noise", vec![mk_noise(5, 6 << 20)]),
        ("many short", many),
        (
            "mixed",
            vec![
                Bytes::from_static(b"{"),
                mk_noise(6, 900_000),
                Bytes::from_static(b","),
                mk_machines(7, 70_000),
            ],
        ),
        ("repeated", vec![mk_noise(8, 100_000); 9]),
    ]
}

async fn gives_back_what_was_written(lab: &Lab) {
    let store = lab.open().await;
    for (index, (shape, payload)) in shapes().into_iter().enumerate() {
        let key = mk_key(&format!("object-{index}"));
        let whole = joined(&payload);
        let created =
            store.create(&key, mk_draft(Uuid::from_u128(index as u128), shape, payload)).await.unwrap();
        let read = store.get(&key).await.unwrap().unwrap();
        for object in [&created, &read] {
            assert_eq!(
                (&object.key, label(object), object.uid),
                (&key, shape, Uuid::from_u128(index as u128))
            );
            assert_eq!(object.summary, format!("summary {shape}"));
            assert_eq!(object.payload_len, whole.len() as u64);
            assert!(!object.stale);
            assert!(!format!("{object:?}").contains(shape), "what is sealed is not shown");
            assert_eq!(object.version, created.version);
            assert!(store.payload_bytes(object).await.unwrap() == whole, "{shape}");
            let pieces: Vec<Bytes> = store.payload(object).try_collect().await.unwrap();
            assert!(joined(&pieces) == whole, "{shape} in pieces");
            assert!(pieces.iter().all(|piece| piece.len() < 1 << 20));
        }
    }
    assert!(store.get(&mk_key("nothing")).await.unwrap().is_none());
    store.close().await;
}

async fn refuses_a_second_object_at_a_key(lab: &Lab) {
    let store = lab.open().await;
    for payload in [mk_noise(1, 10), mk_noise(2, 200_000), mk_noise(3, 5 << 20)] {
        let key = mk_key(&format!("of-{}", payload.len()));
        let first =
            store.create(&key, mk_draft(Uuid::from_u128(1), "first", vec![payload.clone()])).await.unwrap();
        let second = store.create(&key, mk_draft(Uuid::from_u128(2), "second", vec![payload])).await;
        assert!(matches!(second, Err(Error::Exists)), "{second:?}");
        let now = store.get(&key).await.unwrap().unwrap();
        assert_eq!((label(&now), now.version), ("first", first.version));
    }
    store.close().await;
}

async fn replaces_only_the_newest(lab: &Lab) {
    let store = lab.open().await;
    let key = mk_key("a");
    let uid = Uuid::from_u128(1);
    let first = store.create(&key, mk_draft(uid, "1", vec![mk_noise(1, 300_000)])).await.unwrap();
    let second = store.update(&first, mk_draft(uid, "2", vec![mk_noise(2, 300_000)])).await.unwrap();
    assert!(second.version > first.version);
    let late = store.update(&first, mk_draft(uid, "late", vec![mk_noise(3, 9 << 20)])).await;
    assert!(matches!(late, Err(Error::Conflict)), "{late:?}");
    assert!(matches!(store.delete(&first).await, Err(Error::Conflict)));
    assert_eq!(label(&store.get(&key).await.unwrap().unwrap()), "2");
    store.delete(&second).await.unwrap();
    let gone = store.update(&second, mk_draft(uid, "gone", vec![])).await;
    assert!(matches!(gone, Err(Error::Conflict)), "{gone:?}");
    assert!(matches!(store.delete(&second).await, Err(Error::Conflict)));
    store.close().await;
}

async fn replaces_a_head_and_leaves_the_payload(lab: &Lab) {
    let store = lab.open().await;
    for size in [0, 100, 60_000, 300_000, 5 << 20] {
        let (key, uid) = (mk_key(&size.to_string()), Uuid::from_u128(size as u128));
        store.create(&key, mk_draft(uid, "1", vec![mk_noise(1, size)])).await.unwrap();
        // Once from the store, once from memory, where payload is not kept.
        let read = store.get(&key).await.unwrap().unwrap();
        let first = store.update_head(&read, "meta 2".into(), "summary 2".into()).await.unwrap();
        let list = store.list_cached(&mk_scope(None), None).await.unwrap();
        let kept = list.objects.into_iter().map(Result::unwrap).find(|object| object.key == key).unwrap();
        assert_eq!(kept.version, first.version);
        let second = store.update_head(&kept, "meta 3".into(), "summary 3".into()).await.unwrap();
        let now = store.get(&key).await.unwrap().unwrap();
        assert_eq!((now.version, label(&now), &now.summary[..]), (second.version, "3", &b"summary 3"[..]));
        for object in [&first, &second, &now] {
            assert_eq!(object.payload_len, size as u64);
            assert!(store.payload_bytes(object).await.unwrap() == mk_noise(1, size), "{size}");
        }
        let late = store.update_head(&read, "late".into(), Bytes::new()).await;
        assert!(matches!(late, Err(Error::Conflict)), "{late:?}");
    }
    assert_eq!(store.audit().await.unwrap().removed, 0);
    store.close().await;
}

async fn keeps_past_states_readable(lab: &Lab) {
    let store = lab.open().await;
    let (key, uid) = (mk_key("a"), Uuid::from_u128(1));
    let payload = |n: u64| vec![mk_noise(n, 200_000), mk_machines(n, 400_000)];
    let mut states = vec![store.create(&key, mk_draft(uid, "0", payload(0))).await.unwrap()];
    for n in 1..4 {
        let last = states.last().unwrap();
        states.push(store.update(last, mk_draft(uid, &n.to_string(), payload(n))).await.unwrap());
    }
    states.push(store.delete(&states[3]).await.unwrap());
    for (n, state) in states.iter().enumerate() {
        let whole = joined(&payload(n.min(3) as u64));
        assert!(store.payload_bytes(state).await.unwrap() == whole, "state {n}");
    }
    store.close().await;
}

async fn removes_and_returns_the_last_state(lab: &Lab) {
    let store = lab.open().await;
    for payload in [mk_noise(1, 100), mk_noise(2, 2 << 20)] {
        let key = mk_key(&format!("of-{}", payload.len()));
        let object =
            store.create(&key, mk_draft(Uuid::from_u128(1), "last", vec![payload.clone()])).await.unwrap();
        let removed = store.delete(&object).await.unwrap();
        assert!(removed.version > object.version);
        assert_eq!(removed.version, current(&store).await);
        assert_eq!(label(&removed), "last");
        assert!(store.payload_bytes(&removed).await.unwrap() == payload);
        assert!(store.get(&key).await.unwrap().is_none());
        let again = store.create(&key, mk_draft(Uuid::from_u128(2), "again", vec![payload])).await.unwrap();
        assert!(again.version > removed.version);
    }
    store.close().await;
}

async fn grows_and_shrinks_across_the_inline_limit(lab: &Lab) {
    let store = lab.open().await;
    let (key, uid) = (mk_key("a"), Uuid::from_u128(1));
    let mut object = store.create(&key, mk_draft(uid, "start", vec![])).await.unwrap();
    for (n, len) in [10, 100_000, 20, 3_000_000, 65_536, 65_535, 65_537, 0].into_iter().enumerate() {
        let payload = mk_noise(n as u64, len);
        object = store.update(&object, mk_draft(uid, "next", vec![payload.clone()])).await.unwrap();
        let read = store.get(&key).await.unwrap().unwrap();
        assert!(store.payload_bytes(&read).await.unwrap() == payload, "{len}");
        let report = store.audit().await.unwrap();
        assert_eq!((report.removed, report.in_flight), (0, 0), "replaced chunks went with the update");
    }
    assert_eq!(store.audit().await.unwrap().chunks, 0);
    store.close().await;
}

async fn concurrent_updates_have_one_winner(lab: &Lab) {
    let store = lab.open().await;
    let (key, uid) = (mk_key("a"), Uuid::from_u128(1));
    let mut object = store.create(&key, mk_draft(uid, "start", vec![])).await.unwrap();
    for round in 0..6_u64 {
        let size = if round % 2 == 0 { 1000 } else { 1_500_000 };
        let writes = (0..8_u64).map(|writer| {
            let (store, object) = (store.clone(), object.clone());
            tokio::spawn(async move {
                let draft = mk_draft(uid, &writer.to_string(), vec![mk_noise(round * 8 + writer, size)]);
                (writer, store.update(&object, draft).await)
            })
        });
        let mut winners = Vec::new();
        for write in writes.collect::<Vec<_>>() {
            match write.await.unwrap() {
                (writer, Ok(object)) => winners.push((writer, object)),
                (_, Err(Error::Conflict)) => {}
                (_, Err(error)) => panic!("{error}"),
            }
        }
        let [(writer, won)] = &winners[..] else { panic!("{} winners", winners.len()) };
        object = store.get(&key).await.unwrap().unwrap();
        assert_eq!((object.version, label(&object)), (won.version, writer.to_string().as_str()));
        assert!(store.payload_bytes(&object).await.unwrap() == mk_noise(round * 8 + writer, size));
    }
    store.close().await;
}

async fn survives_reopening(lab: &Lab) {
    let store = lab.open().await;
    let payload = vec![mk_machines(1, 900_000), mk_noise(2, 3 << 20)];
    let object =
        store.create(&mk_key("a"), mk_draft(Uuid::from_u128(1), "a", payload.clone())).await.unwrap();
    store.close().await;
    let store = lab.open().await;
    let read = store.get(&mk_key("a")).await.unwrap().unwrap();
    assert_eq!(read.version, object.version);
    assert!(store.payload_bytes(&read).await.unwrap() == joined(&payload));
    assert!(store.update(&read, mk_draft(read.uid, "b", payload)).await.unwrap().version > object.version);
    store.close().await;
}

async fn refuses_calls_that_make_no_sense(lab: &Lab) {
    let store = lab.open().await;
    let slash = store.create(&mk_key("a/b"), mk_draft(Uuid::nil(), "a", vec![])).await;
    assert!(matches!(slash, Err(Error::Invalid(_))), "{slash:?}");
    let object = store.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", vec![])).await.unwrap();
    let other = store.update(&object, mk_draft(Uuid::from_u128(1), "a", vec![])).await;
    assert!(matches!(other, Err(Error::Invalid(_))), "{other:?}");
    let head = Draft { meta: mk_noise(1, 6 << 20), ..mk_draft(Uuid::nil(), "", vec![]) };
    let large = store.update(&object, head).await;
    assert!(matches!(large, Err(Error::TooLarge { .. })), "{large:?}");
    let future = ResourceVersion(current(&store).await.0 + 1);
    let early = store.wait_until(future, Duration::from_millis(50)).await;
    assert!(matches!(early, Err(Error::Future { current }) if current.0 == future.0 - 1), "{early:?}");
    let (key, draft) = (mk_key("b"), mk_draft(Uuid::nil(), "b", vec![]));
    let (waited, written) = tokio::join!(store.wait_until(future, PATIENCE), store.create(&key, draft));
    waited.unwrap();
    written.unwrap();
    store.close().await;
}

async fn raises_versions_past_a_mark(lab: &Lab) {
    let store = lab.open().await;
    let before =
        store.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", vec![mk_noise(1, 90_000)])).await.unwrap();
    store.raise_past(ResourceVersion(1_000_000)).await.unwrap();
    let raised = current(&store).await;
    assert!(raised.0 > 1_000_000, "{raised}");
    store.raise_past(ResourceVersion(1000)).await.unwrap();
    assert_eq!(current(&store).await, raised, "never lowered");
    let absurd = store.raise_past(ResourceVersion(u64::MAX)).await;
    assert!(matches!(absurd, Err(Error::Invalid(_))), "{absurd:?}");
    store.close().await;
    let store = lab.open().await;
    assert!(current(&store).await >= raised, "kept");
    let object = store.get(&mk_key("a")).await.unwrap().unwrap();
    assert!(object.version.0 > 1_000_000);
    assert!(store.payload_bytes(&object).await.unwrap() == mk_noise(1, 90_000));
    let old = store.watch(&mk_scope(None), before.version).await.map(|_| ());
    assert!(matches!(old, Err(Error::Expired { .. })), "{old:?}");
    store.close().await;
}

/// Whatever the answers to the writes are, it is said that versions were raised only where they were.
async fn versions_that_were_not_raised_are_told(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let store = Store::open(spy.clone(), mk_keyring(), StoreOptions::default()).await.unwrap();
    let epoch = "/meta/epoch";
    spy.fates_at(epoch, &[Fate::Failed; 20]);
    let refused = store.raise_past(ResourceVersion(5_000_000)).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert!(current(&store).await < ResourceVersion(5_000_000));
    spy.fates_at(epoch, &[Fate::Lost; 20]);
    let refused = store.raise_past(ResourceVersion(5_000_000)).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    let mut mark = 5_000_000;
    for fate in [Fate::Failed, Fate::Unavailable, Fate::Lost, Fate::Unanswered, Fate::Twice] {
        spy.fates_at(epoch, &[fate]);
        store.raise_past(ResourceVersion(mark)).await.unwrap_or_else(|error| panic!("{fate:?}: {error}"));
        assert!(current(&store).await > ResourceVersion(mark), "{fate:?}");
        mark += 1_000_000;
    }
    store.close().await;
    let store = lab.open().await;
    assert!(current(&store).await > ResourceVersion(9_000_000));
    store.close().await;
}
