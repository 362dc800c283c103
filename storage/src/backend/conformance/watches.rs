//! Watches.

use std::time::Instant;

use futures::future::join_all;

use super::*;

/// What a watch should tell: revision, key and new value.
type Told = (Revision, Bytes, Option<Bytes>);

fn told(event: &KeyEvent) -> Told {
    (event.revision, event.key.clone(), event.now.as_ref().map(|now| now.value.clone()))
}

/// Writes and removes under `/t/<writer>/` and says what it did.
async fn busy_writer(backend: &dyn Backend, writer: u64, rounds: u64) -> Vec<Told> {
    let mut done = Vec::new();
    for round in 0..rounds {
        let name = format!("/t/{writer}/{}", round % 5);
        let value =
            (round % 5 != 3 || round < 5).then(|| noise(writer * 1000 + round, (round as usize * 37) % 6000));
        let op = value.clone().map_or_else(|| delete(&name), |value| put(&name, value));
        let present = round >= 5 || value.is_some();
        let revision = commit(backend, [op, put(&format!("/other/{writer}"), "x")]).await;
        if present {
            done.push((revision, key(&name), value));
        }
        // What is removed must be there again before it is removed once more.
        if round % 5 == 3 && round >= 5 {
            let revision = commit(backend, [put(&name, "again")]).await;
            done.push((revision, key(&name), Some("again".into())));
        }
    }
    done
}

pub async fn watch_replays_then_follows_without_gap_or_duplicate(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let begin = commit(backend, [put("/t/first", "x")]).await;
    let writers = join_all((0..4).map(|writer| busy_writer(backend, writer, 80)));
    let watchers = join_all((0..8).map(|watcher| async move {
        // Each starts at another moment, at a revision that is already past.
        let start = loop {
            let newest = backend.revision().await.unwrap();
            if newest.0 >= begin.0 + watcher * 25 {
                break Revision(newest.0 - watcher.min(newest.0 - begin.0));
            }
            tokio::task::yield_now().await;
        };
        let mut stream = watch(backend, "/t/", start).await;
        let mut events = Vec::new();
        while !events.iter().any(|event: &KeyEvent| event.key == "/t/last") {
            let after = events.last().map_or(start, |event| event.revision);
            events.extend(events_until(&mut stream, Revision(after.0 + 1)).await);
        }
        (start, events)
    }));
    let (mut expected, watched) = tokio::join!(
        async {
            let done = writers.await.concat();
            let last = commit(backend, [put("/t/last", "x")]).await;
            [done, vec![(last, key("/t/last"), Some("x".into()))]].concat()
        },
        watchers
    );
    expected.sort();
    for (start, events) in watched {
        let expected: Vec<_> = expected.iter().filter(|(revision, ..)| *revision > start).collect();
        let seen: Vec<_> = events.iter().map(told).collect();
        assert_eq!(seen.iter().collect::<Vec<_>>(), expected, "watch from {start}");
    }
}

pub async fn a_transaction_is_never_split_in_a_watch(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let begin = backend.revision().await.unwrap();
    let mut live = watch(backend, "/t/", begin).await;
    let transactions = 12;
    let write = async {
        let mut last = begin;
        for round in 0..transactions {
            // Each is about half of what one message of a watch may hold, so that many of them do not fit one.
            let ops: Vec<_> = (0..80u64)
                .map(|index| put(&format!("/t/{index}"), noise(round * 100 + index, 8_000)))
                .collect();
            last = commit(backend, ops).await;
        }
        last
    };
    let check = async |stream: &mut WatchStream| {
        let mut whole = 0;
        while whole < transactions {
            if let WatchItem::Events(batch) = stream.next().await.unwrap().unwrap() {
                for transaction in batch.chunk_by(|a, b| a.revision == b.revision) {
                    assert_eq!(transaction.len(), 80, "transaction {} is split", transaction[0].revision);
                    whole += 1;
                }
            }
        }
    };
    tokio::join!(write, check(&mut live));
    check(&mut watch(backend, "/t/", begin).await).await;
}

