//! Ownership is passed on by hand: for a person whose migration cannot do it.

use std::{fmt::Write, time::Duration};

use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use repot_api::names::{CONFIRM_TAKEOVER, OPERATION, OPERATION_RECONCILE};
use repot_extension::kinds::DNSRecord;
use repot_plan::migration::observed::{OwnerId, OwnerRecord};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::report::{Report, Verdict, values_of};
use crate::{
    etcd::api::Etcd,
    migration::{
        error::Error,
        seed::owner::{NewRecord, OwnerRecordOf, text, write},
    },
};

/// How often the servers are asked while they do not name the new owner.
const POLL: Duration = Duration::from_secs(1);
/// How long a DNS controller and its provider may take.
const WRITTEN: Duration = Duration::from_secs(600);
/// Who writes, as API servers know it.
const WRITER: &str = "repot-owner";
/// Instead of the UID of a migration, on a DNSRecord that a person makes.
const BY_HAND: &str = "by-hand";

/// Why ownership is not passed on.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// Servers do not say who the owner is, so that the next epoch is not known.
    #[error("the owner is not known ({0}); name an epoch that is higher than any before with --epoch")]
    UnknownOwner(String),
    /// The epoch is not higher than one that is known.
    #[error("epoch {asked} is not higher than {known}, which is known already")]
    EpochTooLow {
        /// The epoch that was asked for.
        asked: u64,
        /// The highest that is known.
        known: u64,
    },
    /// The name of a seed cannot be a part of an owner ID.
    #[error("{0:?} is no name of a seed: at most 63 lowercase letters, digits and '-'")]
    SeedName(String),
    /// There is nothing from which a DNSRecord could be made.
    #[error(
        "there is no DNSRecord in the namespace of {0}, so neither provider nor credentials of the zone are known"
    )]
    NoZone(String),
    /// The DNSRecord is being deleted.
    #[error("DNSRecord {0} is being deleted; try again when it is gone")]
    Deleting(String),
    /// The servers do not name the new owner.
    #[error(
        "the servers of the zone do not name {owner:?} after {WRITTEN:?}; see in the DNSRecord what its controller reports"
    )]
    NotWritten {
        /// ID of the owner that the record was to name.
        owner: String,
    },
    /// Somebody has overwritten the record while it was waited for.
    #[error(
        "the servers of the zone named {owner:?} and do not any more, so members of another owner may serve; see who writes the record"
    )]
    NotKept {
        /// ID of the owner that the record named for a time.
        owner: String,
    },
    /// An API server failed.
    #[error(transparent)]
    Migration(#[from] Error),
}

/// The deletion of a DNSRecord removes the record, whatever it says by then.
fn is_kept(record: &DNSRecord) -> Result<(), TransferError> {
    match record.metadata.deletion_timestamp {
        Some(_) => Err(TransferError::Deleting(record.name_any())),
        None => Ok(()),
    }
}

/// What passing ownership on would do.
#[derive(Debug)]
pub struct Transfer {
    report: Report,
    etcd: Etcd,
    servers: Vec<String>,
    owner: OwnerId,
}

impl Transfer {
    /// To the seed with this identity, with the next epoch, or the one that is named. `servers` are those that were asked for the report.
    ///
    /// # Errors
    /// [`TransferError`], before anything is changed.
    pub fn new(
        (report, etcd): (Report, Etcd),
        servers: &[String],
        seed: &str,
        epoch: Option<u64>,
    ) -> Result<Self, TransferError> {
        let owner = OwnerId { seed: seed.to_owned(), epoch: next_epoch(&report, epoch)? };
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if seed.is_empty() || seed.len() > 63 || !seed.chars().all(is_allowed) {
            return Err(TransferError::SeedName(seed.to_owned()));
        }
        if report.writer.is_none() && report.like.is_none() {
            return Err(TransferError::NoZone(report.etcd));
        }
        report.writer.as_ref().map_or(Ok(()), is_kept)?;
        Ok(Self { report, etcd, servers: servers.to_vec(), owner })
    }

