//! Forgetting.

use super::*;
use crate::backend::Error;

/// Some versions of some keys; the revisions at which they were written.
async fn history(backend: &dyn Backend) -> Vec<Revision> {
    let mut revisions = Vec::new();
    for round in 0..10u64 {
        let changing = put("/t/changing", noise(round, 10_000));
        let other = if round == 2 { delete("/t/gone") } else { put("/t/other", round.to_string()) };
        let more = if round == 0 { vec![put("/t/still", "x"), put("/t/gone", "x")] } else { vec![] };
        revisions.push(commit(backend, [vec![changing, other], more].concat()).await);
    }
    revisions
}

pub async fn compacted_revision_is_refused(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let revisions = history(backend).await;
    let (early, floor) = (revisions[1], revisions[5]);
    assert!(backend.oldest().await.unwrap() <= early);
    backend.compact(floor).await.unwrap();
    assert_eq!(backend.oldest().await.unwrap(), floor);
    let refusal = |error| match error {
        Error::Compacted { requested, oldest } => assert_eq!((requested, oldest), (early, floor)),
        other => panic!("{other:?}"),
    };
    refusal(backend.get(key("/t/other"), Some(early)).await.unwrap_err());
    refusal(backend.get_many(vec![key("/t/other")], early).await.unwrap_err());
    refusal(backend.range(under("/t/", Some(early))).await.unwrap_err());
    match backend.watch(key("/t/"), early, Duration::from_secs(3600)).await {
        Err(error) => refusal(error),
        Ok(mut stream) => {
            refusal(stream.next().await.unwrap().unwrap_err());
            assert!(stream.next().await.is_none(), "a watch ends after an error");
        }
    }
}

pub async fn compaction_keeps_what_is_current(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let revisions = history(backend).await;
    let mut answers = Vec::new();
    for revision in &revisions[5..] {
        answers.push(page(backend, &under("/t/", Some(*revision))).await.kvs);
    }
    let before = events_until(&mut watch(backend, "/t/", revisions[5]).await, revisions[9]).await;
    backend.compact(revisions[5]).await.unwrap();
    for (revision, seen) in revisions[5..].iter().zip(&answers) {
        assert_eq!(&page(backend, &under("/t/", Some(*revision))).await.kvs, seen);
    }
    let names: Vec<_> = answers[0].iter().map(|found| &found.key[..]).collect();
    assert_eq!(names, [&b"/t/changing"[..], b"/t/other", b"/t/still"]);
    let after = events_until(&mut watch(backend, "/t/", revisions[5]).await, revisions[9]).await;
    assert_eq!(after, before);
    // All the way to the newest, and a key that was removed comes again.
    backend.compact(revisions[9]).await.unwrap();
    assert_eq!(&page(backend, &under("/t/", None)).await.kvs, answers.last().unwrap());
    let again = commit(backend, [put("/t/gone", "again")]).await;
    assert_eq!(read(backend, "/t/gone").await.unwrap().created, again);
    let outcome = backend
        .txn(Txn { compares: vec![modified_at("/t/still", revisions[0])], ops: vec![delete("/t/still")] })
        .await;
    assert!(matches!(outcome, Ok(Outcome::Committed(_))));
}

pub async fn compaction_may_be_repeated(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let revisions = history(backend).await;
    for floor in [revisions[3], revisions[3], revisions[2], revisions[7], revisions[9], revisions[9]] {
        backend.compact(floor).await.unwrap();
    }
    assert_eq!(backend.oldest().await.unwrap(), revisions[9]);
    assert_eq!(backend.revision().await.unwrap(), revisions[9]);
    assert_eq!(value(backend, "/t/other", None).await.unwrap(), "9");
}

pub async fn an_open_watch_outlives_compaction(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let begin = backend.revision().await.unwrap();
    let mut stream = watch(backend, "/t/", begin).await;
    let mut seen = Vec::new();
    for round in 0..10 {
        let revision = commit(backend, [put("/t/a", round.to_string())]).await;
        seen.extend(events_until(&mut stream, revision).await);
        backend.compact(revision).await.unwrap();
    }
    assert_eq!(seen.len(), 10);
    assert!(seen.windows(2).all(|pair| pair[0].now == pair[1].before));
}

pub async fn a_revision_is_held_still_while_compaction_runs(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let write = async {
        for round in 0..60 {
            let ops: Vec<_> = (0..20).map(|index| put(&format!("/t/{index}"), round.to_string())).collect();
            let revision = commit(backend, ops).await;
            if round % 3 == 0 {
                backend.compact(revision).await.unwrap();
            }
        }
    };
    let check = async {
        // Every transaction writes all keys alike, so no page may ever show two rounds.
        loop {
            let seen = page(backend, &under("/t/", None)).await;
            if let Some(first) = seen.kvs.first() {
                assert_eq!(seen.kvs.len(), 20);
                assert!(seen.kvs.iter().all(|found| found.modified == first.modified));
                let all = seen.kvs.iter().map(|found| found.key.clone()).collect();
                match backend.get_many(all, seen.revision).await {
                    Ok(again) => assert!(again.into_iter().flatten().eq(seen.kvs.clone())),
                    Err(error) => assert!(matches!(error, Error::Compacted { .. }), "{error:?}"),
                }
                if first.value == "59" {
                    return;
                }
            }
        }
    };
    tokio::join!(write, check);
}
