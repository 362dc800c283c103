//! Leases of the private etcd, which must not end while events are replayed.
//!
//! A lease that ends takes its keys along and makes a revision of its own: keys would be lost, and all that follows would be off
//! by one. The ends that really happened are among the events, as deletions. So every lease of the full snapshot is kept alive,
//! and one that an event names and that is not there is granted under its own number. Its length is in no snapshot; the caller
//! chooses it. Should a lease end all the same, the revision tells.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use etcd_client::{Client, LeaseClient, LeaseGrantOptions, LeaseKeepAliveStream, LeaseKeeper};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Error, Result};

/// A lease is renewed this many times within its length.
const RENEWALS: u32 = 5;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How many are renewed before answers are read.
const BATCH: usize = 64;

/// Those that there are.
pub(super) struct Leases {
    client: LeaseClient,
    known: HashSet<i64>,
    seconds: i64,
    granted: mpsc::UnboundedSender<i64>,
    _stop: DropGuard,
}

impl Leases {
    /// Keeps those alive that are there, from now on and until this is dropped.
    pub(super) async fn keep(client: &Client, length: Duration) -> Result<Self> {
        let mut leases = client.lease_client();
        let failed = |source| Error::Etcd { task: "list leases", source };
        let listed = leases.leases().await.map_err(failed)?;
        let known: HashSet<i64> = listed.leases().iter().map(etcd_client::LeaseStatus::id).collect();
        let (granted, news) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let renewal = Renewal {
            client: client.lease_client(),
            due: known.iter().map(|id| (Instant::now(), *id)).collect(),
            stream: None,
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(renewal.run(news)));
        let seconds = i64::try_from(length.as_secs()).unwrap_or(i64::MAX).max(1);
        Ok(Self { client: leases, known, seconds, granted, _stop: stop.drop_guard() })
    }

    /// Makes sure that there is a lease of a number.
    pub(super) async fn ensure(&mut self, id: i64) -> Result<()> {
        if id == 0 || self.known.contains(&id) {
            return Ok(());
        }
        let options = LeaseGrantOptions::new().with_id(id);
        let granted = self.client.grant(self.seconds, Some(options)).await;
        granted.map_err(|source| Error::Etcd { task: "grant a lease", source })?;
        self.known.insert(id);
        // Whoever renews ends only with us.
        let _ = self.granted.send(id);
        Ok(())
    }
}

struct Renewal {
    client: LeaseClient,
    /// When each is to be renewed next.
    due: BTreeSet<(Instant, i64)>,
    stream: Option<(LeaseKeeper, LeaseKeepAliveStream)>,
}

impl Renewal {
    async fn run(mut self, mut news: mpsc::UnboundedReceiver<i64>) {
        loop {
            let next = self.due.first().map_or_else(|| Instant::now() + LONGEST_PAUSE, |(at, _)| *at);
            tokio::select! {
                id = news.recv() => match id {
                    Some(id) => drop(self.due.insert((Instant::now(), id))),
                    None => return,
                },
                () = sleep_until(next) => self.renew().await,
            }
        }
    }

    /// Renews what is due.
    async fn renew(&mut self) {
        let now = Instant::now();
        let mut ids = Vec::new();
        while ids.len() < BATCH && self.due.first().is_some_and(|(at, _)| *at <= now) {
            ids.extend(self.due.pop_first().map(|(_, id)| id));
        }
        match self.exchange(&ids).await {
            Ok(lengths) => {
                for (id, seconds) in lengths {
                    match u64::try_from(seconds) {
                        Ok(seconds @ 1..) => {
                            let pause = Duration::from_secs(seconds) / RENEWALS;
                            self.due.insert((Instant::now() + pause.min(LONGEST_PAUSE), id));
                        }
                        _ => tracing::debug!(lease = format!("{id:x}"), "a lease has ended"),
                    }
                }
            }
            Err(error) => {
                // Most likely etcd has ended, and then the replay says so. If not, another stream will do.
                tracing::debug!(%error, "leases were not renewed");
                self.stream = None;
                let again = Instant::now() + Duration::from_millis(100);
                self.due.extend(ids.into_iter().map(|id| (again, id)));
            }
        }
    }

    /// Renews leases over one stream; answers their lengths in seconds, 0 for one that is gone.
    async fn exchange(&mut self, ids: &[i64]) -> Result<Vec<(i64, i64)>, etcd_client::Error> {
        let mut lengths = Vec::with_capacity(ids.len());
        let mut rest = ids;
        while self.stream.is_none() {
            let Some((first, others)) = rest.split_first() else { return Ok(lengths) };
            match self.client.keep_alive(*first).await {
                // The first answer is eaten by the client; the lease is asked for again below.
                Ok(stream) => self.stream = Some(stream),
                Err(etcd_client::Error::LeaseKeepAliveError(_)) => {
                    lengths.push((*first, 0));
                    rest = others;
                }
                Err(error) => return Err(error),
            }
        }
        let Some((keeper, answers)) = &mut self.stream else { return Ok(lengths) };
        for id in rest {
            keeper.id = *id;
            keeper.keep_alive().await?;
        }
        for _ in rest {
            let answer = answers.message().await?;
            let ended = || etcd_client::Error::LeaseKeepAliveError("the stream ended".to_owned());
            let answer = answer.ok_or_else(ended)?;
            lengths.push((answer.id(), answer.ttl()));
        }
        Ok(lengths)
    }
}
