//! Chunks that no object names go; those that one may still come to name stay, or the commit fails.

use std::time::Instant;

use super::{
    spy::{Fate, Spy, all},
    *,
};

on_every_backend! {
    leaves_what_objects_name
    leaves_an_upload_that_is_under_way
    makes_a_forgotten_upload_start_again
    removes_what_a_dropped_write_left
    removes_what_a_lost_process_left
    keeps_to_many_objects
    a_write_that_loses_takes_nothing_from_the_one_that_won
    no_clock_that_jumps_takes_an_intent
    what_does_not_fit_into_a_removal_is_removed_after_a_crash
    an_audit_goes_by_every_record
    an_audit_by_name_finds_a_stray_chunk_in_the_place_of_a_lost_one
}

/// Too large for one transaction of any backend.
fn mk_large(seed: u64) -> Vec<Bytes> {
    vec![mk_noise(seed, 5 << 20)]
}

async fn chunks(spy: &Spy) -> usize {
    all(spy, "/chunks/").await.len()
}

fn impatient() -> StoreOptions {
    StoreOptions { intent_patience: Duration::ZERO, ..StoreOptions::default() }
}

async fn open(spy: &Arc<Spy>, options: StoreOptions) -> Store {
    Store::open(Arc::clone(spy) as Arc<dyn Backend>, mk_keyring(), options).await.unwrap()
}

async fn leaves_what_objects_name(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let store = open(&spy, impatient()).await;
    let uid = Uuid::from_u128(1);
    let small =
        store.create(&mk_key("small"), mk_draft(Uuid::nil(), "s", vec![mk_noise(1, 200_000)])).await.unwrap();
    let large = store.create(&mk_key("large"), mk_draft(uid, "l", mk_large(2))).await.unwrap();
    let before = chunks(&spy).await;
    let report = store.audit().await.unwrap();
    assert_eq!((report.removed, report.in_flight, report.unreadable), (0, 0, 0));
    assert_eq!(report.chunks as usize + 2, before, "two of the keys are owners");
    assert_eq!(store.collect().await.unwrap().chunks, 0, "no manifest is left of what was committed");
    assert_eq!(chunks(&spy).await, before);
    // A change takes most chunks over; a pass after it leaves those too.
    let mut next = mk_large(2);
    next.push(mk_noise(3, 300_000));
    let large = store.update(&large, mk_draft(uid, "l2", next.clone())).await.unwrap();
    assert_eq!(store.collect().await.unwrap().removed, 0);
    assert!(store.payload_bytes(&large).await.unwrap() == joined(&next));
    assert!(store.payload_bytes(&small).await.unwrap() == mk_noise(1, 200_000));
    for object in [small, large] {
        store.delete(&object).await.unwrap();
    }
    store.close().await;
}

