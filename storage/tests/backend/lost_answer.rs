//! An answer of etcd that is lost on its way, although what was asked for is done.
//!
//! Between the backend and etcd there is a relay that can keep answers to itself, and then cut its connections. So it is known,
//! and not a matter of moments, that the transaction was done and that its sender was never told.

use std::time::{Duration, Instant};

use repot_storage::backend::{Backend, Error, Etcd, Outcome, etcd::Options};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

use super::{
    etcd::{mk_put, value},
    etcd_process::{EtcdProcess, PATIENCE},
};

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_unknown_and_not_sent_again() {
    let etcd = EtcdProcess::start(None, &[]).await;
    let relay = Relay::start(etcd.endpoint()).await;
    let direct = Etcd::connect(etcd.options()).await.unwrap();
    let options = Options { endpoints: vec![relay.endpoint.clone()], deadline: PATIENCE, ..etcd.options() };
    let handle = Etcd::connect(options).await.unwrap();
    assert!(matches!(handle.txn(mk_put("/a", "1")).await, Ok(Outcome::Committed(_))));
    relay.set(Answers::Kept);
    let write = tokio::spawn(async move { handle.txn(mk_put("/a", "2")).await });
    let end = Instant::now() + PATIENCE;
    while value(&direct, "/a").await.unwrap() != "2" {
        assert!(Instant::now() < end, "the transaction does not come to etcd");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let done = direct.revision().await.unwrap();
    relay.set(Answers::Cut);
    let lost = write.await.unwrap();
    assert!(matches!(lost, Err(Error::Unknown(_))), "{lost:?}");
    assert_eq!(direct.revision().await.unwrap(), done, "it was done again");
}

/// What becomes of answers. What is cut are the connections that there are; later ones are whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    Passed,
    Kept,
    Cut,
}

/// Stands between clients and an etcd.
struct Relay {
    endpoint: String,
    answers: watch::Sender<Answers>,
}

impl Relay {
    async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let target = target.trim_start_matches("http://").to_owned();
        let (answers, seen) = watch::channel(Answers::Passed);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&target).await.unwrap();
                // One that comes after the cut does not end by it.
                let mut seen = seen.clone();
                seen.mark_unchanged();
                tokio::spawn(join(client, server, seen));
            }
        });
        Self { endpoint, answers }
    }

    fn set(&self, answers: Answers) {
        self.answers.send_replace(answers);
    }
}

/// Joins a client to the server until either ends or the connection is to be cut.
async fn join(client: TcpStream, server: TcpStream, mut seen: watch::Receiver<Answers>) {
    let (mut asks, back) = client.into_split();
    let (answers, mut forth) = server.into_split();
    let passed = seen.clone();
    tokio::select! {
        _ = copy(&mut asks, &mut forth) => {}
        () = hand_back(answers, back, passed) => {}
        () = async {
            while seen.changed().await.is_ok() {
                if *seen.borrow() == Answers::Cut {
                    return;
                }
            }
        } => {}
    }
}

/// Hands answers back, and drops them while they are kept.
async fn hand_back(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, seen: watch::Receiver<Answers>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if *seen.borrow() != Answers::Kept && to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
