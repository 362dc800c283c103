//! The owner records of a seed: those that its Etcds name, followed by a watch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use parking_lot::RwLock;
use tokio::sync::watch;

use super::owner::{OwnerRecord, Timing};
use crate::{
    errors::causes,
    etcd::api::{Etcd, OwnerCheck},
};

/// How long the owner record of an Etcd that is gone still counts: the rest of its Namespace may live on without it.
const ORPHAN_LIFETIME: Duration = Duration::from_secs(3600);
/// Owner records of Etcds that are gone; beyond it the oldest are forgotten.
const MOST_ORPHANS: usize = 4096;

/// Namespace and name of an Etcd.
type Key = (String, String);

/// The owner records of all Namespaces.
#[derive(Debug)]
pub struct Owners {
    timing: Timing,
    records: RwLock<BTreeMap<Key, Entry>>,
    synced: watch::Sender<bool>,
}

#[derive(Clone, Debug)]
struct Entry {
    check: OwnerCheck,
    record: Arc<OwnerRecord>,
    /// Since when its Etcd is gone.
    gone: Option<Instant>,
}

impl Owners {
    /// Without any; [`Owners::follow`] fills them.
    #[must_use]
    pub fn new(timing: Timing) -> Arc<Self> {
        Arc::new(Self { timing, records: RwLock::default(), synced: watch::Sender::new(false) })
    }

    /// Whether all Etcds of the seed have been listed once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns when all Etcds of the seed have been listed once.
    pub async fn synced(&self) {
        // The sender lives as long as `self`.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// The owner records of a Namespace: those of all its Etcds with an owner check.
    #[must_use]
    pub fn of_namespace(&self, namespace: &str) -> Vec<(String, Arc<OwnerRecord>)> {
        let from = (namespace.to_owned(), String::new());
        let records = self.records.read();
        let all = records.range(from..).take_while(|((of, _), _)| of == namespace);
        all.map(|((of, _), entry)| (of.clone(), entry.record.clone())).collect()
    }

    /// The owner records of all Namespaces that a name contains as a whole: between its ends, `-`, `.` and `:`.
    #[must_use]
    pub fn of_name(&self, name: &str) -> Vec<(String, Arc<OwnerRecord>)> {
        let records = self.records.read();
        let all = records.iter().filter(|((namespace, _), _)| has_name(name, namespace));
        all.map(|((of, _), entry)| (of.clone(), entry.record.clone())).collect()
    }

    /// Name of the owner record of the Namespace in DNS, for each Etcd of it.
    #[must_use]
    pub fn record_names(&self, namespace: &str) -> Vec<String> {
        let from = (namespace.to_owned(), String::new());
        let records = self.records.read();
        let all = records.range(from..).take_while(|((of, _), _)| of == namespace);
        all.map(|(_, entry)| entry.check.name.clone()).collect()
    }

    /// Follows the Etcds until it is dropped.
    pub async fn follow(&self, client: Client) {
        let all: Api<Etcd> = Api::all(client);
        let events = watcher::watcher(all, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut listed = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take(event, &mut listed),
                Err(error) => tracing::warn!(error = causes(&error), "failed to watch Etcds, trying again"),
            }
        }
    }

    fn take(&self, event: Event<Etcd>, listed: &mut Option<BTreeSet<Key>>) {
        match event {
            Event::Init => *listed = Some(BTreeSet::new()),
            Event::InitApply(etcd) => {
                if let Some(listed) = listed {
                    listed.insert(key(&etcd));
                }
                self.apply(&etcd);
            }
            Event::InitDone => {
                let listed = listed.take().unwrap_or_default();
                let missing: Vec<Key> =
                    self.records.read().keys().filter(|key| !listed.contains(*key)).cloned().collect();
                missing.iter().for_each(|key| self.orphan(key));
                self.synced.send_replace(true);
            }
            Event::Apply(etcd) => self.apply(&etcd),
            Event::Delete(etcd) => self.orphan(&key(&etcd)),
        }
        self.forget_orphans();
    }

    fn apply(&self, etcd: &Etcd) {
        let key = key(etcd);
        let Some(check) = &etcd.spec.backup.owner_check else { return self.orphan(&key) };
        let mut records = self.records.write();
        // Another ID, record or server begins without a confirmation; anything else keeps it.
        if records.get(&key).is_some_and(|entry| entry.gone.is_none() && entry.check == *check) {
            return;
        }
        let record = Arc::new(OwnerRecord::new(check, self.timing));
        records.insert(key, Entry { check: check.clone(), record, gone: None });
    }