async fn leaves_an_upload_that_is_under_way(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let store = open(&spy, StoreOptions::default()).await;
    let collector = open(&spy, StoreOptions::default()).await;
    spy.fates(&[Fate::Held]);
    let writer = store.clone();
    let write =
        tokio::spawn(
            async move { writer.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", mk_large(1))).await },
        );
    spy.waiting().await;
    let written = chunks(&spy).await as u64;
    assert!(written >= 10);
    let report = collector.collect().await.unwrap();
    assert_eq!((report.chunks, report.in_flight, report.removed), (written, written, 0));
    spy.release();
    let object = write.await.unwrap().unwrap();
    assert!(store.payload_bytes(&object).await.unwrap() == mk_large(1)[0]);
    assert_eq!(collector.collect().await.unwrap().removed, 0);
    store.close().await;
}

async fn makes_a_forgotten_upload_start_again(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let store = open(&spy, StoreOptions::default()).await;
    let collector = open(&spy, impatient()).await;
    spy.fates(&[Fate::Held]);
    let writer = store.clone();
    let write =
        tokio::spawn(
            async move { writer.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", mk_large(1))).await },
        );
    spy.waiting().await;
    // The collector has to know an intent for longer than its patience, which a first pass never does.
    let begin = Instant::now();
    let removed = loop {
        let report = collector.collect().await.unwrap();
        if report.removed > 0 {
            break report.removed;
        }
        assert!(begin.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(removed >= 10);
    assert_eq!(chunks(&spy).await, 0, "the upload lost its chunks");
    spy.release();
    let object = write.await.unwrap().unwrap();
    assert!(store.payload_bytes(&object).await.unwrap() == mk_large(1)[0], "and started again");
    let report = store.collect().await.unwrap();
    assert_eq!((report.removed, report.in_flight), (0, 0), "nothing is left of the first try");
    store.close().await;
}

async fn removes_what_a_dropped_write_left(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let rotating = StoreOptions { intent_rotation: Duration::ZERO, ..StoreOptions::default() };
    let store = open(&spy, rotating).await;
    let kept = store.create(&mk_key("kept"), mk_draft(Uuid::from_u128(1), "k", mk_large(7))).await.unwrap();
    let named = chunks(&spy).await;
    spy.fates(&[Fate::Held]);
    let writer = store.clone();
    let write = tokio::spawn(async move {
        let draft = mk_draft(Uuid::from_u128(2), "a", mk_large(1));
        writer.create(&mk_key("a"), draft).await
    });
    spy.waiting().await;
    write.abort();
    assert!(write.await.unwrap_err().is_cancelled());
    assert!(chunks(&spy).await > named);
    // The next large write lets go of the intent of the dropped one.
    let other = store.update(&kept, mk_draft(Uuid::from_u128(1), "k2", mk_large(8))).await.unwrap();
    let begin = Instant::now();
    while store.collect().await.unwrap().removed < 8 {
        assert!(begin.elapsed() < PATIENCE);
    }
    let report = store.collect().await.unwrap();
    assert_eq!((report.removed, report.in_flight), (0, 0));
    assert!(store.payload_bytes(&other).await.unwrap() == mk_large(8)[0]);
    assert!(store.payload_bytes(&kept).await.unwrap() == mk_large(7)[0], "history stays readable");
    store.close().await;
}

async fn removes_what_a_lost_process_left(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let store = open(&spy, StoreOptions::default()).await;
    spy.fates(&[Fate::Held]);
    let writer = store.clone();
    let write =
        tokio::spawn(
            async move { writer.create(&mk_key("a"), mk_draft(Uuid::nil(), "a", mk_large(1))).await },
        );
    spy.waiting().await;
    write.abort();
    assert!(write.await.unwrap_err().is_cancelled());
    store.close().await;
    let spy = Spy::new(lab).await;
    let store = open(&spy, StoreOptions::default()).await;
    assert!(chunks(&spy).await >= 10);
    let report = store.collect().await.unwrap();
    assert_eq!(report.removed, report.chunks);
    assert_eq!(chunks(&spy).await, 0);
    store.close().await;
}

async fn keeps_to_many_objects(lab: &Lab) {
    // More keys than a page of the collector holds, with garbage strewn in.
    let spy = Spy::new(lab).await;
    let store = open(&spy, StoreOptions::default()).await;
    let mut objects = Vec::new();
    for n in 0..400_u64 {
        let payload = vec![mk_noise(n, 66_000), mk_noise(n + 1000, 66_000)];
        objects.push((
            n,
            store
                .create(&mk_key(&format!("o-{n}")), mk_draft(Uuid::from_u128(n.into()), "", payload))
                .await
                .unwrap(),
        ));
    }
    let keys: Vec<_> = all(&*spy, "/chunks/").await.into_iter().map(|kv| kv.key).collect();
    assert!(keys.len() >= 1200);
    for key in keys.iter().filter(|key| !key.windows(2).any(|w| w == b"/-")).step_by(10) {
        let mut garbage = key.to_vec();
        let digit = key.len() - 30;
        garbage[digit] = if garbage[digit] == b'0' { b'1' } else { b'0' };
        spy::put(&*spy, &garbage.into(), "garbage").await;
    }
    assert_eq!(store.collect().await.unwrap().removed, 0, "no manifest tells of it");
    let report = store.audit().await.unwrap();
    assert_eq!((report.removed, report.in_flight, report.unreadable), (80, 0, 0));
    assert_eq!(all(&*spy, "/chunks/").await.len(), keys.len());
    for (n, object) in objects.iter().step_by(37) {
        let whole = [mk_noise(*n, 66_000), mk_noise(n + 1000, 66_000)].concat();
        assert!(store.payload_bytes(object).await.unwrap() == whole);
    }
    store.close().await;
}

/// Two writes of the same content from the same state: chunks of the same hashes, under names of their own.
async fn a_write_that_loses_takes_nothing_from_the_one_that_won(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let store = open(&spy, StoreOptions::default()).await;
    let uid = Uuid::from_u128(1);
    let base = store.create(&mk_key("a"), mk_draft(uid, "base", vec![])).await.unwrap();
    spy.fates(&[Fate::Held]);
    let (writer, from) = (store.clone(), base.clone());
    let late = tokio::spawn(async move { writer.update(&from, mk_draft(uid, "late", mk_large(1))).await });
    spy.waiting().await;
    store.update(&base, mk_draft(uid, "won", mk_large(1))).await.unwrap();
    spy.release();
    let late = late.await.unwrap();
    assert!(matches!(late, Err(repot_storage::Error::Conflict)), "{late:?}");
    // What the late one wrote is removed by when the store is closed.
    store.close().await;
    let store = lab.open().await;
    let won = store.get(&mk_key("a")).await.unwrap().unwrap();
    assert_eq!(label(&won), "won");
    assert!(store.payload_bytes(&won).await.unwrap() == mk_large(1)[0]);
    assert_eq!(store.collect().await.unwrap().removed, 0);
    store.close().await;
}

/// Stamps of long ago and of times to come, as clocks leave that jump or differ: how long an intent stays is told by neither.
async fn no_clock_that_jumps_takes_an_intent(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let store = open(&spy, StoreOptions::default()).await;
    for (intent, stamp) in [(1_u64, 0_u64), (2, 1 << 40)] {
        spy::put(&*spy, &format!("/intents/{intent:016x}").into(), stamp.to_be_bytes().to_vec()).await;
        let chunk = format!("/chunks/{}/{:032x}{intent:016x}{:08x}", Uuid::nil().simple(), 7, 0);
        spy::put(&*spy, &chunk.into(), "a chunk").await;
    }
    for _ in 0..3 {
        let report = store.audit().await.unwrap();
        assert_eq!((report.chunks, report.in_flight, report.removed), (2, 2, 0));
    }
    let collector = open(&spy, impatient()).await;
    assert_eq!(collector.audit().await.unwrap().in_flight, 2, "it has not met them before");
    assert_eq!(collector.audit().await.unwrap().removed, 2);
    assert_eq!(chunks(&spy).await, 0);
    store.close().await;
}

/// A removal of more chunks than fit into one transaction, by a process that ends right after it.
async fn what_does_not_fit_into_a_removal_is_removed_after_a_crash(lab: &Lab) {
    let spy = Spy::new(lab).await;
    spy.most_ops(20);
    let store = open(&spy, StoreOptions::default()).await;
    let (uid, many) = (Uuid::from_u128(1), vec![mk_noise(1, 16 << 20)]);
    let object = store.create(&mk_key("a"), mk_draft(uid, "1", many.clone())).await.unwrap();
    let there = chunks(&spy).await;
    assert!(there > 20 + 20, "{there} chunks");
    spy.fates(&[Fate::Held]);
    let writer = store.clone();
    let removal = tokio::spawn(async move { writer.delete(&object).await });
    spy.waiting().await;
    // Everything after the removal itself fails, as if the process had ended there.
    spy.down(true);
    spy.release();
    removal.await.unwrap().unwrap();
    store.close().await;
    drop(store);
    let spy = Spy::new(lab).await;
    assert!(chunks(&spy).await > 10, "what did not fit is left");
    let store = open(&spy, StoreOptions::default()).await;
    let begin = Instant::now();
    while chunks(&spy).await > 0 {
        // The intent of the write is removed by its process, or vanishes after it.
        store.collect().await.unwrap();
        assert!(begin.elapsed() < PATIENCE);
    }
    assert_eq!(all(&*spy, "/manifests/").await, []);
    store.close().await;
}

/// A record whose owner was lost, and one that does not open: an audit takes nothing of theirs.
async fn an_audit_goes_by_every_record(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let store = open(&spy, StoreOptions::default()).await;
    for n in 1..=3_u64 {
        let draft = mk_draft(Uuid::from_u128(n.into()), "", vec![mk_noise(n, 300_000)]);
        store.create(&mk_key(&format!("o{n}")), draft).await.unwrap();
    }
    let there = chunks(&spy).await;
    let owner = all(&*spy, &format!("/chunks/{}/-", Uuid::from_u128(1).simple())).await.remove(0);
    spy::remove(&*spy, &owner.key).await;
    let record = all(&*spy, "/registry/core.example.org/states/ns/o2").await.remove(0);
    let mut damaged = record.value.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    spy::put(&*spy, &record.key, damaged).await;
    // Under a uid of its own, and between those of others.
    for uid in [2_u128, 9] {
        let stray = format!("/chunks/{}/{:032x}{:016x}{:08x}", Uuid::from_u128(uid).simple(), 7, 3, 0);
        spy::put(&*spy, &stray.into(), mk_noise(1, 100_000)).await;
    }
    let report = store.audit().await.unwrap();
    assert_eq!((report.removed, report.in_flight, report.unreadable), (1, 0, 1));
    assert_eq!(
        chunks(&spy).await,
        there,
        "one owner went, and one stray chunk stays with what does not open"
    );
    spy::put(&*spy, &record.key, record.value).await;
    for n in 1..=3_u64 {
        let object = store.get(&mk_key(&format!("o{n}"))).await.unwrap().unwrap();
        assert!(store.payload_bytes(&object).await.unwrap() == mk_noise(n, 300_000));
    }
    assert_eq!(store.audit().await.unwrap().removed, 1);
    store.close().await;
}

/// There are as many chunks as there should be, but one of them is another one.
async fn an_audit_by_name_finds_a_stray_chunk_in_the_place_of_a_lost_one(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let store = open(&spy, StoreOptions::default()).await;
    for n in 1..=3_u64 {
        let draft = mk_draft(Uuid::from_u128(n.into()), "", vec![mk_noise(n, 2 << 20)]);
        store.create(&mk_key(&format!("o{n}")), draft).await.unwrap();
    }
    let report = store.audit_by_name().await.unwrap();
    assert_eq!((report.removed, report.missing), (0, 0));
    let there = report.chunks;
    let mut of_it = all(&*spy, &format!("/chunks/{}/", Uuid::from_u128(2).simple())).await;
    of_it.retain(|kv| !kv.value.is_empty());
    let lost = &of_it[of_it.len() / 2];
    let stray = Bytes::from(format!("/chunks/{}/{:032x}{:016x}{:08x}", Uuid::from_u128(2).simple(), 7, 3, 0));
    spy::remove(&*spy, &lost.key).await;
    spy::put(&*spy, &stray, lost.value.clone()).await;
    let report = store.audit().await.unwrap();
    assert_eq!((report.chunks, report.removed, report.missing), (there, 0, 0), "the number is right");
    // A check of every byte counts it, and removes nothing.
    let mut findings = Vec::new();
    let checked = store.fsck(false, |finding| findings.push(finding), |_| {}).await.unwrap();
    assert_eq!((checked.orphans, findings.len()), (1, 1), "{findings:?}");
    assert!(spy.get(stray.clone(), None).await.unwrap().is_some());

    let report = store.audit_by_name().await.unwrap();
    assert_eq!((report.chunks, report.removed, report.missing), (there, 1, 1));
    assert!(spy.get(stray, None).await.unwrap().is_none(), "the stray chunk is still there");
    let report = store.audit_by_name().await.unwrap();
    assert_eq!((report.removed, report.missing), (0, 1), "the loss is told again");
    spy::put(&*spy, &lost.key, lost.value.clone()).await;
    let report = store.audit_by_name().await.unwrap();
    assert_eq!((report.removed, report.missing), (0, 0));
    for n in 1..=3_u64 {
        let object = store.get(&mk_key(&format!("o{n}"))).await.unwrap().unwrap();
        assert!(store.payload_bytes(&object).await.unwrap() == mk_noise(n, 2 << 20));
    }
    store.close().await;
}
