//! One of several processes leads: whoever holds a Lease of the cluster. Whoever loses it ends at once, and has stopped writing
//! before ([`LeaseDeadline`]); what is on its way by then is refused by the versions that it was decided on.
//!
//! Times of other machines are not believed: a Lease is over when it was seen unchanged for its whole duration.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use prometheus::IntGauge;
use repot_etcd::agent::clock;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{errors::is_conflict, term::LeaseDeadline};

/// How long a Lease holds without being renewed.
const DURATION: Duration = Duration::from_secs(15);
/// How long its holder tries to renew it before it ends; less, so that it is gone when another one begins.
const DEADLINE: Duration = Duration::from_secs(10);
/// From one look to the next.
const PERIOD: Duration = Duration::from_secs(2);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(5);

/// A Lease, and who wants it.
#[derive(Clone)]
pub struct Election {
    /// Where the Lease is.
    pub leases: Api<Lease>,
    /// Name of the Lease in its namespace.
    pub name: String,
    /// Who we are: another name for each process.
    pub identity: String,
    /// Set to 1 while this process holds the Lease, and to 0 otherwise.
    pub leader: IntGauge,
}

impl Election {
    /// For a Lease of a namespace.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: String, leader: IntGauge) -> Self {
        Self { leases: Api::namespaced(client, namespace), name: name.to_owned(), identity, leader }
    }

    /// Waits until we lead. Nothing but the end of the process may end that. Gives for how long we do, for [`Self::keep`].
    pub async fn lead(&self) -> LeaseDeadline {
        let mut seen: Option<(Option<String>, Instant)> = None;
        loop {
            let asked = clock::now();
            match self.try_take(&mut seen).await {
                Ok(true) => {
                    self.leader.set(1);
                    return LeaseDeadline::begin(asked, DEADLINE);
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(lease = self.name, %error, "the Lease cannot be taken yet"),
            }
            sleep(PERIOD).await;
        }
    }

    async fn try_take(&self, seen: &mut Option<(Option<String>, Instant)>) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
            return self.create().await;
        };
        let version = lease.metadata.resource_version.clone();
        let since = match seen {
            Some((known, since)) if *known == version => *since,
            _ => seen.insert((version, Instant::now())).1,
        };
        let spec = lease.spec.get_or_insert_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let theirs = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let is_over = since.elapsed() >= theirs.map_or(DURATION, Duration::from_secs);
        if !holder.is_empty() && holder != self.identity && !is_over {
            return Ok(false);
        }
        if holder != self.identity {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
            spec.acquire_time = Some(now());
        }
        self.fill(spec);
        is_ours(self.leases.replace(&self.name, &PostParams::default(), &lease).await)
    }

    async fn create(&self) -> Result<bool, kube::Error> {
        let mut spec =
            LeaseSpec { acquire_time: Some(now()), lease_transitions: Some(0), ..LeaseSpec::default() };
        self.fill(&mut spec);
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let lease = Lease { metadata, spec: Some(spec) };
        is_ours(self.leases.create(&PostParams::default(), &lease).await)
    }

    fn fill(&self, spec: &mut LeaseSpec) {
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        spec.renew_time = Some(now());
    }

    /// Keeps the Lease, and the term with it, until `stop`, then gives it back. Ends earlier when it is lost: then the term is over,
    /// and the process has to end.
    ///
    /// Whether it was kept to the end.
    pub async fn keep(&self, term: &LeaseDeadline, stop: &CancellationToken) -> bool {
        let is_kept = self.renew_until(term, stop).await;
        self.leader.set(0);
        if is_kept {
            self.give_back().await;
        }
        is_kept
    }

    async fn renew_until(&self, term: &LeaseDeadline, stop: &CancellationToken) -> bool {
        loop {
            if stop.run_until_cancelled(sleep(PERIOD)).await.is_none() {
                term.end();
                return true;
            }
            // We may stand still before the answer is read, and it says nothing about the time since it was given.
            let asked = clock::now();
            match timeout(REQUEST, self.renew()).await {
                Ok(Ok(true)) => term.renew(asked, DEADLINE),
                Ok(Ok(false)) => {
                    term.end();
                    return false;
                }
                Ok(Err(error)) => tracing::warn!(lease = self.name, %error, "the Lease could not be renewed"),
                Err(_) => tracing::warn!(lease = self.name, "the Lease could not be renewed in time"),
            }
            if term.check().is_err() {
                return false;
            }
        }
    }

    /// Whether it is still ours. Where it was changed meanwhile, the next look tells whose it is.
    async fn renew(&self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else { return Ok(false) };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            return Ok(false);
        }
        self.fill(spec);
        self.leases.replace(&self.name, &PostParams::default(), &lease).await.map(|_| true)
    }

    /// The next one need not wait then: nobody holds it, and where somebody waits for its end all the same, that is near.
    async fn give_back(&self) {
        let give = async {
            let Some(mut lease) = self.leases.get_opt(&self.name).await? else { return Ok(()) };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_ref() == Some(&self.identity) {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                spec.renew_time = Some(now());
                self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        if !matches!(timeout(REQUEST, give).await, Ok(Ok(()))) {
            tracing::warn!(
                lease = self.name,
                "the Lease could not be given back; the next one waits for its end"
            );
        }
    }
}

fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}

/// Somebody else was faster where the version is another one.
fn is_ours(outcome: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match outcome {
        Ok(_) => Ok(true),
        Err(error) if is_conflict(&error) => Ok(false),
        Err(error) => Err(error),
    }
}
