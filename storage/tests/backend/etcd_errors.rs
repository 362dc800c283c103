//! Every error that etcd may answer to a write, once before the write is done and once after: what a client of the store is
//! told is true, nothing acknowledged is lost, and everything can be read.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::Bytes;
use parking_lot::Mutex;
use repot_storage::{
    Error, Object, Store, StoreOptions,
    backend::{self, Backend, Etcd, Op, Txn, etcd::Options},
};
use tonic::Code;
use uuid::Uuid;

use super::{
    etcd_process::{EtcdProcess, PATIENCE},
    grpc_relay::{Call, Fault, GrpcRelay, When},
};
use crate::store::{mk_draft, mk_key, mk_keyring, mk_noise, spy::all};

/// What a client is told of a write that was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Nothing: the write is tried again, and done.
    Done,
    NoSpace,
    TooLarge,
    /// That the store refuses it.
    Refused,
    /// That the store does not work as it should.
    Damaged,
}

/// All errors of etcd 3.6 that a transaction or the grant of a lease may meet, and some of HTTP/2 and of proxies.
const ERRORS: &[(Code, &str, Told)] = &[
    (Code::Unavailable, "etcdserver: no leader", Told::Done),
    (Code::FailedPrecondition, "etcdserver: not capable", Told::Done),
    (Code::FailedPrecondition, "etcdserver: rpc not supported for learner", Told::Done),
    (Code::FailedPrecondition, "etcdserver: not leader", Told::Done),
    (Code::Unavailable, "etcdserver: leader changed", Told::Done),
    (Code::Unavailable, "etcdserver: server stopped", Told::Done),
    (Code::Unavailable, "etcdserver: request timed out", Told::Done),
    (Code::Unavailable, "etcdserver: request timed out, possibly due to previous leader failure", Told::Done),
    (Code::Unavailable, "etcdserver: request timed out, possibly due to connection lost", Told::Done),
    (
        Code::Unavailable,
        "etcdserver: request timed out, waiting for the applied index took too long",
        Told::Done,
    ),
    (Code::Unavailable, "etcdserver: unhealthy cluster", Told::Done),
    (Code::ResourceExhausted, "etcdserver: too many requests", Told::Done),
    (Code::Unknown, "etcdserver: too many requests", Told::Done),
    (Code::Unknown, "etcdserver: request cancelled", Told::Done),
    (Code::Unknown, "raft proposal dropped", Told::Done),
    (Code::Unknown, "raft: stopped", Told::Done),
    (Code::Cancelled, "context canceled", Told::Done),
    (Code::DeadlineExceeded, "context deadline exceeded", Told::Done),
    (Code::Internal, "h2 protocol error: stream error received", Told::Done),
    (Code::Unknown, "h2 protocol error: error reading a body from connection", Told::Done),
    (Code::ResourceExhausted, "h2 protocol error: too_many_pings", Told::Done),
    (Code::ResourceExhausted, "trying to send message larger than max (9 vs. 8)", Told::Done),
    (Code::InvalidArgument, "etcdserver: revision of auth store is old", Told::Done),
    (Code::NotFound, "etcdserver: requested lease not found", Told::Done),
    (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", Told::Done),
    (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", Told::Done),
    (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Told::NoSpace),
    (Code::ResourceExhausted, "grpc: received message larger than max (9 vs. 8)", Told::TooLarge),
    (Code::InvalidArgument, "etcdserver: request is too large", Told::TooLarge),
    (Code::InvalidArgument, "etcdserver: too many operations in txn request", Told::TooLarge),
    (Code::InvalidArgument, "etcdserver: duplicate key given in txn request", Told::Refused),
    (Code::InvalidArgument, "etcdserver: key is not provided", Told::Refused),
    (Code::InvalidArgument, "etcdserver: user name is empty", Told::Refused),
    (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password", Told::Refused),
    (Code::Unauthenticated, "etcdserver: invalid auth token", Told::Refused),
    (Code::PermissionDenied, "etcdserver: permission denied", Told::Refused),
    (Code::DataLoss, "etcdserver: corrupt cluster", Told::Damaged),
    (Code::PermissionDenied, "said by a proxy", Told::Done),
    (Code::Unauthenticated, "said by a proxy", Told::Done),
    (Code::Unimplemented, "said by a proxy", Told::Done),
    (Code::DataLoss, "said by a proxy", Told::Done),
];

/// Larger than one transaction, so that chunks are put before the record.
pub(super) const LARGE: usize = 1_200_000;

/// A store whose next transaction on a record meets an error.
struct Faulty {
    store: Store,
    relay: GrpcRelay,
    next: Arc<Mutex<Option<Fault>>>,
}

impl Faulty {
    async fn open(etcd: &EtcdProcess) -> Self {
        let next: Arc<Mutex<Option<Fault>>> = Arc::default();
        let armed = Arc::clone(&next);
        let choose = move |call: &Call<'_>| if call.writes_record() { armed.lock().take() } else { None };
        let relay = GrpcRelay::start(&etcd.endpoint(), Arc::new(choose)).await;
        let store = open(etcd, &relay).await;
        Self { store, relay, next }
    }

    /// A write that meets an error.
    async fn under(
        &self,
        fault: Fault,
        write: impl Future<Output = Result<Object, Error>>,
    ) -> Result<Object, Error> {
        *self.next.lock() = Some(fault);
        let written = write.await;
        assert!(self.next.lock().is_none(), "it met no error");
        written
    }
}

pub(super) async fn open(etcd: &EtcdProcess, relay: &GrpcRelay) -> Store {
    let endpoints = vec![relay.endpoint.clone()];
    let options = Options { endpoints, deadline: PATIENCE, ..etcd.options() };
    let backend = Arc::new(Etcd::connect(options).await.unwrap());
    Store::open(backend, mk_keyring(), StoreOptions::default()).await.unwrap()
}

/// Whether the write is done, as its client was told; what it was told has to be what it should be.
fn is_done(fault: Fault, told: Told, written: &Result<Object, Error>) -> bool {
    let expected = if fault.when == When::After { Told::Done } else { told };
    match (expected, written) {
        (Told::Done, Ok(_)) => true,
        (Told::NoSpace, Err(Error::NoSpace(_)))
        | (Told::TooLarge, Err(Error::TooLarge { .. }))
        | (Told::Refused, Err(Error::Refused(_)))
        | (Told::Damaged, Err(Error::Damaged(_))) => false,
        _ => panic!("{fault:?}: {written:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_etcd_before_or_after_a_write_loses_nothing() {
    let etcd = EtcdProcess::start(None, &[]).await;
    let faulty = Faulty::open(&etcd).await;
    let store = &faulty.store;
    let payload = |seed| vec![mk_noise(seed, LARGE)];
    let uid = Uuid::from_u128(1);
    let mut large = store.create(&mk_key("large"), mk_draft(uid, "0", payload(0))).await.unwrap();
    let (mut kept, mut seed) = (0, 0);
    for &(code, text, told) in ERRORS {
        for when in [When::Before, When::After] {
            let fault = Fault { code, text, when };
            seed += 1;
            let written = faulty.under(fault, store.update(&large, mk_draft(uid, "1", payload(seed)))).await;
            if is_done(fault, told, &written) {
                (large, kept) = (written.unwrap(), seed);
            }
            let now = store.get(&large.key).await.unwrap().unwrap();
            assert_eq!(now.version, large.version, "{fault:?}");
            assert!(store.payload_bytes(&now).await.unwrap() == mk_noise(kept, LARGE), "{fault:?}");
            made_and_removed(&faulty, fault, told).await;
        }
    }
    assert_eq!(faulty.relay.answered_after(), 3 * ERRORS.len() as u64, "etcd had not done what it was asked");
    store.close().await;
    whole(&etcd, 1).await;
}

/// A small object is made and removed again, each under the error.
async fn made_and_removed(faulty: &Faulty, fault: Fault, told: Told) {
    let (store, key) = (&faulty.store, mk_key("small"));
    let draft = || mk_draft(Uuid::from_u128(2), "small", vec![mk_noise(1, 2000)]);
    let made = faulty.under(fault, store.create(&key, draft())).await;
    let done = is_done(fault, told, &made);
    assert_eq!(store.get(&key).await.unwrap().is_some(), done, "{fault:?}");
    let made = if done { made.unwrap() } else { store.create(&key, draft()).await.unwrap() };
    let removed = faulty.under(fault, store.delete(&made)).await;
    let done = is_done(fault, told, &removed);
    assert_eq!(store.get(&key).await.unwrap().is_none(), done, "{fault:?}");
    if !done {
        store.delete(&made).await.unwrap();
    }
}

/// Nothing that is named is missing, also after the collector was there.
pub(super) async fn whole(etcd: &EtcdProcess, objects: u64) {
    let backend = Arc::new(Etcd::connect(etcd.options()).await.unwrap());
    let store = Store::open(backend, mk_keyring(), StoreOptions::default()).await.unwrap();
    store.collect().await.unwrap();
    let checked = store.fsck(false, |finding| panic!("{finding:?}"), |_| {}).await.unwrap();
    assert_eq!(checked.objects, objects);
    store.close().await;
}

/// Intents, leases and chunks: whichever request of a large write meets the error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_etcd_at_any_request_of_a_large_write_loses_nothing() {
    /// More requests than the write makes when nothing is wrong: the lease, the intent, chunks and the record.
    const REQUESTS: u64 = 7;
    let etcd = EtcdProcess::start(None, &[]).await;
    let mut objects = 0;
    for text in [
        "etcdserver: mvcc: database space exceeded",
        "etcdserver: request timed out",
        "raft proposal dropped",
    ] {
        for (when, nth) in
            [When::Before, When::After].into_iter().flat_map(|when| (0..REQUESTS).map(move |n| (when, n)))
        {
            let fault = Fault { code: Code::ResourceExhausted, text, when };
            objects += 1;
            let seen = met_at(&etcd, fault, nth, objects).await;
            assert!(seen > 4, "only {seen} requests");
        }
    }
    whole(&etcd, objects).await;
}

/// Makes an object, in two tries if need be. How many requests wrote something.
async fn met_at(etcd: &EtcdProcess, fault: Fault, nth: u64, number: u64) -> u64 {
    let (armed, seen) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(0)));
    let (at, count) = (Arc::clone(&armed), Arc::clone(&seen));
    let choose = move |call: &Call<'_>| {
        let writes = call.is_transaction() || call.path.ends_with("LeaseGrant");
        let number = if writes { count.fetch_add(1, Ordering::SeqCst) } else { return None };
        (number == at.load(Ordering::SeqCst)).then_some(fault)
    };
    let relay = GrpcRelay::start(&etcd.endpoint(), Arc::new(choose)).await;
    let store = open(etcd, &relay).await;
    armed.store(seen.load(Ordering::SeqCst) + nth, Ordering::SeqCst);
    let (key, uid) = (mk_key(&format!("o-{number}")), Uuid::from_u128(number.into()));
    let payload: Bytes = mk_noise(number, LARGE);
    let create = || store.create(&key, mk_draft(uid, "1", vec![payload.clone()]));
    let object = match create().await {
        Ok(object) => object,
        Err(Error::NoSpace(_) | Error::Unavailable(_)) => {
            assert!(store.get(&key).await.unwrap().is_none(), "{fault:?} at {nth}: said not to be there");
            create().await.unwrap()
        }
        Err(error) => panic!("{fault:?} at {nth}: {error}"),
    };
    assert!(store.payload_bytes(&object).await.unwrap() == payload, "{fault:?} at {nth}");
    store.close().await;
    seen.load(Ordering::SeqCst)
}

/// etcd says that it did not begin with a creation that it has done. The object is removed before the creation is tried again, so
/// nothing but a fence keeps it from being made twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_made_once_whatever_etcd_says() {
    let etcd = EtcdProcess::start(None, &[]).await;
    let direct = Store::open(
        Arc::new(Etcd::connect(etcd.options()).await.unwrap()),
        mk_keyring(),
        StoreOptions::default(),
    );
    let direct = direct.await.unwrap();
    for (code, text) in [
        (Code::Unavailable, "etcdserver: no leader"),
        (Code::ResourceExhausted, "etcdserver: too many requests"),
        (Code::Unknown, "raft proposal dropped"),
    ] {
        let (removed, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (over, count) = (Arc::clone(&removed), Arc::clone(&asked));
        let choose = move |call: &Call<'_>| {
            if !call.writes_record() || over.load(Ordering::SeqCst) {
                return None;
            }
            // The first is done. Those after it are not, until the object is gone.
            let when = if count.fetch_add(1, Ordering::SeqCst) == 0 { When::After } else { When::Before };
            Some(Fault { code, text, when })
        };
        let relay = GrpcRelay::start(&etcd.endpoint(), Arc::new(choose)).await;
        let store = open(&etcd, &relay).await;
        let (key, draft) = (mk_key("once"), mk_draft(Uuid::from_u128(1), "1", vec![mk_noise(1, 2000)]));
        let remove = async {
            let made = loop {
                if let Some(made) = direct.get(&key).await.unwrap() {
                    break made;
                }
            };
            let gone = direct.delete(&made).await.unwrap();
            removed.store(true, Ordering::SeqCst);
            (made, gone)
        };
        let (created, (made, gone)) = tokio::join!(store.create(&key, draft), remove);
        assert_eq!(created.unwrap().version, made.version, "{text}");
        assert!(direct.get(&key).await.unwrap().is_none(), "{text}: made again after {}", gone.version);
        assert!(asked.load(Ordering::SeqCst) > 0, "{text}: no call met the error");
        store.close().await;
    }
    direct.close().await;
}

