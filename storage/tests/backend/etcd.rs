//! The backend on etcd, against a real one: the conformance suite, and what a network adds.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use repot_storage::backend::{
    Backend, Error, Etcd, Op, Outcome, Revision, Txn, WatchItem, conformance::Lab, etcd::Options,
};

use super::etcd_process::EtcdProcess;

mod conformance {
    repot_storage::backend_conformance!(super::mk_lab);
}

#[async_trait]
impl Lab for EtcdProcess {
    async fn open(&self) -> Arc<dyn Backend> {
        Arc::new(Etcd::connect(self.options()).await.unwrap())
    }
}

async fn mk_lab() -> EtcdProcess {
    EtcdProcess::start(None, &[]).await
}

pub(super) fn mk_put(key: &'static str, value: &'static str) -> Txn {
    Txn { compares: vec![], ops: vec![Op::Put(key.into(), value.into())] }
}

pub(super) async fn value(backend: &Etcd, key: &'static str) -> Option<Bytes> {
    backend.get(key.into(), None).await.unwrap().map(|found| found.value)
}

#[tokio::test]
async fn keeps_to_its_prefix() {
    let etcd = mk_lab().await;
    let [one, other] =
        ["/repot.dev", "/elsewhere"].map(|prefix| Options { prefix: prefix.into(), ..etcd.options() });
    let (one, other) = (Etcd::connect(one).await.unwrap(), Etcd::connect(other).await.unwrap());
    let mut stream = one.watch("".into(), Revision(0), Duration::from_millis(100)).await.unwrap();
    other.txn(mk_put("/a", "other")).await.unwrap();
    assert_eq!(value(&one, "/a").await, None);
    one.txn(mk_put("/a", "one")).await.unwrap();
    assert_eq!(value(&other, "/a").await.unwrap(), "other");
    let whole = Options { prefix: String::new(), ..etcd.options() };
    let whole = Etcd::connect(whole).await.unwrap();
    assert_eq!(value(&whole, "/repot.dev/a").await.unwrap(), "one");
    loop {
        if let WatchItem::Events(events) = stream.next().await.unwrap().unwrap() {
            assert_eq!(events.iter().map(|event| &event.key[..]).collect::<Vec<_>>(), [b"/a"]);
            assert_eq!(events[0].now.as_ref().unwrap().value, "one");
            break;
        }
    }
}

#[tokio::test]
async fn nothing_was_done_where_nobody_listens() {
    let mut etcd = mk_lab().await;
    etcd.kill();
    let handle = Etcd::connect(etcd.options()).await.unwrap();
    let begin = Instant::now();
    let refused = handle.txn(mk_put("/a", "1")).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    let refused = handle.get("/a".into(), None).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert!(begin.elapsed() < Duration::from_secs(10), "told after {:?}", begin.elapsed());
    etcd.restart().await;
    assert!(matches!(handle.txn(mk_put("/a", "2")).await, Ok(Outcome::Committed(_))), "comes back by itself");
}

#[tokio::test]
async fn one_endpoint_of_two_is_enough() {
    let etcd = mk_lab().await;
    let dead = "http://127.0.0.1:1".to_owned();
    for endpoints in [vec![dead.clone(), etcd.endpoint()], vec![etcd.endpoint(), dead]] {
        let handle = Etcd::connect(Options { endpoints, ..etcd.options() }).await.unwrap();
        for _ in 0..30 {
            let outcome = handle.txn(mk_put("/a", "1")).await;
            assert!(matches!(outcome, Ok(Outcome::Committed(_))), "{outcome:?}");
            assert_eq!(value(&handle, "/a").await.unwrap(), "1");
        }
    }
}

