//! What a store does unasked goes on, part by part, while one part of it hangs.

use std::time::Instant;

use super::{
    spy::{Fate, Spy, all},
    *,
};
use crate::backend::gate::{Call, Gate};

/// A chunk store hangs, for longer than any test waits. History is compacted and chunks are collected all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_store_that_hangs_holds_up_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let options = embedded::Options { min_free_bytes: 0, ..embedded::Options::default() };
    let inner = Arc::new(Embedded::open(&dir.path().join("embedded"), options).await.unwrap());
    let (gate, place) = Gate::new(&dir.path().join("objects"));
    let options = tiered::Options { timeout: Duration::from_secs(3600), ..tiered::Options::default() };
    let spy = Spy::over(Arc::new(Tiered::open(inner.clone(), place, options).await.unwrap()));
    gate.hang(Some(Call::List));
    let options = StoreOptions {
        history: Duration::from_millis(100),
        collect_every: Duration::from_millis(100),
        intent_rotation: Duration::ZERO,
        ..StoreOptions::default()
    };
    let store = Store::open(Arc::clone(&spy) as Arc<dyn Backend>, mk_keyring(), options).await.unwrap();
    gate.hangs().await;

    // A write that is given up leaves chunks.
    spy.fates(&[Fate::Held]);
    let writer = store.clone();
    let write = tokio::spawn(async move {
        let draft = mk_draft(Uuid::from_u128(1), "a", vec![mk_noise(1, 5 << 20)]);
        writer.create(&mk_key("a"), draft).await
    });
    spy.waiting().await;
    write.abort();
    assert!(write.await.unwrap_err().is_cancelled());
    assert!(!all(&*inner, "/chunks/").await.is_empty());

    let (begin, written) = (Instant::now(), inner.revision().await.unwrap());
    while !all(&*inner, "/chunks/").await.is_empty() || inner.oldest().await.unwrap() < written {
        assert!(begin.elapsed() < PATIENCE / 4, "housekeeping waits for the chunk store");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // And a store whose chunk store hangs can be closed.
    tokio::time::timeout(PATIENCE, store.close()).await.unwrap();
}