/// etcd applies the first attempt of a write and answers that it did not begin. Every later attempt gets the same answer and never
/// reaches etcd. The client learns the truth from a read, and the chunks of the new state stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_etcd_denies_each_time_is_found_by_reading() {
    let etcd = EtcdProcess::start(None, &[]).await;
    for (code, text) in [
        (Code::Unavailable, "etcdserver: no leader"),
        (Code::ResourceExhausted, "etcdserver: too many requests"),
        (Code::InvalidArgument, "etcdserver: revision of auth store is old"),
    ] {
        let (armed, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_armed, count) = (Arc::clone(&armed), Arc::clone(&asked));
        let choose = move |call: &Call<'_>| {
            if !call.writes_record() || !is_armed.load(Ordering::SeqCst) {
                return None;
            }
            let when = if count.fetch_add(1, Ordering::SeqCst) == 0 { When::After } else { When::Before };
            Some(Fault { code, text, when })
        };
        let relay = GrpcRelay::start(&etcd.endpoint(), Arc::new(choose)).await;
        let store = open(&etcd, &relay).await;
        let uid = Uuid::from_u128(1);
        let made =
            store.create(&mk_key("denied"), mk_draft(uid, "1", vec![mk_noise(1, LARGE)])).await.unwrap();
        armed.store(true, Ordering::SeqCst);
        let updated = store.update(&made, mk_draft(uid, "2", vec![mk_noise(2, LARGE)])).await;
        let updated = updated.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(asked.swap(0, Ordering::SeqCst) > 1, "{text}: no attempt was denied after the first");
        // Chunks that a failed write leaves are removed when the store closes at the latest.
        store.close().await;
        let reopened = open(&etcd, &relay).await;
        let now = reopened.get(&updated.key).await.unwrap().unwrap();
        assert_eq!(now.version, updated.version, "{text}");
        assert!(reopened.payload_bytes(&now).await.unwrap() == mk_noise(2, LARGE), "{text}");
        reopened.delete(&now).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(asked.load(Ordering::SeqCst) > 1, "{text}: the deletion was not denied");
        assert!(reopened.get(&updated.key).await.unwrap().is_none(), "{text}");
        reopened.close().await;
    }
    whole(&etcd, 0).await;
}

