//! The backups of a hosted etcd: what its store says of them, and what Jobs that work on them do.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::{batch::v1::Job, core::v1::Secret};
use kube::{Api, Client};
use repot_apimachinery::time::Time;
use repot_etcd::{
    backup::{
        Backups,
        record::{BackupRecord, State, Verdict},
        store_ref::StoreRef,
    },
    snapshot::store::Store,
};
use repot_etcd_core::backups::{Backup, Taking, Verifying};
use repot_plan::{
    etcd::{BACKUP_ATTEMPTS, EtcdLedger, Step},
    ledger,
};

use tempfile::TempDir;

use super::{
    error::{Error, Result},
    jobs::{self, Task},
};

/// How long one request is tried again: a pass is not held up for longer, and the next one comes soon.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens the store, with what its Secret says.
///
/// # Errors
/// [`Error::Read`], [`Error::Backups`].
pub async fn open(client: &Client, namespace: &str, place: &StoreRef) -> Result<OpenBackupStore> {
    let mut secret = BTreeMap::new();
    if let Some(reference) = &place.secret_ref {
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        let what = || format!("Secret {namespace}/{}", reference.name);
        let found =
            secrets.get(&reference.name).await.map_err(|source| Error::Read { what: what(), source })?;
        secret = found.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
    }
    let opened = place.open(&secret, PATIENCE).map_err(|error| Error::Backups(error.into()))?;
    let (store, _secret) = opened;
    Ok(OpenBackupStore { backups: Backups::of(&store), store, _secret })
}

/// An opened store of backups, with the directory of its credentials.
#[derive(Debug)]
pub struct OpenBackupStore {
    /// The backups in it.
    pub backups: Backups,
    /// The store itself, with the histories of the etcd.
    pub store: Store,
    /// Its credentials are read while it is used.
    _secret: TempDir,
}

/// Records that cannot change any more: of backups that are stored and verified.
#[derive(Debug, Default)]
pub struct BackupCache(Mutex<HashMap<(String, String), (BackupRecord, Verdict)>>);

type Records = (Option<BackupRecord>, Option<Verdict>);

impl BackupCache {
    async fn read(&self, backups: &Backups, url: &str, name: &str) -> Result<Records> {
        let key = (url.to_owned(), name.to_owned());
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some((taken, verdict)) = known {
            return Ok((Some(taken), Some(verdict)));
        }
        let records = (backups.taken(name).await?, backups.verdict(name).await?);
        if let (Some(taken), Some(verdict)) = &records
            && taken.state == State::Stored
        {
            let settled = (taken.clone(), verdict.clone());
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, settled);
        }
        Ok(records)
    }

    /// Everything that the store has.
    ///
    /// # Errors
    /// [`Error::Backups`].
    pub async fn all(&self, backups: &Backups, url: &str) -> Result<BTreeMap<String, Backup>> {
        let names = backups.names().await?;
        self.forget_others(url, &names);
        let mut all = BTreeMap::new();
        for name in names {
            if let (Some(taken), verdict) = self.read(backups, url, &name).await? {
                all.insert(name, stored(&taken, verdict));
            }
        }
        Ok(all)
    }

    /// One that is deleted and made again under its name is another one.
    fn forget_others(&self, url: &str, names: &[String]) {
        let gone = |place: &str, name: &String| place == url && !names.contains(name);
        let mut settled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        settled.retain(|(place, name), _| !gone(place, name));
    }

    /// Bytes of a backup, where they are known.
    pub fn bytes(&self, url: &str, name: &str) -> Option<u64> {
        let settled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        settled.get(&(url.to_owned(), name.to_owned())).and_then(|(taken, _)| taken.bytes)
    }
}

fn stored(taken: &BackupRecord, verdict: Option<Verdict>) -> Backup {
    let message = || taken.message.clone().unwrap_or_default();
    Backup {
        owner: taken.owner.clone(),
        time: Time::parse(&taken.begun).unwrap_or_default(),
        taking: match taken.state {
            State::Running => Taking::Running,
            State::Failed => Taking::Failed(taken.failures, message()),
            State::Stored => Taking::Stored,
        },
        verifying: match verdict {
            None => Verifying::Open,
            Some(Verdict::Sound(content)) => Verifying::Sound(content.into()),
            Some(Verdict::Corrupt(why)) => Verifying::Corrupt(why),
        },
    }
}

/// What is known of the workflow's own backup where the store does not tell.
fn from_ledger(uid: &str, ledger: &EtcdLedger, now: Time) -> Backup {
    let is_stored = |step| ledger.state(step) == ledger::State::Succeeded;
    let stored = is_stored(Step::BackupTaken) || is_stored(Step::BackupFound);
    let verifying = match &ledger.notes.proof {
        Some(proof) => Verifying::Sound(proof.clone()),
        None => Verifying::Open,
    };
    let taking = if stored { Taking::Stored } else { Taking::Running };
    Backup { owner: uid.to_owned(), time: ledger.started.unwrap_or(now), taking, verifying }
}

