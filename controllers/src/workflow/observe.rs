//! What a workflow sees in one pass: read from kube-apiserver, the store and the members themselves, never from a cache.

use std::collections::BTreeMap;

use k8s_openapi::api::{batch::v1::Job, core::v1::Secret};
use kube::{Api, Client, ResourceExt};
use repot_apimachinery::time::Time;
use repot_etcd::backup::store_ref::StoreRef;
use repot_etcd_core::backups;
use repot_etcd_core::volumes::VolumeSet;
use repot_plan::{
    etcd::{
        EtcdLedger, Step,
        observed::{self, Cluster, Lock, Observed, Request, Settings, Source, Targets},
    },
    ledger::State,
};

use crate::errors::causes;

use super::{
    api::{
        BackupSpec, CurrentWorkflow, EtcdSettings, HostedEtcd, MigrationSpec, RestoreSpec, WorkflowObject,
        WorkflowSpec, WorkflowStatus,
    },
    backup_store::{self, OpenBackupStore, StoreError},
    context::Context,
    error::{Error, Result},
    jobs,
    kinds::{self, Kind},
    site::{self, ControlPlane},
};

/// The world, and the objects that it was read from: what is done to them is done under their versions.
#[derive(Debug)]
pub struct Observation {
    /// What was observed, in the form in which the plan decides on it.
    pub facts: Observed,
    /// The HostedEtcd and what belongs to it; nothing where there is none.
    pub site: Option<ControlPlane>,
    /// Store in `spec.backupStore` of the HostedEtcd; `None` where it is missing or cannot be read.
    pub place: Option<StoreRef>,
    /// The store that a restore takes its backup from, where it names one.
    pub source: Option<StoreRef>,
    /// The backups, where the store could be opened.
    pub backups: Option<OpenBackupStore>,
    /// Jobs of the workflow.
    pub jobs: Vec<Job>,
}

/// Looks.
///
/// # Errors
/// Where kube-apiserver does not answer. A silent store and a silent etcd are a part of the world.
pub async fn observe<S: WorkflowSpec>(
    context: &Context,
    object: &WorkflowObject<S>,
    ledger: &EtcdLedger,
    now: Time,
) -> Result<Observation> {
    let client = context.clients.own();
    let mut request = request(object);
    let found = hosted(client, object).await?;
    let Some((hosted, cluster)) = cluster(object, found, ledger) else { return Ok(nothing(request)) };
    let namespace = hosted.namespace().unwrap_or_default();
    let lock = lock(client, &hosted, &request.uid).await?;
    let (site, jobs) =
        futures::try_join!(ControlPlane::read(client, hosted), jobs::of(client, &namespace, &request.uid))?;
    let api = site.api();
    let etcd = site.deployed();
    // While API servers run, the keys change all the time and are equal to nothing.
    let is_still = api.wanted == 0 && api.pods == 0;
    let serving = match &etcd {
        Some(etcd) => context.digests.ask(client, &site, &etcd.volumes, is_still).await,
        None => None,
    };
    let place = site.hosted.spec.backup_store.clone();
    let source = object.spec.source().and_then(|source| source.store.clone());
    if let Some(source) = &source {
        let is_copied = ledger.state(Step::BackupFound) == State::Succeeded;
        let trouble = if is_copied { None } else { trouble(context, &namespace, source).await? };
        request.source = Some(Source::Store { trouble });
    }
    let (backups, found) = shelves(context, &site, place.as_ref()).await;
    let facts = Observed {
        cluster,
        targets: site.targets(),
        cluster_finalizer: kinds::has_finalizer(&site.hosted),
        lock,
        settings: site.settings(&ledger.notes),
        api,
        pods: site.pods(),
        ready: etcd
            .as_ref()
            .map_or(0, |etcd| u32::try_from(site.ready(&etcd.volumes).count()).unwrap_or_default()),
        etcd_declared: site.is_etcd_declared(),
        etcd,
        serving,
        volumes: site.volumes(&ledger.notes, released(ledger)),
        backups: backup_store::merge(found, (&request.uid, ledger, now), &jobs),
        request,
    };
    Ok(Observation { facts, site: Some(site), place, source, backups, jobs })
}

/// The HostedEtcd that a workflow works on.
///
/// # Errors
/// [`Error::Read`].
pub async fn hosted<S: WorkflowSpec>(
    client: &Client,
    object: &WorkflowObject<S>,
) -> Result<Option<HostedEtcd>> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), &object.spec.common().cluster_ref.name);
    let all = Api::<HostedEtcd>::namespaced(client.clone(), &namespace);
    let what = || format!("HostedEtcd {namespace}/{name}");
    all.get_opt(name).await.map_err(|source| Error::Read { what: what(), source })
}