    fn orphan(&self, key: &Key) {
        if let Some(entry) = self.records.write().get_mut(key)
            && entry.gone.is_none()
        {
            entry.gone = Some(Instant::now());
            entry.record = Arc::new(entry.record.orphaned());
        }
    }

    fn forget_orphans(&self) {
        let mut records = self.records.write();
        records.retain(|_, entry| entry.gone.is_none_or(|since| since.elapsed() < ORPHAN_LIFETIME));
        let mut gone: Vec<(Instant, Key)> =
            records.iter().filter_map(|(key, entry)| Some((entry.gone?, key.clone()))).collect();
        if gone.len() > MOST_ORPHANS {
            gone.sort_unstable();
            let surplus = gone.len() - MOST_ORPHANS;
            gone.into_iter().take(surplus).for_each(|(_, key)| drop(records.remove(&key)));
        }
    }
}

fn key(etcd: &Etcd) -> Key {
    (etcd.namespace().unwrap_or_default(), etcd.name_any())
}

/// Whether a name contains a Namespace as a whole.
fn has_name(name: &str, namespace: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_none_or(|byte| matches!(byte, b'-' | b'.' | b':'));
    name.match_indices(namespace).any(|(at, _)| {
        let bytes = name.as_bytes();
        is_end(at.checked_sub(1).map(|before| &bytes[before])) && is_end(bytes.get(at + namespace.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etcd(namespace: &str, id: Option<&str>) -> Etcd {
        let check =
            id.map(|id| serde_json::json!({"name": "owner.a.org", "id": id, "servers": ["10.0.0.1"]}));
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "etcd-main", "namespace": namespace}, "spec": {"backup": {"ownerCheck": check}},
        }))
        .expect("an Etcd")
    }

    fn owners() -> Arc<Owners> {
        let seconds = Duration::from_secs;
        Owners::new(Timing { interval: seconds(10), timeout: seconds(5), max_age: seconds(30) })
    }

    #[test]
    fn namespaces_are_found_in_names() {
        let ns = "shoot--a--b";
        for name in
            ["shoot--a--b", "shoot--a--b-internal", "x:shoot--a--b:y", "pv.shoot--a--b", "x-shoot--a--b"]
        {
            assert!(has_name(name, ns), "{name}");
        }
        for name in ["shoot--a--bc", "ashoot--a--b", "shoot--a", ""] {
            assert!(!has_name(name, ns), "{name}");
        }
        let owners = owners();
        let mut listed = None;
        for namespace in [ns, "shoot--a--b-c"] {
            owners.take(Event::Apply(etcd(namespace, Some("seed-a/1"))), &mut listed);
        }
        assert_eq!(owners.of_name("shoot--a--b-c-internal").len(), 2, "both may be meant");
        assert_eq!(owners.of_namespace(ns).len(), 1);
        assert_eq!(owners.of_namespace("shoot--a").len(), 0);
    }

    #[test]
    fn etcd_that_is_gone_leaves_its_record_and_a_new_one_replaces_it() {
        let (owners, mut listed) = (owners(), None);
        let take = |event, listed: &mut _| owners.take(event, listed);
        let record = || owners.of_namespace("a").into_iter().next().map(|(_, record)| record);
        take(Event::Apply(etcd("a", Some("seed-a/1"))), &mut listed);
        let first = record().expect("a record");
        take(Event::Apply(etcd("a", Some("seed-a/1"))), &mut listed);
        assert!(Arc::ptr_eq(&first, &record().expect("a record")), "nothing has changed");
        assert!(!owners.is_synced());
        // A list without it.
        for event in [Event::Init, Event::InitApply(etcd("b", None)), Event::InitDone] {
            take(event, &mut listed);
        }
        assert!(owners.is_synced() && owners.of_namespace("b").is_empty());
        let orphan = record().expect("a record");
        assert!(!Arc::ptr_eq(&first, &orphan));
        take(Event::Apply(etcd("a", Some("seed-a/3"))), &mut listed);
        assert!(!Arc::ptr_eq(&orphan, &record().expect("a record")));
        take(Event::Apply(etcd("a", None)), &mut listed);
        assert!(record().is_some(), "a check that is removed counts for a while");
    }
}
