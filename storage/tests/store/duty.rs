//! One server collects, and it counts all chunks once in a while.

use std::time::Instant;

use super::{
    spy::{Spy, all, put},
    *,
};

on_every_backend! {
    a_store_of_an_older_version_is_collected
    a_count_that_was_broken_off_goes_on
}

fn quick() -> StoreOptions {
    StoreOptions {
        history: Duration::from_secs(1),
        collect_every: Duration::from_millis(50),
        ..StoreOptions::default()
    }
}

async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !is().await {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A chunk that no record names, as one that an older version left.
fn stray(uid: u128, n: u64) -> Bytes {
    format!("/chunks/{}/{n:032x}{:016x}{:08x}", Uuid::from_u128(uid).simple(), 3, 0).into()
}

async fn is_there(spy: &Spy, key: &Bytes) -> bool {
    spy.get(key.clone(), None).await.unwrap().is_some()
}

/// How often a pass has begun.
fn passes(spy: &Spy) -> usize {
    spy.reads().iter().filter(|read| read.start.starts_with(b"/manifests/")).count()
}

async fn a_store_of_an_older_version_is_collected(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let first = Store::open(spy.clone(), mk_keyring(), StoreOptions::default()).await.unwrap();
    let draft = mk_draft(Uuid::from_u128(5), "kept", vec![mk_noise(1, 900_000)]);
    let object = first.create(&mk_key("kept"), draft).await.unwrap();
    let kept = all(&*spy, "/chunks/").await.len();
    for uid in [1, 5, 9] {
        for n in 0..40 {
            put(&*spy, &stray(uid, n), "a chunk").await;
        }
    }
    let store = Store::open(spy.clone(), mk_keyring(), quick()).await.unwrap();
    until("garbage stays", async || all(&*spy, "/chunks/").await.len() == kept).await;
    assert!(store.payload_bytes(&object).await.unwrap() == mk_noise(1, 900_000));
    // Once that is noted, nothing is counted again for a day.
    until("the end is not noted", async || {
        let note = spy.get("/meta/audit".into(), None).await.unwrap();
        note.is_some_and(|kv| kv.value[1] == 1)
    })
    .await;
    let late = stray(7, 1);
    put(&*spy, &late, "a chunk").await;
    let before = passes(&spy);
    until("no pass", async || passes(&spy) > before + 2).await;
    assert!(is_there(&spy, &late).await);
    drop(first);
    store.close().await;
}

async fn a_count_that_was_broken_off_goes_on(lab: &Lab) {
    let spy = Spy::new(lab).await;
    let (done, ahead) = (stray(1, 1), stray(9, 1));
    for key in [&done, &ahead] {
        put(&*spy, key, "a chunk").await;
    }
    let note = [&[1, 0][..], Uuid::from_u128(5).as_bytes()].concat();
    put(&*spy, &"/meta/audit".into(), note).await;
    let store = Store::open(spy.clone(), mk_keyring(), quick()).await.unwrap();
    until("it does not go on", async || !is_there(&spy, &ahead).await).await;
    assert!(is_there(&spy, &done).await, "what was judged before is not judged again");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_of_several_collects() {
    let lab = Lab::etcd().await;
    let (one, two) = (Spy::new(&lab).await, Spy::new(&lab).await);
    let open = async |spy: &Arc<Spy>| Store::open(spy.clone(), mk_keyring(), quick()).await.unwrap();
    let first = open(&one).await;
    until("the first one does not collect", async || passes(&one) > 1).await;
    let second = open(&two).await;
    let before = passes(&one);
    until("the first one does not go on", async || passes(&one) > before + 5).await;
    assert_eq!(passes(&two), 0, "both collect");
    // It ends, and its key with it.
    first.close().await;
    until("nobody collects any more", async || passes(&two) > 1).await;
    second.close().await;
}
