//! The owner record of an etcd: read from the servers of its zone, and written by a DNSRecord.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
    core::ObjectMeta,
};
use repot_api::names::{CONFIRM_DELETION, CONFIRM_TAKEOVER, OPERATION, OPERATION_RECONCILE};
use repot_etcd::{
    agent::supervisor::STOP,
    owner::{Settings, freshness::Freshness},
};
use repot_etcd_core::{ownership::Answer, timing::epoch};
use repot_extension::kinds::{DNSRecord, DNSRecordSpec};
use repot_plan::migration::observed::{OwnerId, OwnerRecord};
use serde_json::json;

use super::{params, under};
use crate::{
    errors::is_not_found,
    etcd::{
        api::{Etcd, OwnerCheck},
        render::record_of_owner,
    },
    migration::{
        error::{Error, Result},
        names::{MADE_BY, MANAGER},
    },
};

/// The text of an owner ID, as in the record.
#[must_use]
pub fn text(owner: &OwnerId) -> String {
    format!("{}/{}", owner.seed, owner.epoch)
}

/// The owner ID of a text; `None` where it has no epoch.
#[must_use]
pub fn parse(text: &str) -> Option<OwnerId> {
    let (seed, _) = text.rsplit_once('/')?;
    Some(OwnerId { seed: seed.to_owned(), epoch: epoch(text)? })
}

/// What one server says: the values of the record, or why there are none.
pub type ServerAnswer = (SocketAddr, std::result::Result<Vec<String>, String>);

/// What an Etcd says of its owner record, and how to ask for it.
pub struct OwnerRecordOf<'a> {
    check: &'a OwnerCheck,
    settings: Settings,
}

impl<'a> OwnerRecordOf<'a> {
    /// Of an Etcd.
    ///
    /// # Errors
    /// [`Error::OwnerCheck`] where the Etcd has no owner check, or one that cannot be used.
    pub fn new(etcd: &'a Etcd) -> Result<Self> {
        Self::asking(etcd, &[])
    }

    /// Of an Etcd, from these servers instead of those that it names, where there are any.
    ///
    /// # Errors
    /// [`Error::OwnerCheck`] where the Etcd has no owner check, or one that cannot be used with these servers.
    pub fn asking(etcd: &'a Etcd, servers: &[String]) -> Result<Self> {
        let check = etcd.spec.backup.owner_check.as_ref();
        let check = check.ok_or_else(|| Error::OwnerCheck("it is not set".to_owned()))?;
        let mut owner = record_of_owner(check);
        if !servers.is_empty() {
            owner.servers = servers.to_vec();
        }
        let settings = Settings::new(&owner, STOP);
        Ok(Self { check, settings: settings.map_err(|wrong| Error::OwnerCheck(wrong.join("; ")))? })
    }

    /// The record, as the servers of the zone answer; those that do not answer are left out.
    pub async fn look(&self) -> OwnerRecord {
        let (answer, why) = self.settings.look_at_all(&Freshness::new(self.settings.timing.ttl)).await;
        match answer {
            Answer::Record(values) if values.is_empty() => OwnerRecord::Absent,
            Answer::Record(values) => match values.as_slice() {
                [value] => parse(value).map_or(OwnerRecord::Unknown, OwnerRecord::Present),
                _ => OwnerRecord::Unknown,
            },
            Answer::Unresolvable | Answer::ContextError | Answer::Slow => {
                tracing::debug!(record = self.check.name, why, "the owner record is not known");
                OwnerRecord::Unknown
            }
        }
    }

    /// What each server of the zone says, or why it says nothing.
    ///
    /// # Errors
    /// Why no server is known.
    pub async fn each(&self) -> std::result::Result<Vec<ServerAnswer>, String> {
        self.settings.look_at_each().await
    }

    /// The ID under which this Etcd may serve.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.check.id
    }

    /// Whether the servers of the zone answer with these addresses, and no others, for these names.
    pub async fn zone_answers(&self, names: BTreeMap<&str, BTreeSet<IpAddr>>) -> bool {
        for (name, wanted) in names {
            match self.settings.addresses(name).await {
                Ok(answer) if answer == wanted => {}
                answer => {
                    tracing::debug!(name, ?wanted, ?answer, "the zone answers otherwise");
                    return false;
                }
            }
        }
        true
    }

    /// Name of the record.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.check.name
    }

    /// How long a member may still believe in an earlier record.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.settings.timing.wait()
    }

    /// Whether a DNSRecord writes this record.
    #[must_use]
    pub fn is_of(&self, record: &DNSRecord) -> bool {
        record.spec.record_type == "TXT"
            && record.spec.name.trim_end_matches('.') == self.check.name.trim_end_matches('.')
    }
}

/// Deletes the DNSRecord, and with it the record, while it names this owner.
///
/// # Errors
/// [`Error::Write`].
pub async fn delete(client: &Client, record: &DNSRecord, owner: &OwnerId) -> Result<()> {
    if record.spec.values != [text(owner)] {
        return Ok(());
    }
    let all = Api::<DNSRecord>::namespaced(client.clone(), &record.namespace().unwrap_or_default());
    let name = record.name_any();
    let task = || format!("delete DNSRecord {name}");
    let mut version = record.resource_version();
    if !record.annotations().contains_key(CONFIRM_DELETION) {
        let patch = json!({"metadata": {"annotations": {CONFIRM_DELETION: "true"}}});
        let confirmed = all.patch(&name, &params(), &under(version, patch)).await;
        version = confirmed.map_err(Error::write(task()))?.resource_version();
    }
    if record.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let preconditions = Some(Preconditions { uid: record.uid(), resource_version: version });
    match all.delete(&name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
        Err(error) if is_not_found(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(task())),
    }
}

