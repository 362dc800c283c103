//! One call to etcd: deadline, repetition where it is harmless, and the meaning of failures. Knows no keys.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use etcd_client::{Client, KvClient, LeaseClient, MaintenanceClient, WatchClient};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    super::{Error, Result, Revision},
    error::{Failure, Kind},
};

/// The largest answer this client takes: a page of values is asked for in pieces far below this.
const ANSWER_BYTES: usize = 64 << 20;
/// The first pause before a call is repeated; it doubles.
const PAUSE: Duration = Duration::from_millis(25);
/// How often a call is made at most.
const ATTEMPTS: u32 = 5;

/// A client and how long it may take.
pub(super) struct Link {
    client: ArcSwap<Client>,
    pub(super) deadline: Duration,
    /// Set once the handle is closed.
    pub(super) closed: CancellationToken,
}

/// The answer to a call.
pub(super) struct Answer<T> {
    pub(super) value: T,
    /// Why etcd did not begin with an earlier attempt. Its word is enough to try again, but proves nothing.
    pub(super) refused: Option<String>,
}

impl Link {
    pub(super) fn new(client: Client, deadline: Duration) -> Self {
        Self { client: ArcSwap::from_pointee(client), deadline, closed: CancellationToken::new() }
    }

    /// Calls and watches that begin from now on use another client.
    pub(super) fn renew(&self, client: Client) {
        self.client.store(Arc::new(client));
    }

    pub(super) fn lease(&self) -> LeaseClient {
        self.client.load().lease_client()
    }

    pub(super) fn maintenance(&self) -> MaintenanceClient {
        self.client.load().maintenance_client()
    }

    pub(super) fn watch(&self) -> WatchClient {
        self.client.load().watch_client()
    }

    /// Makes a call of the key-value service. It is made again while nothing was done: with several endpoints of which
    /// one is down, the next attempt goes elsewhere. Reads are made again whatever happened to them, and a write of
    /// [`Kind::Once`] only if it was never sent.
    pub(super) async fn call<T, C>(
        &self,
        kind: Kind,
        make: impl Fn(KvClient) -> C + Send,
    ) -> Result<T, Failure>
    where
        T: Send,
        C: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        self.answer(kind, make).await.map(|answer| answer.value)
    }

    /// As [`Link::call`], with what is known of the attempts before the one that was answered.
    pub(super) async fn answer<T, C>(
        &self,
        kind: Kind,
        make: impl Fn(KvClient) -> C + Send,
    ) -> Result<Answer<T>, Failure>
    where
        T: Send,
        C: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let end = Instant::now() + self.deadline;
        let (mut pause, mut refused) = (PAUSE, None);
        for attempt in 1.. {
            let kv = self.client.load().kv_client().max_decoding_message_size(ANSWER_BYTES);
            let failure = match self.within(end, make(kv)).await {
                Ok(value) => return Ok(Answer { value, refused }),
                Err(failure) => failure,
            };
            let repeat = match &failure {
                Failure::NotSent(_) => true,
                Failure::NotBegun(why) => {
                    refused = Some(why.clone());
                    kind != Kind::Once
                }
                Failure::Lost(_) => kind == Kind::Read,
                _ => false,
            };
            if !repeat || attempt >= ATTEMPTS || Instant::now() + pause >= end {
                return Err(after_refusals(failure, refused));
            }
            sleep(pause).await;
            pause *= 2;
        }
        unreachable!("the last attempt returns")
    }

    /// Waits for an answer until a moment, or until the handle is closed.
    pub(super) async fn within<T: Send>(
        &self,
        end: Instant,
        call: impl Future<Output = Result<T, etcd_client::Error>> + Send,
    ) -> Result<T, Failure> {
        if self.closed.is_cancelled() {
            return Err(Failure::Other(closed()));
        }
        tokio::select! {
            answer = timeout_at(end, call) => match answer {
                Ok(answer) => answer.map_err(Failure::of),
                Err(_) => Err(Failure::Lost(format!("no answer within {:?}", self.deadline))),
            },
            () = self.closed.cancelled() => Err(Failure::Lost("the handle was closed meanwhile".into())),
        }
    }
}

/// The failure of the last attempt. That it was never sent says nothing of an earlier attempt, which etcd refused to begin.
fn after_refusals(last: Failure, refused: Option<String>) -> Failure {
    match (last, refused) {
        (Failure::NotSent(_), Some(why)) => Failure::NotBegun(why),
        (last, _) => last,
    }
}

/// The revision an answer was given at.
pub(super) fn revision(header: Option<&etcd_client::ResponseHeader>) -> Revision {
    Revision(header.map_or(0, |header| u64::try_from(header.revision()).unwrap_or(0)))
}

/// A revision in etcd's type. What does not fit has not happened.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

pub(super) fn closed() -> Error {
    Error::Unavailable("the store is closed".into())
}
