//! A proxy that delivers a transaction to etcd twice: the second answer denies what the first delivery did.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use repot_storage::{
    Error, Store, StoreOptions,
    backend::{Etcd, Tiered, etcd::Options, tiered},
};
use tonic::Code;
use uuid::Uuid;

use super::{
    etcd_errors::{LARGE, open, whole},
    etcd_process::{EtcdProcess, PATIENCE},
    grpc_relay::{Call, Fault, GrpcRelay, When},
};
use crate::store::{files, mk_draft, mk_key, mk_keyring, mk_noise};

/// A proxy delivers a write twice and passes on the second answer: a comparison does not hold, because the first delivery happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_delivered_twice_is_done() {
    let etcd = EtcdProcess::start(None, &[]).await;
    delivered_twice(&etcd, async |relay| open(&etcd, relay).await).await;
    whole(&etcd, 0).await;
}

/// With chunks in a chunk store: the objects of the first delivery stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_delivered_twice_keeps_its_objects() {
    let (etcd, dir) = (EtcdProcess::start(None, &[]).await, tempfile::tempdir().unwrap());
    let open = async |relay: &GrpcRelay| {
        let options =
            Options { endpoints: vec![relay.endpoint.clone()], deadline: PATIENCE, ..etcd.options() };
        let inner = Arc::new(Etcd::connect(options).await.unwrap());
        let tiered = Tiered::open(inner, files(dir.path()), tiered::Options::default()).await.unwrap();
        Store::open(Arc::new(tiered), mk_keyring(), StoreOptions::default()).await.unwrap()
    };
    delivered_twice(&etcd, open).await;
}

/// Creates, updates and removes objects whose payload is in the record, in its transaction, and in transactions before it. Each
/// transaction on a record is delivered twice.
async fn delivered_twice(etcd: &EtcdProcess, open: impl AsyncFn(&GrpcRelay) -> Store) {
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = Arc::clone(&armed);
    let fault = Fault { code: Code::Ok, text: "", when: When::Twice };
    let choose =
        move |call: &Call<'_>| (call.writes_record() && is_armed.load(Ordering::SeqCst)).then_some(fault);
    let relay = GrpcRelay::start(&etcd.endpoint(), Arc::new(choose)).await;
    for (number, size) in [2000, 300_000, LARGE].into_iter().enumerate() {
        let store = open(&relay).await;
        armed.store(true, Ordering::SeqCst);
        let (key, uid) = (mk_key(&size.to_string()), Uuid::from_u128(1 + number as u128));
        let made = store.create(&key, mk_draft(uid, "1", vec![mk_noise(1, size)])).await.unwrap();
        let updated = store.update(&made, mk_draft(uid, "2", vec![mk_noise(2, size)])).await.unwrap();
        // What a failed write leaves is removed when the store closes at the latest.
        store.close().await;
        let store = open(&relay).await;
        let now = store.get(&key).await.unwrap().unwrap();
        assert_eq!(now.version, updated.version, "{size}");
        assert!(store.payload_bytes(&now).await.unwrap() == mk_noise(2, size), "{size}");
        // Nothing tells who removed an object.
        let removed = store.delete(&now).await;
        assert!(matches!(removed, Ok(_) | Err(Error::Conflict)), "{removed:?}");
        assert!(store.get(&key).await.unwrap().is_none(), "{size}");
        armed.store(false, Ordering::SeqCst);
        store.close().await;
    }
    assert_eq!(relay.answered_after(), 9, "a transaction was not delivered twice");
}
