//! The destination: what costs much is observed only while a row decides on it.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{Api, Client, ResourceExt, core::DynamicObject};
use repot_api::names::DRUID_GROUP;
use repot_plan::{
    gardenlet::{
        Step,
        effect::Effect,
        observed::{DestinationFacts, Facts},
    },
    migration::observed::MigrationMode,
};

use super::{
    copy, copy_tasks,
    rights::{self, Right},
    states::{self, States},
    status::{Ledger, is_open},
};
use crate::{
    errors::causes,
    migration::{
        api::{ControlPlaneMigration, Shoot},
        context::Context,
        error::{Error, Result},
        names::API_SERVER,
    },
    shootstate::ShootKey,
};

/// Rights at the destination that the usual role does not have.
const RIGHTS: [Right; 2] = [of("", "get"), of("status", "patch")];
const ROLE_FILE: &str = "seed-gardenlet.yaml";

const fn of(subresource: &'static str, verb: &'static str) -> Right {
    Right { group: DRUID_GROUP, resource: "etcdcopybackupstasks", subresource, verb }
}

/// Objects of the destination, as they were observed.
pub struct Objects {
    shoot: Option<Shoot>,
    copy_namespace: Option<Namespace>,
    states: Option<States>,
    tasks: Vec<DynamicObject>,
}

fn key(migration: &ControlPlaneMigration, shoot: &Shoot) -> ShootKey {
    ShootKey {
        namespace: migration.namespace().unwrap_or_default(),
        name: shoot.name_any(),
        uid: shoot.uid().unwrap_or_default(),
        seed_namespace: shoot.status.technical_id.clone(),
    }
}

fn seeds(migration: &ControlPlaneMigration) -> (&str, &str) {
    (&migration.spec.source_seed, &migration.spec.destination_seed)
}

/// Observes the destination.
///
/// # Errors
/// Where an API server does not answer. A bucket that does not answer is observed as such.
pub async fn observe(
    context: &Context,
    migration: &ControlPlaneMigration,
    shoot: Option<Shoot>,
    ledger: &Ledger,
) -> Result<(Facts, Objects)> {
    let (client, uid) = (context.own_client(), migration.uid().unwrap_or_default());
    let technical_id = shoot.as_ref().map(|shoot| shoot.status.technical_id.clone()).unwrap_or_default();
    let own = copy::namespace_of(&technical_id);
    let copy_namespace = copy::find(client, &own, &uid).await?;
    // Asked until it was reached, where tasks are marked: what was not asked must not look like a right that is there.
    let is_forced = migration.gardenlet_mode() == Some(MigrationMode::Forced);
    let missing_rights = match ledger.is_settled(Step::SourceBucketReadable) || !is_forced {
        true => Vec::new(),
        false => rights::missing(client, &technical_id, &RIGHTS, ROLE_FILE).await?,
    };
    let mut facts = DestinationFacts {
        missing_rights,
        copy_namespace: copy_namespace.is_some(),
        bucket_problem: None,
        source_newest: None,
        copied: None,
        states: None,
        states_problem: None,
        copy_tasks: Vec::new(),
        api_ready: false,
    };
    let mut objects = Objects { shoot, copy_namespace, states: None, tasks: Vec::new() };
    let Some(shoot) = objects.shoot.as_ref() else {
        return Ok((Facts::Destination(Box::new(facts)), objects));
    };
    buckets(context, migration, shoot, ledger, &mut facts).await;
    if is_open(ledger, Step::StateEnsured) {
        let found = states::read(context.garden_client(), &key(migration, shoot)).await?;
        facts.states = Some(found.facts());
        objects.states = Some(found);
    }
    if is_open(ledger, Step::StateFits) {
        // A seed that may not read states of Shoots of other seeds must not fail without a word.
        match states::read(context.garden_client(), &key(migration, shoot)).await {
            Ok(found) => facts.states = Some(found.facts()),
            Err(error) => facts.states_problem = Some(causes(&error)),
        }
    }
    if is_open(ledger, Step::CopyTaskEnded) {
        objects.tasks = copy_tasks::find(client, &technical_id, &shoot.name_any()).await?;
        if !objects.tasks.is_empty() {
            let stores = copy::stores(context, shoot, seeds(migration)).await?;
            facts.copy_tasks = objects.tasks.iter().map(|task| copy_tasks::facts(task, &stores)).collect();
        }
    }
    if is_open(ledger, Step::ApiServes) {
        facts.api_ready = is_api_ready(client, &technical_id).await?;
    }
    Ok((Facts::Destination(Box::new(facts)), objects))
}