/// All backups, with what Jobs tell of the workflow's own one. `found`: what the store says; `Err` where it does not answer, with
/// the reason, and then nothing but the own one is known: what was seen in the store before still holds, and all else waits.
#[must_use]
pub fn merge(
    found: Result<BTreeMap<String, Backup>, StoreError>,
    (uid, ledger, now): (&str, &EtcdLedger, Time),
    jobs: &[Job],
) -> BTreeMap<String, Backup> {
    let trouble = found.as_ref().err().cloned();
    let mut all = found.unwrap_or_default();
    let Some(name) = &ledger.notes.backup else { return all };
    if let Some(StoreError::None(why)) = &trouble {
        let taking = Taking::Failed(BACKUP_ATTEMPTS, why.clone());
        all.insert(name.clone(), Backup { taking, ..from_ledger(uid, ledger, now) });
        return all;
    }
    if trouble.is_some() {
        all.insert(name.clone(), from_ledger(uid, ledger, now));
    }
    let story = jobs::story(jobs, &[Task::Take, Task::Import], name);
    let own = all.entry(name.clone());
    let std::collections::btree_map::Entry::Occupied(mut own) = own else {
        // Nothing was written yet, as by a Job that waits for its node, or cannot reach the store. A backup that was stored and is
        // not there any more is gone, whatever Jobs say.
        let is_awaited = [Step::BackupTaken, Step::BackupFound]
            .into_iter()
            .any(|step| ledger.state(step) == ledger::State::Running);
        if is_awaited && (story.open || story.failed > 0) {
            let taking = taking(&story, None);
            all.insert(name.clone(), Backup { taking, ..from_ledger(uid, ledger, now) });
        }
        return all;
    };
    if own.get().taking != Taking::Stored {
        if !story.open && story.failed == 0 && trouble.is_none() {
            // Its Job is gone: it is begun again.
            own.remove();
        } else {
            let recorded = match &own.get().taking {
                Taking::Failed(times, why) => Some((*times, why.clone())),
                Taking::Running | Taking::Stored => None,
            };
            own.get_mut().taking = taking(&story, recorded);
        }
    }
    all
}

fn taking(story: &jobs::JobHistory, recorded: Option<(u32, String)>) -> Taking {
    if story.open || (story.failed == 0 && recorded.is_none()) {
        return Taking::Running;
    }
    let (times, why) = recorded.unwrap_or((0, story.message.clone()));
    Taking::Failed(times.max(story.failed), why)
}

/// Why nothing is known of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// There is none.
    None(String),
    /// It does not answer.
    Silent(String),
}

#[cfg(test)]
mod tests {
    use repot_plan::ledger::Record;
    use serde_json::json;

    use super::*;
    use crate::workflow::kinds::{BACKUP, TASK};

    const NAME: &str = "b-1";

    fn mk_ledger(step: Step, state: ledger::State) -> EtcdLedger {
        let record = Record {
            state,
            reason: String::new(),
            message: String::new(),
            started: Some(Time(1)),
            completed: None,
            attempts: 1,
        };
        let notes = repot_plan::etcd::Notes { backup: Some(NAME.to_owned()), ..Default::default() };
        EtcdLedger { steps: [(step, record)].into(), notes, ..EtcdLedger::default() }
    }

    fn mk_job(condition: Option<&str>) -> Job {
        let conditions: Vec<_> =
            condition.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let labels = json!({TASK: "take", BACKUP: NAME});
        let job = json!({"metadata": {"name": "j", "labels": labels}, "status": {"conditions": conditions}});
        serde_json::from_value(job).expect("a Job")
    }

    fn mk_backup(taking: Taking) -> Backup {
        Backup { owner: "u".to_owned(), time: Time(1), taking, verifying: Verifying::Open }
    }

    fn merged(
        found: Result<Option<Taking>, StoreError>,
        ledger: &EtcdLedger,
        jobs: &[Job],
    ) -> Option<Taking> {
        let found = found.map(|taking| taking.map(|t| (NAME.to_owned(), mk_backup(t))).into_iter().collect());
        merge(found, ("u", ledger, Time(9)), jobs).remove(NAME).map(|backup| backup.taking)
    }

    #[test]
    fn jobs_tell_what_the_store_does_not() {
        let begun = mk_ledger(Step::BackupTaken, ledger::State::Running);
        let (open, failed) = (mk_job(None), mk_job(Some("Failed")));
        assert_eq!(merged(Ok(None), &begun, &[]), None);
        assert_eq!(merged(Ok(None), &begun, std::slice::from_ref(&open)), Some(Taking::Running));
        let twice = [failed.clone(), failed.clone()];
        assert!(matches!(merged(Ok(None), &begun, &twice), Some(Taking::Failed(2, _))));
        // The next attempt is on its way.
        let again = [failed.clone(), open.clone()];
        let recorded = || Ok(Some(Taking::Failed(1, "full".to_owned())));
        assert_eq!(merged(recorded(), &begun, &again), Some(Taking::Running));
        assert_eq!(merged(recorded(), &begun, &[failed]), Some(Taking::Failed(1, "full".to_owned())));
        // Its Job is gone, and it was not stored.
        assert_eq!(merged(Ok(Some(Taking::Running)), &begun, &[]), None);
        assert_eq!(
            merged(Ok(Some(Taking::Stored)), &begun, std::slice::from_ref(&open)),
            Some(Taking::Stored)
        );
        // It was deleted.
        let taken = mk_ledger(Step::BackupTaken, ledger::State::Succeeded);
        assert_eq!(merged(Ok(None), &taken, &[mk_job(Some("Complete"))]), None);
    }

    #[test]
    fn silent_store_is_waited_for_and_a_missing_one_is_not() {
        let silent = || Err(StoreError::Silent("it is away".to_owned()));
        let begun = mk_ledger(Step::BackupTaken, ledger::State::Running);
        assert_eq!(merged(silent(), &begun, &[]), Some(Taking::Running));
        let stored = mk_ledger(Step::BackupTaken, ledger::State::Succeeded);
        assert_eq!(merged(silent(), &stored, &[]), Some(Taking::Stored));
        let none = Err(StoreError::None("there is none".to_owned()));
        assert!(matches!(merged(none, &begun, &[]), Some(Taking::Failed(BACKUP_ATTEMPTS, _))));
    }
}