    /// What it would do, for a person who has to agree.
    #[must_use]
    pub fn text(&self) -> String {
        let (owner, report) = (text(&self.owner), &self.report);
        let mut text = report.text();
        let record = match &report.writer {
            Some(record) => {
                format!("its values become {owner:?} instead of {}", values_of(&record.spec.values))
            }
            None => format!("it is created, with {owner:?}"),
        };
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "\nOwnership would go to {owner:?}:\n\
             1. DNSRecord {}: {record}.\n\
             2. Every member with another ID stops, wherever it runs; those of {} have {:?}. What is on their volumes is not served again.\n\
             3. {} s after the servers of the zone name {owner:?}, no member of an earlier owner can serve any more.\n",
            self.record_name(),
            report.etcd,
            report.id,
            report.wait.as_secs(),
        );
        text
    }

    /// What is to be done afterwards.
    #[must_use]
    pub fn next(&self) -> String {
        let silent = self.report.silent();
        let doubt = match silent.as_slice() {
            [] => String::new(),
            some => format!(" unless it reaches {}, which did not answer", some.join(", ")),
        };
        format!(
            "No member of an earlier owner can serve any more{doubt}. An etcd goes on from the snapshots of the earlier one with\n\
             spec.backup.ownerCheck.id: {:?}, new volumes in spec.volumeClaimTemplate, and spec.backup.sourceStore.",
            text(&self.owner)
        )
    }

    fn record_name(&self) -> String {
        self.report
            .writer
            .as_ref()
            .map_or_else(|| format!("{}-owner", self.etcd.name_any()), ResourceExt::name_any)
    }

    /// Writes the record, and returns when no member of an earlier owner can serve any more.
    ///
    /// # Errors
    /// [`TransferError`]. What was written stays; the same transfer may be asked for again, with a higher epoch.
    pub async fn run(&self, client: &Client, says: &dyn Fn(&str)) -> Result<(), TransferError> {
        let written = self.write(client).await;
        // Also where the answer was lost: nobody else may insist by what this transfer has written.
        self.insist_no_more(client).await?;
        says(&format!("DNSRecord {} is written", written?));
        let record = OwnerRecordOf::asking(&self.etcd, &self.servers)?;
        let end = Instant::now() + WRITTEN;
        while record.look().await != OwnerRecord::Present(self.owner.clone()) {
            if Instant::now() >= end {
                return Err(TransferError::NotWritten { owner: text(&self.owner) });
            }
            sleep(POLL).await;
        }
        let wait = self.report.wait;
        says(&format!(
            "the servers of the zone name {:?}; waiting for {} s",
            text(&self.owner),
            wait.as_secs()
        ));
        // The wait counts whole seconds on both sides.
        sleep(wait + Duration::from_secs(1)).await;
        // A DNS controller that was cut off may have written an earlier owner meanwhile.
        match record.look().await {
            OwnerRecord::Present(owner) if owner == self.owner => Ok(()),
            OwnerRecord::Present(_) | OwnerRecord::Absent | OwnerRecord::Unknown => {
                Err(TransferError::NotKept { owner: text(&self.owner) })
            }
        }
    }

    /// Under the version of a DNSRecord that was read just now: a migration that goes on meanwhile is not overwritten.
    async fn write(&self, client: &Client) -> Result<String, TransferError> {
        let namespace = self.etcd.namespace().unwrap_or_default();
        let (report, _) = Report::read(client, (&namespace, &self.etcd.name_any()), &self.servers).await?;
        next_epoch(&report, Some(self.owner.epoch))?;
        let all = Api::<DNSRecord>::namespaced(client.clone(), &namespace);
        let Some(found) = &report.writer else {
            let like = report.like.as_ref().ok_or_else(|| TransferError::NoZone(report.etcd.clone()))?;
            let new = NewRecord { namespace: &namespace, like, migration: BY_HAND, is_insisted: true };
            let zone = OwnerRecord::Unknown;
            write(client, (None, &zone), &new, &self.etcd, &self.owner).await?;
            return Ok(self.record_name());
        };
        is_kept(found)?;
        // The webhook lets nobody write this record who is no controller and does not insist.
        let patch = json!({
            "metadata": {
                "resourceVersion": found.resource_version(),
                "annotations": {OPERATION: OPERATION_RECONCILE, CONFIRM_TAKEOVER: "true"},
            },
            "spec": {"values": [text(&self.owner)]},
        });
        let name = found.name_any();
        let outcome = all.patch(&name, &params(), &Patch::Merge(patch)).await;
        outcome.map_err(Error::write(format!("write DNSRecord {name}")))?;
        Ok(name)
    }

    /// Takes the annotation back from whichever DNSRecord has it.
    async fn insist_no_more(&self, client: &Client) -> Result<(), TransferError> {
        let namespace = self.etcd.namespace().unwrap_or_default();
        let all = Api::<DNSRecord>::namespaced(client.clone(), &namespace);
        let (report, _) = Report::read(client, (&namespace, &self.etcd.name_any()), &self.servers).await?;
        let insists = |record: &&DNSRecord| record.annotations().contains_key(CONFIRM_TAKEOVER);
        let Some(name) = report.writer.as_ref().filter(insists).map(ResourceExt::name_any) else {
            return Ok(());
        };
        let patch = json!({"metadata": {"annotations": {CONFIRM_TAKEOVER: null}}});
        let outcome = all.patch(&name, &params(), &Patch::Merge(patch)).await;
        outcome.map_err(Error::write(format!(
            "remove annotation {CONFIRM_TAKEOVER} of DNSRecord {name}, by which anybody may write it; remove it by hand"
        )))?;
        Ok(())
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(WRITER.to_owned()), ..PatchParams::default() }
}

