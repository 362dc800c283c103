//! Transactions.

use futures::future::join_all;

use super::*;
use crate::backend::Error;

pub async fn commits_all_or_nothing(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let first = commit(backend, [put("/t/a", "1"), put("/t/b", "1")]).await;
    let ops = vec![put("/t/a", "2"), delete("/t/b"), put("/t/c", "2")];

    let wrong = vec![modified_at("/t/a", first), modified_at("/t/b", Revision(first.0 + 1))];
    let outcome = backend.txn(Txn { compares: wrong, ops: ops.clone() }).await.unwrap();
    assert_eq!(outcome, Outcome::Failed);
    assert_eq!(names(&page(backend, &under("/t/", None)).await), ["/t/a", "/t/b"]);
    assert_eq!(backend.revision().await.unwrap(), first);

    let right =
        vec![modified_at("/t/a", first), modified_at("/t/b", first), modified_at("/t/c", Revision(0))];
    let outcome = backend.txn(Txn { compares: right, ops }).await.unwrap();
    let Outcome::Committed(second) = outcome else { panic!("every comparison held") };
    let after = page(backend, &under("/t/", None)).await;
    assert_eq!(names(&after), ["/t/a", "/t/c"]);
    assert!(after.kvs.iter().all(|found| found.modified == second && found.value == "2"));
}

pub async fn compares_existence(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let holds = async |name| {
        let compares = vec![Compare::Exists(key(name))];
        backend.txn(Txn { compares, ops: vec![] }).await.unwrap() != Outcome::Failed
    };
    assert!(!holds("/t/a").await);
    commit(backend, [put("/t/a", "")]).await;
    assert!(holds("/t/a").await);
    assert!(!holds("/t/").await, "a prefix is not a key");
    commit(backend, [delete("/t/a")]).await;
    assert!(!holds("/t/a").await);
}

pub async fn two_writers_with_one_revision_have_one_winner(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let mut seen = Revision(0);
    for round in 0..10 {
        let attempt = |writer: usize| {
            let (compares, ops) =
                (vec![modified_at("/t/a", seen)], vec![put("/t/a", format!("{round}-{writer}"))]);
            async move { (writer, backend.txn(Txn { compares, ops }).await.unwrap()) }
        };
        let outcomes = join_all((0..16).map(attempt)).await;
        let winners: Vec<_> = outcomes
            .iter()
            .filter_map(|(writer, outcome)| match outcome {
                Outcome::Committed(revision) => Some((*writer, *revision)),
                Outcome::Failed => None,
            })
            .collect();
        let [(winner, revision)] = winners[..] else { panic!("{} winners", winners.len()) };
        let found = read(backend, "/t/a").await.unwrap();
        assert_eq!((found.value, found.modified), (format!("{round}-{winner}").into(), revision));
        seen = revision;
    }
}

pub async fn revisions_grow_with_every_commit(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let mut last = backend.revision().await.unwrap();
    for round in 0..20 {
        let revision = commit(backend, [put(&format!("/t/{}", round % 3), "x")]).await;
        assert!(revision > last);
        assert_eq!(backend.revision().await.unwrap(), revision);
        last = revision;
    }
}

pub async fn removing_an_absent_key_is_no_change(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let first = commit(backend, [put("/t/a", "1")]).await;
    assert_eq!(commit(backend, [delete("/t/b")]).await, first);
    assert_eq!(commit(backend, []).await, first);
    let second = commit(backend, [delete("/t/b"), put("/t/c", "1")]).await;
    let events = events_until(&mut watch(backend, "/t/", first).await, second).await;
    assert_eq!(events.iter().map(|event| &event.key[..]).collect::<Vec<_>>(), [b"/t/c"]);
}

pub async fn a_key_that_comes_again_is_created_again(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let first = commit(backend, [put("/t/a", "1")]).await;
    let second = commit(backend, [put("/t/a", "2")]).await;
    let found = read(backend, "/t/a").await.unwrap();
    assert_eq!((found.created, found.modified), (first, second));
    commit(backend, [delete("/t/a")]).await;
    assert_eq!(read(backend, "/t/a").await, None);
    let again = commit(backend, [put("/t/a", "3")]).await;
    let found = read(backend, "/t/a").await.unwrap();
    assert_eq!((found.created, found.modified), (again, again));
}

pub async fn any_value_and_any_byte_but_nul_in_a_key_survive(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let every_byte: Bytes = (0..=u8::MAX).collect::<Vec<_>>().into();
    let binary = [b"/t/", &every_byte[1..]].concat();
    let keys = [key("/t/empty"), binary.into(), key(&format!("/t/{}", "k".repeat(1021)))];
    let values = [Bytes::new(), every_byte, noise(1, 4096)];
    let puts: Vec<_> =
        keys.iter().cloned().zip(values.clone()).map(|(name, value)| Op::Put(name, value)).collect();
    let revision = commit(backend, puts).await;
    let found = backend.get_many(keys.to_vec(), revision).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|found| found.unwrap()).collect();
    assert!(found.iter().map(|found| &found.key).eq(&keys));
    assert!(found.iter().map(|found| &found.value).eq(&values));
}