/// The HostedEtcd and whether it stays. Where the one that this workflow has locked does not exist any more, what the workflow has
/// recorded of it stands for it; so it does where another one of that name refers to something else.
fn cluster<S: WorkflowSpec>(
    object: &WorkflowObject<S>,
    found: Option<HostedEtcd>,
    ledger: &EtcdLedger,
) -> Option<(HostedEtcd, Cluster)> {
    let recorded = ledger.notes.targets.as_ref();
    let is_it = |hosted: &HostedEtcd| recorded.is_none_or(|targets| *targets == site::targets(hosted));
    match found.filter(is_it) {
        Some(hosted) if hosted.metadata.deletion_timestamp.is_some() => Some((hosted, Cluster::Deleting)),
        Some(hosted) => Some((hosted, Cluster::Present)),
        None => {
            let name = &object.spec.common().cluster_ref.name;
            let namespace = object.namespace().unwrap_or_default();
            recorded.map(|targets| (site::stand_in(&namespace, name, targets), Cluster::Gone))
        }
    }
}

/// The set that is being released at the moment, if one is.
fn released(ledger: &EtcdLedger) -> Option<&VolumeSet> {
    let notes = &ledger.notes;
    if ledger.is_started(Step::NewVolumesReleased) {
        return notes.new.as_ref();
    }
    ledger
        .is_started(Step::OldVolumesReleased)
        .then_some(notes.old.as_ref().map(|(volumes, _)| volumes))
        .flatten()
}

fn request<S: WorkflowSpec>(object: &WorkflowObject<S>) -> Request {
    let common = object.spec.common();
    Request {
        uid: object.uid().unwrap_or_default(),
        paused: common.paused.unwrap_or_default(),
        cancel: common.cancel.unwrap_or_default(),
        deleting: object.metadata.deletion_timestamp.as_ref().map(kinds::at),
        finalizer: kinds::has_finalizer(object),
        step_timeout: kinds::step_timeout(common),
        fresh_name: fresh_name(),
        backup_name: object.spec.names_backup().then(|| object.name_any()),
        settings: object.spec.settings().map(EtcdSettings::wanted).unwrap_or_default(),
        source: object.spec.source().and_then(|source| source.backup_name.clone()).map(Source::Named),
    }
}

/// Why a store cannot even be asked: a Pod would wait without a word for a Secret that is not there.
async fn trouble(context: &Context, namespace: &str, source: &StoreRef) -> Result<Option<String>> {
    if let Err(error) = context.check_store(source) {
        return Ok(Some(format!("spec.source.store: {}", causes(&error))));
    }
    let Some(secret) = &source.secret_ref else { return Ok(None) };
    let what = || format!("Secret {namespace}/{}", secret.name);
    let found =
        Api::<Secret>::namespaced(context.clients.own().clone(), namespace).get_opt(&secret.name).await;
    let found = found.map_err(|source| Error::Read { what: what(), source })?;
    Ok(found.is_none().then(|| format!("{} with the credentials of spec.source.store is not there", what())))
}

/// The time, so that names sort, and eight random letters. It is a label of DNS: claims, Jobs and directories are named after it.
fn fresh_name() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let random = uuid::Uuid::new_v4().into_bytes();
    let letters: String =
        random[..8].iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
    format!("{time}-{letters}")
}

/// Whose lock it is. That of an object that does not exist any more is nobody's.
///
/// # Errors
/// [`Error::Read`].
pub async fn lock(client: &Client, hosted: &HostedEtcd, uid: &str) -> Result<Lock> {
    let Some(holder) = hosted.status.current_workflow.as_ref().filter(|holder| !holder.uid.is_empty()) else {
        return Ok(Lock::Free);
    };
    if holder.uid == uid {
        return Ok(Lock::Ours);
    }
    let other = Lock::Other(format!("{} {}", holder.kind, holder.name));
    let Some(kind) = Kind::of(&holder.kind) else { return Ok(other) };
    let found = workflow(client, kind, &hosted.namespace().unwrap_or_default(), holder).await?;
    Ok(if found.is_some() { other } else { Lock::Free })
}

/// The status of the workflow that holds a lock; `None` where it does not exist any more.
///
/// # Errors
/// [`Error::Read`].
pub async fn workflow(
    client: &Client,
    kind: Kind,
    namespace: &str,
    holder: &CurrentWorkflow,
) -> Result<Option<WorkflowStatus>> {
    match kind {
        Kind::Backup => status_of::<BackupSpec>(client, namespace, holder).await,
        Kind::Restore => status_of::<RestoreSpec>(client, namespace, holder).await,
        Kind::Migration => status_of::<MigrationSpec>(client, namespace, holder).await,
    }
}

