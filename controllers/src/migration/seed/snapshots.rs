//! Stores of snapshots, opened with the Secrets of a control plane.

use std::collections::BTreeMap;

use kube::Client;
use repot_apimachinery::time::Time;
use repot_etcd::{
    backup::store_ref::{SecretRef, StoreRef},
    owner::handover::{find_end, find_final_snapshot},
    snapshot::{
        late::{self, LateReport},
        store,
    },
};
use repot_etcd_core::snapshot::{Revision, SnapshotName};
use repot_plan::migration::observed::{FinalSnapshot, SourceSnapshot};
use tempfile::TempDir;
use tokio::time::timeout;

use super::{owner, secret};
use crate::{
    etcd::api::Store,
    local_stores::LocalStores,
    migration::error::{Error, Result, STORE_ANSWER},
};

/// How long one request to the store is tried again.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);

/// A store that is open for as long as this lives.
pub struct OpenStore {
    store: store::Store,
    /// Its credentials are read while it is used.
    _secret: TempDir,
}

/// Opens the store of an Etcd, with the Secret that it names.
///
/// # Errors
/// Where the store may not be used or cannot be opened, or the Secret cannot be read.
pub async fn open(
    client: &Client,
    namespace: &str,
    store: &Store,
    local_stores: &LocalStores,
) -> Result<OpenStore> {
    let place = place(store);
    if let Some(directory) = place.directory() {
        let checked = local_stores.check(&directory, &place.prefix);
        checked
            .map_err(|error| Error::Missing(format!("the right to use a directory as a store ({error})")))?;
    }
    let credentials = match &store.secret_ref {
        Some(reference) => secret(client, namespace, &reference.name).await?,
        None => BTreeMap::new(),
    };
    let (store, _secret) = place.open(&credentials, PATIENCE)?;
    Ok(OpenStore { store, _secret })
}

fn place(store: &Store) -> StoreRef {
    StoreRef {
        provider: store.provider.clone(),
        container: store.container.clone(),
        prefix: store.prefix.clone(),
        endpoint: store.endpoint_override.clone(),
        secret_ref: store.secret_ref.as_ref().map(|secret| SecretRef { name: secret.name.clone() }),
    }
}

/// A snapshot that ends the time of this owner; `None` where that has no epoch.
fn ending(name: &SnapshotName, owner: &str) -> Option<FinalSnapshot> {
    Some(FinalSnapshot {
        revision: u64::try_from(name.last.0).unwrap_or_default(),
        name: name.to_string(),
        epoch: owner::parse(owner)?.epoch,
    })
}

impl OpenStore {
    /// The final snapshot of the current history, where it says whose time it ends.
    ///
    /// # Errors
    /// Where the store cannot be read in time.
    pub async fn final_snapshot(&self) -> Result<Option<FinalSnapshot>> {
        let found = timeout(STORE_ANSWER, find_final_snapshot(&self.store)).await;
        let found = found.map_err(|_| Error::SilentStore)??;
        Ok(found.and_then(|(name, ended)| ending(&name, &ended)))
    }

    /// What ends the current history, as soon as it is there: the final delta, or the final snapshot; and whose time it ends.
    ///
    /// # Errors
    /// Where the store cannot be read in time.
    pub async fn end(&self) -> Result<Option<FinalSnapshot>> {
        let found = timeout(STORE_ANSWER, find_end(&self.store)).await;
        let found = found.map_err(|_| Error::SilentStore)??;
        Ok(found.and_then(|(name, ended)| ending(&name, &ended)))
    }

    /// The revision up to which snapshots of the current history reach; `None` where there is none.
    ///
    /// # Errors
    /// Where the store cannot be read in time.
    pub async fn newest_revision(&self) -> Result<Option<u64>> {
        let names = async { self.store.current().await?.list_quickly().await };
        let names = timeout(STORE_ANSWER, names).await.map_err(|_| Error::SilentStore)??;
        Ok(names.iter().filter_map(|one| u64::try_from(one.name.last.0).ok()).max())
    }

    /// The newest snapshot of the current history: that which reaches furthest; `None` where there is none.
    ///
    /// # Errors
    /// Where the store cannot be read in time.
    pub async fn newest(&self) -> Result<Option<SourceSnapshot>> {
        self.newest_since(Time(0)).await
    }

    /// The same of those that were begun at this time or later.
    ///
    /// # Errors
    /// Where the store cannot be read in time.
    pub async fn newest_since(&self, since: Time) -> Result<Option<SourceSnapshot>> {
        let names = async { self.store.current().await?.list_quickly().await };
        let names = timeout(STORE_ANSWER, names).await.map_err(|_| Error::SilentStore)??;
        let is_young =
            |name: &&SnapshotName| u64::try_from(name.created).is_ok_and(|created| created >= since.0);
        let young = names.iter().map(|one| &one.name).filter(is_young);
        let newest = young.max_by_key(|name| (name.last, name.created));
        Ok(newest.map(|name| SourceSnapshot {
            name: name.to_string(),
            revision: u64::try_from(name.last.0).unwrap_or_default(),
            created: Time(u64::try_from(name.created).unwrap_or_default()),
        }))
    }

    /// The revision up to which snapshots were copied here of another etcd, which has stored up to `reached`; `None` where none were.
    ///
    /// # Errors
    /// Where the store cannot be read in time.
    pub async fn copied_revision(&self, reached: u64) -> Result<Option<u64>> {
        let reached = Revision(i64::try_from(reached).unwrap_or(i64::MAX));
        let held = timeout(STORE_ANSWER, late::held_revision(&self.store, reached)).await;
        let held = held.map_err(|_| Error::SilentStore)??;
        Ok(u64::try_from(held.0).ok().filter(|held| *held > 0))
    }

    /// What a late snapshot holds more, where it is kept in this history and was reported.
    ///
    /// # Errors
    /// Where the store cannot be read in time.
    pub async fn late_report(&self, history: &str) -> Result<Option<LateReport>> {
        let report = timeout(STORE_ANSWER, late::read_report(&self.store, history)).await;
        report.map_err(|_| Error::SilentStore)?.map_err(Error::LateReport)
    }

    /// Whether the current history has a snapshot of this name.
    ///
    /// # Errors
    /// Where the store cannot be read in time.
    pub async fn has(&self, name: &str) -> Result<bool> {
        let names = async { self.store.current().await?.list_quickly().await };
        let names = timeout(STORE_ANSWER, names).await.map_err(|_| Error::SilentStore)??;
        Ok(names.iter().any(|one| one.name.to_string() == name))
    }
}