fn next_epoch(report: &Report, asked: Option<u64>) -> Result<u64, TransferError> {
    let known = report.highest_epoch();
    match (asked, report.verdict()) {
        (None, Verdict::Unknown(why)) => Err(TransferError::UnknownOwner(why)),
        (None, Verdict::Other(values)) if values.is_empty() && report.writer.is_none() => {
            Err(TransferError::UnknownOwner(
                "there is no record, and no DNSRecord that has written one".to_owned(),
            ))
        }
        (None, Verdict::Owner | Verdict::Other(_)) => Ok(known.saturating_add(1)),
        (Some(asked), _) if asked <= known => Err(TransferError::EpochTooLow { asked, known }),
        (Some(asked), _) => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::report::tests::report, *};

    fn transfer(answers: [Result<&str, &str>; 2], seed: &str, epoch: Option<u64>) -> Result<String, String> {
        let mut report = report(answers);
        report.writer = serde_json::from_value(json!({
            "metadata": {"name": "own", "namespace": "shoot"},
            "spec": {
                "type": "local", "name": "owner.a.org", "recordType": "TXT", "values": ["seed-a/2"],
                "secretRef": {"name": "dns", "namespace": "shoot"},
            },
        }))
        .expect("a DNSRecord");
        let transfer = Transfer::new((report, Etcd::default()), &[], seed, epoch);
        transfer.map(|transfer| transfer.text()).map_err(|error| error.to_string())
    }

    #[test]
    fn next_epoch_is_higher_than_any_that_is_known() {
        let agreed = [Ok("seed-a/2"), Ok("seed-a/2")];
        let text = transfer(agreed, "seed-b", None).expect("a transfer");
        for says in ["Ownership would go to \"seed-b/3\"", "instead of \"seed-a/2\"", "114 s after"] {
            assert!(text.contains(says), "{says}: {text}");
        }
        let why = transfer(agreed, "seed-b", Some(2)).expect_err("too low");
        assert!(why.contains("epoch 2 is not higher than 2"), "{why}");
        let unknown = [Ok("seed-a/2"), Ok("seed-c/5")];
        let why = transfer(unknown, "seed-b", None).expect_err("unknown");
        assert!(why.contains("servers do not say the same") && why.contains("--epoch"), "{why}");
        assert!(transfer(unknown, "seed-b", Some(5)).is_err());
        assert!(transfer(unknown, "seed-b", Some(6)).expect("a transfer").contains("\"seed-b/6\""));
    }

    #[test]
    fn words_that_are_no_seed_are_refused() {
        let agreed = [Ok("seed-a/2"), Ok("seed-a/2")];
        for bad in ["", "seed/b", "Seed", "seed b", &"a".repeat(64)] {
            assert!(transfer(agreed, bad, None).is_err(), "{bad:?}");
        }
    }
}