pub async fn a_watch_tells_what_was_before(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let begin = commit(backend, [put("/t/other", "x")]).await;
    let mut versions = Vec::new();
    for op in [put("/t/a", "1"), put("/t/a", noise(2, 20_000)), delete("/t/a"), put("/t/a", "4")] {
        commit(backend, [op]).await;
        versions.push(read(backend, "/t/a").await);
    }
    let last = backend.revision().await.unwrap();
    let events = events_until(&mut watch(backend, "/t/", begin).await, last).await;
    assert_eq!(events.len(), versions.len());
    let mut before = None;
    for (event, now) in events.into_iter().zip(versions) {
        assert_eq!((&event.now, event.before), (&now, before));
        before = now;
    }
}

pub async fn a_watch_keeps_to_its_prefix(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let begin = backend.revision().await.unwrap();
    let all = ["/t", "/t.", "/t/", "/t/a", "/t/a/b", "/t0", "/u/"];
    commit(backend, all.map(|name| put(name, "1"))).await;
    commit(backend, all.map(delete)).await;
    let last = commit(backend, [put("/t/end", "1")]).await;
    let events = events_until(&mut watch(backend, "/t/", begin).await, last).await;
    let mut seen: Vec<_> = events.iter().map(|event| std::str::from_utf8(&event.key).unwrap()).collect();
    seen[..3].sort_unstable();
    seen[3..6].sort_unstable();
    assert_eq!(seen, ["/t/", "/t/a", "/t/a/b", "/t/", "/t/a", "/t/a/b", "/t/end"]);
}

pub async fn a_watch_from_the_beginning_shows_everything(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    commit(backend, [put("/t/a", "1")]).await;
    let last = commit(backend, [put("u", "2")]).await;
    let events = events_until(&mut watch(backend, "", Revision(0)).await, last).await;
    assert_eq!(events.iter().map(|event| &event.key[..]).collect::<Vec<_>>(), [&b"/t/a"[..], b"u"]);
}

pub async fn a_slow_watch_misses_nothing_and_delays_nobody(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let begin = backend.revision().await.unwrap();
    let mut slow = watch(backend, "/t/", begin).await;
    let mut quick = watch(backend, "/t/", begin).await;
    let rounds = 400;
    let write = async {
        for round in 0..rounds {
            commit(backend, [put(&format!("/t/{}", round % 10), noise(round, 10_000))]).await;
        }
    };
    let follow = async {
        let mut seen = 0;
        while seen < rounds {
            if let WatchItem::Events(events) = quick.next().await.unwrap().unwrap() {
                seen += events.len() as u64;
            }
        }
    };
    tokio::join!(write, follow);
    let last = backend.revision().await.unwrap();
    assert_eq!(events_until(&mut slow, last).await.len() as u64, rounds);
}

pub async fn progress_comes_while_idle(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let revision = commit(backend, [put("/other", "1")]).await;
    let mut stream = watch(backend, "/t/", Revision(0)).await;
    for _ in 0..3 {
        let item = stream.next().await.unwrap().unwrap();
        let WatchItem::Progress(shown) = item else { panic!("nothing happened: {item:?}") };
        assert!(shown <= backend.revision().await.unwrap());
    }
    // Changes elsewhere move it on.
    while !matches!(stream.next().await.unwrap().unwrap(), WatchItem::Progress(shown) if shown >= revision) {}
    let newest = commit(backend, [put("/other", "2")]).await;
    while !matches!(stream.next().await.unwrap().unwrap(), WatchItem::Progress(shown) if shown >= newest) {}
}

pub async fn progress_follows_a_nudge(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let hour = Duration::from_secs(3600);
    let mut streams = Vec::new();
    for prefix in ["/t/", "/u/"] {
        streams.push(backend.watch(key(prefix), Revision(0), hour).await.unwrap());
    }
    for round in 0..5 {
        let revision = commit(backend, [put("/t/a", round.to_string())]).await;
        let asked = Instant::now();
        backend.request_progress().await;
        for stream in &mut streams {
            while !matches!(stream.next().await.unwrap().unwrap(), WatchItem::Progress(shown) if shown >= revision)
            {
            }
        }
        assert!(asked.elapsed() < Duration::from_secs(10), "soon, not {:?}", asked.elapsed());
    }
}