/// What the buckets hold. While the Job copies, nobody lists them.
async fn buckets(
    context: &Context,
    migration: &ControlPlaneMigration,
    shoot: &Shoot,
    ledger: &Ledger,
    facts: &mut DestinationFacts,
) {
    let is_asked = !ledger.is_settled(Step::SourceBucketReadable) || is_open(ledger, Step::LossConfirmed);
    let is_copying = is_open(ledger, Step::SnapshotsCopied) || is_open(ledger, Step::SnapshotsCopiedAhead);
    if !is_asked && !is_copying {
        return;
    }
    let own = copy::namespace_of(&shoot.status.technical_id);
    let found = async {
        let stores = copy::stores(context, shoot, seeds(migration)).await?;
        if is_copying {
            facts.copied = copy::copied(context, &own, &stores.target).await?;
        }
        if is_asked || facts.copied.is_some() {
            facts.source_newest = copy::newest(context, &own, &stores.source).await?;
        }
        Ok::<_, Error>(())
    };
    facts.bucket_problem = match found.await {
        Err(error) => Some(causes(&error)),
        Ok(()) if is_asked && facts.source_newest.is_none() => {
            Some("the bucket of the source has no snapshot of this Shoot".to_owned())
        }
        Ok(()) => None,
    };
}

/// Whether a kube-apiserver of the control plane in a namespace is ready.
///
/// # Errors
/// [`Error::Read`].
pub(super) async fn is_api_ready(client: &Client, namespace: &str) -> Result<bool> {
    let found = Api::<Deployment>::namespaced(client.clone(), namespace).get_opt(API_SERVER).await;
    let found = found.map_err(Error::read(format!("Deployment {namespace}/{API_SERVER}")))?;
    Ok(found.and_then(|found| found.status?.ready_replicas).is_some_and(|ready| ready > 0))
}

/// Carries out an effect of the destination.
///
/// # Errors
/// [`Error`]. The next pass looks again.
pub async fn act(
    context: &Context,
    migration: &ControlPlaneMigration,
    objects: &Objects,
    effect: &Effect,
) -> Result<()> {
    let (client, uid) = (context.own_client(), migration.uid().unwrap_or_default());
    let shoot = || objects.shoot.as_ref().ok_or_else(|| Error::Missing("the Shoot".to_owned()));
    let own = || Ok::<_, Error>(copy::namespace_of(&shoot()?.status.technical_id));
    match effect {
        Effect::EnsureCopyNamespace => copy::ensure_namespace(context, &own()?, &uid, seeds(migration)).await,
        Effect::CopySnapshots => {
            let stores = copy::stores(context, shoot()?, seeds(migration)).await?;
            copy::ensure_job(context, &own()?, stores).await
        }
        Effect::EnsureState => match &objects.states {
            Some(states) => states::ensure(context.garden_client(), &key(migration, shoot()?), states).await,
            None => Ok(()),
        },
        Effect::MarkCopyTask { uid } => {
            match objects.tasks.iter().find(|task| task.uid().as_ref() == Some(uid)) {
                Some(task) => copy_tasks::mark(client, task).await,
                None => Ok(()),
            }
        }
        Effect::RemoveCopy => copy::remove(client, objects.copy_namespace.as_ref()).await,
        Effect::EnsureFinalizer { .. }
        | Effect::BindShoot { .. }
        | Effect::BindBackupEntry { .. }
        | Effect::SetBackupEntryStatus { .. }
        | Effect::FenceShoot { .. }
        | Effect::FenceBackupEntry { .. }
        | Effect::RequestRestore { .. } => Ok(()),
    }
}
