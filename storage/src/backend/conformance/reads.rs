//! Reads, now and then.

use std::ops::Range;

use super::*;
use crate::backend::Error;

pub async fn reads_see_what_was_acknowledged_before(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let writer = async |name: &'static str| {
        for round in 0..50 {
            let revision = commit(backend, [put(name, round.to_string())]).await;
            let found = read(backend, name).await.unwrap();
            assert_eq!((found.value, found.modified), (round.to_string().into(), revision));
            let all = page(backend, &under("/t/", None)).await;
            assert!(all.revision >= revision);
            assert!(all.kvs.iter().any(|found| found.key == name && found.modified == revision));
            assert!(backend.revision().await.unwrap() >= revision);
        }
    };
    tokio::join!(writer("/t/a"), writer("/t/b"), writer("/t/c"));
}

pub async fn reads_at_a_revision_never_change(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let mut answers = Vec::new();
    for round in 0..60u64 {
        let name = format!("/t/{}", round % 7);
        let op = if round % 5 == 4 {
            delete(&name)
        } else {
            put(&name, noise(round, (round as usize % 4) * 3000))
        };
        let revision = commit(backend, [op]).await;
        let seen = page(backend, &under("/t/", Some(revision))).await;
        assert_eq!(seen.revision, revision);
        answers.push((revision, seen.kvs));
    }
    for (revision, seen) in answers {
        assert_eq!(page(backend, &under("/t/", Some(revision))).await.kvs, seen);
        for index in 0..7 {
            let name = key(&format!("/t/{index}"));
            let expected = seen.iter().find(|found| found.key == name);
            assert_eq!(backend.get(name, Some(revision)).await.unwrap().as_ref(), expected);
        }
    }
}

pub async fn a_future_revision_is_refused(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let newest = commit(backend, [put("/t/a", "1")]).await;
    let requested = Revision(newest.0 + 5);
    let refusal = |error| match error {
        Error::Future { requested: asked, newest: told } => assert_eq!((asked, told), (requested, newest)),
        other => panic!("{other:?}"),
    };
    refusal(backend.get(key("/t/a"), Some(requested)).await.unwrap_err());
    refusal(backend.get_many(vec![key("/t/a")], requested).await.unwrap_err());
    refusal(backend.range(under("/t/", Some(requested))).await.unwrap_err());
    refusal(backend.compact(requested).await.unwrap_err());
}

pub async fn keys_are_read_together_in_the_order_asked(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let ops: Vec<_> = (0..60u64).map(|index| put(&format!("/t/{index:02}"), noise(index, 50_000))).collect();
    let mut revision = Revision(0);
    for some in ops.chunks(10) {
        revision = commit(backend, some).await;
    }
    commit(backend, [put("/t/03", "later"), delete("/t/04")]).await;
    let asked: Vec<_> = (0..70).rev().map(|index| key(&format!("/t/{index:02}"))).collect();
    let found = backend.get_many(asked.clone(), revision).await.unwrap();
    assert_eq!(found.len(), asked.len());
    for (name, found) in asked.iter().zip(found) {
        let expected = ops.iter().find(|op| op.key() == name).and_then(Op::value);
        assert_eq!(found.as_ref().map(|found| &found.value), expected);
        assert!(found.is_none_or(|found| found.key == *name));
    }
    assert!(backend.get_many(vec![], revision).await.unwrap().is_empty());
}

pub async fn range_pages_meet_at_the_seam(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let all: Vec<_> = (0..47).map(|index| format!("/t/{index:02}")).collect();
    for some in all.chunks(20) {
        let puts = some.iter().map(|name| put(name, noise(1, 1000)));
        commit(backend, puts.collect::<Vec<_>>()).await;
    }
    let revision = commit(backend, [delete("/t/05"), delete("/t/10"), delete("/t/46")]).await;
    commit(backend, [put("/t/05x", "later"), put("/t/zz", "later")]).await;
    let expected: Vec<_> =
        all.iter().filter(|name| !["/t/05", "/t/10", "/t/46"].contains(&name.as_str())).collect();
    for (limit, max_bytes) in
        [(0, 0), (1, 0), (10, 0), (44, 0), (43, 0), (0, 1), (0, 3500), (5, 3500), (100, 0)]
    {
        let mut request = RangeRequest { limit, max_bytes, ..under("/t/", Some(revision)) };
        let mut gathered = Vec::new();
        loop {
            let page = page(backend, &request).await;
            assert!(limit == 0 || page.kvs.len() <= limit);
            assert_eq!(page.revision, revision);
            gathered.extend(names(&page).into_iter().map(String::from));
            if !page.more {
                break;
            }
            let last = page.kvs.last().expect("a page that is not the last holds a key");
            request.keys.start = [&last.key[..], &[0]].concat().into();
        }
        assert!(
            gathered.iter().eq(expected.iter().copied()),
            "limit {limit}, {max_bytes} bytes: {gathered:?}"
        );
    }
}