/// How a DNSRecord is made where there is none.
pub struct NewRecord<'a> {
    /// Namespace of the control plane.
    pub namespace: &'a str,
    /// A DNSRecord of the same zone, from which provider and credentials are taken.
    pub like: &'a DNSRecord,
    /// UID of the migration.
    pub migration: &'a str,
    /// Whether a person insists, who is no controller: the webhook lets nobody else write this record otherwise.
    pub is_insisted: bool,
}

/// Whether this owner is to be written: never over one of a higher epoch, whoever wrote that, and again where the zone has forgotten it.
fn is_to_be_written(
    owner: &OwnerId,
    zone: &OwnerRecord,
    written: Option<&OwnerId>,
    is_requested: bool,
) -> bool {
    let is_older = |other: &OwnerId| other.epoch < owner.epoch;
    match (zone, written) {
        (OwnerRecord::Present(present), _) if !is_older(present) => false,
        // Its controller has done what was requested, and the zone says something else all the same.
        (OwnerRecord::Present(_) | OwnerRecord::Absent, Some(written)) if written == owner => !is_requested,
        (_, Some(written)) => is_older(written),
        (_, None) => true,
    }
}

/// Lets a DNSRecord write this owner, unless it or the zone, as it was observed, has one of a higher epoch.
///
/// # Errors
/// [`Error::Write`].
pub async fn write(
    client: &Client,
    (found, zone): (Option<&DNSRecord>, &OwnerRecord),
    new: &NewRecord<'_>,
    etcd: &Etcd,
    owner: &OwnerId,
) -> Result<()> {
    let written = found.and_then(|found| parse(found.spec.values.first()?));
    let is_requested = found.is_some_and(|found| found.annotations().contains_key(OPERATION));
    if !is_to_be_written(owner, zone, written.as_ref(), is_requested) {
        return Ok(());
    }
    let all = Api::<DNSRecord>::namespaced(client.clone(), new.namespace);
    let Some(found) = found else {
        let record = render(new, etcd, owner)?;
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let outcome = all.create(&params, &record).await;
        return outcome.map(drop).map_err(Error::write("create the DNSRecord of the owner"));
    };
    let patch = json!({
        "metadata": {"annotations": {OPERATION: OPERATION_RECONCILE}}, "spec": {"values": [text(owner)]},
    });
    let outcome = all.patch(&found.name_any(), &params(), &under(found.resource_version(), patch)).await;
    outcome.map(drop).map_err(Error::write("write the DNSRecord of the owner"))
}

fn render(new: &NewRecord<'_>, etcd: &Etcd, owner: &OwnerId) -> Result<DNSRecord> {
    let record = OwnerRecordOf::new(etcd)?;
    let mut annotations = BTreeMap::from([(OPERATION.to_owned(), OPERATION_RECONCILE.to_owned())]);
    if new.is_insisted {
        annotations.insert(CONFIRM_TAKEOVER.to_owned(), "true".to_owned());
    }
    let metadata = ObjectMeta {
        name: Some(format!("{}-owner", etcd.name_any())),
        namespace: Some(new.namespace.to_owned()),
        labels: Some([(MADE_BY.to_owned(), new.migration.to_owned())].into()),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    };
    let ttl = i64::try_from(record.settings.timing.ttl.as_secs()).ok();
    let spec = DNSRecordSpec {
        name: record.check.name.clone(),
        record_type: "TXT".to_owned(),
        values: vec![text(owner)],
        ttl,
        ..new.like.spec.clone()
    };
    Ok(DNSRecord::new(metadata, spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_written_over_an_older_one_and_never_over_a_newer_one() {
        let id = |seed: &str, epoch| OwnerId { seed: seed.to_owned(), epoch };
        let (old, own, new) = (id("a", 1), id("b", 2), id("c", 3));
        let zone = |owner: &OwnerId| OwnerRecord::Present(owner.clone());
        let is = |zone: OwnerRecord, written: Option<&OwnerId>, requested| {
            is_to_be_written(&own, &zone, written, requested)
        };
        assert!(is(zone(&old), None, false));
        assert!(is(OwnerRecord::Unknown, Some(&old), false));
        // The zone has forgotten what was written: once more, and not while that is under way.
        assert!(is(zone(&old), Some(&own), false));
        assert!(is(OwnerRecord::Absent, Some(&own), false));
        assert!(!is(zone(&old), Some(&own), true));
        assert!(!is(OwnerRecord::Unknown, Some(&own), false));
        // Somebody took over since.
        assert!(!is(zone(&new), Some(&own), false));
        assert!(!is(zone(&new), None, false));
        assert!(!is(OwnerRecord::Unknown, Some(&new), false));
        assert!(!is(zone(&own), Some(&own), false));
    }

    #[test]
    fn owner_ids_are_read_as_they_are_written() {
        let owner = OwnerId { seed: "eu/seed-a".to_owned(), epoch: 7 };
        assert_eq!(parse(&text(&owner)), Some(owner));
        assert_eq!(parse("seed-a"), None);
        assert_eq!(parse("seed-a/x"), None);
    }
}
