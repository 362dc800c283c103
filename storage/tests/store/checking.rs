//! fsck finds what is wrong and nothing else; a repair loses nothing, and what it puts away can be had back.

use repot_storage::{Checked, Damage, Error, Finding, Remedy};

use super::{
    spy::{Spy, all, put, remove},
    *,
};

on_every_backend! {
    finds_nothing_wrong_with_what_is_whole
    tells_what_is_lost
    finds_each_chunk_that_is_damaged
    puts_away_what_cannot_be_read_and_gives_it_back
    sets_marks_that_are_missing
    leaves_what_only_lacks_its_key
    a_surplus_chunk_does_not_stand_for_one_that_is_missing
    reads_beside_writers
    a_refusal_is_no_damage
}

async fn open(lab: &Lab) -> (Arc<dyn Backend>, Store) {
    let backend = lab.backend().await;
    let store = Store::open(backend.clone(), mk_keyring(), StoreOptions::default()).await.unwrap();
    (backend, store)
}

async fn fsck(store: &Store, repair: bool) -> (Checked, Vec<Finding>) {
    let mut findings = Vec::new();
    let checked = store.fsck(repair, |finding| findings.push(finding), |_| {}).await.unwrap();
    assert_eq!(checked.findings as usize, findings.len());
    (checked, findings)
}

/// One in its record, one of one chunk, one of many.
async fn fill(store: &Store) {
    for (at, len) in [(1, 300), (2, 200_000), (3, 3 << 20)] {
        let draft = mk_draft(Uuid::from_u128(at), "x", vec![mk_noise(at as u64, len)]);
        store.create(&mk_key(&format!("o{at}")), draft).await.unwrap();
    }
}

fn record(name: &str) -> String {
    format!("/registry/core.example.org/states/ns/{name}")
}

async fn chunks(backend: &dyn Backend, uid: u128) -> Vec<backend::KeyValue> {
    let mut found = all(backend, &format!("/chunks/{}/", Uuid::from_u128(uid).simple())).await;
    found.retain(|kv| !kv.value.is_empty());
    found
}

async fn damage(backend: &dyn Backend, kv: &backend::KeyValue) {
    let mut value = kv.value.to_vec();
    let middle = value.len() / 2;
    value[middle] ^= 4;
    put(backend, &kv.key, value).await;
}

async fn finds_nothing_wrong_with_what_is_whole(lab: &Lab) {
    let (backend, store) = open(lab).await;
    fill(&store).await;
    let (checked, findings) = fsck(&store, true).await;
    assert_eq!(findings, []);
    assert_eq!((checked.objects, checked.bytes, checked.open), (3, 300 + 200_000 + (3 << 20), 0));
    let there = chunks(&*backend, 2).await.len() + chunks(&*backend, 3).await.len();
    assert_eq!((checked.chunks as usize, checked.orphans, checked.in_flight), (there, 0, 0));
    store.close().await;
}

async fn tells_what_is_lost(lab: &Lab) {
    let (backend, store) = open(lab).await;
    fill(&store).await;
    let of_it = chunks(&*backend, 3).await;
    damage(&*backend, &of_it[1]).await;
    remove(&*backend, &of_it[3].key).await;
    damage(&*backend, &all(&*backend, &record("o1")).await[0]).await;
    put(&*backend, &Bytes::from("/registry/stray"), "x").await;

    let (checked, findings) = fsck(&store, false).await;
    assert_eq!((checked.findings, checked.open), (3, 3), "{findings:?}");
    assert!(findings.iter().all(|finding| finding.remedy == Remedy::Left));
    let of = |place: &str| {
        let found = findings.iter().find(|finding| finding.place.contains(place));
        found.unwrap_or_else(|| panic!("nothing of {place} in {findings:?}")).trouble.clone()
    };
    assert!(matches!(of("o1"), Damage::Record(_)));
    assert_eq!(of("stray"), Damage::Foreign);
    let Damage::Payload(lost) = of("o3") else { panic!("{findings:?}") };
    let mut whats: Vec<_> = lost.iter().map(|part| part.what).collect();
    whats.sort_unstable();
    assert_eq!(whats, ["a chunk does not open under its key, uid and name", "a chunk is missing"]);
    // What is not said to be lost is there.
    let whole = mk_noise(3, 3 << 20);
    let object = store.get(&mk_key("o3")).await.unwrap().unwrap();
    let mut before = Bytes::new();
    let mut stream = store.payload(&object);
    let first = lost.iter().map(|part| part.bytes.start).min().unwrap() as usize;
    while let Some(Ok(piece)) = futures::StreamExt::next(&mut stream).await {
        before = joined(&[before, piece]);
    }
    assert!(before.len() <= first && before == whole[..before.len()]);
    store.close().await;
}