pub async fn a_hundred_operations_fit_one_transaction(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    assert!(backend.limits().txn_ops >= 100);
    let name = |index: usize| format!("/t/{index:03}");
    let compares = (0..100).map(|index| modified_at(&name(index), Revision(0))).collect();
    let ops = (0..100).map(|index| put(&name(index), name(index))).collect();
    let outcome = backend.txn(Txn { compares, ops }).await.unwrap();
    let Outcome::Committed(revision) = outcome else { panic!("every key was absent") };
    let found = page(backend, &under("/t/", None)).await;
    assert_eq!(found.kvs.len(), 100);
    assert!(found.kvs.iter().all(|found| found.key == found.value && found.modified == revision));
}

pub async fn a_transaction_up_to_the_limit_survives(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let limit = backend.limits().txn_bytes;
    assert!(limit >= 512 << 10);
    let parts = 4;
    let ops: Vec<_> =
        (0..parts).map(|part| put(&format!("/t/{part}"), noise(part, limit / 4 - 64))).collect();
    commit(backend, ops.clone()).await;
    let found = page(backend, &under("/t/", None)).await;
    assert!(found.kvs.iter().map(|found| Some(&found.value)).eq(ops.iter().map(Op::value)));
}

pub async fn what_is_over_the_limit_is_refused_whole(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let limits = backend.limits();
    let heavy = vec![put("/t/a", "1"), put("/t/b", vec![0; limits.txn_bytes + 1])];
    let many: Vec<_> = (0..=limits.txn_ops).map(|index| put(&format!("/t/{index}"), "")).collect();
    let curious = (0..=limits.txn_ops).map(|_| Compare::Exists(key("/t/a"))).collect();
    for (compares, ops) in [(vec![], heavy), (vec![], many), (curious, vec![])] {
        let refused = backend.txn(Txn { compares, ops }).await;
        assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    }
    assert!(page(backend, &under("/t/", None)).await.kvs.is_empty());
}

pub async fn malformed_transactions_are_refused(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let long = "k".repeat(1025);
    for ops in [
        vec![put("", "")],
        vec![put("/t/a\0", "")],
        vec![put(&long, "")],
        vec![put("/t/a", "1"), put("/t/a", "2")],
        vec![put("/t/a", "1"), delete("/t/a")],
    ] {
        let refused = backend.txn(Txn { compares: vec![], ops }).await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    }
    assert_eq!(read(backend, "/t/a").await, None);
}

pub async fn what_was_acknowledged_is_there_after_reopening(lab: &dyn Lab) {
    let backend = lab.open().await;
    let first = commit(&*backend, [put("/t/a", "1"), put("/t/large", noise(7, 300_000))]).await;
    let second = commit(&*backend, [put("/t/a", "2")]).await;
    backend.close().await;
    drop(backend);
    let backend = &*lab.open().await;
    assert_eq!(backend.revision().await.unwrap(), second);
    assert_eq!(value(backend, "/t/a", Some(first)).await.unwrap(), "1");
    assert_eq!(value(backend, "/t/a", None).await.unwrap(), "2");
    assert_eq!(value(backend, "/t/large", None).await.unwrap(), noise(7, 300_000));
    assert!(commit(backend, [put("/t/a", "3")]).await > second);
}

pub async fn size_follows_what_is_written(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let empty = backend.size().await.unwrap();
    // A backend may write its tables out later than its log.
    let mut written = 0;
    while backend.size().await.unwrap() < empty + 500_000 {
        commit(backend, [put(&format!("/t/{written}"), noise(written, 100_000))]).await;
        written += 1;
    }
    assert!(written >= 3, "more is told to be at rest than was written");
}

pub async fn a_closed_handle_refuses_work(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let revision = commit(backend, [put("/t/a", "1")]).await;
    let mut open = watch(backend, "/t/", revision).await;
    backend.close().await;
    let write = backend.txn(Txn { compares: vec![], ops: vec![put("/t/a", "2")] }).await;
    assert!(matches!(write, Err(Error::Unavailable(_))), "{write:?}");
    let read = backend.get(key("/t/a"), None).await;
    assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
    let end = loop {
        match open.next().await {
            Some(Ok(WatchItem::Progress(_))) => {}
            other => break other,
        }
    };
    assert!(matches!(end, Some(Err(Error::Unavailable(_)))), "{end:?}");
}
