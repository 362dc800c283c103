//! What all passes of workflows share.

use std::time::Duration;

use kube::Client;
use repot_apimachinery::time::Time;
use repot_etcd::backup::store_ref::StoreRef;

use super::{backup_store, error::Result, kinds::MANAGER, members};
use crate::{
    events::EventPublisher, flow::Clients, local_stores::LocalStores, metrics::Metrics, reconciler::Settings,
    term::LeaseDeadline,
};

/// After a pass that did not come to its end.
const AGAIN: Duration = Duration::from_secs(5);
/// After somebody else was faster.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How long a pass waits for more events.
const GATHER: Duration = Duration::from_millis(200);

/// Waits 200 ms before a pass, so that events of the same moment bring one pass.
///
/// kube's `debounce` does not do: each event moves the pass back again, so a client that changes a HostedEtcd more often than every
/// 200 ms would put off its workflow for ever.
pub(super) async fn gather() {
    tokio::time::sleep(GATHER).await;
}

/// What all passes share.
pub struct Context {
    /// The seed's kube-apiserver, and that of the garden where there is one.
    pub clients: Clients,
    /// The image of Jobs, with `repot`, `etcd` and `etcdutl`.
    pub image: String,
    /// Publishes Events of workflows.
    pub events: EventPublisher,
    /// What members held when they were last asked.
    pub digests: members::Digests,
    /// Backups that do not change any more.
    pub settled: backup_store::BackupCache,
    /// Which directories stores with the provider `Local` may use.
    pub local_stores: LocalStores,
    /// How long backups may be removed; the client has to follow it, too.
    pub term: LeaseDeadline,
    /// Where reconciles and steps are counted.
    pub metrics: Metrics,
}

impl Context {
    /// For a client; `instance` is the name of this process in events.
    #[must_use]
    pub fn new(
        client: Client,
        image: String,
        instance: String,
        local_stores: LocalStores,
        term: LeaseDeadline,
        metrics: Metrics,
    ) -> Self {
        let events = EventPublisher::new(client.clone(), MANAGER, Some(instance));
        let (digests, settled) = (members::Digests::default(), backup_store::BackupCache::default());
        let clients = Clients::seed_alone(client);
        Self { clients, image, events, digests, settled, local_stores, term, metrics }
    }

    /// How a controller of this name runs.
    pub(super) fn controller(&self, name: &'static str) -> Settings {
        let metrics = self.metrics.clone();
        Settings { name, after_conflict: AT_ONCE, after_error: AGAIN, metrics }
    }

    /// Checks that a store uses no directory that it may not use.
    ///
    /// # Errors
    /// [`LocalStore`](super::Error::LocalStore).
    pub fn check_store(&self, place: &StoreRef) -> Result<()> {
        match place.directory() {
            Some(directory) => Ok(self.local_stores.check(&directory, &place.prefix)?),
            None => Ok(()),
        }
    }

    /// The current time of the system clock, in whole seconds; a time before 1970 becomes 0.
    #[must_use]
    pub fn now(&self) -> Time {
        Time(u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default())
    }
}