async fn puts_away_what_cannot_be_read_and_gives_it_back(lab: &Lab) {
    let (backend, store) = open(lab).await;
    fill(&store).await;
    let good = all(&*backend, &record("o3")).await.remove(0);
    let held = chunks(&*backend, 3).await;
    damage(&*backend, &good).await;

    let (checked, findings) = fsck(&store, true).await;
    assert_eq!((checked.findings, checked.open), (1, 0), "{findings:?}");
    assert!(matches!(findings[0].remedy, Remedy::Quarantined(_)));
    assert!(store.get(&mk_key("o3")).await.unwrap().is_none(), "nothing serves it");
    let kept = store.quarantined().await.unwrap();
    assert_eq!(kept.len(), 1);
    assert!(kept[0].object.contains("o3"), "{kept:?}");
    assert_eq!(fsck(&store, false).await.1, []);
    let report = store.audit().await.unwrap();
    assert_eq!((report.removed, report.unreadable), (0, 1), "its chunks stay");

    // The name is free meanwhile, and what is there is not written over.
    let other = store.create(&mk_key("o3"), mk_draft(Uuid::nil(), "new", vec![])).await.unwrap();
    assert!(matches!(store.unquarantine(&kept[0].name).await, Err(repot_storage::Error::Exists)));
    store.delete(&other).await.unwrap();
    store.unquarantine(&kept[0].name).await.unwrap();
    assert_eq!(store.quarantined().await.unwrap(), []);
    // Somebody found a copy of the record: the object is whole again.
    put(&*backend, &good.key, good.value.clone()).await;
    let object = store.get(&mk_key("o3")).await.unwrap().unwrap();
    assert!(store.payload_bytes(&object).await.unwrap() == mk_noise(3, 3 << 20));
    assert_eq!(store.audit().await.unwrap().removed, 0);

    // And for good.
    damage(&*backend, &good).await;
    fsck(&store, true).await;
    let name = store.quarantined().await.unwrap().remove(0).name;
    store.purge(&name).await.unwrap();
    assert!(store.purge(&name).await.is_err());
    let report = store.collect().await.unwrap();
    assert_eq!((report.removed + report.in_flight) as usize, held.len(), "nothing names them any more");
    assert_eq!(report.unreadable, 0);
    store.close().await;
}

async fn sets_marks_that_are_missing(lab: &Lab) {
    let (backend, store) = open(lab).await;
    fill(&store).await;
    let marks = all(&*backend, &format!("/chunks/{}/-", Uuid::from_u128(3).simple())).await;
    assert_eq!(marks.len(), 1);
    remove(&*backend, &marks[0].key).await;
    let (checked, findings) = fsck(&store, false).await;
    assert!(findings.len() == 1 && findings[0].trouble == Damage::Unowned, "{findings:?}");
    assert_eq!((checked.orphans, checked.in_flight), (0, 0), "they are in use all the same");
    let (_, findings) = fsck(&store, true).await;
    assert_eq!(findings[0].remedy, Remedy::Mended);
    assert_eq!(fsck(&store, false).await.1, []);
    assert_eq!(store.audit().await.unwrap().removed, 0);
    store.close().await;
}

async fn leaves_what_only_lacks_its_key(lab: &Lab) {
    let (_, store) = open(lab).await;
    fill(&store).await;
    store.close().await;
    drop(store);
    let other = CONFIG.replace("name: first", "name: second");
    let keys = Arc::new(Keyring::parse(&other).unwrap());
    let store = Store::open(lab.backend().await, keys, StoreOptions::default()).await.unwrap();
    let (checked, findings) = fsck(&store, true).await;
    assert_eq!((checked.findings, checked.open), (3, 3), "{findings:?}");
    assert!(findings.iter().all(|finding| matches!(finding.trouble, Damage::Locked(_))), "{findings:?}");
    assert_eq!(store.quarantined().await.unwrap(), []);
    store.close().await;
}

/// What the backend does not let this server read is not lost.
async fn a_refusal_is_no_damage(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let store = Store::open(spy.clone(), mk_keyring(), StoreOptions::default()).await.unwrap();
    fill(&store).await;
    spy.refuse_chunks(true);
    let mut findings = Vec::new();
    let checked = store.fsck(true, |finding| findings.push(finding), |_| {}).await;
    assert!(matches!(checked, Err(Error::Refused(_))), "{checked:?}");
    assert_eq!(findings, []);
    let missing = store.missing_chunks(9).await;
    assert!(matches!(missing, Err(Error::Refused(_))), "{missing:?}");
    spy.refuse_chunks(false);
    assert_eq!(store.quarantined().await.unwrap(), []);
    assert_eq!(fsck(&store, true).await.1, []);
    store.close().await;
}