async fn status_of<S: WorkflowSpec>(
    client: &Client,
    namespace: &str,
    holder: &CurrentWorkflow,
) -> Result<Option<WorkflowStatus>> {
    let CurrentWorkflow { kind, name, uid } = holder;
    let found = Api::<WorkflowObject<S>>::namespaced(client.clone(), namespace).get_opt(name).await;
    let found = found.map_err(|source| Error::Read { what: format!("{kind} {namespace}/{name}"), source })?;
    // Another one of that name does not hold the lock.
    Ok(found.filter(|found| found.metadata.uid.as_ref() == Some(uid)).map(|found| found.status))
}

type Found = Result<BTreeMap<String, backups::Backup>, StoreError>;

async fn shelves(
    context: &Context,
    site: &ControlPlane,
    place: Option<&StoreRef>,
) -> (Option<OpenBackupStore>, Found) {
    let Some(place) = place else {
        return (None, Err(StoreError::None("the HostedEtcd names no spec.backupStore".to_owned())));
    };
    if let Err(error) = context.check_store(place) {
        let why = causes(&error);
        return (None, Err(StoreError::None(format!("spec.backupStore of the HostedEtcd: {why}"))));
    }
    let silent = |error: Error| {
        let why = causes(&error);
        tracing::warn!(store = place.url(), error = why, "the store does not answer");
        StoreError::Silent(why)
    };
    let backups = match backup_store::open(context.clients.own(), &site.namespace(), place).await {
        Ok(backups) => backups,
        Err(error) => return (None, Err(silent(error))),
    };
    let url = place.url();
    let asked = context.settled.all(&backups.backups, &url);
    let found = match tokio::time::timeout(super::error::STORE_ANSWER, asked).await {
        Ok(found) => found.map_err(silent),
        Err(_) => Err(silent(Error::SilentStore)),
    };
    (Some(backups), found)
}

fn nothing(request: Request) -> Observation {
    let facts = Observed {
        request,
        cluster: Cluster::Gone,
        targets: Targets::default(),
        cluster_finalizer: false,
        lock: Lock::Free,
        settings: Settings::default(),
        api: observed::Api {
            exists: false,
            wanted: 0,
            pods: 0,
            ready: 0,
            generation: 0,
            fence: String::new(),
        },
        etcd_declared: false,
        etcd: None,
        pods: BTreeMap::new(),
        ready: 0,
        serving: None,
        volumes: std::collections::BTreeSet::new(),
        backups: BTreeMap::new(),
    };
    Observation { facts, site: None, place: None, source: None, backups: None, jobs: Vec::new() }
}

#[cfg(test)]
mod tests {
    use repot_plan::etcd::Notes;
    use serde_json::json;

    use super::*;

    fn mk_hosted(etcd: &str, deleted: bool) -> HostedEtcd {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "metadata": {"name": "main", "namespace": "shoot", "uid": "u", "deletionTimestamp": deleted},
            "spec": {"etcdRef": {"name": etcd}, "apiServerRef": {"name": "kube-apiserver"}},
        }))
        .expect("an object")
    }

    #[test]
    fn a_hosted_etcd_that_is_gone_is_known_by_what_was_recorded() {
        let workflow = WorkflowObject::<BackupSpec>::default();
        let locked = Notes { targets: Some(site::targets(&mk_hosted("main", false))), ..Notes::default() };
        let locked = EtcdLedger { notes: locked, ..EtcdLedger::default() };
        let open = EtcdLedger::default();
        let seen = |found, ledger: &EtcdLedger| {
            cluster(&workflow, found, ledger).map(|(hosted, cluster)| (site::targets(&hosted).etcd, cluster))
        };
        let main = |cluster| Some(("main".to_owned(), cluster));
        assert_eq!(seen(None, &open), None);
        assert_eq!(seen(Some(mk_hosted("main", false)), &open), main(Cluster::Present));
        assert_eq!(seen(Some(mk_hosted("main", true)), &locked), main(Cluster::Deleting));
        assert_eq!(seen(None, &locked), main(Cluster::Gone));
        // Another one that was made under the same name.
        assert_eq!(seen(Some(mk_hosted("other", false)), &locked), main(Cluster::Gone));
        assert_eq!(seen(Some(mk_hosted("main", false)), &locked), main(Cluster::Present));
    }

    #[test]
    fn fresh_names_are_labels_of_dns() {
        let name = super::fresh_name();
        assert!(repot_apimachinery::validation::dns_subdomain(&name).is_ok() && name.len() == 24, "{name}");
        assert_ne!(name, super::fresh_name());
    }
}