#[tokio::test]
async fn a_write_without_an_answer_is_unknown() {
    let etcd = mk_lab().await;
    let handle = Etcd::connect(Options { deadline: Duration::from_secs(2), ..etcd.options() }).await.unwrap();
    handle.txn(mk_put("/a", "1")).await.unwrap();
    etcd.stop();
    let begin = Instant::now();
    let lost = handle.txn(mk_put("/a", "2")).await;
    assert!(matches!(lost, Err(Error::Unknown(_))), "{lost:?}");
    assert!(begin.elapsed() < Duration::from_secs(5), "no answer for {:?}", begin.elapsed());
    let lost = handle.get("/a".into(), None).await;
    assert!(matches!(lost, Err(Error::Unavailable(_))), "a read is never unknown: {lost:?}");
    etcd.go_on();
    // Only a read can tell.
    let found = value(&handle, "/a").await.unwrap();
    assert!(found == "1" || found == "2", "{found:?}");
}

#[tokio::test]
async fn a_write_cut_by_a_crash_is_unknown_or_done() {
    let mut etcd = mk_lab().await;
    let handle = Arc::new(Etcd::connect(etcd.options()).await.unwrap());
    let writers: Vec<_> = (0..16u32)
        .map(|writer| {
            let handle = Arc::clone(&handle);
            tokio::spawn(async move {
                for round in 0u32.. {
                    let key = format!("/{writer}");
                    let ops = vec![Op::Put(key.into(), round.to_string().into())];
                    match handle.txn(Txn { compares: vec![], ops }).await {
                        Ok(_) => {}
                        Err(error) => return (writer, round, error),
                    }
                }
                unreachable!("etcd is killed")
            })
        })
        .collect();
    while handle.revision().await.unwrap() < Revision(200) {}
    etcd.kill();
    let mut ends = Vec::new();
    for writer in writers {
        ends.push(writer.await.unwrap());
    }
    etcd.restart().await;
    for (writer, round, error) in ends {
        let found = handle.get(format!("/{writer}").into(), None).await.unwrap();
        let number: Option<u32> =
            found.map(|found| std::str::from_utf8(&found.value).unwrap().parse().unwrap());
        match error {
            Error::Unknown(_) => {
                assert!(number == Some(round) || number == round.checked_sub(1), "{number:?}")
            }
            Error::Unavailable(_) => assert_eq!(number, round.checked_sub(1), "nothing was done"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_watch_ends_with_its_server() {
    let mut etcd = mk_lab().await;
    let handle = Etcd::connect(etcd.options()).await.unwrap();
    let mut stream = handle.watch("/".into(), Revision(0), Duration::from_millis(100)).await.unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    etcd.kill();
    let end = loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            end => break end,
        }
    };
    assert!(matches!(end, Some(Err(Error::Unavailable(_)))), "{end:?}");
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_lost_lease_is_granted_again() {
    let etcd = mk_lab().await;
    let handle = Etcd::connect(Options { deadline: Duration::from_secs(2), ..etcd.options() }).await.unwrap();
    let fleeting = || Txn { compares: vec![], ops: vec![Op::PutEphemeral("/a".into(), "1".into())] };
    handle.txn(fleeting()).await.unwrap();
    // Somebody takes the lease away behind our back.
    let mut client = etcd_client::Client::connect([etcd.endpoint()], None).await.unwrap();
    for lease in client.leases().await.unwrap().leases() {
        client.lease_revoke(lease.id()).await.unwrap();
    }
    assert_eq!(value(&handle, "/a").await, None);
    let mut attempts = 0;
    while let Err(error) = handle.txn(fleeting()).await {
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        attempts += 1;
        assert!(attempts < 2, "the lease is not granted again");
    }
    assert_eq!(value(&handle, "/a").await.unwrap(), "1");
}

#[tokio::test]
async fn a_full_quota_is_no_space() {
    let etcd = EtcdProcess::start(None, &["--quota-backend-bytes", "8388608"]).await;
    let handle = Etcd::connect(etcd.options()).await.unwrap();
    let value = Bytes::from(vec![7; 500_000]);
    let refused = loop {
        let ops = vec![Op::Put("/a".into(), value.clone())];
        if let Err(error) = handle.txn(Txn { compares: vec![], ops }).await {
            break error;
        }
    };
    assert!(matches!(refused, Error::NoSpace(_)), "{refused:?}");
    assert!(handle.get("/a".into(), None).await.unwrap().is_some());
}