/// etcd denies each attempt of an update, and none was applied: the client may try again, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_that_etcd_never_begins_is_unavailable_and_changes_nothing() {
    let etcd = EtcdProcess::start(None, &[]).await;
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = Arc::clone(&armed);
    let fault = Fault { code: Code::Unavailable, text: "etcdserver: no leader", when: When::Before };
    let choose =
        move |call: &Call<'_>| (call.writes_record() && is_armed.load(Ordering::SeqCst)).then_some(fault);
    let relay = GrpcRelay::start(&etcd.endpoint(), Arc::new(choose)).await;
    let store = open(&etcd, &relay).await;
    let uid = Uuid::from_u128(1);
    let made = store.create(&mk_key("kept"), mk_draft(uid, "1", vec![mk_noise(1, LARGE)])).await.unwrap();
    armed.store(true, Ordering::SeqCst);
    let direct = Etcd::connect(etcd.options()).await.unwrap();
    let before = all(&direct, "/chunks/").await.len();
    let refused = store.update(&made, mk_draft(uid, "2", vec![mk_noise(2, LARGE)])).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    armed.store(false, Ordering::SeqCst);
    // Waits for all that the store does in the background.
    store.close().await;
    let after = all(&direct, "/chunks/").await.len();
    assert!(after > before, "chunks went of a write that is not proved to have failed");
    let store = open(&etcd, &relay).await;
    let made = store.get(&made.key).await.unwrap().unwrap();
    assert!(store.payload_bytes(&made).await.unwrap() == mk_noise(1, LARGE));
    let updated = store.update(&made, mk_draft(uid, "3", vec![mk_noise(3, LARGE)])).await.unwrap();
    assert!(store.payload_bytes(&updated).await.unwrap() == mk_noise(3, LARGE));
    store.close().await;
    whole(&etcd, 1).await;
}

/// Nothing is put under a lease of which the grant was not answered, so nothing is known to be wrong with the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_a_lease_that_is_not_understood_is_no_damage() {
    let etcd = EtcdProcess::start(None, &[]).await;
    for (code, text) in [
        (Code::ResourceExhausted, "trying to send message larger than max (9 vs. 8)"),
        (Code::DataLoss, "said by a proxy"),
        (Code::Unauthenticated, "said by a proxy"),
    ] {
        let choose = move |call: &Call<'_>| {
            call.path.ends_with("LeaseGrant").then_some(Fault { code, text, when: When::After })
        };
        let relay = GrpcRelay::start(&etcd.endpoint(), Arc::new(choose)).await;
        let options =
            Options { endpoints: vec![relay.endpoint.clone()], deadline: PATIENCE, ..etcd.options() };
        let backend = Etcd::connect(options).await.unwrap();
        let ops = vec![Op::PutEphemeral("/a".into(), Bytes::new())];
        let put = backend.txn(Txn { compares: vec![], ops }).await;
        assert!(matches!(put, Err(backend::Error::Unavailable(_))), "{text}: {put:?}");
        assert_eq!(backend.get("/a".into(), None).await.unwrap(), None);
    }
}