/// Every object of the chunk store is not found while the bucket is away, or another one is in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_store_that_is_away_is_no_damage() {
    let lab = Lab::tiered().await;
    let Lab::Tiered(dir) = &lab else { unreachable!() };
    let (_, store) = open(&lab).await;
    fill(&store).await;
    let (there, away) = (dir.path().join("objects"), dir.path().join("away"));
    std::fs::rename(&there, &away).unwrap();
    for other in [None, Some("another"), Some("")] {
        if let Some(name) = other {
            std::fs::create_dir_all(&there).unwrap();
            std::fs::write(there.join("repot-store"), name).unwrap();
        }
        let mut findings = Vec::new();
        let checked = store.fsck(true, |finding| findings.push(finding), |_| {}).await;
        assert!(
            matches!(&checked, Err(Error::Unavailable(why)) if why.contains("repot-store")),
            "{checked:?}"
        );
        assert_eq!(findings, []);
        let missing = store.missing_chunks(9).await;
        assert!(matches!(missing, Err(Error::Unavailable(_))), "{missing:?}");
    }
    assert_eq!(store.quarantined().await.unwrap(), []);
    std::fs::remove_dir_all(&there).unwrap();
    std::fs::rename(&away, &there).unwrap();
    assert_eq!(fsck(&store, true).await.1, []);
    assert_eq!(store.missing_chunks(9).await.unwrap().incomplete, 0);
    store.close().await;
}

async fn reads_beside_writers(lab: &Lab) {
    let (_, store) = open(lab).await;
    fill(&store).await;
    let writer = store.clone();
    let writes = tokio::spawn(async move {
        for at in 0..40_u64 {
            for name in ["o2", "o3"] {
                let object = writer.get(&mk_key(name)).await.unwrap().unwrap();
                let draft = mk_draft(object.uid, "y", vec![mk_noise(at, 900_000), mk_noise(at + 1, 300_000)]);
                writer.update(&object, draft).await.unwrap();
            }
        }
    });
    let mut passes = 0;
    while !writes.is_finished() {
        assert_eq!(fsck(&store, true).await.1, []);
        passes += 1;
    }
    writes.await.unwrap();
    assert!(passes > 0);
    assert_eq!(store.quarantined().await.unwrap(), []);
    store.close().await;
}

/// Whichever it is of many: the first, one between, the last.
async fn finds_each_chunk_that_is_damaged(lab: &Lab) {
    let (backend, store) = open(lab).await;
    fill(&store).await;
    let all = chunks(&*backend, 3).await;
    assert!(all.len() > 5);
    let mut lost = Vec::new();
    for chunk in &all {
        damage(&*backend, chunk).await;
        let (_, findings) = fsck(&store, false).await;
        let [Finding { trouble: Damage::Payload(parts), .. }] = &findings[..] else { panic!("{findings:?}") };
        let [part] = &parts[..] else { panic!("{parts:?}") };
        lost.push(part.bytes.clone());
        put(&*backend, &chunk.key, chunk.value.clone()).await;
    }
    lost.sort_by_key(|bytes| bytes.start);
    assert!(lost.windows(2).all(|pair| pair[0].end == pair[1].start), "{lost:?}");
    assert_eq!((lost[0].start, lost[lost.len() - 1].end), (0, 3 << 20));
    assert_eq!(fsck(&store, false).await.1, []);
    store.close().await;
}

/// Where a chunk is gone and another one is there that nothing names, there are as many as there should be.
async fn a_surplus_chunk_does_not_stand_for_one_that_is_missing(lab: &Lab) {
    let (backend, store) = open(lab).await;
    fill(&store).await;
    assert_eq!(store.missing_chunks(9).await.unwrap().incomplete, 0);
    let of_it = chunks(&*backend, 3).await;
    let lost = &of_it[of_it.len() / 2];
    let mut surplus = lost.key.to_vec();
    let last = surplus.last_mut().unwrap();
    *last = if *last == b'0' { b'1' } else { b'0' };
    put(&*backend, &surplus.into(), lost.value.clone()).await;
    assert_eq!(store.missing_chunks(9).await.unwrap().incomplete, 0, "a surplus chunk does no harm");
    remove(&*backend, &lost.key).await;
    let missing = store.missing_chunks(9).await.unwrap();
    assert_eq!((missing.objects, missing.incomplete, missing.unreadable), (3, 1, 0));
    assert_eq!(missing.first, [mk_key("o3").to_string()]);
    store.close().await;
}
