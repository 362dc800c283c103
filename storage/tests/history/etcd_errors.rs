//! etcd that answers errors, some before it does what it was asked and some after: every error that passes, and that its quota is
//! used up. A relay in front of it does so to a tenth of all writes, and delivers some of these twice.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tonic::Code;

use super::{
    clients::Recorder,
    cluster::{done, open},
    runs::{PATIENCE, Team},
    *,
};
use crate::{
    backend::grpc_relay::{Call, Fault, GrpcRelay, When},
    store::EtcdProcess,
};

const ERRORS: &[(Code, &str)] = &[
    (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
    (Code::Unavailable, "etcdserver: no leader"),
    (Code::Unavailable, "etcdserver: leader changed"),
    (Code::Unavailable, "etcdserver: server stopped"),
    (Code::Unavailable, "etcdserver: request timed out"),
    (Code::Unavailable, "etcdserver: request timed out, possibly due to previous leader failure"),
    (Code::Unavailable, "etcdserver: request timed out, possibly due to connection lost"),
    (Code::Unavailable, "etcdserver: unhealthy cluster"),
    (Code::Unknown, "etcdserver: too many requests"),
    (Code::Unknown, "raft proposal dropped"),
    (Code::Unknown, "etcdserver: request cancelled"),
    (Code::InvalidArgument, "etcdserver: revision of auth store is old"),
    (Code::ResourceExhausted, "h2 protocol error: too_many_pings"),
    (Code::ResourceExhausted, "trying to send message larger than max (9 vs. 8)"),
    (Code::DeadlineExceeded, "context deadline exceeded"),
    (Code::Cancelled, "context canceled"),
    (Code::Internal, "stream terminated by RST_STREAM"),
    (Code::FailedPrecondition, "etcdserver: not leader"),
    (Code::FailedPrecondition, "etcdserver: not capable"),
    (Code::Unknown, "raft: stopped"),
    (Code::Unavailable, "etcdserver: request timed out, waiting for the applied index took too long"),
    (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
    (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
    (Code::PermissionDenied, "said by a proxy"),
    (Code::Unauthenticated, "said by a proxy"),
    (Code::Unimplemented, "said by a proxy"),
    (Code::DataLoss, "said by a proxy"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_may_answer_any_error_before_and_after_it_did_what_it_was_asked() {
    let process = EtcdProcess::start(None, &[]).await;
    let calm = Arc::new(AtomicBool::new(true));
    let (dice, quiet) = (Mutex::new(Dice(1)), Arc::clone(&calm));
    let choose = move |call: &Call<'_>| {
        let writes = call.is_transaction() || call.path.ends_with("LeaseGrant");
        let mut dice = dice.lock();
        if quiet.load(Ordering::SeqCst) || !writes || dice.below(10) > 0 {
            return None;
        }
        let (code, text) = ERRORS[dice.below(ERRORS.len() as u64) as usize];
        let when = [When::Before, When::After, When::Twice][dice.below(3) as usize];
        Some(Fault { code, text, when })
    };
    let relay = GrpcRelay::start(&process.endpoint(), Arc::new(choose)).await;
    let options = || {
        let endpoints = vec![relay.endpoint.clone()];
        repot_storage::backend::etcd::Options { endpoints, deadline: PATIENCE, ..process.options() }
    };
    let stores = [open(options()).await, open(options()).await];
    let recorder = Recorder::new(1, 1, false);
    recorder.deliveries_repeat();
    let mut team = Team::begin(&stores, &recorder, 1).await;
    calm.store(false, Ordering::SeqCst);
    team.work(period(5)).await;
    calm.store(true, Ordering::SeqCst);
    assert!(relay.answered_after() > 20, "hardly an error came after what etcd had done");
    let history = team.end().await;
    done(&history, &stores).await;
}

/// The relay does what it says: of two errors, one keeps a write from etcd and the other does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_relay_answers_before_and_after() {
    use repot_storage::backend::{Backend, Error, Etcd, Op, Txn};
    let process = EtcdProcess::start(None, &[]).await;
    for when in [When::Before, When::After] {
        let text = "etcdserver: request timed out";
        let choose = move |call: &Call<'_>| {
            call.is_transaction().then_some(Fault { code: Code::Unavailable, text, when })
        };
        let relay = GrpcRelay::start(&process.endpoint(), Arc::new(choose)).await;
        let options = repot_storage::backend::etcd::Options {
            endpoints: vec![relay.endpoint.clone()],
            deadline: Duration::from_secs(60),
            ..process.options()
        };
        let backend = Etcd::connect(options).await.unwrap();
        let ops = vec![Op::Put("/a".into(), Bytes::new())];
        let written = backend.txn(Txn { compares: vec![], ops }).await;
        assert!(matches!(&written, Err(Error::Unknown(why)) if why.contains("timed out")), "{written:?}");
        assert_eq!(backend.get("/a".into(), None).await.unwrap().is_some(), when == When::After);
        assert_eq!(relay.answered_after(), u64::from(when == When::After));
    }
}