pub async fn ranges_keep_to_their_bounds(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let all: [&[u8]; 8] = [b"a", b"a\x01", b"a/", b"a/b", b"a0", b"b", b"\xff", b"\xff\xff"];
    let puts = all.iter().map(|name| Op::Put(Bytes::copy_from_slice(name), Bytes::new()));
    commit(backend, puts.collect::<Vec<_>>()).await;
    // Versions of a key must not be taken for keys.
    commit(backend, [put("a", "2"), put("a/", "2")]).await;
    type Case<'a> = (Range<&'a [u8]>, &'a [&'a [u8]]);
    let cases: [Case<'_>; 11] = [
        (b"a".as_slice()..b"b", &all[..5]),
        (b"a/"..b"a0", &all[2..4]),
        (b"a".as_slice()..b"a\0", &all[..1]),
        (b"a\0".as_slice()..b"a/\0", &all[1..3]),
        (b"a/b\0".as_slice()..b"", &all[4..]),
        (b"a/".as_slice()..b"a/", &[]),
        (b"b".as_slice()..b"a", &[]),
        (b"".as_slice()..b"", &all),
        (b"".as_slice()..b"a/", &all[..2]),
        (b"\xff".as_slice()..b"\xff\xff", &all[6..7]),
        (b"a\x01".as_slice()..b"a\x02", &all[1..2]),
    ];
    for (range, expected) in cases {
        let keys = Bytes::copy_from_slice(range.start)..Bytes::copy_from_slice(range.end);
        let page = page(backend, &RangeRequest { keys, ..under("", None) }).await;
        let found: Vec<_> = page.kvs.iter().map(|found| &found.key[..]).collect();
        assert_eq!(found, expected, "{range:?}");
        assert!(!page.more);
    }
    for (prefix, expected) in
        [(b"a".as_slice(), &all[..5]), (b"a/", &all[2..4]), (b"\xff", &all[6..]), (b"", &all), (b"c", &[])]
    {
        let page = page(backend, &RangeRequest { keys: prefix_range(prefix), ..under("", None) }).await;
        assert!(page.kvs.iter().map(|found| &found.key[..]).eq(expected.iter().copied()), "{prefix:?}");
    }
}

pub async fn a_page_ends_after_the_value_that_fills_it(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    // Small ones first: an estimate taken from them is far off for what follows.
    for index in 0..40u64 {
        let len = if index < 20 { 100 } else { 200_000 };
        commit(backend, [put(&format!("/t/{index:02}"), noise(index, len))]).await;
    }
    let bounded = |max_bytes, limit| RangeRequest { max_bytes, limit, ..under("/t/", None) };
    let count = async |max_bytes, limit| {
        let page = page(backend, &bounded(max_bytes, limit)).await;
        (page.kvs.len(), page.more)
    };
    assert_eq!(count(1, 0).await, (1, true));
    assert_eq!(count(150, 0).await, (2, true));
    assert_eq!(count(2_001, 0).await, (21, true));
    assert_eq!(count(1_000_000, 0).await, (25, true));
    assert_eq!(count(1_000_000, 22).await, (22, true));
    assert_eq!(count(10_000_000, 0).await, (40, false));
    // All of it is larger than one message of gRPC is by default.
    let whole = page(backend, &bounded(0, 0)).await;
    assert!(
        whole
            .kvs
            .iter()
            .enumerate()
            .all(|(index, found)| found.value == noise(index as u64, found.value.len()))
    );
    assert_eq!((whole.kvs.len(), whole.more), (40, false));
}

pub async fn a_page_of_keys_leaves_values_empty(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let revision =
        commit(backend, [put("/t/a", "1"), put("/t/b", noise(1, 100_000)), put("/t/c", "3")]).await;
    let request = RangeRequest { keys_only: true, limit: 2, ..under("/t/", None) };
    let found = page(backend, &request).await;
    assert_eq!(names(&found), ["/t/a", "/t/b"]);
    assert!(found.more);
    assert!(found.kvs.iter().all(|found| found.value.is_empty() && found.modified == revision));
}
