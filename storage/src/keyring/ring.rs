//! One configuration as it was read: who wraps what.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Error, Tried, Unwrapped, kms::Kms, provider::Provider, resource::Pattern};
use crate::{Key, seal::DataKey};

/// A configuration in use. Its services are asked for their status until it is dropped: whoever still works with it when another
/// takes its place holds on to it, so it ends with the last request that began before.
pub(super) struct Ring {
    entries: Vec<Entry>,
    services: Services,
    polling: Option<DropGuard>,
}

/// Some resources and how their data keys are wrapped.
pub(super) struct Entry {
    /// Patterns of the resources that this entry covers.
    pub patterns: Vec<Pattern>,
    /// The first one wraps.
    pub providers: Vec<Provider>,
}

/// The key management services of a configuration.
#[derive(Default)]
pub(super) struct Services {
    all: Vec<Arc<Kms>>,
    /// How long one question to each may take, one after the other.
    timeouts: Duration,
}

impl Services {
    /// One more, which may take this long for an answer.
    pub(super) fn add(&mut self, kms: Arc<Kms>, timeout: Duration) {
        self.all.push(kms);
        self.timeouts = self.timeouts.saturating_add(timeout);
    }
}

impl Ring {
    /// A configuration with these entries, whose services are not asked yet.
    pub(super) fn new(entries: Vec<Entry>, services: Services) -> Self {
        Self { entries, services, polling: None }
    }

    /// Asks all services how they are.
    pub(super) async fn probe(&self) {
        join_all(self.services.all.iter().map(|kms| kms.probe())).await;
    }

    /// Goes on asking the services, until this is dropped or `stop`.
    pub(super) fn keep_polling(&mut self, stop: &CancellationToken) {
        let stop = stop.child_token();
        for kms in &self.services.all {
            tokio::spawn(Arc::clone(kms).poll(stop.clone()));
        }
        self.polling = Some(stop.drop_guard());
    }

    /// Why a service is not well, as far as is known.
    pub(super) fn failing(&self) -> Option<String> {
        let all: Vec<String> = self.services.all.iter().filter_map(|kms| kms.failing()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// How long all services together may take for two questions each.
    pub(super) fn patience(&self) -> Duration {
        self.services.timeouts.saturating_mul(2)
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Wraps a data key for the object at `path`.
    pub(super) async fn wrap(&self, object: &Key, path: &[u8], key: &DataKey) -> Result<Bytes, Error> {
        self.first(object)?.wrap(path, key).await
    }

    /// Unwraps the data key of the object at `path`.
    pub(super) async fn unwrap(&self, object: &Key, path: &[u8], wrapped: &[u8]) -> Result<Unwrapped, Error> {
        let first = self.first(object)?;
        let mut result = Err(Error::NoKey);
        for provider in self.providers(object) {
            match provider.unwrap(path, wrapped).await? {
                Tried::Opened(key) => return Ok(Unwrapped { key, stale: !first.is_current(wrapped) }),
                Tried::Refused => result = Err(Error::Altered),
                Tried::Doubted => result = Err(Error::WrongKey),
                Tried::NotMine => {}
            }
        }
        result
    }

    /// Whether an object that is written now may keep the data key as it is wrapped.
    pub(super) fn keeps(&self, object: &Key, wrapped: &[u8]) -> Result<bool, Error> {
        let first = self.first(object)?;
        first.may_write()?;
        Ok(first.is_current(wrapped))
    }

    /// Whether what is written now is wrapped.
    pub(super) fn seals(&self, object: &Key) -> Result<bool, Error> {
        Ok(!matches!(self.first(object)?, Provider::Identity))
    }

    fn first(&self, object: &Key) -> Result<&Provider, Error> {
        let uncovered = || Error::Uncovered(format!("{}.{}", object.resource, object.group));
        self.providers(object).next().ok_or_else(uncovered)
    }

    /// Of all entries with the first pattern that covers the resource; that is one entry, unless a resource is named by two.
    fn providers(&self, object: &Key) -> impl Iterator<Item = &Provider> {
        let patterns = self.entries.iter().flat_map(|entry| &entry.patterns);
        let pattern = patterns.into_iter().find(|p| p.covers(&object.group, &object.resource));
        let entries = self
            .entries
            .iter()
            .filter(move |entry| pattern.is_some_and(|pattern| entry.patterns.contains(pattern)));
        entries.flat_map(|entry| &entry.providers)
    }
}
